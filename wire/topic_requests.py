"""Requests about topics: ids and leaders, log starts and log ends, and the ends of leader epochs."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.requests import Api, Request, read_by_topic, write_by_topic
from pyspark_kafka_group.wire.types import Address, TopicPartition

_AUTHORIZED_OPERATIONS = 8
_TOPIC_IDS = 10
_NO_CLUSTER_OPERATIONS = 11
_REPLICA_ID = 3  # of OffsetForLeaderEpoch
_CONSUMER = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1

_ASKED_OFFSET = struct.Struct(">iiq")  # partition, leader epoch, timestamp
_LISTED_OFFSET = struct.Struct(">ihqqi")  # partition, error, timestamp, offset, leader epoch

_NOT_TOLD = -(2**31)

LOG_START, LOG_END = -2, -1
"""Values of the timestamp field with a special meaning."""


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The metadata of a partition.

    Attributes
    ----------
    number : int
        The number of the partition.
    error : int
        Kafka's error code; 0 is none.
    leader : int
        The id of the leader; -1 without one.
    leader_epoch : int
        The epoch of the leader; -1 if unknown.
    """

    number: int
    error: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """The metadata of a topic.

    Attributes
    ----------
    name : str
        The name.
    error : int
        Kafka's error code; 0 is none.  With an error, there are no partitions.
    topic_id : str or None
        The id in Kafka's text form; None from brokers before 2.8.
    partitions : tuple of PartitionMetadata
        The partitions, in no order.
    operations : frozenset of int or None
        The operations that the user may do with it (KIP-430).  None if not requested or unknown.
    """

    name: str
    error: int
    topic_id: str | None
    partitions: tuple[PartitionMetadata, ...]
    operations: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The brokers by their ids, the requested topics, and the id of the cluster; None if it has no id."""

    brokers: Mapping[int, Address]
    topics: tuple[TopicMetadata, ...]
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class Metadata(Request[ClusterMetadata]):
    """Requests the metadata of topics.

    Attributes
    ----------
    topics : tuple of str or None
        The names of the topics; None for all.
    operations : bool
        Whether to return the operations that the user may do (KIP-430).
    creates : bool
        Whether the broker may create missing topics.
    """

    topics: tuple[str, ...] | None
    operations: bool = False
    creates: bool = False

    api = Api(3, "Metadata", 7, 12, flexible=9, since="2.1")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""

        def topic(name: str) -> None:
            if version >= _TOPIC_IDS:
                out.uuid(None)
            out.text(name)
            out.end()

        out.array(self.topics, topic)
        out.boolean(self.creates)
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
        cluster_id = answer.nullable_text()
        answer.int32()  # controller
        topics = tuple(answer.array(topic))
        if _AUTHORIZED_OPERATIONS <= version < _NO_CLUSTER_OPERATIONS:
            answer.int32()
        answer.end()
        return ClusterMetadata(brokers, topics, cluster_id)


class AskedEpoch(NamedTuple):
    """The epoch whose end is requested, and the leader's known epoch; -1 if unknown."""

    leader_epoch: int
    current_leader_epoch: int


class FoundEpoch(NamedTuple):
    """An error code, the largest epoch up to the requested one, and its end; -1 if the leader knows none."""

    error: int
    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpoch(Request[dict[TopicPartition, FoundEpoch]]):
    """Requests the ends of epochs from the leader of some partitions (KIP-320)."""

    partitions: Mapping[TopicPartition, AskedEpoch]

    api = Api(23, "OffsetForLeaderEpoch", 2, 4, flexible=4, since="2.1")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""

        def partition(number: int, asked: AskedEpoch) -> None:
            out.int32(number)
            out.int32(asked.current_leader_epoch)
            out.int32(asked.leader_epoch)
            out.end()

        if version >= _REPLICA_ID:
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
    """One offset from a leader.

    Attributes
    ----------
    error : int
        Kafka's error code; 0 is none.
    offset : int
        The offset; -1 if there is none.
    time_ms : int
        The timestamp of its record in a search by time, otherwise -1.
    leader_epoch : int
        The leader epoch of the record; at the log end, the epoch of the leader.  -1 if unknown.
    """

    error: int
    offset: int
    time_ms: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsets(Request[dict[TopicPartition, ListedOffset]]):
    """Requests log starts, log ends, or the first offsets at a time, from the leader of some partitions.

    The query requests log ends many times a second.  So this uses only the two versions with a fixed layout.

    Attributes
    ----------
    partitions : mapping of TopicPartition to int
        The known leader epoch; -1 if unknown.
    at : int or mapping of TopicPartition to int
        :data:`LOG_START`, :data:`LOG_END`, or a time for each partition, in milliseconds since 1970.
    read_committed : bool
        Whether the first open transaction counts as the log end.
    """

    partitions: Mapping[TopicPartition, int]
    at: int | Mapping[TopicPartition, int]
    read_committed: bool = False

    api = Api(2, "ListOffsets", 4, 5, flexible=6, since="2.1")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        at = self.at
        asked: dict[str, list[bytes]] = {}
        for tp, epoch in self.partitions.items():
            timestamp = at if isinstance(at, int) else at[tp]
            asked.setdefault(tp.topic, []).append(_ASKED_OFFSET.pack(tp.partition, epoch, timestamp))

        def topic(item: tuple[str, list[bytes]]) -> None:
            name, partitions = item
            out.text(name)
            out.array(partitions, out.append)

        out.int32(_CONSUMER)
        out.int8(_READ_COMMITTED if self.read_committed else _READ_UNCOMMITTED)
        out.array(asked.items(), topic)

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, ListedOffset]:
        """Read the fields of the answer."""
        del version
        found: dict[TopicPartition, ListedOffset] = {}
        answer.int32()  # throttle time
        for _ in range(answer.int32()):
            topic, count = answer.text(), answer.int32()
            listed = answer.bytes(count * _LISTED_OFFSET.size)
            for number, error, time_ms, offset, leader_epoch in _LISTED_OFFSET.iter_unpack(listed):
                found[TopicPartition(topic, number)] = ListedOffset(error, offset, time_ms, leader_epoch)
        return found


def operations_of(bits: int) -> frozenset[int] | None:
    """Return the numbers of operations in a field of bits (KIP-430); None if the broker has not filled it."""
    return None if bits == _NOT_TOLD else frozenset(number for number in range(31) if bits >> number & 1)
