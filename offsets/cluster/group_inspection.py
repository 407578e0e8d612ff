"""Questions that only tools ask: all that a group has committed, who coordinates it, and where logs ended when."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyspark_kafka_group.offsets.cluster.cluster_answers import Answers, CommittedOffset, Leaders
from pyspark_kafka_group.offsets.cluster.cluster_requests import ClusterRequests, reachable
from pyspark_kafka_group.offsets.cluster.group_description import GroupProtocol
from pyspark_kafka_group.offsets.cluster.topic_requests import TIMEOUT_S
from pyspark_kafka_group.offsets.properties.client_config import Properties
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.wire.all_offsets import AllOffsetsFetch
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.describe_requests import DescribedGroup
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.offsets_at_times import ListOffsetsAtTimes
from pyspark_kafka_group.wire.requests import OfferedVersions
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata
from pyspark_kafka_group.wire.transaction_requests import (
    DescribeProducers,
    FindTransactionCoordinator,
    PartitionProducers,
)
from pyspark_kafka_group.wire.types import Address


class Coordinator(NamedTuple):
    """The broker that coordinates a group: its id, None if the cluster does not list it, and where it listens."""

    node_id: int | None
    address: Address


class DatedOffset(NamedTuple):
    """The offset of a record, and its timestamp in milliseconds since 1970."""

    offset: Offset
    time_ms: int


def open_group_inspection(properties: Properties, *, client_id: str) -> GroupInspection | None:
    """Return what asks, or None where only librdkafka can connect; connects to nothing yet.

    Parameters
    ----------
    properties : mapping
        Properties of the client, as librdkafka names them.
    client_id : str
        What the brokers' logs and quotas call us.
    """
    found = reachable(properties)
    return None if found is None else GroupInspection(*found, client_id=client_id, properties=properties)


class GroupInspection(ClusterRequests):
    """Asks what tools want to know.  Its errors are those of :class:`ClusterRequests`."""

    def all_committed(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> Answers[CommittedOffset]:
        """Return all offsets that a group has committed; none if there is no such group.

        Parameters
        ----------
        group_id : str
            Whose.
        timeout_s : float
            How long it may take.
        """

        def ask(deadline: Deadline) -> Answers[CommittedOffset]:
            fetched = self._ask_coordinator(group_id, AllOffsetsFetch(group_id), deadline)
            name = error_name(fetched.error)
            answers: Answers[CommittedOffset] = Answers({}, {})
            if name == "GROUP_ID_NOT_FOUND":
                return answers
            if name != NONE:
                self._refuse_group(name, "", group_id)
            for tp, answer in fetched.partitions.items():
                name = error_name(answer.error)
                if name != NONE:
                    self._errors.raise_if_final(name, f"committed offset of {tp}", group_id=group_id)
                    answers.failed[tp] = name
                elif answer.offset >= 0:
                    epoch = answer.leader_epoch if answer.leader_epoch >= 0 else None
                    answers.found[tp] = CommittedOffset(Offset(answer.offset), epoch, answer.metadata.rstrip("\0"))
            return answers

        return self._at_coordinator(group_id, ask, timeout_s)

    def coordinator(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> Coordinator:
        """Return the broker that coordinates a group, which need not exist."""
        deadline = Deadline.after(timeout_s)

        def ask(_: Deadline) -> Address:
            return self._coordinator(group_id, deadline)

        address = self._at_coordinator(group_id, ask, timeout_s)
        brokers = self._metadata((), deadline).brokers
        return Coordinator(next((node for node, at in brokers.items() if at == address), None), address)

    def leaders(self, topic: str, *, timeout_s: float = TIMEOUT_S) -> Mapping[int, int]:
        """Return the id of the leader of each partition of a topic, -1 where there is none; empty without the topic."""
        metadata = self._metadata((topic,), Deadline.after(timeout_s))
        for found in metadata.topics:
            self._errors.raise_if_final(error_name(found.error), f"topic {topic!r}")
        return {part.number: part.leader for found in metadata.topics for part in found.partitions}

    def ends_at(self, times_ms: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S) -> Answers[Offset]:
        """Return where logs ended at a time, by the timestamps of their records.

        Parameters
        ----------
        times_ms : mapping of TopicPartition to int
            The time for each partition, in milliseconds since 1970.
        timeout_s : float
            How long it may take.

        Returns
        -------
        Answers of Offset
            The offset of the first record of that time or later; a log that has none is in neither part: it has not
            grown since.
        """
        return self.at_times(times_ms, timeout_s=timeout_s)

    def records_at(
        self, times_ms: Mapping[TopicPartition, int], *, leaders: Leaders | None = None, timeout_s: float = TIMEOUT_S
    ) -> Answers[DatedOffset | None]:
        """Return the first record of a time or later, by the timestamps; None where there is none.

        Parameters
        ----------
        times_ms : mapping of TopicPartition to int
            The time for each partition, in milliseconds since 1970.
        leaders : Leaders, optional
            Who leads, as :meth:`look` has told; else that is asked first.
        timeout_s : float
            How long it may take.
        """
        answers = self._ask_leaders(
            times_ms, lambda asked: ListOffsetsAtTimes(asked, times_ms), "offsets", leaders, timeout_s
        )
        records = {
            tp: DatedOffset(Offset(listed.offset), listed.time_ms) if listed.offset >= 0 else None
            for tp, listed in answers.found.items()
        }
        return Answers(records, answers.failed)

    def describe_fully(self, group_id: str, *, timeout_s: float = TIMEOUT_S) -> tuple[DescribedGroup, GroupProtocol]:
        """Return a group with all that its coordinator tells, and what the user may do with it."""
        return self._described(group_id, timeout_s, operations=True)

    def cluster(self, topics: Collection[str], *, timeout_s: float = TIMEOUT_S) -> ClusterMetadata:
        """Return the brokers and these topics, with what the user may do with them; missing topics have an error."""
        deadline = Deadline.after(timeout_s)
        with self._errors.translated("topics"):
            return self._connections.ask_any(Metadata(tuple(sorted(topics)), operations=True), deadline)

    def offered_versions(self, broker: Address, *, timeout_s: float = TIMEOUT_S) -> OfferedVersions:
        """Return which versions of which requests a broker speaks."""
        with self._errors.translated(f"the broker {broker}"):
            return self._connections.to(broker, Deadline.after(timeout_s)).offered

    def transaction_coordinator(self, transactional_id: str, *, timeout_s: float = TIMEOUT_S) -> str:
        """Return Kafka's name of the error with which the coordinator of a transactional id is told; NONE if it is."""
        with self._errors.translated("transactions"):
            asked = FindTransactionCoordinator(transactional_id)
            return error_name(self._connections.ask_any(asked, Deadline.after(timeout_s)).error)

    def producers(
        self, partitions: Collection[TopicPartition], *, timeout_s: float = TIMEOUT_S
    ) -> Answers[PartitionProducers]:
        """Return the producers of partitions; it takes the right to read them.

        Raises
        ------
        UnsupportedVersionError
            If brokers do not tell: they are older than 2.8.
        """
        return self._ask_leaders(partitions, DescribeProducers, "producers", None, timeout_s)
