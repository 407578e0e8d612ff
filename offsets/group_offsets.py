"""What decides where partitions start and who owns them, asked of the cluster.

Over connections of our own where they can be made, see
:mod:`~pyspark_kafka_group.offsets.cluster_requests`; otherwise by librdkafka, without leader epochs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from pyspark_kafka_group.offsets.clients import Properties, TryAgainError, redact, topic_id_text
from pyspark_kafka_group.offsets.cluster import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Client
from pyspark_kafka_group.offsets.cluster_answers import Answers, CommittedOffset, TopicInfo
from pyspark_kafka_group.offsets.cluster_requests import ClusterRequests, open_cluster_requests
from pyspark_kafka_group.offsets.describe_process import describe_elsewhere
from pyspark_kafka_group.offsets.errors import BrokerError, UnknownTopicError
from pyspark_kafka_group.offsets.group_description import GroupDescription
from pyspark_kafka_group.offsets.metadata import CommitNote, differ
from pyspark_kafka_group.offsets.request_errors import OldBrokersError
from pyspark_kafka_group.offsets.start import Facts
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition

# How long topic ids may take by librdkafka; a broker that does not know the question may not answer at all.
_IDS_TIMEOUT_S = 1.0

# A topic that was created a moment ago may not have reached every broker.
_NEW_TOPIC_PATIENCE_S = 5.0

_T = TypeVar("_T")

LeaderEpochs = Mapping[TopicPartition, Collection[LeaderEpoch]]
"""The leader epochs under which offsets of each partition are known."""


class FoundFacts(NamedTuple):
    """What the cluster has told.

    Attributes
    ----------
    facts : dict of TopicPartition to Facts
        What decides the start of each partition; those that cannot be told yet are left out.
    missing_topics : frozenset of str
        Topics that the broker that answered does not know.
    reason : str
        Why some are left out.
    """

    facts: dict[TopicPartition, Facts]
    missing_topics: frozenset[str]
    reason: str


class GroupOffsets(Client):
    """Asks for everything that decides where a partition starts.  Belongs to one thread."""

    def __init__(self, properties: Properties, *, group_id: str, read_committed: bool) -> None:
        super().__init__(properties, group_id=group_id, isolation="read_committed")
        self._read_committed = read_committed
        self._requests = open_cluster_requests(properties, client_id=f"{group_id}-offsets")
        self._unstable: Client | None = None
        self._has_topic_ids: bool | None = None  # None: they were not asked for yet

    def close(self) -> None:
        """Close the connections."""
        super().close()
        if self._unstable is not None:
            self._unstable.close()
        if self._requests is not None:
            self._requests.close()

    def serve(self) -> None:
        """Empty the queues of events."""
        super().serve()
        if self._unstable is not None:
            self._unstable.serve()

    def connect(self, topics: Sequence[str], pattern: str | None = None) -> dict[str, int]:
        """Reach the cluster and find the topics, in bounded time.

        Parameters
        ----------
        topics : sequence of str
            Their names.
        pattern : str, optional
            What their names match, in place of names.

        Returns
        -------
        dict
            The number of partitions of each topic.

        Raises
        ------
        BrokerError
            If no broker answers within :data:`CONNECT_TIMEOUT_S`.
        AuthenticationError
            If the credentials are refused.
        UnknownTopicError
            If a topic does not exist, or none matches.
        """
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        missing_until = time.monotonic() + _NEW_TOPIC_PATIENCE_S
        problem = ""
        while True:
            try:
                if pattern is None:
                    counts = {topic: self.partition_count(topic, timeout_s=2.0) for topic in topics}
                else:
                    counts = self.matching(pattern, timeout_s=2.0)
            except TryAgainError as failed:
                problem = str(failed)
                missing_until = time.monotonic() + _NEW_TOPIC_PATIENCE_S
            else:
                missing = [topic for topic, count in counts.items() if not count]
                if counts and not missing:
                    return counts
                if time.monotonic() > missing_until:
                    raise UnknownTopicError(missing, pattern=pattern)
            self._consumer.poll(0.2)  # serves the error callback
            for error in self._reported:
                self.raise_if_final(error)
            if time.monotonic() > deadline:
                raise self._unreachable(problem)

    def matching(self, pattern: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, int]:
        """Return the topics whose whole name matches ``pattern``, and how many partitions each has.

        Kafka's own topics never match, as in Java's client: their names begin with two underscores.

        Raises
        ------
        TryAgainError
            If no broker answers.
        """
        found = self.ask(lambda: self._consumer.list_topics(timeout=timeout_s)).topics
        return {
            name: len(topic.partitions)
            for name, topic in sorted(found.items())
            if not name.startswith("__") and topic.partitions and re.fullmatch(pattern, name)
        }

    def facts(self, wanted: LeaderEpochs) -> FoundFacts:
        """Return what decides the start of each partition.

        Parameters
        ----------
        wanted : mapping of TopicPartition to collection of LeaderEpoch
            The partitions, and the leader epochs under which the query knows offsets of them.

        Raises
        ------
        TryAgainError
            If the cluster does not answer, or the coordinator is loading.
        """
        from confluent_kafka.admin import OffsetSpec

        topics = self._topics({tp.topic for tp in wanted})
        known = [tp for tp in wanted if tp.topic in topics and tp.partition in topics[tp.topic].leader_epochs]
        missing = frozenset(tp.topic for tp in wanted if tp.topic not in topics)
        # Only what is asked for has to be stable: some transaction of some member is always open in a large group.
        committed = self.committed_offsets(known, require_stable=True)
        of_topics = self._committed_of_topics(topics, committed.found)
        starts = self.list_offsets(known, OffsetSpec.earliest(), read_committed=False)
        ends = self.list_offsets(known, OffsetSpec.latest(), read_committed=self._read_committed)
        # After them, because no end may lie behind the high watermark, and records come all the time.
        high = self.list_offsets(known, OffsetSpec.latest(), read_committed=False) if self._read_committed else ends
        epoch_ends = self._epoch_ends(wanted, known, topics, committed.found)
        told = {*starts} & {*ends} & {*high} & {*epoch_ends} - {*committed.failed}
        same = self._topics({tp.topic for tp in told})  # else the answers may be of two logs, or of two leaders
        by_topic: dict[str, dict[int, CommittedOffset]] = {name: {} for name in topics}
        for tp, found in of_topics.items():
            by_topic[tp.topic][tp.partition] = found
        first_partitions = {name: _first_partitions(topics[name], of_one) for name, of_one in by_topic.items()}
        facts = {}
        for tp in told:
            topic = topics[tp.topic]
            if same.get(tp.topic) is None or not _same_log(topic, same[tp.topic], tp.partition):
                continue
            stored = committed.found.get(tp)
            if _is_behind(topic, tp.partition, stored, wanted[tp]):
                continue
            facts[tp] = Facts(
                committed=None if stored is None else stored.offset,
                note=None if stored is None else CommitNote.decode(stored.metadata),
                committed_leader_epoch=None if stored is None else _known_epoch(stored.leader_epoch),
                log_start=starts[tp],
                log_end=ends[tp],
                high_watermark=high[tp],
                topic_partitions=len(topic.leader_epochs),
                topic_started=first_partitions[tp.topic] is not None,
                first_partitions=first_partitions[tp.topic],
                topic_id=topic.topic_id,
                leader_epoch=_known_epoch(topic.leader_epochs[tp.partition]),
                epoch_ends=epoch_ends[tp],
            )
        reason = next(iter(committed.failed.values()), "the partition's broker does not answer")
        if missing:
            reason = f"the broker that answered does not know {', '.join(sorted(missing))}"
        return FoundFacts(facts, missing, reason)

    def missing_topics(self, names: Collection[str]) -> frozenset[str]:
        """Return which topics the broker that answers does not know.

        Raises
        ------
        TryAgainError
            If no broker answers.
        """
        missing = frozenset(names) - self._topics(names).keys()
        # One broker that is cut off from the others may be the one that is always asked, so librdkafka has to agree.
        return frozenset(name for name in missing if not self.partition_count(name))

    def missing_partitions(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return which partitions the broker that answers does not know; raises as :meth:`missing_topics`."""
        topics = self._topics({tp.topic for tp in partitions})
        missing = [
            tp for tp in partitions if tp.topic not in topics or tp.partition not in topics[tp.topic].leader_epochs
        ]
        counts = {topic: self.partition_count(topic) for topic in {tp.topic for tp in missing}}
        return frozenset(tp for tp in missing if tp.partition >= counts[tp.topic])

    def committed_offsets(
        self, partitions: Collection[TopicPartition], *, require_stable: bool
    ) -> Answers[CommittedOffset]:
        """Return committed offsets; partitions in an open transaction fail if they have to be stable.

        Raises
        ------
        TryAgainError
            If the coordinator does not answer; by librdkafka, also if one of them is in an open transaction.
        """

        def by_librdkafka() -> Answers[CommittedOffset]:
            if require_stable:
                return Answers(self.committed(partitions), {})
            if self._unstable is None:
                self._unstable = Client(self._properties, group_id=self._group_id, isolation="read_uncommitted")
            return Answers(self._unstable.committed(partitions), {})

        return self._ask(
            lambda requests: requests.committed(
                self._group_id, partitions, require_stable=require_stable, timeout_s=REQUEST_TIMEOUT_S
            ),
            by_librdkafka,
        )

    def describe(self) -> GroupDescription:
        """Return the group and its members.

        Raises
        ------
        TryAgainError
            If the coordinator does not answer.
        """
        return self._ask(
            lambda requests: requests.describe_group(self._group_id, timeout_s=REQUEST_TIMEOUT_S),
            lambda: describe_elsewhere(self._properties, self._group_id, REQUEST_TIMEOUT_S),
        )

    def held_by_others(self, *, client_id: str, member_id: str) -> frozenset[TopicPartition]:
        """Return the partitions that the group has given to other queries.

        A member with this member's client id is a former process of the same query, killed and not yet evicted, or
        still leaving: what it holds is not returned.

        Raises
        ------
        TryAgainError
            If the group is just distributing partitions, or does not know this member yet.
        """
        group = self.describe()
        if group.is_rebalancing:
            raise TryAgainError("the group is between two generations")
        if not any(member.member_id == member_id for member in group.members):
            raise TryAgainError("the group does not know this member yet")
        return frozenset(tp for member in group.members if member.client_id != client_id for tp in member.assignment)

    def rebalancing(self) -> bool:
        """Tell whether a classic group is in the middle of a rebalance.

        Raises
        ------
        TryAgainError
            If the cluster does not answer.
        """
        return self.describe().is_rebalancing

    def _ask(self, request: Callable[[ClusterRequests], _T], by_librdkafka: Callable[[], _T]) -> _T:
        """Ask over connections of our own if they can be made and the brokers are new enough.

        Else through librdkafka.
        """
        if self._requests is not None:
            try:
                return request(self._requests)
            except OldBrokersError:
                self._requests.close()
                self._requests = None
        return by_librdkafka()

    def _topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Return the topics that exist."""
        return self._ask(
            lambda requests: requests.topics(names, timeout_s=REQUEST_TIMEOUT_S),
            lambda: self._topics_by_librdkafka(names),
        )

    def _topics_by_librdkafka(self, names: Collection[str]) -> dict[str, TopicInfo]:
        # By the admin client: it is connected then, and what it is asked next is answered soon if at all.
        counts = {name: self.partition_count(name, client=self.admin_client()) for name in sorted(names)}
        there = [name for name, count in counts.items() if count]
        ids = self._ids_by_librdkafka(there)
        return {name: TopicInfo(ids.get(name), dict.fromkeys(range(counts[name]), -1)) for name in there}

    def _ids_by_librdkafka(self, names: Collection[str]) -> dict[str, str | None]:
        """Return the topics' ids; nothing where the brokers have none to tell."""
        from confluent_kafka import KafkaException, TopicCollection

        if not names or self._has_topic_ids is False:
            return {}
        wanted = TopicCollection([*names])
        asked = self.ask(lambda: self.admin_client().describe_topics(wanted, request_timeout=_IDS_TIMEOUT_S))
        found = {}
        for topic, answer in asked.items():
            try:
                found[topic] = topic_id_text(answer.result(_IDS_TIMEOUT_S).topic_id)
                self._has_topic_ids = True
            except TimeoutError:
                if self._has_topic_ids:
                    raise TryAgainError(f"topic {topic!r}: no answer") from None
                self._has_topic_ids = False  # librdkafka's mock cluster never answers
                return {}
            except KafkaException as problem:
                self.raise_if_final(problem.args[0])
                raise TryAgainError(f"topic {topic!r}: {problem.args[0].name()}") from None
        return found

    def _committed_of_topics(
        self, topics: Mapping[str, TopicInfo], stable: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of all partitions of these topics; not one of them has to be stable."""
        everything = [TopicPartition(name, n) for name, topic in topics.items() for n in topic.leader_epochs]
        rest = [tp for tp in everything if tp not in stable]
        answers = self.committed_offsets(rest, require_stable=False)
        if answers.failed:
            raise TryAgainError(next(iter(answers.failed.values())))
        return {**answers.found, **stable}

    def _epoch_ends(
        self,
        wanted: LeaderEpochs,
        known: Collection[TopicPartition],
        topics: Mapping[str, TopicInfo],
        committed: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, dict[LeaderEpoch, Offset]]:
        """Return where older leader epochs end; a partition that did not answer is left out."""
        found: dict[TopicPartition, dict[LeaderEpoch, Offset]] = {tp: {} for tp in known}
        if self._requests is None:
            return found
        asked: dict[TopicPartition, list[LeaderEpoch]] = {}
        for tp in known:
            epochs = {*wanted[tp], _known_epoch(committed[tp].leader_epoch) if tp in committed else None}
            present = topics[tp.topic].leader_epochs[tp.partition]
            # That of the present leader ends where the log does.  It is asked for all the same: a leader that does not
            # lead any more, or leads under another epoch than the metadata say, refuses to answer.
            asked[tp] = sorted(LeaderEpoch(e) for e in {*epochs, present} if e is not None and 0 <= e <= present)
        asked = {tp: epochs for tp, epochs in asked.items() if epochs}
        while asked:
            answers = self._requests.epoch_ends(
                {tp: epochs[0] for tp, epochs in asked.items()}, timeout_s=REQUEST_TIMEOUT_S
            )
            for tp, end in answers.found.items():
                found[tp][asked[tp][0]] = end.end_offset
            for tp in answers.failed:
                found.pop(tp, None)
            asked = {tp: epochs[1:] for tp, epochs in asked.items() if epochs[1:] and tp not in answers.failed}
        return found

    def _unreachable(self, problem: str) -> BrokerError:
        servers = self._properties.get("bootstrap.servers", "")
        reasons = sorted({redact(error.str(), self._properties) for error in self._reported}) or [problem]
        return BrokerError(
            f"Option 'kafka.bootstrap.servers': no broker of {servers!r} answered within "
            f"{CONNECT_TIMEOUT_S:g} s ({'; '.join(reasons[-2:])}). Check the address, the network, and "
            f"kafka.security.protocol."
        )


def _known_epoch(leader_epoch: int | None) -> LeaderEpoch | None:
    return None if leader_epoch is None or leader_epoch < 0 else LeaderEpoch(leader_epoch)


def _same_log(before: TopicInfo, after: TopicInfo, partition: int) -> bool:
    """Tell whether a partition was of one log, under one leader, all the time."""
    epoch = before.leader_epochs[partition]
    return before.topic_id == after.topic_id and after.leader_epochs.get(partition) == epoch


def _is_behind(
    topic: TopicInfo, partition: int, stored: CommittedOffset | None, known: Collection[LeaderEpoch]
) -> bool:
    """Tell whether a later leader of this log is known than the one that has answered: it was replaced."""
    present = topic.leader_epochs[partition]
    note = None if stored is None else CommitNote.decode(stored.metadata)
    later = [epoch for epoch in known if epoch > present]
    if stored is not None and stored.leader_epoch is not None and stored.leader_epoch > present:
        later.append(LeaderEpoch(stored.leader_epoch))
    same_log = topic.topic_id is not None and note is not None and note.topic_id == topic.topic_id
    return present >= 0 and same_log and bool(later)


def _first_partitions(topic: TopicInfo, committed: Mapping[int, CommittedOffset]) -> int | None:
    """Return how many partitions the topic had when the group started it; None if the group has not.

    The notes of its commits say so.  Where there are none, another program has committed: then it has started what has
    an offset.
    """
    counts, last = [], None
    for partition, stored in committed.items():
        note = CommitNote.decode(stored.metadata)
        if note is not None and differ(note.topic_id, topic.topic_id):
            continue  # a late commit to a topic that was created again
        last = max(partition, -1 if last is None else last)
        if note is not None:
            counts.append(note.first_partitions)
    if counts:
        return max(counts)
    return None if last is None else last + 1
