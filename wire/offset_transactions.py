"""Requests that commit offsets in a transaction: take the transactional id, add the group, write the offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import OffsetToCommit
from pyspark_kafka_group.wire.requests import Api, Request, read_errors, write_by_topic
from pyspark_kafka_group.wire.types import TopicPartition

_PRODUCER_OF_CALLER = 3  # of InitProducerId


class InitializedProducer(NamedTuple):
    """An error code, and the current producer of the transactional id."""

    error: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class InitProducerId(Request[InitializedProducer]):
    """Takes over a transactional id: fences its former producer, and aborts its open transaction.

    Without a transactional id, any broker returns a new producer id.
    """

    transactional_id: str | None
    timeout_ms: int

    api = Api(22, "InitProducerId", 0, 4, flexible=2, since="0.11")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        out.text(self.transactional_id)
        out.int32(self.timeout_ms)
        if version >= _PRODUCER_OF_CALLER:
            out.int64(-1)  # the former producer id of the caller
            out.int16(-1)  # its epoch
        out.end()

    def read(self, answer: Reader, version: int) -> InitializedProducer:
        """Read the fields of the answer."""
        del version
        answer.int32()  # throttle time
        found = InitializedProducer(answer.int16(), answer.int64(), answer.int16())
        answer.end()
        return found


@dataclass(frozen=True, slots=True)
class AddOffsetsToTransaction(Request[int]):
    """Begins a transaction that commits offsets of a group.  The answer is an error code."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

    api = Api(25, "AddOffsetsToTxn", 3, 3, flexible=3, since="2.8")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.text(self.transactional_id)
        out.int64(self.producer_id)
        out.int16(self.producer_epoch)
        out.text(self.group_id)
        out.end()

    def read(self, answer: Reader, version: int) -> int:
        """Read the fields of the answer."""
        del version
        answer.int32()  # throttle time
        error = answer.int16()
        answer.end()
        return error


@dataclass(frozen=True, slots=True)
class CommitOffsetsInTransaction(Request[dict[TopicPartition, int]]):
    """Commits offsets of a group without members, in a transaction.  The answer has an error code for each partition.

    Deliberate: not version 4 or higher.  Those are for producers that take a new epoch with each transaction (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    offsets: Mapping[TopicPartition, OffsetToCommit]

    api = Api(28, "TxnOffsetCommit", 3, 3, flexible=3, since="2.5")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version

        def partition(number: int, committed: OffsetToCommit) -> None:
            out.int32(number)
            out.int64(committed.offset)
            out.int32(committed.leader_epoch)
            out.text(committed.metadata)
            out.end()

        out.text(self.transactional_id)
        out.text(self.group_id)
        out.int64(self.producer_id)
        out.int16(self.producer_epoch)
        out.int32(-1)  # generation
        out.text("")  # member id
        out.text(None)  # instance id
        write_by_topic(out, self.offsets, partition)
        out.end()

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, int]:
        """Read the fields of the answer."""
        del version
        return read_errors(answer)
