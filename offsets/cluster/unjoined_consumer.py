"""A client of librdkafka that never joins a group: what the source process asks the cluster through it.

Two of them, because they are used from two threads and one of them may have to wait:
:class:`~pyspark_kafka_group.offsets.cluster.group_offsets.GroupOffsets` waits for open transactions of a former owner
(require_stable), while :class:`~pyspark_kafka_group.offsets.cluster.log_ends.LogEnds` serves the partitions that go on
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_group.offsets.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.offsets.cluster.error_remedies import Remedy, TryAgainError, explained, remedy_for
from pyspark_kafka_group.offsets.properties.client_config import Properties, client_error, client_properties
from pyspark_kafka_group.offsets.properties.kafka_properties import ClientKind
from pyspark_kafka_group.offsets.redaction import redact
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

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

# How many events to take off a client's queue at a time, and how many reported errors to remember.
_MAX_EVENTS = 1000
_KEPT_ERRORS = 20

_T = TypeVar("_T")


def _unjoined_consumer(
    properties: Properties, *, group_id: str, isolation: str, on_error: Callable[[KafkaError], None]
) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer(
            {
                **client_properties(ClientKind.OFFSETS, properties),
                "group.id": group_id,
                "client.id": f"{group_id}-offsets",
                # Nobody joins with it.  It is how long librdkafka looks for the coordinator of a group that the user
                # may not use, before it says so.
                "session.timeout.ms": "6000",
                # With read_committed librdkafka asks for committed offsets with require_stable, and for log
                # ends below which every transaction is decided.
                "isolation.level": isolation,
                "error_cb": on_error,
            }
        )
    except (KafkaException, ValueError, TypeError) as problem:
        raise client_error(problem, properties) from None


def topics_of(parts: Iterable[KafkaPartition]) -> str:
    """Return what a request was about, for its error."""
    names = sorted({part.topic for part in parts})
    return f"topic {names[0]!r}" if len(names) == 1 else f"topics {', '.join(map(repr, names))}"


class UnjoinedConsumer:
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
        self._take_events()
        del self._reported[:-_KEPT_ERRORS]

    def _take_events(self) -> None:
        for _ in range(_MAX_EVENTS):
            event = self._consumer.poll(0)
            if event is None:
                break
            if (error := event.error()) is not None:
                self._reported.append(error)

    def ask(self, request: Callable[[], _T], what: str = "") -> _T:
        """Run one request, about ``what``; raise what ends the query, or :class:`TryAgainError`."""
        from confluent_kafka import KafkaException

        self.serve()
        before = len(self._reported)
        try:
            return request()
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            self.raise_if_final(error, what)
            self._take_events()
            for reported in self._reported[before:]:
                # The request itself only says that it waits for the coordinator, and would do so for ever.
                if reported.name() == "GROUP_AUTHORIZATION_FAILED":
                    self.raise_if_final(reported)
            raise TryAgainError(f"{error.name()}: {redact(error.str(), self._properties)}") from None

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets, stable ones under ``read_committed``.

        Partitions without one are left out.
        """
        from confluent_kafka import TopicPartition as KafkaPartition

        if not partitions:
            return {}
        wanted = [KafkaPartition(tp.topic, tp.partition) for tp in partitions]
        answer: list[KafkaPartition] = self.ask(lambda: self._consumer.committed(wanted, timeout=REQUEST_TIMEOUT_S))
        for part in answer:
            if part.error is not None:
                self.raise_if_final(part.error, f"topic {part.topic!r}")
                raise TryAgainError(f"committed offset of {part.topic}-{part.partition}: {part.error.name()}")
        return {
            TopicPartition(part.topic, part.partition): CommittedOffset(
                Offset(part.offset), part.leader_epoch, _metadata(part)
            )
            for part in answer
            if part.offset >= 0
        }

    def commit(self, offsets: list[KafkaPartition]) -> str | None:
        """Commit as one that is no member; return Kafka's name of the error of the first that was refused."""
        answer: list[KafkaPartition] = self.ask(
            lambda: self._consumer.commit(offsets=offsets, asynchronous=False), topics_of(offsets)
        )
        for part in answer:
            if part.error is not None:
                self.raise_if_final(part.error, f"topic {part.topic!r}")
                return str(part.error.name())
        return None

    def partition_count(
        self, topic: str, *, timeout_s: float = REQUEST_TIMEOUT_S, client: Consumer | AdminClient | None = None
    ) -> int:
        """Return how many partitions ``topic`` has, 0 if it does not exist; ``client`` then knows their leaders."""
        asked = client or self._consumer
        found = self.ask(lambda: asked.list_topics(topic, timeout=timeout_s)).topics.get(topic)
        if found is None:
            return 0
        if found.error is not None:
            self.raise_if_final(found.error, f"topic {topic!r}")
        return len(found.partitions)

    def admin_client(self) -> AdminClient:
        """Return the client that describes topics; it is made when it is asked for first."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(client_properties(ClientKind.ADMIN, self._properties))
        return self._admin

    def raise_if_final(self, error: KafkaError, what: str = "") -> None:
        """Raise the explained error if no retry cures ``error``, which is about ``what``."""
        if remedy_for(error) is Remedy.FAIL:
            raise explained(error, group_id=self._group_id, properties=self._properties, what=what) from None

    def list_offsets(
        self, partitions: Iterable[TopicPartition], which: OffsetSpec, *, read_committed: bool
    ) -> Answers[Offset]:
        """Return log starts or ends.

        Unlike ``offsets_for_times``, where one broker that does not answer hides the answers of all others.
        """
        answers = self._list_offsets(dict.fromkeys(partitions, which), read_committed=read_committed)
        for tp in [tp for tp, offset in answers.found.items() if offset < 0]:
            del answers.found[tp]
            answers.failed[tp] = "no offset"
        return answers

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Answers[Offset]:
        """Return the first record of a time or later; a partition without one is in neither part."""
        from confluent_kafka.admin import OffsetSpec

        specs = {tp: OffsetSpec.for_timestamp(time_ms) for tp, time_ms in times_ms.items()}
        answers = self._list_offsets(specs, read_committed=False)
        return Answers({tp: offset for tp, offset in answers.found.items() if offset >= 0}, answers.failed)

    def _list_offsets(self, specs: Mapping[TopicPartition, OffsetSpec], *, read_committed: bool) -> Answers[Offset]:
        """Return what brokers say; offset -1 where there is none."""
        from confluent_kafka import IsolationLevel, KafkaException
        from confluent_kafka import TopicPartition as KafkaPartition

        admin = self.admin_client()
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        pieces = [{KafkaPartition(tp.topic, tp.partition): specs[tp] for tp in piece} for piece in in_pieces(specs)]
        send = partial(admin.list_offsets, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
        asked = [self.ask(partial(send, piece)) for piece in pieces]
        deadline = Deadline.after(_STALL_S)
        answers: list[tuple[KafkaPartition, Future[ListOffsetsResultInfo]]] = []
        for piece, futures in zip(pieces, asked, strict=True):
            _, late = wait(futures.values(), deadline.left_s)
            answers += (self.ask(partial(send, piece)) if late else futures).items()
        found: dict[TopicPartition, Offset] = {}
        failed: dict[TopicPartition, str] = {}
        for part, future in answers:
            tp = TopicPartition(part.topic, part.partition)
            try:
                found[tp] = Offset(future.result().offset)
            except KafkaException as problem:
                failed[tp] = problem.args[0].name()
                self.raise_if_final(problem.args[0], f"topic {part.topic!r}")
        for topic in {tp.topic for tp in failed}:
            # An admin client keeps the leaders' epochs of before until its next refresh, minutes later, and every
            # request under them is refused (FENCED_LEADER_EPOCH; seen with 2.16.1 after a broker's restart).
            self.partition_count(topic, client=admin)
        return Answers(found, failed)


def _metadata(part: KafkaPartition) -> str:
    """Return the metadata of a committed offset, as far as it is sure.

    The binding of librdkafka 2.16.1 takes it for a text that ends with a zero byte, which only librdkafka's own commits
    have: what other clients have written is followed by whatever stands in the memory behind it.
    """
    try:
        text = part.metadata or ""
    except UnicodeDecodeError as problem:
        text = problem.object.decode("utf-8", "ignore")
    end = text.rfind("}") + 1
    return text[:end] if end else text


def in_pieces(partitions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Cut ``partitions`` into pieces that librdkafka handles well."""
    whole = list(partitions)
    return (whole[n : n + _PIECE] for n in range(0, len(whole), _PIECE))
