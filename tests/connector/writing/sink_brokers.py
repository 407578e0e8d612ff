"""Brokers in this process that store record batches like Kafka, and disturb a producer as a test says."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark_kafka_group.wire import messages
from pyspark_kafka_group.wire.config_requests import DescribeConfigs
from pyspark_kafka_group.wire.error_codes import error_code
from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import Coordinator
from pyspark_kafka_group.wire.produce_requests import AddPartitionsToTransaction
from pyspark_kafka_group.wire.requests import read_by_topic
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata, PartitionMetadata, TopicMetadata
from pyspark_kafka_group.wire.transaction_requests import FindTransactionCoordinator
from pyspark_kafka_group.wire.transactions import InitializedProducer, InitProducerId
from pyspark_kafka_group.wire.types import Address, TopicPartition
from tests.connector.columns.batches import TRANSACTIONAL
from tests.wire import answers
from tests.wire.fake_broker import APIS, HANG_UP, Asked, FakeBroker

METADATA, PRODUCE = Metadata.api.key, messages.PRODUCE
INIT, ADD, FIND = InitProducerId.api.key, AddPartitionsToTransaction.api.key, FindTransactionCoordinator.api.key
CONFIGS = DescribeConfigs.api.key
PRODUCER = InitializedProducer(0, 77, 3)

_BATCH = struct.Struct(">qiibIhiqqqhii")


class StoredBatch(NamedTuple):
    """A batch in a log, and fields of its header."""

    first: int
    records: int
    producer_id: int
    attributes: int
    data: bytes


class Sent(NamedTuple):
    """A Produce request."""

    at: Address
    transactional_id: str | None
    acks: int
    batches: dict[TopicPartition, bytes]


@dataclass(frozen=True)
class Refuse:
    """Answer with an error, before or after the batches are stored."""

    name: str
    stores: bool = False


@dataclass(frozen=True)
class HangUp:
    """Close the connection instead of an answer, before or after the batches are stored."""

    stores: bool


class SinkBrokers:
    """A cluster with one topic.

    Attributes
    ----------
    faults : deque
        What to do with the next Produce requests: a `Refuse`, a `HangUp`, or None.
    partitions : int
        The number of partitions.
    topic_id : str or None
        The id of the topic.
    most_bytes : int or None
        The largest batch that the topic takes; None if the user may not ask for it.
    leader : callable
        Returns the number of a partition's leader; -1 if it has none.
    logs : dict
        The stored batches of each partition.
    sent : list of Sent
        All Produce requests.
    answering : threading.Event
        Produce requests wait while it is cleared.
    at_end : list of callable
        What to call before the brokers are closed.
    """

    def __init__(self, count: int = 1, topic: str = "t", partitions: int = 1) -> None:
        self.topic, self.partitions = topic, partitions
        self.topic_id: str | None = None
        self.most_bytes: int | None = None
        self.leader: Callable[[int], int] = lambda partition: partition % count
        self.faults: deque[Refuse | HangUp | None] = deque()
        self.logs: dict[TopicPartition, list[StoredBatch]] = {}
        self.sent: list[Sent] = []
        self.kinds: list[str] = []
        self.answers: dict[int, deque[Any]] = {}
        self.in_transaction: set[TopicPartition] = set()
        self.answering = threading.Event()
        self.answering.set()
        self.at_end: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self.brokers = [_Broker(self) for _ in range(count)]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(str(broker.address) for broker in self.brokers)

    def with_topic_ids(self, partitions: int) -> None:
        """Speak the version of the request that tells ids of topics."""
        self.partitions, self.topic_id = partitions, "A" * 21 + "Q"
        for broker in self.brokers:
            broker.offered[METADATA] = (0, 12)

    def close(self) -> None:
        self.answering.set()
        for act in self.at_end:
            act()
        for broker in self.brokers:
            broker.close()

    def answer(self, broker: FakeBroker, asked: Asked) -> Any:
        if asked.api == PRODUCE:
            self.answering.wait()
        with self._lock:
            if asked.api == PRODUCE:
                self.kinds.append("Produce")
                return self._produce(broker, Reader(memoryview(asked.body)))
            self.kinds.append(APIS[asked.api].name)
            if self.answers.get(asked.api):
                return self.answers[asked.api].popleft()
            if asked.api == METADATA:
                return answers.metadata(self._metadata())
            if asked.api == CONFIGS:
                settings = {} if self.most_bytes is None else {"max.message.bytes": str(self.most_bytes)}
                return answers.configs({self.topic: (0 if settings else 29, settings)})
            if asked.api == INIT:
                return answers.initialized(PRODUCER)
            if asked.api == FIND:
                return answers.coordinator(Coordinator(0, "", self.brokers[-1].address), "x")
            assert asked.api == ADD
            return self._add(asked)

    def _metadata(self) -> ClusterMetadata:
        brokers = {number: broker.address for number, broker in enumerate(self.brokers)}
        found = tuple(PartitionMetadata(n, 0, self.leader(n), 0) for n in range(self.partitions))
        return ClusterMetadata(brokers, (TopicMetadata(self.topic, 0, self.topic_id, found),))

    def _add(self, asked: Asked) -> Any:
        request = Reader(memoryview(asked.body), flexible=asked.version >= APIS[ADD].flexible)
        request.text()
        request.int64()
        request.int16()
        added = read_by_topic(request, lambda: (request.int32(), 0))
        self.in_transaction |= added.keys()
        return answers.commits(added)

    def _produce(self, broker: FakeBroker, request: Reader) -> Any:
        transactional_id, acks = request.nullable_text(), request.int16()
        request.int32()  # timeout

        def partition() -> tuple[int, bytes]:
            return request.int32(), bytes(request.bytes(request.int32()))

        batches = read_by_topic(request, partition)
        self.sent.append(Sent(broker.address, transactional_id, acks, batches))
        fault = self.faults.popleft() if self.faults else None
        stores = fault is None or fault.stores
        errors = {tp: self._store(broker, tp, data) for tp, data in batches.items()} if stores else {}
        if isinstance(fault, HangUp):
            return HANG_UP
        if fault is not None:
            errors = dict.fromkeys(batches, error_code(fault.name))
        out = Writer(flexible=False)
        answers.produced(errors)(out, 7)
        return bytes(out)

    def _store(self, broker: FakeBroker, tp: TopicPartition, data: bytes) -> int:
        """Store a batch like Kafka, and return the error code."""
        if self.brokers[self.leader(tp.partition)] is not broker:
            return error_code("NOT_LEADER_OR_FOLLOWER")
        fields = _BATCH.unpack_from(data)
        found = StoredBatch(
            first=fields[11], records=fields[12], producer_id=fields[9], attributes=fields[5], data=data
        )
        if found.attributes & TRANSACTIONAL and tp not in self.in_transaction:
            return error_code("INVALID_TXN_STATE")
        log = self.logs.setdefault(tp, [])
        if self.most_bytes is not None and len(data) > self.most_bytes:
            return error_code("MESSAGE_TOO_LARGE")
        if found.producer_id >= 0:
            if any(stored.first == found.first and stored.records == found.records for stored in log[-5:]):
                return error_code("DUPLICATE_SEQUENCE_NUMBER")
            if log and (log[-1].first + log[-1].records) % 2**31 != found.first:
                return error_code("OUT_OF_ORDER_SEQUENCE_NUMBER")
        log.append(found)
        return 0

    def values(self, partition: int = 0) -> list[bytes]:
        """Return the values of a partition, whose records have neither key nor headers and are not compressed."""
        found = []
        for batch in self.logs.get(TopicPartition(self.topic, partition), []):
            at = _BATCH.size
            for _ in range(batch.records):
                length, at = _varint(batch.data, at)
                end = at + length
                _, at = _varint(batch.data, at + 1)
                _, at = _varint(batch.data, at)
                _, at = _varint(batch.data, at)
                size, at = _varint(batch.data, at)
                found.append(batch.data[at : at + size])
                at = end
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value >> 1 ^ -(value & 1), at


class _Broker(FakeBroker):
    def __init__(self, cluster: SinkBrokers) -> None:
        self._cluster = cluster
        super().__init__()
        self.offered[PRODUCE] = (3, 9)

    def answer_to(self, asked: Asked) -> Any:
        return self._cluster.answer(self, asked)


@contextlib.contextmanager
def sink_brokers(count: int = 1, partitions: int = 1) -> Iterator[SinkBrokers]:
    """Yield a cluster of such brokers, and close it."""
    made = SinkBrokers(count, partitions=partitions)
    try:
        yield made
    finally:
        made.close()
