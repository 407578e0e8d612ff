"""Asks the cluster what bounds of a batch read mean: partitions, log starts and ends, times, committed offsets.

Over connections of our own where they can be made, otherwise by librdkafka, as
:mod:`~pyspark_kafka_group.offsets.cluster.group_offsets` does for streams.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_group.offsets.cluster.cluster_answers import Answers, CommittedOffset, TopicInfo
from pyspark_kafka_group.offsets.cluster.committer import commit_requests, kafka_partitions
from pyspark_kafka_group.offsets.cluster.describe_process import describe_elsewhere
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection, open_group_inspection
from pyspark_kafka_group.offsets.cluster.request_errors import CommitUnclearError, OldBrokersError
from pyspark_kafka_group.offsets.cluster.topic_consumer import TopicConsumer
from pyspark_kafka_group.offsets.cluster.unjoined_consumer import REQUEST_TIMEOUT_S
from pyspark_kafka_group.offsets.errors import ActiveGroupError, BrokerError, ForgetfulGroupError, UnknownTopicError
from pyspark_kafka_group.offsets.kafka_errors import Consequence, has
from pyspark_kafka_group.offsets.properties.client_config import Properties
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import OffsetSpec

T = TypeVar("T")

_NO_OFFSET = "no offset"


class GonePartitionsError(Exception):
    """Partitions that a broker does not know any more.

    Attributes
    ----------
    partitions : list of TopicPartition
        Which.
    """

    def __init__(self, partitions: list[TopicPartition]) -> None:
        super().__init__(", ".join(map(str, partitions)))
        self.partitions = partitions


class RangeLookup:
    """Asks, and asks again while the cluster cannot answer.  Belongs to one thread; connects when it is asked first.

    Every method may raise :class:`~pyspark_kafka_group.offsets.errors.AuthenticationError` or
    :class:`~pyspark_kafka_group.offsets.errors.BrokerError`.

    Parameters
    ----------
    properties : mapping
        The user's ``kafka.*`` properties.
    group_id : str
        Whose committed offsets; a made-up name where nobody asks for them.
    read_committed : bool
        Whether logs end where the first open transaction begins.
    attempts : int
        How often to ask.
    pause_s : float
        How long to wait before asking again.
    """

    def __init__(
        self, properties: Properties, *, group_id: str, read_committed: bool, attempts: int, pause_s: float
    ) -> None:
        self._properties = properties
        self._group_id = group_id
        self._read_committed = read_committed
        self._attempts = max(1, attempts)
        self._pause_s = pause_s
        self._requests = open_group_inspection(properties, client_id=f"{group_id}-offsets")
        self._consumer: TopicConsumer | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._requests is not None:
            self._requests.close()
        if self._consumer is not None:
            self._consumer.close()

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Return what the cluster knows of these topics.

        Raises
        ------
        UnknownTopicError
            If one does not exist.
        """

        def found() -> dict[str, TopicInfo]:
            return self._ask(
                lambda requests: requests.topics(names, timeout_s=REQUEST_TIMEOUT_S),
                lambda consumer: consumer.topics(names),
            )

        topics: dict[str, TopicInfo] = {}
        for attempt in range(self._attempts):  # a topic that was just created may not have reached every broker
            if attempt:
                time.sleep(self._pause_s)
            topics = {name: info for name, info in self._patiently(found).items() if info.leader_epochs}
            if all(name in topics for name in names):
                return topics
        raise UnknownTopicError([name for name in names if name not in topics])

    def matching(self, pattern: str) -> dict[str, TopicInfo]:
        """Return the topics whose whole name matches, without Kafka's own."""

        def matches(name: str) -> bool:
            return not name.startswith("__") and re.fullmatch(pattern, name) is not None

        def by_librdkafka(consumer: TopicConsumer) -> dict[str, TopicInfo]:
            found = consumer.ask(lambda: consumer.admin_client().list_topics(timeout=REQUEST_TIMEOUT_S)).topics
            return consumer.topics([name for name in found if matches(name)])

        def by_requests(requests: GroupInspection) -> dict[str, TopicInfo]:
            return requests.all_topics(timeout_s=REQUEST_TIMEOUT_S)

        topics = self._patiently(lambda: self._ask(by_requests, by_librdkafka))
        return {name: info for name, info in sorted(topics.items()) if info.leader_epochs and matches(name)}

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return where logs start.

        Raises
        ------
        GonePartitionsError
            If partitions do not exist; so do the methods below.
        """
        return self._complete(
            partitions,
            lambda left: self._ask(
                lambda requests: requests.log_starts(left, timeout_s=REQUEST_TIMEOUT_S),
                lambda consumer: consumer.list_offsets(left, _spec("earliest"), read_committed=False),
            ),
        )

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return where logs end for a reader."""
        return self._ends(partitions, read_committed=self._read_committed)

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return where logs end, with the records of open transactions."""
        return self._ends(partitions, read_committed=False)

    def _ends(self, partitions: Collection[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, Offset]:
        return self._complete(
            partitions,
            lambda left: self._ask(
                lambda requests: requests.log_ends(left, read_committed=read_committed, timeout_s=REQUEST_TIMEOUT_S),
                lambda consumer: consumer.list_offsets(left, _spec("latest"), read_committed=read_committed),
            ),
        )

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Return the first record of a time or later in each partition; without those that have none."""

        def by_librdkafka(consumer: TopicConsumer, left: Collection[TopicPartition]) -> Answers[Offset]:
            answers: Answers[Offset] = Answers({}, {})
            for time_ms in {times_ms[tp] for tp in left}:
                asked = [tp for tp in left if times_ms[tp] == time_ms]
                piece = consumer.list_offsets(asked, _spec(time_ms), read_committed=False)
                answers.found.update(piece.found)
                answers.failed.update({tp: why for tp, why in piece.failed.items() if why != _NO_OFFSET})
            return answers

        return self._complete(
            times_ms,
            lambda left: self._ask(
                lambda requests: requests.ends_at({tp: times_ms[tp] for tp in left}, timeout_s=REQUEST_TIMEOUT_S),
                lambda consumer: by_librdkafka(consumer, left),
            ),
        )

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets, outside of open transactions; without partitions that have none."""
        return self._complete(
            partitions,
            lambda left: self._ask(
                lambda requests: requests.committed(
                    self._group_id, left, require_stable=True, timeout_s=REQUEST_TIMEOUT_S
                ),
                lambda consumer: Answers(consumer.committed(left), {}),
            ),
        )

    def check_group(self) -> None:
        """Check that somebody who is no member may commit, and that the group keeps what is committed.

        Raises
        ------
        ActiveGroupError
            If the group has members.
        ForgetfulGroupError
            If it had members, and would forget the offsets.
        """
        described = self._patiently(
            lambda: self._ask(
                lambda requests: requests.describe_group(self._group_id, timeout_s=REQUEST_TIMEOUT_S),
                lambda consumer: describe_elsewhere(self._properties, self._group_id, REQUEST_TIMEOUT_S),
            )
        )
        if described.members:
            raise ActiveGroupError.of_bookmark(self._group_id, [member.client_id for member in described.members])
        # Our own requests commit offsets that do not expire; librdkafka's cannot say that.
        if described.forgets and self._requests is None:
            raise ForgetfulGroupError(self._group_id)

    def commit(self, offsets: Mapping[TopicPartition, tuple[Offset, str]]) -> None:
        """Commit offsets, with metadata, of a group that has no members.

        Raises
        ------
        ActiveGroupError
            If it has some now.
        ForgetfulGroupError
            If it had some, and would forget the offsets.
        BrokerError
            If it is not committed, or nobody knows.
        """
        if not offsets:
            return
        wanted = {tp: (offset, None, metadata) for tp, (offset, metadata) in offsets.items()}
        by_own_requests = self._requests is not None

        def by_requests(requests: GroupInspection) -> dict[TopicPartition, str]:
            return requests.commit(self._group_id, "", -1, None, wanted, lasting=True, timeout_s=REQUEST_TIMEOUT_S)

        def by_librdkafka(consumer: TopicConsumer) -> dict[TopicPartition, str]:
            if by_own_requests:  # only now it is known that these cannot commit
                self.check_group()
            name: str | None = None
            for request in commit_requests(kafka_partitions(wanted)):
                try:
                    name = name or consumer.commit(request)
                except TryAgainError as problem:
                    name = str(problem).partition(":")[0]
                    if not has(name, Consequence.EVICTED):
                        raise
            return {} if name is None else dict.fromkeys(offsets, name)

        def commit() -> dict[TopicPartition, str]:
            return self._ask(by_requests, by_librdkafka)

        try:
            refused = self._patiently(commit)
        except CommitUnclearError as problem:
            raise BrokerError(
                f"{problem}. Look with kafka-consumer-groups --describe whether the offsets were committed; if not, "
                f"call commit() again."
            ) from None
        if any(has(name, Consequence.EVICTED) for name in refused.values()):
            self.check_group()
            raise ActiveGroupError.of_bookmark(self._group_id, [])
        if refused:
            tp, name = next(iter(sorted(refused.items())))
            raise BrokerError(
                f"The group {self._group_id!r}: the offset of {tp} was not committed ({name}), and those of "
                f"{len(refused) - 1} other partitions. Call commit() again."
            )

    def _complete(
        self, partitions: Collection[TopicPartition], ask: Callable[[Collection[TopicPartition]], Answers[T]]
    ) -> dict[TopicPartition, T]:
        """Ask about all partitions, and about those that fail again."""
        found: dict[TopicPartition, T] = {}
        left = list(partitions)
        for attempt in range(self._attempts):
            if not left:
                break
            if attempt:
                time.sleep(self._pause_s)
            answers = self._patiently(partial(ask, left))
            found.update(answers.found)
            failed = answers.failed
            left = [tp for tp in left if tp in failed]
            if left and attempt == self._attempts - 1:
                if all(has(failed[tp], Consequence.NO_TOPIC) for tp in left):
                    raise GonePartitionsError(left)
                raise BrokerError(
                    f"Kafka does not tell the offsets of {', '.join(map(str, left[:5]))}: {failed[left[0]]}. Look for "
                    f"partitions without a leader and for open transactions, or raise fetchOffset.numRetries."
                )
        return found

    def _patiently(self, ask: Callable[[], T]) -> T:
        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(self._pause_s)
            try:
                return ask()
            except TryAgainError as failed:
                problem = str(failed)
        raise BrokerError(
            f"Option 'kafka.bootstrap.servers': the cluster at {self._properties.get('bootstrap.servers', '')!r} did "
            f"not answer {self._attempts} times ({problem}). Check the address, the network, and "
            f"kafka.security.protocol; fetchOffset.numRetries says how often to ask."
        )

    def _ask(self, by_requests: Callable[[GroupInspection], T], by_librdkafka: Callable[[TopicConsumer], T]) -> T:
        if self._requests is not None:
            try:
                return by_requests(self._requests)
            except OldBrokersError:
                self._requests.close()
                self._requests = None
        if self._consumer is None:
            # Deliberate: read_committed, whatever the readers use, so that committed offsets are stable ones.
            self._consumer = TopicConsumer(self._properties, group_id=self._group_id, isolation="read_committed")
        return by_librdkafka(self._consumer)


def _spec(which: str | int) -> OffsetSpec:
    from confluent_kafka.admin import OffsetSpec

    found: OffsetSpec
    if isinstance(which, int):
        found = OffsetSpec.for_timestamp(which)
    else:
        found = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()
    return found
