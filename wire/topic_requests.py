"""Requests about topics: their ids and leaders, where logs start and end, and where leader epochs end."""

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
    """Asks for topics.

    Attributes
    ----------
    topics : tuple of str or None
        Their names; None for all.
    operations : bool
        Whether to tell what the user may do with each topic (KIP-430).
    creates : bool
        Whether the broker may create topics that are missing.
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
    """What a leader has listed.

    Attributes
    ----------
    error : int
        Kafka's error code; 0 is none.
    offset : int
        The offset; -1 if there is none.
    time_ms : int
        The time of its record if it was looked for by time, else -1.
    leader_epoch : int
        The leader epoch of the record; at the end of a log that of its leader.  -1 if it is not known.
    """

    error: int
    offset: int
    time_ms: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsets(Request[dict[TopicPartition, ListedOffset]]):
    """Asks the leader of some partitions where their logs start or end, or for the first record of a time or later.

    Log ends are asked for many times a second, so versions with a fixed layout are used: these two only.

    Attributes
    ----------
    partitions : mapping of TopicPartition to int
        The leader epoch as far as the asker knows; -1 if it does not.
    at : int or mapping of TopicPartition to int
        :data:`LOG_START`, :data:`LOG_END`, or the time of each partition in milliseconds since 1970.
    read_committed : bool
        Whether the end is where the first open transaction begins.
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
    """The numbers of operations in a field of bits (KIP-430); None if that says that nothing is told."""
    return None if bits == _NOT_TOLD else frozenset(number for number in range(31) if bits >> number & 1)
