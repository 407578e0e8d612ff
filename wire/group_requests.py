"""Requests to the coordinator of a group, and the request that finds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.requests import Api, Request, read_by_topic, read_errors, write_by_topic
from pyspark_kafka_group.wire.types import Address, ProtocolError, TopicPartition

_GROUP = 0
_REQUIRE_STABLE = 7  # of OffsetFetch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The address of a coordinator, or the error if it is unknown."""

    error: int
    message: str
    address: Address


@dataclass(frozen=True, slots=True)
class FindCoordinator(Request[Coordinator]):
    """Requests the coordinator of a group from any broker."""

    group_id: str

    api = Api(10, "FindCoordinator", 3, 4, flexible=3, since="2.4")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        if version < 4:
            out.text(self.group_id)
        out.int8(_GROUP)
        if version >= 4:
            out.array([self.group_id], out.text)
        out.end()

    def read(self, answer: Reader, version: int) -> Coordinator:
        """Read the fields of the answer."""
        answer.int32()  # throttle time
        if version < 4:
            error, message = answer.int16(), answer.text()
            answer.int32()  # id of the broker
            found = Coordinator(error, message, Address(answer.text(), answer.int32()))
        else:

            def coordinator() -> Coordinator:
                answer.text()  # the group
                answer.int32()  # id of the broker
                address = Address(answer.text(), answer.int32())
                found = Coordinator(answer.int16(), answer.text(), address)
                answer.end()
                return found

            found = only(answer.array(coordinator))
        answer.end()
        return found


class FetchedOffset(NamedTuple):
    """An error code, the committed offset (-1 if none), its leader epoch (-1 if unknown) and its metadata."""

    error: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """The answer to OffsetFetch: an error code for the whole group, and the offset of each partition."""

    error: int
    partitions: Mapping[TopicPartition, FetchedOffset]


@dataclass(frozen=True, slots=True)
class OffsetFetch(Request[FetchedOffsets]):
    """Requests committed offsets.

    Attributes
    ----------
    group_id : str
        The group.
    partitions : collection of TopicPartition or None
        The partitions; None for all with a committed offset.
    require_stable : bool
        Whether partitions in an open transaction return UNSTABLE_OFFSET_COMMIT instead (KIP-447).  Brokers before 2.5
        ignore this.  With ``partitions`` None, a partition without a committed offset is left out even then.
    """

    group_id: str
    partitions: Collection[TopicPartition] | None
    require_stable: bool

    api = Api(9, "OffsetFetch", 5, 9, flexible=6, since="2.1")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""

        def partition(number: int, _: None) -> None:
            out.int32(number)

        def group(group_id: str) -> None:
            out.text(group_id)
            if version >= 9:
                out.text(None)  # member id
                out.int32(-1)  # member epoch
            if self.partitions is None:
                out.array(None, out.int32)
            else:
                write_by_topic(out, dict.fromkeys(self.partitions), partition)
            if version >= 8:
                out.end()

        if version >= 8:
            out.array([self.group_id], group)
        else:
            group(self.group_id)
        if version >= _REQUIRE_STABLE:
            out.boolean(self.require_stable)
        out.end()

    def read(self, answer: Reader, version: int) -> FetchedOffsets:
        """Read the fields of the answer."""

        def partition() -> tuple[int, FetchedOffset]:
            number, offset, epoch, metadata = answer.int32(), answer.int64(), answer.int32(), answer.text()
            found = FetchedOffset(answer.int16(), offset, epoch, metadata)
            answer.end()
            return number, found

        def group() -> FetchedOffsets:
            if version >= 8:
                answer.text()
            partitions = read_by_topic(answer, partition)
            found = FetchedOffsets(answer.int16(), partitions)
            if version >= 8:
                answer.end()
            return found

        answer.int32()  # throttle time
        found = only(answer.array(group)) if version >= 8 else group()
        answer.end()
        return found


class OffsetToCommit(NamedTuple):
    """An offset, its leader epoch (-1 if unknown) and its metadata."""

    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class OffsetCommit(Request[dict[TopicPartition, int]]):
    """Commits offsets.  The answer has an error code for each partition.

    Attributes
    ----------
    group_id : str
        The group.
    member_id : str
        The id of the member; empty without a member.
    generation : int
        The generation, or the member epoch (KIP-848); -1 without a member.
    instance_id : str or None
        The ``group.instance.id`` of a static member.
    offsets : mapping
        The offsets to commit.
    """

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None
    offsets: Mapping[TopicPartition, OffsetToCommit]

    api = Api(8, "OffsetCommit", 7, 9, flexible=8, since="2.3")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version

        def partition(number: int, committed: OffsetToCommit) -> None:
            out.int32(number)
            out.int64(committed.offset)
            out.int32(committed.leader_epoch)
            out.text(committed.metadata)
            out.end()

        out.text(self.group_id)
        out.int32(self.generation)
        out.text(self.member_id)
        out.text(self.instance_id)
        write_by_topic(out, self.offsets, partition)
        out.end()

    def read(self, answer: Reader, version: int) -> dict[TopicPartition, int]:
        """Read the fields of the answer."""
        del version
        return read_errors(answer)


_KEPT_MS = 2**31 * 60_000
"""How long a lasting commit is kept: the largest possible ``offsets.retention.minutes``."""


@dataclass(frozen=True, slots=True)
class LastingOffsetCommit(OffsetCommit):
    """Commits offsets that do not expire, for any ``offsets.retention.minutes`` of the brokers.

    Only these old versions contain the retention of an offset (KIP-211 removed it from version 5).  The broker stores
    an expiry time with such an offset, in a group of any kind (``OffsetMetadataManager`` and
    ``OffsetExpirationConditionImpl`` of Kafka 4.3.1).  They contain no leader epoch and no instance id.
    """

    api = Api(8, "OffsetCommit", 3, 4, flexible=8, since="0.11")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version

        def partition(number: int, committed: OffsetToCommit) -> None:
            out.int32(number)
            out.int64(committed.offset)
            out.text(committed.metadata)

        out.text(self.group_id)
        out.int32(self.generation)
        out.text(self.member_id)
        out.int64(_KEPT_MS)
        write_by_topic(out, self.offsets, partition)


def only(groups: list[T]) -> T:
    """Return the only item of an answer about one group."""
    if len(groups) != 1:
        raise ProtocolError(f"a response has {len(groups)} groups instead of one")
    return groups[0]
