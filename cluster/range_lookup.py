"""The questions behind the bounds of a batch read: partitions, log starts and ends, times, committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from typing import TypeVar

from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset, TopicInfo
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import matching
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.errors import ActiveGroupError, BrokerError, UnknownTopicError
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

T = TypeVar("T")

PATIENCE_S = 3.0
"""How long to ask again about partitions that fail, in seconds, even if this takes more attempts."""

_ASK_AGAIN_S = 0.5


class GonePartitionsError(Exception):
    """Partitions that no longer exist.

    Attributes
    ----------
    partitions : list of TopicPartition
        The partitions.
    """

    def __init__(self, partitions: list[TopicPartition]) -> None:
        super().__init__(", ".join(map(str, partitions)))
        self.partitions = partitions


class RangeLookup:
    """Asks the cluster, and retries while it cannot answer.  Belongs to one thread; the first question connects.

    Every method may raise :class:`~pyspark_kafka_group.offsets.errors.AuthenticationError` or
    :class:`~pyspark_kafka_group.offsets.errors.BrokerError`.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    group_id : str
        The group of the committed offsets.  Any name if the read needs none.
    read_committed : bool
        Whether logs end where the first open transaction begins.
    attempts : int
        The number of attempts for each question.
    pause_s : float
        The pause between two attempts, in seconds.
    patience_s : float
        How long to repeat a question, in seconds, even if this takes more attempts.  Commits are not repeated for it.
    """

    def __init__(
        self,
        properties: Properties,
        *,
        group_id: str,
        read_committed: bool,
        attempts: int,
        pause_s: float,
        patience_s: float = 0.0,
    ) -> None:
        self._properties = properties
        self._group_id = group_id
        self._read_committed = read_committed
        self._attempts = max(1, attempts)
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._cluster = connect(properties, client_id=f"{group_id}-offsets")

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def topics(self, names: Collection[str], *, option: str = "subscribe") -> dict[str, TopicInfo]:
        """Return what the cluster knows of these topics, which ``option`` names.

        Raises
        ------
        UnknownTopicError
            If a topic does not exist.
        """

        def ask() -> dict[str, TopicInfo]:
            found = self._patiently(partial(self._cluster.topics, names))
            return {name: info for name, info in found.items() if info.leader_epochs}

        # A topic that was just created may not have reached every broker.
        topics = self._again(ask, 0.0, is_enough=lambda topics: all(name in topics for name in names))
        if missing := [name for name in names if name not in topics]:
            raise UnknownTopicError(missing, option=option, near=self._cluster.near_topics(missing))
        return topics

    def matching(self, pattern: str) -> dict[str, TopicInfo]:
        """Return the topics whose whole name matches, without Kafka's own."""
        return matching(pattern, self._patiently(self._cluster.all_topics))

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the starts of logs.

        Raises
        ------
        GonePartitionsError
            If partitions do not exist.  The methods below also raise it.
        """
        return self._complete(partitions, self._cluster.log_starts)

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the ends of logs for a reader."""
        return self._complete(partitions, partial(self._cluster.log_ends, read_committed=self._read_committed))

    def log_ends_reaching(
        self, wanted: Mapping[TopicPartition, Offset], *, open_transactions: bool
    ) -> dict[TopicPartition, Offset]:
        """Return the ends of logs: for a reader, or including the records of open transactions.

        A log end goes back for a moment while a partition changes its leader.  So a lower end than the wanted offset
        counts only if it lasts.
        """
        read_committed = self._read_committed and not open_transactions
        return patiently(
            lambda: self._complete(wanted, partial(self._cluster.log_ends, read_committed=read_committed)),
            Deadline.after(lasting.SHORTER_S),
            repeat(_ASK_AGAIN_S),
            is_enough=lambda ends: all(ends[tp] >= offset for tp, offset in wanted.items()),
        )

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the epochs of the leaders; None if they do not tell."""
        return self._complete(partitions, self._cluster.leader_epochs)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Return where leader epochs end in the logs (KIP-320), without epochs that the leaders do not know."""
        ends = self._complete(epochs, lambda left: self._cluster.epoch_ends({tp: epochs[tp] for tp in left}))
        return {tp: end.end_offset for tp, end in ends.items()}

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Return the first record of a time or later in each partition.  Partitions without one are left out."""
        return self._complete(times_ms, lambda left: self._cluster.at_times({tp: times_ms[tp] for tp in left}))

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets, outside of open transactions, without partitions that lack one."""
        return self._complete(partitions, partial(self._cluster.committed, self._group_id, require_stable=True))

    def check_group(self) -> None:
        """Check that a client that is no member may commit.

        Raises
        ------
        ActiveGroupError
            If the group has members.
        """
        described = self._patiently(partial(self._cluster.describe_group, self._group_id))
        if described.members:
            raise ActiveGroupError.of_bookmark(self._group_id, [member.client_id for member in described.members])

    def commit(self, offsets: Mapping[TopicPartition, tuple[Offset, str]]) -> None:
        """Commit offsets with metadata, to a group without members.

        Raises
        ------
        ActiveGroupError
            If the group has members now.
        TryAgainError
            If the commit failed for now, or its outcome is unknown.  Another program may commit meanwhile, so only the
            caller repeats it, after another look.
        BrokerError
            If the group has not committed all offsets.
        """
        if not offsets:
            return
        wanted = {tp: (offset, None, metadata) for tp, (offset, metadata) in offsets.items()}
        refused = self._cluster.commit(self._group_id, "", -1, None, wanted, lasting=True)
        if any(has(name, Consequence.EVICTED) for name in refused.values()):
            self.check_group()
            raise ActiveGroupError.of_bookmark(self._group_id, [])
        if refused:
            tp, name = next(iter(sorted(refused.items())))
            raise BrokerError(
                f"The group {self._group_id!r} has not committed the offset of {tp} ({name}), and those of "
                f"{len(refused) - 1} other partitions. Call commit() again."
            )

    def _complete(
        self, partitions: Collection[TopicPartition], ask: Callable[[Collection[TopicPartition]], Answers[T]]
    ) -> dict[TopicPartition, T]:
        """Ask about all partitions, and again about those that fail."""
        found: dict[TopicPartition, T] = {}
        left = list(partitions)

        def ask_all() -> dict[TopicPartition, str]:
            answers = self._patiently(partial(ask, left[:]))
            found.update(answers.found)
            left[:] = [tp for tp in left if tp in answers.failed]
            return answers.failed

        # A broker that has just become the leader may say for a moment that the partition does not exist.
        failed = self._again(ask_all, PATIENCE_S, is_enough=lambda _: not left) if left else {}
        if not left:
            return found
        if all(has(failed[tp], Consequence.NO_TOPIC) for tp in left):
            raise GonePartitionsError(left)
        raise BrokerError(
            f"Kafka did not return the offsets of {', '.join(map(str, left[:5]))}: {failed[left[0]]}. Look for "
            f"partitions without a leader and for open transactions, or raise fetchOffset.numRetries."
        )

    def _patiently(self, ask: Callable[[], T]) -> T:
        try:
            return self._again(ask, self._patience_s)
        except TryAgainError as problem:
            tried = f"{self._attempts} times" + (f" and for {self._patience_s:g} s" if self._patience_s else "")
            raise BrokerError(
                f"Option 'kafka.bootstrap.servers': the cluster at {self._properties.get('bootstrap.servers', '')!r} "
                f"did not answer {tried} ({problem}). Check the address, the network, and kafka.security.protocol, or "
                f"raise fetchOffset.numRetries."
            ) from None

    def _again(self, ask: Callable[[], T], patience_s: float, is_enough: Callable[[T], bool] = lambda _: True) -> T:
        """Ask with the user's attempts and pauses.  Until the patience ends, add attempts with longer pauses."""
        pauses_s: Iterator[float] = chain(
            repeat(self._pause_s, self._attempts - 1), repeat(max(self._pause_s, _ASK_AGAIN_S))
        )
        deadline = Deadline.after(patience_s)
        return patiently(ask, deadline, pauses_s, is_enough=is_enough, attempts=self._attempts)
