"""What the source process asks the cluster: topics, committed offsets, log starts and ends.

Two clients, because they are used from two threads and one of them may have to wait: :class:`GroupOffsets`
waits for open transactions of a former owner (require_stable), while :class:`LogEnds` serves the partitions
that go on meanwhile.  Neither joins the group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
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
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, OffsetSpec

# The offset that ListOffsets understands as "the log end".  Consumer.offsets_for_times sends one request per broker
# for any number of partitions, where get_watermark_offsets sends one per partition.
_LOG_END = -1

# How long to wait for a cluster that does not answer, when a query starts.  Spark's own source gives up after
# the Java client's default.api.timeout.ms of 60 s; a wrong address should not take a minute to be told.
CONNECT_TIMEOUT_S = 30.0

# How long one request may take.  Errors that pass by themselves are retried by the caller.
REQUEST_TIMEOUT_S = 5.0

# How long to leave a partition alone whose broker did not answer, and how long to wait for it then.  Meanwhile the
# others go on: a broker that hangs would otherwise cost them REQUEST_TIMEOUT_S with each request.
_SILENT_PAUSE_S = 5.0
_SILENT_TIMEOUT_S = 1.0

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
            self._raise_if_final(error)
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
                self._raise_if_final(part.error)
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
            self._raise_if_final(found.error)
        return len(found.partitions)

    def _admin_client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({**connection_properties(self._properties), "log_level": 0})
        return self._admin

    def _raise_if_final(self, error: KafkaError) -> None:
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
        request = {KafkaPartition(tp.topic, tp.partition): which for tp in partitions}
        if not request:
            return {}
        answers = self.ask(
            lambda: admin.list_offsets(request, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
        )
        found = {}
        failed: set[str] = set()
        for part, future in answers.items():
            try:
                found[TopicPartition(part.topic, part.partition)] = Offset(future.result().offset)
            except KafkaException as problem:
                failed.add(part.topic)
                self._raise_if_final(problem.args[0])
        for topic in failed:
            # An admin client keeps the leaders' epochs of before until its next refresh, minutes later, and every
            # request under them is refused (FENCED_LEADER_EPOCH; seen with 2.16.1 after a broker's restart).
            self.partition_count(topic, client=admin)
        return {tp: offset for tp, offset in found.items() if offset >= 0}


class LogEnds(Client):
    """Lists log ends under the readers' isolation level, for planning.  Belongs to one thread."""

    def __init__(self, properties: Properties, *, group_id: str, read_committed: bool) -> None:
        super().__init__(
            properties,
            group_id=group_id,
            isolation="read_committed" if read_committed else "read_uncommitted",
        )
        self._read_committed = read_committed
        self._silent: dict[TopicPartition, float] = {}  # when to ask again

    def list(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the log end of each partition; those whose leader does not answer are left out.

        Raises
        ------
        TryAgainError
            If no broker answers.
        """
        from confluent_kafka.admin import OffsetSpec

        now = time.monotonic()
        due = [tp for tp in partitions if self._silent.get(tp, now + 1) <= now]
        lively = [tp for tp in partitions if tp not in self._silent]
        try:
            ends = self._fast_ends(lively, REQUEST_TIMEOUT_S)
        except TryAgainError as problem:
            ends = self._list_offsets(lively, OffsetSpec.latest(), read_committed=self._read_committed)
            if not ends:
                raise TryAgainError(str(problem)) from None
            self._silent.update({tp: now + _SILENT_PAUSE_S for tp in lively if tp not in ends})
        try:
            again = self._fast_ends(due, _SILENT_TIMEOUT_S)
        except TryAgainError:
            again = {}
        self._silent.update({tp: time.monotonic() + _SILENT_PAUSE_S for tp in due})
        for tp in again:
            del self._silent[tp]
        return {**ends, **again}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the id of each topic, which a topic that is created again does not keep (KIP-516).

        Topics that do not exist, or whose broker does not answer, are left out.
        """
        from confluent_kafka import KafkaException, TopicCollection

        admin = self._admin_client()
        asked = self.ask(
            lambda: admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=REQUEST_TIMEOUT_S)
        )
        found = {}
        for topic, future in asked.items():
            try:
                found[topic] = str(future.result().topic_id)
            except KafkaException as problem:
                self._raise_if_final(problem.args[0])
        return found

    def _fast_ends(self, partitions: Collection[TopicPartition], timeout_s: float) -> dict[TopicPartition, Offset]:
        """Return log ends with one request per broker; raises if one of them does not answer."""
        from confluent_kafka import TopicPartition as KafkaPartition

        wanted = [KafkaPartition(tp.topic, tp.partition, _LOG_END) for tp in partitions]
        if not wanted:
            return {}
        answer = self.ask(lambda: self._consumer.offsets_for_times(wanted, timeout=timeout_s))
        for part in answer:
            if part.error is not None:
                self._raise_if_final(part.error)
        return {
            TopicPartition(part.topic, part.partition): Offset(part.offset)
            for part in answer
            if part.error is None and part.offset >= 0
        }


class GroupOffsets(Client):
    """Asks for everything that decides where a partition starts.  Belongs to one thread."""

    def __init__(self, properties: Properties, *, group_id: str, read_committed: bool) -> None:
        super().__init__(properties, group_id=group_id, isolation="read_committed")
        self._read_committed = read_committed

    def connect(self, topics: Sequence[str]) -> dict[str, int]:
        """Reach the cluster and find the topics, in bounded time.

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
            If a topic does not exist.
        """
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        missing_until = time.monotonic() + _NEW_TOPIC_PATIENCE_S
        problem = ""
        while True:
            try:
                counts = {topic: self.partition_count(topic, timeout_s=2.0) for topic in topics}
            except TryAgainError as failed:
                problem = str(failed)
                missing_until = time.monotonic() + _NEW_TOPIC_PATIENCE_S
            else:
                missing = [topic for topic, count in counts.items() if not count]
                if not missing:
                    return counts
                if time.monotonic() > missing_until:
                    raise UnknownTopicError(missing)
            self._consumer.poll(0.2)  # serves the error callback
            for error in self._reported:
                self._raise_if_final(error)
            if time.monotonic() > deadline:
                raise self._unreachable(problem)

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
        high_watermarks = self._list_offsets(partitions, OffsetSpec.latest(), read_committed=False)
        ends = (
            self._list_offsets(partitions, OffsetSpec.latest(), read_committed=True)
            if self._read_committed
            else high_watermarks
        )
        started: dict[str, int | None] = {}
        for tp, (_, note) in committed.items():
            count = metadata.first_partitions(note)
            known = started.get(tp.topic)
            started[tp.topic] = max(count, known) if count is not None and known is not None else count or known
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


def _is_rebalancing(group: ConsumerGroupDescription) -> bool:
    """Tell whether nobody has an assignment just now; under KIP-848 each member has one at any time."""
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType

    return group.type != ConsumerGroupType.CONSUMER and group.state in (
        ConsumerGroupState.PREPARING_REBALANCING,
        ConsumerGroupState.COMPLETING_REBALANCING,
    )
