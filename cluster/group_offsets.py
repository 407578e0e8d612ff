"""Asks the cluster for everything that decides where partitions start and who owns them."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TypeVar

from pyspark_kafka_group.cluster.channel import CONNECT_TIMEOUT_S
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.cluster_answers import (
    INTERNAL_TOPICS,
    Answers,
    CommittedOffset,
    LogInfo,
    Look,
    TopicInfo,
)
from pyspark_kafka_group.cluster.error_remedies import TryAgainError, explanation
from pyspark_kafka_group.cluster.group_description import ASSIGNING, GroupDescription, GroupMember
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.cluster.request_errors import is_unknown_name
from pyspark_kafka_group.cluster.start_answers import (
    LeaderEpochs,
    Looks,
    StartAnswers,
    known_epoch,
    put_together,
)
from pyspark_kafka_group.offsets.errors import BrokerError, UnknownTopicError
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.offsets.wait_notice import WaitNotice
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# A topic that was created a moment ago may not have reached every broker.
_NEW_TOPIC_PATIENCE_S = 5.0

# How long the first attempt of the first request may take, and the pause before the next one.  A third of it goes to
# each server, with DNS, TCP, TLS and the login: seven round trips.  Over a long distance that is not enough, so each
# attempt takes twice as long as the one before.
_ATTEMPT_S = 2.0
_RETRY_S = 0.2

# How long one look for new topics may take.  On a large cluster, the answer names every topic.
_LOOK_S = 10.0

_T = TypeVar("_T")


class GroupOffsets:
    """Asks for the topics, the logs, the committed offsets and the members of one group.  Belongs to one thread.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    group_id : str
        The group.
    read_committed : bool
        Whether the readers leave out open and aborted transactions.
    keeps_offsets : bool
        Whether the group keeps offsets.  If not, the query never commits.

    Raises
    ------
    OptionError
        If a property asks for a connection that this source cannot make.
    """

    def __init__(
        self, properties: Properties, *, group_id: str, read_committed: bool, keeps_offsets: bool = True
    ) -> None:
        self._properties = properties
        self._group_id = group_id
        self._read_committed = read_committed
        self._keeps_offsets = keeps_offsets
        self._cluster = connect(properties, client_id=f"{group_id}-offsets")

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def connect(self, topics: Sequence[str], pattern: str | None = None, option: str = "subscribe") -> dict[str, int]:
        """Connect to the cluster and find the topics, in bounded time.

        Parameters
        ----------
        topics : sequence of str
            The names of the topics.
        pattern : str, optional
            A regular expression for whole names, instead of names.
        option : str
            The option that names them, for errors.

        Returns
        -------
        dict
            The number of partitions of each topic; empty if none matches the pattern yet.

        Raises
        ------
        BrokerError
            If no broker answers within :data:`CONNECT_TIMEOUT_S`.
        AuthenticationError
            If the cluster refuses the credentials.
        UnknownTopicError
            If a topic does not exist.
        """
        ask = partial(self._partition_counts, topics) if pattern is None else partial(self.matching, pattern)
        deadline, attempt_s = Deadline.after(CONNECT_TIMEOUT_S), _ATTEMPT_S
        notice = WaitNotice(_log, f"The cluster at {self._servers!r}", longest_s=CONNECT_TIMEOUT_S)

        def attempt() -> dict[str, int]:
            nonlocal attempt_s
            try:
                return ask(timeout_s=attempt_s)
            except TryAgainError as problem:
                attempt_s = max(_ATTEMPT_S, min(2 * attempt_s, deadline.left_s))
                if is_unknown_name(problem):
                    raise self._unknown_name() from None
                notice.note(_with_guess(problem))
                raise

        def answered() -> dict[str, int]:
            try:
                return patiently(attempt, deadline, repeat(_RETRY_S))
            except TryAgainError as problem:
                raise self._unreachable(_with_guess(problem)) from None

        def all_exist(counts: dict[str, int]) -> bool:
            return bool(counts) and all(counts.values())

        counts = answered()
        if not all_exist(counts):
            patience = Deadline.after(_NEW_TOPIC_PATIENCE_S)
            counts = patiently(answered, patience, repeat(_RETRY_S), is_enough=all_exist)
        if missing := [topic for topic, count in counts.items() if not count]:
            raise UnknownTopicError(missing, option=option, near=self._cluster.near_topics(missing))
        return counts  # with a pattern, topics may be created at any time, as with Spark's own source

    def _partition_counts(self, topics: Sequence[str], timeout_s: float) -> dict[str, int]:
        found = self._cluster.topics(topics, timeout_s=timeout_s)
        return {name: len(found[name].leader_epochs) if name in found else 0 for name in topics}

    def matching(self, pattern: str, *, timeout_s: float = _LOOK_S) -> dict[str, int]:
        """Return the topics whose whole name matches ``pattern``, and the number of partitions of each.

        Kafka's own topics never match, as in Java's client.

        Raises
        ------
        TryAgainError
            If no broker answers.
        """
        found = matching(pattern, self._cluster.all_topics(timeout_s=timeout_s))
        return {name: len(topic.leader_epochs) for name, topic in found.items()}

    def partition_info(
        self, wanted: LeaderEpochs, times_ms: Mapping[TopicPartition, int] | None = None
    ) -> StartAnswers:
        """Return the facts that decide the start of each partition.

        Parameters
        ----------
        wanted : mapping of TopicPartition to collection of LeaderEpoch
            The partitions, and the leader epochs under which the query knows offsets of them.
        times_ms : mapping of TopicPartition to int, optional
            The times at which some of them start if the group has no committed offset.

        Raises
        ------
        TryAgainError
            If the cluster does not answer, or the coordinator is loading.
        """
        look = self._cluster.look({tp.topic for tp in wanted})
        topics = look.topics
        known = [tp for tp in wanted if tp.topic in topics and tp.partition in topics[tp.topic].leader_epochs]
        # Only the wanted partitions must be stable: in a large group, some member always has an open transaction.
        committed = self.committed_offsets(known, require_stable=True)
        # No further questions about partitions that have failed: a broker that hangs then costs its timeout only once.
        # And members that wait for an open transaction do not ask for all partitions of the topic.
        asked = [tp for tp in known if tp not in committed.failed]
        if not asked:
            return put_together(wanted, Looks(topics, topics), committed, {}, Answers({}, {}))
        of_topics = self._committed_of_topics(
            {name: topics[name] for name in {tp.topic for tp in asked}}, committed.found
        )
        logs = self._logs(look, wanted, times_ms or {}, asked, committed.found)
        after = self._cluster.topics({tp.topic for tp in logs.found})
        return put_together(wanted, Looks(topics, after), committed, of_topics, logs)

    def missing_topics(self, names: Collection[str]) -> frozenset[str]:
        """Return the topics that two brokers do not know; raises TryAgainError if none answers."""
        return self._cluster.missing_topics(names)

    def missing_partitions(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that two brokers do not know; raises TryAgainError if none answers."""
        return self._cluster.missing_partitions(partitions)

    def committed_offsets(
        self, partitions: Collection[TopicPartition], *, require_stable: bool
    ) -> Answers[CommittedOffset]:
        """Return committed offsets.  With ``require_stable``, partitions in an open transaction fail.

        Raises
        ------
        TryAgainError
            If the coordinator does not answer.
        """
        if not self._keeps_offsets:
            return Answers({}, {})
        return self._cluster.committed(self._group_id, partitions, require_stable=require_stable)

    def known_offsets(self, partitions: Collection[TopicPartition], *, require_stable: bool) -> Answers[GroupOffset]:
        """Return committed offsets with their notes, of partitions that exist.

        Raises
        ------
        TryAgainError
            As :meth:`committed_offsets` does.
        AuthenticationError
            If the user may not describe the group or a topic.
        """
        topics = self._cluster.topics({tp.topic for tp in partitions})
        there = [tp for tp in partitions if tp.topic in topics and tp.partition in topics[tp.topic].leader_epochs]
        answers = self.committed_offsets(there, require_stable=require_stable)
        found = {
            tp: GroupOffset(
                stored.offset,
                read_commit(stored.metadata, tp, topics[tp.topic].cluster_id),
                topics[tp.topic].topic_id,
                known_epoch(stored.leader_epoch),
            )
            for tp, stored in answers.found.items()
        }
        return Answers(found, answers.failed)

    def describe(self) -> GroupDescription:
        """Return the group and its members.

        Raises
        ------
        TryAgainError
            If the coordinator does not answer.
        """
        return self._cluster.describe_group(self._group_id)

    def members_of_others(self, *, client_id: str, member_id: str) -> list[GroupMember]:
        """Return the members of the group that belong to other queries.

        A former process of the same query is left out.  It was killed and not evicted yet, or is leaving.

        Raises
        ------
        TryAgainError
            If the group is rebalancing, or does not know this member yet.
        """
        group = self.describe()
        if group.is_rebalancing or group.state == ASSIGNING:
            raise TryAgainError("the group is rebalancing")
        if not any(member.member_id == member_id for member in group.members):
            raise TryAgainError("the group does not know this member yet")
        return [member for member in group.members if not member.is_same_query(client_id)]

    def rebalancing(self) -> bool:
        """Return whether a classic group is rebalancing.  Raises as :meth:`describe`."""
        return self.describe().is_rebalancing

    def check_consumer_protocol(self) -> None:
        """Raise a BrokerError if the cluster does not support KIP-848.  Also raises as :meth:`describe`."""
        if not self._cluster.has_consumer_protocol(self._group_id):
            text = "it does not support members of KIP-848"
            raise explanation("UNSUPPORTED_VERSION", text, group_id=self._group_id, properties=self._properties)

    def _committed_of_topics(
        self, topics: Mapping[str, TopicInfo], stable: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of all partitions of these topics, stable or not."""
        everything = [TopicPartition(name, n) for name, topic in topics.items() for n in topic.leader_epochs]
        rest = [tp for tp in everything if tp not in stable]
        answers = self.committed_offsets(rest, require_stable=False)
        if answers.failed:
            raise TryAgainError(next(iter(answers.failed.values())))
        return {**answers.found, **stable}

    def _logs(
        self,
        look: Look,
        wanted: LeaderEpochs,
        times_ms: Mapping[TopicPartition, int],
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommittedOffset],
    ) -> Answers[LogInfo]:
        """Ask the leaders.  Each question leaves out the partitions that have failed before."""
        failed: dict[TopicPartition, str] = {}

        def left() -> list[TopicPartition]:
            return [tp for tp in partitions if tp not in failed]

        def known(answers: Answers[_T]) -> dict[TopicPartition, _T]:
            failed.update(answers.failed)
            return answers.found

        cluster, leaders = self._cluster, look.leaders
        # Before the ends, because no start may lie behind them.
        times = {tp: times_ms[tp] for tp in left() if tp in times_ms and tp not in committed}
        at_times = known(cluster.at_times(times, leaders=leaders)) if times else {}
        starts = known(cluster.log_starts(left(), leaders=leaders))
        ends = known(cluster.log_ends(left(), leaders=leaders, read_committed=self._read_committed))
        # After the ends, because no end may lie behind the high watermark, and new records arrive all the time.
        high = known(cluster.log_ends(left(), leaders=leaders, read_committed=False)) if self._read_committed else ends
        epoch_ends = known(self._epoch_ends(look, wanted, left(), committed))
        return Answers(
            {tp: LogInfo(starts[tp], ends[tp], high[tp], epoch_ends[tp], at_times.get(tp)) for tp in left()}, failed
        )

    def _epoch_ends(
        self,
        look: Look,
        wanted: LeaderEpochs,
        known: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommittedOffset],
    ) -> Answers[dict[LeaderEpoch, Offset]]:
        """Return where older leader epochs end."""
        found: dict[TopicPartition, dict[LeaderEpoch, Offset]] = {tp: {} for tp in known}
        failed: dict[TopicPartition, str] = {}
        asked: dict[TopicPartition, list[LeaderEpoch]] = {}
        for tp in known:
            epochs = {*wanted[tp], known_epoch(committed[tp].leader_epoch) if tp in committed else None}
            present = look.topics[tp.topic].leader_epochs[tp.partition]
            # The present epoch ends where the log does.  The question still matters: a leader that no longer leads, or
            # leads under another epoch than the metadata say, refuses to answer.
            asked[tp] = sorted(LeaderEpoch(e) for e in {*epochs, present} if e is not None and 0 <= e <= present)
        asked = {tp: epochs for tp, epochs in asked.items() if epochs}
        while asked:
            answers = self._cluster.epoch_ends({tp: epochs[0] for tp, epochs in asked.items()}, leaders=look.leaders)
            for tp, end in answers.found.items():
                found[tp][asked[tp][0]] = end.end_offset
            failed.update(answers.failed)
            asked = {tp: epochs[1:] for tp, epochs in asked.items() if epochs[1:] and tp not in answers.failed}
        return Answers(found, failed)

    @property
    def _servers(self) -> str:
        return self._properties.get("bootstrap.servers", "")

    def _unknown_name(self) -> BrokerError:
        return BrokerError(
            f"Option 'kafka.bootstrap.servers': no name server knows a host of {self._servers!r}. Correct the name, or "
            f"give this machine a name server that knows it."
        )

    def _unreachable(self, problem: str) -> BrokerError:
        return BrokerError(
            f"Option 'kafka.bootstrap.servers': no broker of {self._servers!r} answered within "
            f"{CONNECT_TIMEOUT_S:g} s ({problem}). Check the address, the network, and "
            f"kafka.security.protocol."
        )


def _with_guess(problem: TryAgainError) -> str:
    """Return the text of a problem at the start, with the usual reason if a broker only closes the connection."""
    text = str(problem)
    return f"{text}, as at a port that wants a login or TLS" if text.endswith("closed the connection") else text


def matching(pattern: str, topics: Mapping[str, TopicInfo]) -> dict[str, TopicInfo]:
    """Return the topics whose whole name matches, without Kafka's own, by name."""
    return {
        name: topic
        for name, topic in sorted(topics.items())
        if topic.leader_epochs and name not in INTERNAL_TOPICS and re.fullmatch(pattern, name)
    }
