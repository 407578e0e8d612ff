"""The outputs of a step: commands for the shell, and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.skip_markers import Markers
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch, TopicPartition


@dataclass(frozen=True, slots=True)
class FetchPartitionInfo:
    """Ask the cluster about partitions; answer with :class:`PartitionInfoReceived`."""

    epochs: Mapping[TopicPartition, OwnershipEpoch]


class CommitEntry(NamedTuple):
    """The commit of one partition.

    Attributes
    ----------
    epoch : OwnershipEpoch
        The assignment under which the member owns it.
    offset : Offset
        The next offset to read.
    leader_epoch : LeaderEpoch or None
        A leader epoch under which the log had everything below ``offset``, for Kafka's own field (KIP-320).
    note : CommitNote
        The metadata of the commit.
    """

    epoch: OwnershipEpoch
    offset: Offset
    leader_epoch: LeaderEpoch | None
    note: CommitNote


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit these offsets; answer with :class:`CommitAnswered`.  At most one is outstanding.

    Attributes
    ----------
    entries : mapping of TopicPartition to CommitEntry
        The commit of each partition.
    after_batch : int
        The number of finished batches when the commit was decided.
    """

    entries: Mapping[TopicPartition, CommitEntry]
    after_batch: int


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Read the group's offsets of these partitions; answer with :class:`OffsetsReadBack`."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StoreSkips:
    """Make these skips durable, and answer with :class:`SkipsStored`."""

    markers: Markers


@dataclass(frozen=True, slots=True)
class ScheduleRetry:
    """Feed :class:`Retry` after a pause."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the query with this error."""

    error: KafkaGroupError


Output = FetchPartitionInfo | Commit | FetchOffsets | StoreSkips | ScheduleRetry | Fail | events.Event
