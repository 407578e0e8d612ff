"""Brokers in this process that listen on loopback, answer readers, and count their connections."""

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
    """One of the brokers.  It answers with the leaders of all partitions, and answers fetches."""

    def __init__(self, cluster: SocketBrokers) -> None:
        self._cluster = cluster
        super().__init__(offered={**dict.fromkeys(protocol.VERSIONS, (0, 99)), Metadata.api.key: (7, 7)})

    def answer_to(self, asked: Asked) -> bytes:
        return self._cluster.metadata() if asked.api == Metadata.api.key else self._cluster.fetched(asked.body)


class SocketBrokers:
    """A cluster whose partitions contain one record batch each.  The brokers lead them in turn.

    Parameters
    ----------
    count : int
        The number of brokers.
    topic : str
        The only topic.
    partitions : int
        The number of its partitions.
    batch : bytes
        The record batch, which begins at offset 0.  A broker moves it to any offset that a client requests.
    """

    def __init__(self, count: int, topic: str, partitions: int, batch: bytes) -> None:
        self._topic = topic
        self._partitions = partitions
        self._batch = batch
        self._brokers = [_Leader(self) for _ in range(count)]
        self.addresses = [broker.address for broker in self._brokers]

    @property
    def bootstrap_servers(self) -> str:
        """The address of the first broker."""
        return str(self.addresses[0])

    @property
    def connections(self) -> dict[Address, int]:
        """The number of open connections of each broker."""
        return {broker.address: len(broker.connections) for broker in self._brokers}

    @property
    def connected(self) -> int:
        """The number of open connections."""
        return sum(self.connections.values())

    @property
    def accepted(self) -> int:
        """The number of connections since the start."""
        return sum(broker.accepted for broker in self._brokers)

    def leader(self, partition: int) -> Address:
        """Return the leader of a partition."""
        return self.addresses[partition % len(self.addresses)]

    def close(self) -> None:
        """Close all brokers."""
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
                # Deliberate: the checksum does not cover the base offset, so the batch is valid at any offset.
                records = struct.pack(">q", offset) + self._batch[8:]
                answer = Answer(log_end=offset + 1_000_000, records=records)
                answers += struct.pack(">ihqqqi", partition, 0, answer.log_end, answer.log_end, 0, 0)
                answers += struct.pack(">i", len(answer.records)) + answer.records
        return struct.pack(">ihii", 0, 0, 0, topics) + answers


@contextlib.contextmanager
def socket_brokers(count: int, topic: str, partitions: int, batch: bytes) -> Iterator[SocketBrokers]:
    """Yield a cluster of such brokers, and close it."""
    brokers = SocketBrokers(count, topic, partitions, batch)
    try:
        yield brokers
    finally:
        brokers.close()
