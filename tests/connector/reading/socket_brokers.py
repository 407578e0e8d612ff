"""Brokers in this process that listen on loopback, answer readers, and count their connections."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata, PartitionMetadata, TopicMetadata
from pyspark_kafka_group.wire.types import Address
from tests.connector.reading.scripted_broker import Answer, Fetched, fetch_answer, fetched_partitions
from tests.wire import answers
from tests.wire.fake_broker import Asked, FakeBroker


class _Leader(FakeBroker):
    """One of the brokers.  It answers with the leaders of all partitions, and answers fetches."""

    def __init__(self, cluster: SocketBrokers) -> None:
        self._cluster = cluster
        super().__init__(offered={**dict.fromkeys(protocol.VERSIONS, (0, 99)), Metadata.api.key: (7, 7)})

    def answer_to(self, asked: Asked) -> Any:
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

    def metadata(self) -> Any:
        count = len(self.addresses)
        partitions = tuple(PartitionMetadata(n, 0, n % count, 0) for n in range(self._partitions))
        brokers = dict(enumerate(self.addresses))
        return answers.metadata(ClusterMetadata(brokers, (TopicMetadata(self._topic, 0, None, partitions),)))

    def fetched(self, body: bytes) -> bytes:
        def answer(asked: Fetched) -> Answer:
            # Deliberate: the checksum does not cover the base offset, so the batch is valid at any offset.
            records = struct.pack(">q", asked.offset) + self._batch[8:]
            return Answer(log_end=asked.offset + 1_000_000, records=records)

        return fetch_answer([(asked.tp, answer(asked)) for asked in fetched_partitions(body)])


@contextlib.contextmanager
def socket_brokers(count: int, topic: str, partitions: int, batch: bytes) -> Iterator[SocketBrokers]:
    """Yield a cluster of such brokers, and close it."""
    brokers = SocketBrokers(count, topic, partitions, batch)
    try:
        yield brokers
    finally:
        brokers.close()
