"""Requests about transactions: their coordinators, and the producers of a partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import Coordinator, FindCoordinator
from pyspark_kafka_group.wire.requests import Api, Request, read_by_topic, write_by_topic
from pyspark_kafka_group.wire.types import Address, TopicPartition

_TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class FindTransactionCoordinator(Request[Coordinator]):
    """Requests the coordinator of a transactional id from any broker.  The broker checks the user's rights."""

    transactional_id: str

    api = FindCoordinator.api

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        if version < 4:
            out.text(self.transactional_id)
        out.int8(_TRANSACTION)
        if version >= 4:
            out.array([self.transactional_id], out.text)
        out.end()

    def read(self, answer: Reader, version: int) -> Coordinator:
        """Read the fields of the answer, which has the same form as for a group."""
        return FindCoordinator(self.transactional_id).read(answer, version)


@dataclass(frozen=True, slots=True)
class FindTransactionCoordinators(Request[Mapping[str, Coordinator]]):
    """Requests the coordinators of transactional ids from any broker (KIP-699)."""

    transactional_ids: Collection[str]

    api = FindCoordinator.api._replace(oldest=4, since="3.0")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.int8(_TRANSACTION)
        out.array(self.transactional_ids, out.text)
        out.end()

    def read(self, answer: Reader, version: int) -> Mapping[str, Coordinator]:
        """Read the fields of the answer."""
        del version

        def coordinator() -> tuple[str, Coordinator]:
            transactional_id = answer.text()
            answer.int32()  # id of the broker
            address = Address(answer.text(), answer.int32())
            found = Coordinator(answer.int16(), answer.text(), address)
            answer.end()
            return transactional_id, found

        answer.int32()  # throttle time
        found = dict(answer.array(coordinator))
        answer.end()
        return found


class ActiveProducer(NamedTuple):
    """A producer that a partition's leader remembers.

    Attributes
    ----------
    producer_id : int
        The id of the producer.
    last_time_ms : int
        The timestamp of its last records, in milliseconds since 1970; -1 if unknown.
    open_since : int
        The first offset of its open transaction; -1 without one.
    """

    producer_id: int
    last_time_ms: int
    open_since: int


class PartitionProducers(NamedTuple):
    """An error code, and the producers of a partition."""

    error: int
    producers: tuple[ActiveProducer, ...]


@dataclass(frozen=True, slots=True)
class DescribeProducers(Request[dict[TopicPartition, PartitionProducers]]):
    """Requests the producers of some partitions from their leader (KIP-664)."""

    partitions: Collection[TopicPartition]

    api = Api(61, "DescribeProducers", 0, 0, flexible=0, since="2.8")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        write_by_topic(out, dict.fromkeys(sorted(self.partitions)), lambda number, _: out.int32(number))
        out.end()

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, PartitionProducers]:
        """Read the fields of the answer."""
        del version

        def producer() -> ActiveProducer:
            producer_id = answer.int64()
            answer.int32()  # its epoch
            answer.int32()  # its last sequence number
            last_time_ms = answer.int64()
            answer.int32()  # the coordinator's epoch
            found = ActiveProducer(producer_id, last_time_ms, answer.int64())
            answer.end()
            return found

        def partition() -> tuple[int, PartitionProducers]:
            number, error = answer.int32(), answer.int16()
            answer.nullable_text()  # error message
            found = PartitionProducers(error, tuple(answer.array(producer)))
            answer.end()
            return number, found

        answer.int32()  # throttle time
        found = read_by_topic(answer, partition)
        answer.end()
        return found
