"""What the source process asks the cluster: topics, committed offsets, log starts and ends.

Two clients, because they are used from two threads and one of them may have to wait: :class:`GroupOffsets`
waits for open transactions of a former owner (require_stable), while
:class:`~pyspark_kafka_group.offsets.log_ends.LogEnds` serves the partitions that go on meanwhile.  Neither joins the
group.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_group.offsets import metadata
from pyspark_kafka_group.offsets.clients import (
    Properties,
    Remedy,
    client_error,
    connection_properties,
    explained,
    redact,
    remedy_for,
)
from pyspark_kafka_group.offsets.errors import BrokerError, UnknownTopicError
from pyspark_kafka_group.offsets.start import Facts
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, ListOffsetsResultInfo, OffsetSpec

# How long to wait for a cluster that does not answer, when a query starts.  Spark's own source gives up after
# the Java client's default.api.timeout.ms of 60 s; a wrong address should not take a minute to be told.
CONNECT_TIMEOUT_S = 30.0

# How long one request may take.  Errors that pass by themselves are retried by the caller.
REQUEST_TIMEOUT_S = 5.0

# How many partitions to ask about at a time.  librdkafka 2.16 matches the answers of one call with its partitions in
# quadratic time: 10,000 at once take it 1 s of CPU, in pieces of this size 40 ms; pieces of half or twice the size are
# as good.  Each piece is one request to each broker that leads some of it.
_PIECE = 250

# How long an answer to ListOffsets may take before the question is put again.  An admin client that does not know the
# leaders asks for them first; in 3 of 100 first calls it misses the answer, and asks again only 1 or 3 s later
# (librdkafka 2.16.1).  A second call finds the leaders known.
_STALL_S = 0.2

# A topic that was created a moment ago may not have reached every broker.
_NEW_TOPIC_PATIENCE_S = 5.0

# How many events to take off a client's queue at a time, and how many reported errors to remember.
_MAX_EVENTS = 1000
_KEPT_ERRORS = 20

_T = TypeVar("_T")


class TryAgainError(Exception):
    """The cluster could not answer just now."""


def _unjoined_consumer(
    properties: Properties, *, group_id: str, isolation: str, on_error: Callable[[KafkaError], None]
) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer(
            {
                **connection_properties(properties),
                "group.id": group_id,
                "client.id": f"{group_id}-offsets",
                # With read_committed librdkafka asks for committed offsets with require_stable, and for log
                # ends below which every transaction is decided.
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.metrics.push": False,
                # A broker that is down is told by the requests that fail; librdkafka would also print it, 20 times a
                # second for each connection.
                "log_level": 0,
                "error_cb": on_error,
            }
        )
    except (KafkaException, ValueError, TypeError) as problem:
        raise client_error(problem, properties) from None


class Client:
    """A consumer that never joins, and the errors its threads have reported."""

    def __init__(self, properties: Properties, *, group_id: str, isolation: str) -> None:
        self._properties = properties
        self._group_id = group_id
        self._reported: list[KafkaError] = []
        self._admin: AdminClient | None = None
        self._consumer = _unjoined_consumer(
            properties, group_id=group_id, isolation=isolation, on_error=self._reported.append
        )

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def serve(self) -> None:
        """Empty the queue of events; while brokers are down librdkafka adds some 20 a second, for ever."""
        for _ in range(_MAX_EVENTS):
            if self._consumer.poll(0) is None:
                break
        del self._reported[:-_KEPT_ERRORS]

    def ask(self, request: Callable[[], _T]) -> _T:
        """Run one request; raise what ends the query, or :class:`TryAgainError`."""
        from confluent_kafka import KafkaException

        self.serve()
        try:
            return request()
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            self.raise_if_final(error)
            raise TryAgainError(f"{error.name()}: {redact(error.str(), self._properties)}") from None

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[Offset, str | None]]:
        """Return the group's stable committed offsets and their metadata; without one, a partition is left out."""
        from confluent_kafka import TopicPartition as KafkaPartition

        if not partitions:
            return {}
        wanted = [KafkaPartition(tp.topic, tp.partition) for tp in partitions]
        answer: list[KafkaPartition] = self.ask(lambda: self._consumer.committed(wanted, timeout=REQUEST_TIMEOUT_S))
        for part in answer:
            if part.error is not None:
                self.raise_if_final(part.error)
                raise TryAgainError(f"committed offset of {part.topic}-{part.partition}: {part.error.name()}")
        return {
            TopicPartition(part.topic, part.partition): (Offset(part.offset), part.metadata)
            for part in answer
            if part.offset >= 0
        }

    def partition_count(
        self, topic: str, *, timeout_s: float = REQUEST_TIMEOUT_S, client: Consumer | AdminClient | None = None
    ) -> int:
        """Return how many partitions ``topic`` has, 0 if it does not exist; ``client`` then knows their leaders."""
        asked = client or self._consumer
        found = self.ask(lambda: asked.list_topics(topic, timeout=timeout_s)).topics.get(topic)
        if found is None:
            return 0
        if found.error is not None:
            self.raise_if_final(found.error)
        return len(found.partitions)

    def _admin_client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({**connection_properties(self._properties), "log_level": 0})
        return self._admin

    def raise_if_final(self, error: KafkaError) -> None:
        """Raise the explained error if no retry cures ``error``."""
        if remedy_for(error) is Remedy.FAIL:
            raise explained(error, group_id=self._group_id, properties=self._properties) from None

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], which: OffsetSpec, *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        """Return log starts or ends; partitions whose leader does not answer are left out.

        Unlike ``offsets_for_times``, where one broker that does not answer hides the answers of all others.
        """
        from confluent_kafka import IsolationLevel, KafkaException
        from confluent_kafka import TopicPartition as KafkaPartition

        admin = self._admin_client()
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        pieces = [{KafkaPartition(tp.topic, tp.partition): which for tp in piece} for piece in in_pieces(partitions)]
        send = partial(admin.list_offsets, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
        asked = [self.ask(partial(send, piece)) for piece in pieces]
        deadline = time.monotonic() + _STALL_S
        answers: list[tuple[KafkaPartition, Future[ListOffsetsResultInfo]]] = []
        for piece, futures in zip(pieces, asked, strict=True):
            _, late = wait(futures.values(), max(0.0, deadline - time.monotonic()))
            answers += (self.ask(partial(send, piece)) if late else futures).items()
        found = {}
        failed: set[str] = set()
        for part, future in answers:
            try:
                found[TopicPartition(part.topic, part.partition)] = Offset(future.result().offset)
            except KafkaException as problem:
                failed.add(part.topic)
                self.raise_if_final(problem.args[0])
        for topic in failed:
            # An admin client keeps the leaders' epochs of before until its next refresh, minutes later, and every
            # request under them is refused (FENCED_LEADER_EPOCH; seen with 2.16.1 after a broker's restart).
            self.partition_count(topic, client=admin)
        return {tp: offset for tp, offset in found.items() if offset >= 0}


class GroupOffsets(Client):
    """Asks for everything that decides where a partition starts.  Belongs to one thread."""

    def __init__(self, properties: Properties, *, group_id: str, read_committed: bool) -> None:
        super().__init__(properties, group_id=group_id, isolation="read_committed")
        self._read_committed = read_committed

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

    def facts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Facts]:
        """Return what decides the start of each partition; those that cannot be told yet are left out.

        Raises
        ------
        TryAgainError
            If the cluster does not answer, the coordinator is loading, or a former owner's transaction is open.
        """
        from confluent_kafka.admin import OffsetSpec

        counts = {topic: self.partition_count(topic) for topic in sorted({tp.topic for tp in partitions})}
        unknown = [str(tp) for tp in partitions if tp.partition >= counts[tp.topic]]
        if unknown:
            # Its committed offset would not be asked for, and would look as if the group had none.
            raise TryAgainError(f"the broker that answered does not know {', '.join(unknown)}")
        everything = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
        committed = self.committed(everything)
        starts = self._list_offsets(partitions, OffsetSpec.earliest(), read_committed=False)
        ends = self._list_offsets(partitions, OffsetSpec.latest(), read_committed=self._read_committed)
        # After them, because no end may lie behind the high watermark, and records come all the time.
        high_watermarks = (
            self._list_offsets(partitions, OffsetSpec.latest(), read_committed=False) if self._read_committed else ends
        )
        started: dict[str, int | None] = {}
        for tp, (_, note) in committed.items():
            count = metadata.first_partitions(note)
            known = started.get(tp.topic)
            started[tp.topic] = max((n for n in (count, known) if n is not None), default=None)
        return {
            tp: Facts(
                committed=committed[tp][0] if tp in committed else None,
                log_start=starts[tp],
                log_end=ends[tp],
                high_watermark=high_watermarks[tp],
                topic_partitions=counts[tp.topic],
                topic_started=tp.topic in started,
                first_partitions=started.get(tp.topic),
            )
            for tp in partitions
            if tp in starts and tp in ends and tp in high_watermarks
        }

    def held_by_others(self, *, client_id: str, member_id: str) -> frozenset[TopicPartition]:
        """Return the partitions that the group has given to other queries.

        A member with this member's client id is a former process of the same query, killed and not yet evicted, or
        still leaving: what it holds is not returned.

        Raises
        ------
        TryAgainError
            If the group is just distributing partitions, or does not know this member yet.
        """
        group = self._describe_group()
        if _is_rebalancing(group):
            raise TryAgainError("the group is between two generations")
        if not any(member.member_id == member_id for member in group.members):
            raise TryAgainError("the group does not know this member yet")
        return frozenset(
            TopicPartition(part.topic, part.partition)
            for member in group.members
            if member.client_id != client_id
            for part in member.assignment.topic_partitions
        )

    def rebalancing(self) -> bool:
        """Tell whether a classic group is in the middle of a rebalance.

        Raises
        ------
        TryAgainError
            If the cluster does not answer.
        """
        return _is_rebalancing(self._describe_group())

    def _describe_group(self) -> ConsumerGroupDescription:
        admin = self._admin_client()
        asked = admin.describe_consumer_groups([self._group_id], request_timeout=REQUEST_TIMEOUT_S)
        description: ConsumerGroupDescription = self.ask(asked[self._group_id].result)
        return description

    def _unreachable(self, problem: str) -> BrokerError:
        servers = self._properties.get("bootstrap.servers", "")
        reasons = sorted({redact(error.str(), self._properties) for error in self._reported}) or [problem]
        return BrokerError(
            f"Option 'kafka.bootstrap.servers': no broker of {servers!r} answered within "
            f"{CONNECT_TIMEOUT_S:g} s ({'; '.join(reasons[-2:])}). Check the address, the network, and "
            f"kafka.security.protocol."
        )


def in_pieces(partitions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Cut ``partitions`` into pieces that librdkafka handles well."""
    whole = list(partitions)
    return (whole[n : n + _PIECE] for n in range(0, len(whole), _PIECE))


def _is_rebalancing(group: ConsumerGroupDescription) -> bool:
    """Tell whether nobody has an assignment just now; under KIP-848 each member has one at any time."""
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType

    return group.type != ConsumerGroupType.CONSUMER and group.state in (
        ConsumerGroupState.PREPARING_REBALANCING,
        ConsumerGroupState.COMPLETING_REBALANCING,
    )
