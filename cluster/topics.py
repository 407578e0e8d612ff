"""Questions about topics and their logs.  Leaders answer them, and any broker names the leaders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from pyspark_kafka_group.cluster.channel import TIMEOUT_S, Channel
from pyspark_kafka_group.cluster.cluster_answers import (
    Answers,
    DatedOffset,
    EpochEnd,
    Look,
    TopicInfo,
)
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.leaders import NO_PARTITION, Leaders
from pyspark_kafka_group.wire.requests import Request
from pyspark_kafka_group.wire.topic_requests import (
    LOG_END,
    LOG_START,
    AskedEpoch,
    ClusterMetadata,
    FoundEpoch,
    ListedOffset,
    ListOffsets,
    OffsetForLeaderEpoch,
    TopicMetadata,
)
from pyspark_kafka_group.wire.transaction_requests import DescribeProducers, PartitionProducers
from pyspark_kafka_group.wire.types import Address

_NEAR_S = 5.0  # the topic's error is known already, and waits for this
_MOST_COMPARED = 5_000  # pairs of names, at 0.2 ms each

A = TypeVar("A", FoundEpoch, ListedOffset, PartitionProducers)


class Topics(Channel):
    """Asks about topics.  Raises the errors of :class:`~pyspark_kafka_group.cluster.cluster.Cluster`."""

    def topics(
        self, names: Collection[str], *, creates: bool = False, timeout_s: float = TIMEOUT_S
    ) -> dict[str, TopicInfo]:
        """Return these topics.  Topics that do not exist are left out.

        A topic that was created a moment ago may not have reached the broker that answers.

        Parameters
        ----------
        names : collection of str
            The topics.
        creates : bool
            Whether the cluster may create missing topics, as it does for producers (``auto.create.topics.enable``).
        timeout_s : float
            How long it may take, in seconds.
        """
        if not names:
            return {}
        return self._topics_of(self._metadata(tuple(sorted(names)), Deadline.after(timeout_s), creates=creates))

    def look(self, names: Collection[str], *, timeout_s: float = TIMEOUT_S) -> Look:
        """Return the topics and the leaders of their partitions.

        Pass the leaders to the questions below.  Otherwise each of them first asks for the leaders, which takes
        milliseconds for thousands of partitions.
        """
        if not names:
            return Look({}, None)
        metadata = self._metadata(tuple(sorted(names)), Deadline.after(timeout_s))
        leaders = Leaders()
        leaders.learn(metadata)
        return Look(self._topics_of(metadata), leaders)

    def _topics_of(self, metadata: ClusterMetadata) -> dict[str, TopicInfo]:
        found = {}
        for topic in metadata.topics:
            name = error_name(topic.error)
            if name == NONE:
                found[topic.name] = _topic_info(topic, metadata.cluster_id)
            elif not has(name, Consequence.NO_TOPIC):
                self._errors.refuse(name, f"topic {topic.name!r}")
        return found

    def all_topics(self, *, timeout_s: float = TIMEOUT_S) -> dict[str, TopicInfo]:
        """Return all topics that the user may describe, including Kafka's own.

        A topic with an error is left out, for example while it is being deleted.
        """
        metadata = self._metadata(None, Deadline.after(timeout_s))
        return {topic.name: _topic_info(topic, metadata.cluster_id) for topic in metadata.topics if not topic.error}

    def near_topics(self, names: Collection[str]) -> list[str]:
        """Return topics with names like these, for the error about others; none if there are very many."""
        import difflib  # only here: each source process imports this module

        try:
            known = self.all_topics(timeout_s=_NEAR_S)
        except (KafkaGroupError, TryAgainError):
            return []  # the error about the topic says enough
        if len(names) * len(known) > _MOST_COMPARED:
            return []
        return list(dict.fromkeys(near for name in names for near in difflib.get_close_matches(name, known)))

    def missing_topics(self, names: Collection[str], *, timeout_s: float = TIMEOUT_S) -> frozenset[str]:
        """Return the topics that do not exist.  Two brokers must agree, because one may be cut off."""
        missing = frozenset(names) - self.topics(names, timeout_s=timeout_s).keys()
        if missing:
            self._connections.prefer_another()
            missing -= self.topics(missing, timeout_s=timeout_s).keys()
        return missing

    def missing_partitions(
        self, partitions: Collection[TopicPartition], *, timeout_s: float = TIMEOUT_S
    ) -> frozenset[TopicPartition]:
        """Return the partitions that do not exist.  Two brokers must agree, as for :meth:`missing_topics`."""

        def unknown(asked: Collection[TopicPartition]) -> frozenset[TopicPartition]:
            topics = self.topics({tp.topic for tp in asked}, timeout_s=timeout_s)
            return frozenset(
                tp for tp in asked if tp.topic not in topics or tp.partition not in topics[tp.topic].leader_epochs
            )

        missing = unknown(partitions)
        if missing:
            self._connections.prefer_another()
            missing = unknown(missing)
        return missing

    def leaders(self, topic: str, *, timeout_s: float = TIMEOUT_S) -> Mapping[int, int]:
        """Return the id of the leader of each partition, or -1 without one.

        Empty if the topic does not exist, or this user may not see it.
        """
        metadata = self._metadata((topic,), Deadline.after(timeout_s))
        for found in metadata.topics:
            name = error_name(found.error)
            if name != "TOPIC_AUTHORIZATION_FAILED":
                self._errors.raise_if_final(name, f"topic {topic!r}")
        return {part.number: part.leader for found in metadata.topics for part in found.partitions}

    def brokers_and_topics(self, topics: Collection[str], *, timeout_s: float = TIMEOUT_S) -> ClusterMetadata:
        """Return the brokers and these topics, with the user's rights on them.  Missing topics have an error."""
        return self._metadata(tuple(sorted(topics)), Deadline.after(timeout_s), operations=True)

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, leaders: Leaders | None = None, timeout_s: float = TIMEOUT_S
    ) -> Answers[EpochEnd]:
        """Return where leader epochs end, as the leaders know it (KIP-320).

        Parameters
        ----------
        epochs : mapping
            The leader epoch of each partition, as it came with a record or a committed offset.
        leaders : Leaders, optional
            Who leads, from :meth:`look`; without it, this asks for the leaders first.
        timeout_s : float
            How long it may take.

        Returns
        -------
        Answers of EpochEnd
            A partition whose leader knows no such epoch is in neither part; one without a leader, or whose leader does
            not answer, has failed.
        """
        answers = self._ask_leaders(
            epochs,
            lambda asked: OffsetForLeaderEpoch({tp: AskedEpoch(epochs[tp], now) for tp, now in asked.items()}),
            "leader epochs",
            leaders,
            timeout_s,
        )
        known = {tp: found for tp, found in answers.found.items() if found.leader_epoch >= 0 and found.end_offset >= 0}
        return Answers({tp: EpochEnd(e.leader_epoch, Offset(e.end_offset)) for tp, e in known.items()}, answers.failed)

    def log_starts(
        self,
        partitions: Collection[TopicPartition],
        *,
        leaders: Leaders | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answers[Offset]:
        """Return where logs start; a partition without a leader, or whose leader does not answer, has failed."""
        return self._list_offsets(partitions, LOG_START, False, leaders, timeout_s)

    def log_ends(
        self,
        partitions: Collection[TopicPartition],
        *,
        read_committed: bool,
        leaders: Leaders | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answers[Offset]:
        """Return where logs end; with ``read_committed``, where the first open transaction begins."""
        return self._list_offsets(partitions, LOG_END, read_committed, leaders, timeout_s)

    def leader_epochs(
        self, partitions: Collection[TopicPartition], *, timeout_s: float = TIMEOUT_S
    ) -> Answers[int | None]:
        """Return the leader epochs, as the leaders themselves know them; None if a broker is too old to tell."""
        answers = self._ask_leaders(partitions, lambda asked: ListOffsets(asked, LOG_END), "offsets", None, timeout_s)
        return Answers(
            {tp: listed.leader_epoch if listed.leader_epoch >= 0 else None for tp, listed in answers.found.items()},
            answers.failed,
        )

    def at_times(
        self, times_ms: Mapping[TopicPartition, int], *, leaders: Leaders | None = None, timeout_s: float = TIMEOUT_S
    ) -> Answers[Offset]:
        """Return the offsets that :meth:`records_at` finds.  Partitions without such a record are left out."""
        records = self.records_at(times_ms, leaders=leaders, timeout_s=timeout_s)
        return Answers({tp: found.offset for tp, found in records.found.items() if found}, records.failed)

    def records_at(
        self, times_ms: Mapping[TopicPartition, int], *, leaders: Leaders | None = None, timeout_s: float = TIMEOUT_S
    ) -> Answers[DatedOffset | None]:
        """Return the first record with this timestamp or a later one.

        Parameters
        ----------
        times_ms : mapping of TopicPartition to int
            The time for each partition, in milliseconds since 1970.
        leaders : Leaders, optional
            Who leads, from :meth:`look`; without it, this asks for the leaders first.
        timeout_s : float
            How long it may take.

        Returns
        -------
        Answers of DatedOffset or None
            None if there is no such record.  A partition without a leader, or whose leader does not answer, has failed.
        """
        answers = self._ask_leaders(times_ms, lambda asked: ListOffsets(asked, times_ms), "offsets", leaders, timeout_s)
        records = {
            tp: DatedOffset(Offset(listed.offset), listed.time_ms) if listed.offset >= 0 else None
            for tp, listed in answers.found.items()
        }
        return Answers(records, answers.failed)

    def producers(
        self, partitions: Collection[TopicPartition], *, timeout_s: float = TIMEOUT_S
    ) -> Answers[PartitionProducers]:
        """Return the producers of partitions.  The user needs the right to read them."""
        return self._ask_leaders(partitions, DescribeProducers, "producers", None, timeout_s)

    def _list_offsets(
        self,
        partitions: Collection[TopicPartition],
        timestamp: int,
        read_committed: bool,
        leaders: Leaders | None,
        timeout_s: float,
    ) -> Answers[Offset]:
        answers = self._ask_leaders(
            partitions, lambda asked: ListOffsets(asked, timestamp, read_committed), "offsets", leaders, timeout_s
        )
        for tp in [tp for tp, listed in answers.found.items() if listed.offset < 0]:
            answers.failed[tp] = "no offset"
        return Answers(
            {tp: Offset(listed.offset) for tp, listed in answers.found.items() if listed.offset >= 0}, answers.failed
        )

    def _ask_leaders(
        self,
        wanted: Collection[TopicPartition],
        request: Callable[[Mapping[TopicPartition, int]], Request[dict[TopicPartition, A]]],
        about: str,
        leaders: Leaders | None,
        timeout_s: float,
    ) -> Answers[A]:
        """Ask the leader of each partition.

        Parameters
        ----------
        wanted : collection of TopicPartition
            The partitions.
        request : callable
            Makes the request to one leader from the leader epoch of each of its partitions; -1 if it is unknown.
        about : str
            The subject of the question, for error texts.
        leaders : Leaders or None
            Who leads; None to ask for the leaders first.
        timeout_s : float
            How long it may take.
        """
        answers: Answers[A] = Answers({}, {})
        if not wanted:
            return answers
        deadline = Deadline.after(timeout_s)
        if leaders is None:
            metadata = self._metadata(tuple(sorted({tp.topic for tp in wanted})), deadline)
            for topic in metadata.topics:
                self._errors.raise_if_final(error_name(topic.error), f"topic {topic.name!r}")
            leaders = Leaders()
            leaders.learn(metadata, wanted)
        by_leader: dict[Address, dict[TopicPartition, int]] = {}
        for tp in wanted:
            if tp in leaders.known:
                by_leader.setdefault(leaders.known[tp].address, {})[tp] = leaders.known[tp].epoch
            else:
                answers.failed[tp] = error_name(leaders.errors.get(tp, NO_PARTITION))
        for left, (leader, asked) in zip(range(len(by_leader), 0, -1), by_leader.items(), strict=True):
            try:
                # As in `ClusterConnections.ask_any`: a third of the time at most, even if there are many leaders.
                with self._errors.translated(f"the broker {leader}"):
                    found = self._connections.ask(leader, request(asked), deadline.share(min(3, left)))
            except TryAgainError as problem:
                answers.failed.update(dict.fromkeys(asked, str(problem)))
                continue
            for tp in asked:
                answer = found.get(tp)
                name = error_name(answer.error) if answer else "no answer"
                if answer is None or name != NONE:
                    self._errors.raise_if_final(name, f"{about} of {tp}")
                    answers.failed[tp] = name
                else:
                    answers.found[tp] = answer
        return answers


def _topic_info(topic: TopicMetadata, cluster_id: str | None) -> TopicInfo:
    return TopicInfo(topic.topic_id, {part.number: part.leader_epoch for part in topic.partitions}, cluster_id)
