"""Requests about topics: their ids and leaders, where logs start and end, and where leader epochs end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.requests import Api, Request, read_by_topic, write_by_topic
from pyspark_kafka_group.wire.types import Address, TopicPartition

_AUTHORIZED_OPERATIONS = 8
_TOPIC_IDS = 10
_NO_CLUSTER_OPERATIONS = 11
_CONSUMER = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1

_NOT_TOLD = -(2**31)

LOG_START, LOG_END = -2, -1
"""In place of a timestamp."""


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """What the cluster knows of a partition.

    Attributes
    ----------
    number : int
        Which one.
    error : int
        Kafka's error code; 0 is none.
    leader : int
        The id of the broker that leads it; -1 if none does.
    leader_epoch : int
        How often the leader has changed; -1 if that is not known.
    """

    number: int
    error: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """What the cluster knows of a topic.

    Attributes
    ----------
    name : str
        Its name.
    error : int
        Kafka's error code; 0 is none.  With one, there are no partitions.
    topic_id : str or None
        Its id as Kafka prints it; None from brokers before 2.8.
    partitions : tuple of PartitionMetadata
        Its partitions, in no order.
    operations : frozenset of int or None
        The operations (KIP-430) that the asker may do with it; None if that was not asked, or is not told.
    """

    name: str
    error: int
    topic_id: str | None
    partitions: tuple[PartitionMetadata, ...]
    operations: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The brokers by their ids, and the topics."""

    brokers: Mapping[int, Address]
    topics: tuple[TopicMetadata, ...]


@dataclass(frozen=True, slots=True)
class Metadata(Request[ClusterMetadata]):
    """Asks for topics, without creating one; None asks for all."""

    topics: tuple[str, ...] | None
    operations: bool = False

    api = Api(3, "Metadata", 7, 12, flexible=9, since="2.1")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""

        def topic(name: str) -> None:
            if version >= _TOPIC_IDS:
                out.uuid(None)
            out.text(name)
            out.end()

        out.array(self.topics, topic)
        out.boolean(False)  # allow creation
        if version >= _AUTHORIZED_OPERATIONS:
            if version < _NO_CLUSTER_OPERATIONS:
                out.boolean(False)
            out.boolean(self.operations)
        out.end()

    def read(self, answer: Reader, version: int) -> ClusterMetadata:
        """Read the fields of the answer."""

        def broker() -> tuple[int, Address]:
            found = answer.int32(), Address(answer.text(), answer.int32())
            answer.nullable_text()  # rack
            answer.end()
            return found

        def partition() -> PartitionMetadata:
            error = answer.int16()
            found = PartitionMetadata(answer.int32(), error, answer.int32(), answer.int32())
            for _ in ("replicas", "in-sync replicas", "offline replicas"):
                answer.int32s()
            answer.end()
            return found

        def topic() -> TopicMetadata:
            error, name = answer.int16(), answer.text()
            topic_id = answer.uuid() if version >= _TOPIC_IDS else None
            answer.boolean()  # whether it is internal
            partitions = tuple(answer.array(partition))
            operations = operations_of(answer.int32()) if version >= _AUTHORIZED_OPERATIONS else None
            answer.end()
            return TopicMetadata(name, error, topic_id, partitions, operations)

        answer.int32()  # throttle time
        brokers = dict(answer.array(broker))
        answer.nullable_text()  # cluster id
        answer.int32()  # controller
        topics = tuple(answer.array(topic))
        if _AUTHORIZED_OPERATIONS <= version < _NO_CLUSTER_OPERATIONS:
            answer.int32()
        answer.end()
        return ClusterMetadata(brokers, topics)


class AskedEpoch(NamedTuple):
    """The epoch whose end is asked for, and the leader's epoch as far as the asker knows; -1 if it does not."""

    leader_epoch: int
    current_leader_epoch: int


class FoundEpoch(NamedTuple):
    """An error code, the largest epoch up to the asked one, and where it ends; -1 where the leader knows none."""

    error: int
    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpoch(Request[dict[TopicPartition, FoundEpoch]]):
    """Asks the leader of some partitions where epochs end (KIP-320)."""

    partitions: Mapping[TopicPartition, AskedEpoch]

    api = Api(23, "OffsetForLeaderEpoch", 3, 4, flexible=4, since="2.3")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version

        def partition(number: int, asked: AskedEpoch) -> None:
            out.int32(number)
            out.int32(asked.current_leader_epoch)
            out.int32(asked.leader_epoch)
            out.end()

        out.int32(_CONSUMER)
        write_by_topic(out, self.partitions, partition)
        out.end()

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, FoundEpoch]:
        """Read the fields of the answer."""
        del version

        def partition() -> tuple[int, FoundEpoch]:
            error, number = answer.int16(), answer.int32()
            found = FoundEpoch(error, answer.int32(), answer.int64())
            answer.end()
            return number, found

        answer.int32()  # throttle time
        found = read_by_topic(answer, partition)
        answer.end()
        return found


class ListedOffset(NamedTuple):
    """An error code, the offset, -1 where there is none, and the time of its record where it was looked for by time."""

    error: int
    offset: int
    time_ms: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsets(Request[dict[TopicPartition, ListedOffset]]):
    """Asks the leader of some partitions where their logs start or end.

    Attributes
    ----------
    partitions : mapping of TopicPartition to int
        The leader's epoch as far as the asker knows; -1 if it does not.
    timestamp : int
        :data:`LOG_START` or :data:`LOG_END`.
    read_committed : bool
        Whether the end is where the first open transaction begins.
    """

    partitions: Mapping[TopicPartition, int]
    timestamp: int
    read_committed: bool

    api = Api(2, "ListOffsets", 4, 6, flexible=6, since="2.1")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version

        def partition(number: int, current_leader_epoch: int) -> None:
            out.int32(number)
            out.int32(current_leader_epoch)
            out.int64(self.timestamp)
            out.end()

        out.int32(_CONSUMER)
        out.int8(_READ_COMMITTED if self.read_committed else _READ_UNCOMMITTED)
        write_by_topic(out, self.partitions, partition)
        out.end()

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, ListedOffset]:
        """Read the fields of the answer."""
        del version

        def partition() -> tuple[int, ListedOffset]:
            number, error = answer.int32(), answer.int16()
            time_ms = answer.int64()
            found = ListedOffset(error, answer.int64(), time_ms)
            answer.int32()  # its leader epoch
            answer.end()
            return number, found

        answer.int32()  # throttle time
        found = read_by_topic(answer, partition)
        answer.end()
        return found


def operations_of(bits: int) -> frozenset[int] | None:
    """The numbers of operations in a field of bits (KIP-430); None if that says that nothing is told."""
    return None if bits == _NOT_TOLD else frozenset(number for number in range(31) if bits >> number & 1)
