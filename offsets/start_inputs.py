"""The inputs of the decision where a partition starts: facts of the cluster and of the query, and the options.

Values only; :mod:`~pyspark_kafka_group.offsets.start_position` decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pyspark_kafka_group.offsets.batch_offset import PartitionEntry
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.notes import BookmarkNote, ResetNote
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition


class StartingOffset(Enum):
    """The words of ``startingOffsets``; explicit offsets are plain numbers."""

    EARLIEST = "earliest"
    LATEST = "latest"


class NoMatch(Enum):
    """The words of ``startingOffsetsByTimestampStrategy``: what to do if a log has no record of a time or later."""

    ERROR = "error"  # end the query with a named error
    LATEST = "latest"  # start at the end of the log


class RewindPolicy(Enum):
    """The words of ``onOffsetRewind``."""

    FAIL = "fail"  # end the query with a named error
    CHECKPOINT = "checkpoint"  # resume after what this query has finished, and restore the group's offset
    GROUP = "group"  # go back with the group, and process the records again


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """The facts of the cluster about a partition that was just assigned.

    Attributes
    ----------
    committed : Offset or None
        The group's stable committed offset; None without one.
    note : CommitNote or None
        The note of the commit; None if no query of this project made it.
    reset : ResetNote or None
        The note of the reset, if ``kafka-group reset`` has set the offset.
    bookmark : BookmarkNote or None
        The note of the bookmark, if one has committed the offset.
    committed_leader_epoch : LeaderEpoch or None
        The leader epoch that Kafka keeps beside the committed offset.
    log_start, log_end : Offset
        The range that a reader can read now, ``[log_start, log_end)``, under the readers' isolation level.
    high_watermark : Offset
        The end of the log under ``read_uncommitted``; at least ``log_end``.
    topic_partitions : int
        The number of partitions that the topic has now.
    topic_started : bool
        Whether the group has a committed offset in any partition of this log's topic.
    initial_partition_count : int or None
        The number of partitions that the topic had when the group first started it, from the commits' metadata.  If
        no commit contains it, the partitions up to the last one with an offset count. 0 means: partitions without an
        offset are read from their beginning.
    topic_id : str or None
        The id of the topic; None if the broker has no ids.
    leader_epoch : LeaderEpoch or None
        The epoch of the leader that answered; None if unknown.
    epoch_ends : mapping of LeaderEpoch to Offset
        The end of the log for each of these leader epochs (KIP-320).  Offsets of that epoch above this end were
        truncated.
    at_time : Offset or None
        The first record of the policy's time or later; None if there is none, or the group has a committed offset.
    added : bool
        Whether the user has added the partition to ``assign`` after the query's first run.
    cluster_id : str or None
        The id of the cluster; None if unknown.
    """

    committed: Offset | None
    log_start: Offset
    log_end: Offset
    high_watermark: Offset
    topic_partitions: int
    topic_started: bool
    initial_partition_count: int | None
    note: CommitNote | None = None
    reset: ResetNote | None = None
    bookmark: BookmarkNote | None = None
    committed_leader_epoch: LeaderEpoch | None = None
    topic_id: str | None = None
    leader_epoch: LeaderEpoch | None = None
    epoch_ends: Mapping[LeaderEpoch, Offset] = field(default_factory=dict)
    at_time: Offset | None = None
    added: bool = False
    cluster_id: str | None = None

    @property
    def committed_topic_id(self) -> str | None:
        """The id of the topic whose log the committed offset belongs to; None if unknown."""
        note = self.note or self.bookmark
        return None if note is None else note.topic_id


class GroupOffset(NamedTuple):
    """A committed offset of the group, of a partition that this query may not own.

    Attributes
    ----------
    offset : Offset
        The committed offset.
    note : CommitNote or None
        The note of the commit; None if another program has committed it.
    topic_id : str or None
        The current id of the topic; None if unknown.
    leader_epoch : LeaderEpoch or None
        The leader epoch of the commit; None if unknown.
    """

    offset: Offset
    note: CommitNote | None
    topic_id: str | None = None
    leader_epoch: LeaderEpoch | None = None


class ProcessedOffset(NamedTuple):
    """The end of what a query has finished of a partition, owned or not.

    Attributes
    ----------
    offset : Offset
        The next offset after what Spark has finished.
    leader_epoch : LeaderEpoch or None
        A leader epoch under which the log had everything below ``offset``; None if unknown.
    topic_id : str or None
        The id of the log that the offsets belong to; None if unknown.
    lineage : str
        The start of the group that they descend from.
    """

    offset: Offset
    leader_epoch: LeaderEpoch | None
    topic_id: str | None
    lineage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPolicy:
    """The options that decide where a partition starts.

    Attributes
    ----------
    group_id : str
        The group.
    default : StartingOffset
        The start of partitions that no other option names.
    explicit : mapping
        The starts of single partitions.
    topics : mapping of str to StartingOffset
        The starts of whole topics.
    time_ms : int or None
        The option ``startingTimestamp``, in milliseconds since 1970.  It replaces ``default``.
    times_ms : mapping of TopicPartition to int
        The option ``startingOffsetsByTimestamp``, in milliseconds since 1970.  It replaces ``explicit``.
    no_match : NoMatch
        What to do if a log has no record of that time or later.
    fail_on_data_loss : bool
        The option ``failOnDataLoss``.
    on_rewind : RewindPolicy
        The option ``onOffsetRewind``.
    keeps_offsets : bool
        Whether the group's offset counts beside the checkpoint.  With ``assign`` it counts only for a partition that
        the checkpoint does not have.
    """

    group_id: str
    default: StartingOffset
    explicit: Mapping[TopicPartition, Offset | StartingOffset]
    fail_on_data_loss: bool
    topics: Mapping[str, StartingOffset] = field(default_factory=dict)
    time_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    no_match: NoMatch = NoMatch.ERROR
    on_rewind: RewindPolicy = RewindPolicy.FAIL
    keeps_offsets: bool = True

    def time_of(self, tp: TopicPartition) -> int | None:
        """Return the time that may decide where ``tp`` starts, in milliseconds since 1970."""
        return self.times_ms.get(tp, self.time_ms)


class QueryInfo(NamedTuple):
    """The facts of the query about a partition that was just assigned.

    Attributes
    ----------
    query_id : str
        The id of the query.
    new_lineage : str
        The name of the start that is being decided, unless it has one.
    processed : ProcessedOffset or None
        The end of what the query has processed of the partition.
    logged : PartitionEntry or None
        The part of this partition in the batch that Spark has logged and not finished.
    recreated : bool
        Whether its processed offset of any partition of the topic belongs to another log.
    read_before : bool
        Whether its checkpoint has a processed offset of any partition of this log.
    begins_anew : bool
        Whether the query owns another partition of this log that it had to begin at its beginning.
    """

    query_id: str
    new_lineage: str
    processed: ProcessedOffset | None = None
    logged: PartitionEntry | None = None
    recreated: bool = False
    read_before: bool = False
    begins_anew: bool = False
