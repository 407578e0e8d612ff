"""Brokers in this process that answer fetches as a test says, and another client that only records its calls."""

from __future__ import annotations

import math
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast
from unittest.mock import MagicMock

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.reader_client import ReaderClient, Records
from pyspark_kafka_group.reading.reader_config import direct_settings, reader_config
from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.leaders import LeaderTimings
from pyspark_kafka_group.wire.topic_requests import LOG_START, ClusterMetadata, ListedOffset, ListOffsets, Metadata
from pyspark_kafka_group.wire.types import Address
from tests.connector.columns.batches import batch_of
from tests.connector.columns.test_from_messages import record

SERVER = Address("bootstrap", 1)
LEADER, OTHER = Address("leader", 1), Address("other", 2)
NO_PARTITION = Address("", 0)

_INT16 = struct.Struct(">h")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request to fetch one partition."""

    at: Address
    tp: TopicPartition
    offset: int
    wait_ms: int
    most_bytes: int = 0
    rack: str | None = None
    time: float = field(default_factory=time.monotonic)


@dataclass(kw_only=True)
class Answer:
    """The answer for one partition, and for the whole request."""

    error: int = 0
    log_end: int = 0
    aborted: Sequence[int] = ()
    records: bytes = b""
    throttle_ms: int = 0
    read_from: int = protocol.NOBODY


class Fetched(NamedTuple):
    """One partition in a request to fetch."""

    tp: TopicPartition
    offset: int
    most_bytes: int


def fetched_partitions(body: bytes) -> Iterator[Fetched]:
    """Yield the partitions of a request to fetch."""
    at = struct.calcsize(">iiiibiii")
    for _ in range(struct.unpack_from(">i", body, at - 4)[0]):
        size = struct.unpack_from(">h", body, at)[0]
        topic = body[at + 2 : at + 2 + size].decode()
        count = struct.unpack_from(">i", body, at + 2 + size)[0]
        at += 6 + size
        for _ in range(count):
            partition, _, offset, _, most_bytes = struct.unpack_from(">iiqqi", body, at)
            at += struct.calcsize(">iiqqi")
            yield Fetched(TopicPartition(topic, partition), offset, most_bytes)


def fetch_answer(found: Sequence[tuple[TopicPartition, Answer]], *, with_rack: bool = False) -> bytes:
    """Return the answer to a request to fetch these partitions."""
    throttle_ms = max(answer.throttle_ms for _, answer in found)
    if throttle_ms:  # like Kafka, which sends no records in such an answer
        return struct.pack(">ihii", throttle_ms, 0, 0, 0)
    out = struct.pack(">ihii", 0, 0, 0, len(found))
    for tp, answer in found:
        ends = (answer.log_end, answer.log_end, 0, len(answer.aborted) // 2)
        out += text(tp.topic) + struct.pack(">iihqqqi", 1, tp.partition, answer.error, *ends)
        out += struct.pack(f">{len(answer.aborted)}q", *answer.aborted)
        out += struct.pack(">i", answer.read_from) if with_rack else b""
        out += struct.pack(">i", len(answer.records)) + answer.records
    return out


class Cluster:
    """Brokers that share one log, and answer as the test says.  Each entry is one batch.

    Attributes
    ----------
    leader : Address or None
        The leader in the metadata.  With `NO_PARTITION`, the metadata has no partition.
    answer : callable
        Answers a request to fetch.
    asked : list of Asked
        All requests to fetch.
    looks : int
        How often a client has searched for the leader.
    newest_fetch : int
        The newest version of Fetch that the brokers speak.
    log_start, log_end : int
        The answers about the log.
    download_s : float
        How long a large answer takes after its first bytes.
    """

    def __init__(self, batches: Sequence[bytes], log_end: int) -> None:
        self.leader: Address | None = LEADER
        self.answer: Callable[[Asked], Answer] = self.honest
        self.asked: list[Asked] = []
        self.looks = 0
        self.newest_fetch = protocol.FETCH_WITH_RACK
        self.download_s = 0.0
        self._batches = batches
        self.log_start = 0
        self.log_end = log_end
        self._lock = threading.Lock()

    def honest(self, asked: Asked) -> Answer:
        """Answer with the batches from the one that contains the offset."""
        rest = [batch for batch in self._batches if end_of(batch) > asked.offset]
        if not rest:
            time.sleep(0.001)  # real brokers wait for as long as the request says
        return Answer(log_end=self.log_end, records=b"".join(rest))

    def connect(self, address: Address, **_more: object) -> BrokerConnection:
        """Return a connection to one of the brokers."""
        return cast(BrokerConnection, _Connection(self, address))

    def fetch(self, address: Address, body: bytes, *, with_rack: bool = False) -> bytes:
        """Answer a fetch."""
        rack = None
        if with_rack:
            # The last string, whatever its length.
            sizes = (size for size in range(len(body)) if body[len(body) - size - 2 :].startswith(_INT16.pack(size)))
            rack = body[len(body) - next(sizes) :].decode()
        wait_ms = struct.unpack_from(">ii", body)[1]
        found = []
        for tp, offset, most_bytes in fetched_partitions(body):
            asked = Asked(at=address, tp=tp, offset=offset, wait_ms=wait_ms, most_bytes=most_bytes, rack=rack)
            with self._lock:
                self.asked.append(asked)
                found.append((tp, self.answer(asked)))
        return fetch_answer(found, with_rack=with_rack)

    def metadata(self, body: bytes) -> bytes:
        """Answer with the leader of partition 0 of the first topic in the request, if there is one."""
        brokers = [LEADER, OTHER]
        found = struct.pack(">ii", 0, len(brokers))
        for node, address in enumerate(brokers):
            found += struct.pack(">i", node) + text(address.host) + struct.pack(">ih", address.port, -1)
        if not struct.unpack_from(">i", body)[0]:
            return found + struct.pack(">hii", -1, 0, 0)
        self.looks += 1
        size = struct.unpack_from(">h", body, 4)[0]
        found += struct.pack(">hiih", -1, 0, 1, 0) + body[4 : 6 + size] + b"\0"
        if self.leader is NO_PARTITION:
            return found + struct.pack(">i", 0)
        node = -1 if self.leader is None else brokers.index(self.leader)
        return found + struct.pack(">ihiiiiii", 1, 0, 0, node, 0, 0, 0, 0)


class _Connection:
    def __init__(self, cluster: Cluster, address: Address) -> None:
        self.good_until = Deadline.after(math.inf)
        self._cluster = cluster
        self._address = address
        self._closed = False

    def set_timeout(self, timeout_s: float) -> None: ...

    def speaks(self, api: int, version: int) -> bool:
        return api == protocol.FETCH and version <= self._cluster.newest_fetch

    def request(
        self, api: int, body: bytes, version: int | None = None, *, arriving: Callable[[int], None] | None = None
    ) -> Reader:
        if self._closed:
            raise ConnectionError("closed")
        if api == protocol.FETCH:
            with_rack = version == protocol.FETCH_WITH_RACK
            answer = self._cluster.fetch(self._address, body, with_rack=with_rack)
            if self._cluster.download_s and arriving is not None:
                arriving(16_000_000)
                time.sleep(self._cluster.download_s)
            return Reader(memoryview(answer))
        raise AssertionError(f"request {api} is not scripted")

    def ask(self, request: Metadata | ListOffsets) -> ClusterMetadata | dict[TopicPartition, ListedOffset]:
        """Answer with the leaders, or with the beginning or the end of the log."""
        if isinstance(request, ListOffsets):
            at = self._cluster.log_start if request.at == LOG_START else self._cluster.log_end
            return {tp: ListedOffset(0, at) for tp in request.partitions}
        out = Writer(flexible=False)
        request.write(out, Metadata.api.oldest)
        return request.read(Reader(memoryview(self._cluster.metadata(bytes(out)))), Metadata.api.oldest)

    def interrupt(self) -> None:
        self._closed = True

    def close(self) -> None:
        self._closed = True


def fallback() -> ReaderClient:
    """Return a client that records its calls, and reports all ranges that it gets as read."""
    made = MagicMock(spec=ReaderClient, errors={})
    made.partition_errors.return_value = {}
    made.discard.return_value = False
    made.poll.side_effect = lambda ends, _wait_s: next(Records(tp, None, until) for tp, until in ends.items())
    return made


def log_of(count: int, *, each: int = 10, **fields: Any) -> Cluster:
    """Return a cluster with this many batches of `each` records."""
    batches = [
        batch_of([record(offset, value=b"%d" % offset) for offset in range(first, first + each)], **fields)
        for first in range(0, count * each, each)
    ]
    return Cluster(batches, count * each)


def client_of(cluster: Cluster, leaders: LeaderTimings, /, **properties: str) -> DirectClient:
    """Return a client of these brokers, with a fallback that only records its calls."""
    config = reader_config({"bootstrap.servers": "bootstrap:1", **properties}, "etl")
    settings = direct_settings(config)
    assert settings is not None
    client = DirectClient(config, settings._replace(leaders=leaders), fallback)
    client._fetchers._connect = client._questions.connect = cluster.connect
    return client


def text(value: str) -> bytes:
    """Return a string in Kafka's protocol."""
    return struct.pack(">h", len(value)) + value.encode()


def end_of(batch: bytes) -> int:
    """Return the offset after a batch."""
    return int(struct.unpack_from(">q", batch)[0] + struct.unpack_from(">i", batch, 23)[0] + 1)
