"""Brokers in this process that listen on loopback, answer readers, and count who is connected to them."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.topic_requests import Metadata
from pyspark_kafka_group.wire.types import Address
from tests.connector.reading.scripted_broker import Answer, text
from tests.wire.fake_broker import Asked, FakeBroker


class _Leader(FakeBroker):
    """One of the brokers: it tells who leads which partition, and answers fetches."""

    def __init__(self, cluster: SocketBrokers) -> None:
        self._cluster = cluster
        super().__init__(offered={**dict.fromkeys(protocol.VERSIONS, (0, 99)), Metadata.api.key: (7, 7)})

    def answer_to(self, asked: Asked) -> bytes:
        return self._cluster.metadata() if asked.api == Metadata.api.key else self._cluster.fetched(asked.body)


class SocketBrokers:
    """A cluster whose partitions hold one record batch each, led by the brokers in turn.

    Parameters
    ----------
    count : int
        How many brokers.
    topic : str
        Its only topic.
    partitions : int
        How many that has.
    batch : bytes
        The record batch, which begins with offset 0; asked for any offset a broker answers with it, so moved.
    """

    def __init__(self, count: int, topic: str, partitions: int, batch: bytes) -> None:
        self._topic = topic
        self._partitions = partitions
        self._batch = batch
        self._brokers = [_Leader(self) for _ in range(count)]
        self.addresses = [broker.address for broker in self._brokers]

    @property
    def bootstrap_servers(self) -> str:
        """The first of them."""
        return str(self.addresses[0])

    @property
    def connections(self) -> dict[Address, int]:
        """How many connections each broker has now."""
        return {broker.address: len(broker.connections) for broker in self._brokers}

    @property
    def connected(self) -> int:
        """How many connections there are now."""
        return sum(self.connections.values())

    @property
    def accepted(self) -> int:
        """How many connections there have been."""
        return sum(broker.accepted for broker in self._brokers)

    def leader(self, partition: int) -> Address:
        """Who leads a partition."""
        return self.addresses[partition % len(self.addresses)]

    def close(self) -> None:
        """Close all of them."""
        for broker in self._brokers:
            broker.close()

    def metadata(self) -> bytes:
        found = struct.pack(">ii", 0, len(self.addresses))
        for node, (host, port) in enumerate(self.addresses):
            found += struct.pack(">i", node) + text(host) + struct.pack(">ih", port, -1)
        found += struct.pack(">hiih", -1, 0, 1, 0) + text(self._topic) + b"\0" + struct.pack(">i", self._partitions)
        for n in range(self._partitions):
            found += struct.pack(">hiiiiii", 0, n, n % len(self.addresses), 0, 0, 0, 0)
        return found

    def fetched(self, body: bytes) -> bytes:
        at = struct.calcsize(">iiiibiii")
        topics = struct.unpack_from(">i", body, at - 4)[0]
        answers = b""
        for _ in range(topics):
            size = struct.unpack_from(">h", body, at)[0]
            name = body[at : at + 2 + size]
            count = struct.unpack_from(">i", body, at + 2 + size)[0]
            at += 6 + size
            answers += name + struct.pack(">i", count)
            for _ in range(count):
                partition, _, offset, _, _ = struct.unpack_from(">iiqqi", body, at)
                at += struct.calcsize(">iiqqi")
                # Deliberate: the base offset is not in the checksum, so the same batch may stand anywhere.
                records = struct.pack(">q", offset) + self._batch[8:]
                answer = Answer(log_end=offset + 1_000_000, records=records)
                answers += struct.pack(">ihqqqi", partition, 0, answer.log_end, answer.log_end, 0, 0)
                answers += struct.pack(">i", len(answer.records)) + answer.records
        return struct.pack(">ihii", 0, 0, 0, topics) + answers


@contextlib.contextmanager
def socket_brokers(count: int, topic: str, partitions: int, batch: bytes) -> Iterator[SocketBrokers]:
    """Yield such a cluster, and end it."""
    brokers = SocketBrokers(count, topic, partitions, batch)
    try:
        yield brokers
    finally:
        brokers.close()
