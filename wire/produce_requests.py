"""Requests of a producer: write record batches, and add partitions to a transaction.

A producer sends Produce many times a second, with large record batches.  So it has one fixed version, and its body is a
list of buffers that nobody joins.  Version 7 is the oldest one with zstd.  It needs Kafka 2.1.  Higher versions add
nothing that this package needs.  From version 12 on, the broker adds partitions to transactions itself (KIP-890).

Source: https://kafka.apache.org/protocol
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.messages import Buffer
from pyspark_kafka_group.wire.requests import Api, Request, read_errors, write_by_topic
from pyspark_kafka_group.wire.types import TopicPartition

_HEADER = struct.Struct(">hii")  # acks, timeout, number of topics
_PARTITION = struct.Struct(">ii")  # number, size of the record batches
_PRODUCED = struct.Struct(">ihqqq")  # number, error, first offset, time of the append, log start


def produce_request(
    batches: Mapping[TopicPartition, Sequence[Buffer]], *, transactional_id: str | None, acks: int, timeout_ms: int
) -> list[Buffer]:
    """Return the body of a Produce request, in pieces.

    Parameters
    ----------
    batches
        The buffers of the record batch of each partition.
    transactional_id
        The transactional id; None without a transaction.
    acks
        1 for the leader, -1 for all replicas in sync.
    timeout_ms
        How long the leader may wait for other replicas.
    """
    by_topic: dict[str, list[tuple[int, Sequence[Buffer]]]] = {}
    for (topic, partition), buffers in batches.items():
        by_topic.setdefault(topic, []).append((partition, buffers))
    small = Writer(flexible=False)
    small.text(transactional_id)
    small.append(_HEADER.pack(acks, timeout_ms, len(by_topic)))
    body: list[Buffer] = []
    for topic, partitions in by_topic.items():
        small.text(topic)
        small.int32(len(partitions))
        for partition, buffers in partitions:
            small.append(_PARTITION.pack(partition, sum(map(len, buffers))))
            body += [bytes(small), *buffers]
            small = Writer(flexible=False)
    return body


class ProduceAnswer(NamedTuple):
    """The answer of a leader: an error code for each partition, and how long it will not read requests (KIP-219)."""

    throttle_ms: int
    errors: dict[TopicPartition, int]


def produced(response: Reader) -> ProduceAnswer:
    """Read the answer to a Produce request."""
    errors: dict[TopicPartition, int] = {}
    for _ in range(response.int32()):
        topic = response.text()
        for _ in range(response.int32()):
            partition, error, *_ = response.take(_PRODUCED)
            errors[TopicPartition(topic, partition)] = error
    return ProduceAnswer(response.int32(), errors)


@dataclass(frozen=True, slots=True)
class AddPartitionsToTransaction(Request[dict[TopicPartition, int]]):
    """Adds partitions to the transaction of a producer, before its first records there.

    The answer has an error code for each partition.

    Deliberate: not version 4 or higher.  Those are for brokers.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]

    api = Api(24, "AddPartitionsToTxn", 0, 3, flexible=3, since="0.11")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.text(self.transactional_id)
        out.int64(self.producer_id)
        out.int16(self.producer_epoch)
        write_by_topic(out, dict.fromkeys(self.partitions), lambda number, _: out.int32(number))
        out.end()

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, int]:
        """Read the fields of the answer."""
        del version
        return read_errors(answer)
