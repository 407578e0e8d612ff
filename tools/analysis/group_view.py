"""A group as it is now: its members, its committed offsets, and how far it is behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TypeVar

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import DatedOffset, GroupCoordinator
from pyspark_kafka_group.cluster.group_description import DEAD, GroupDescription, GroupMember
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import GroupError, OffsetFormatError
from pyspark_kafka_group.offsets.notes import Note, read
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.lag_judgement import (
    LOOK_BACK_S,
    CommitWindows,
    Judgement,
    Status,
    group_status,
    judge,
)
from pyspark_kafka_group.tools.analysis.offsets_topic import read_group
from pyspark_kafka_group.tools.analysis.time_lag import lag_seconds
from pyspark_kafka_group.wire.deadline import Deadline

_PATIENCE_S = 10.0
_PAUSE_S = 0.5

T = TypeVar("T")

GONE = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})
"""Errors of partitions that no longer exist."""


def answered(ask: Callable[[], T]) -> T:
    """Ask until the cluster answers: a coordinator may be loading or moving.

    Raises
    ------
    TryAgainError
        If there is no answer within 10 s.
    """
    return patiently(ask, Deadline.after(_PATIENCE_S), repeat(_PAUSE_S))


class UnknownGroupError(GroupError):
    """The cluster knows neither members nor offsets of the group."""

    group_id: str

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"The cluster does not know the group {group_id!r}. Check its name. Kafka deletes a group that has no "
            f"members and no offsets.",
            group_id=group_id,
        )


class OtherGroupKindError(GroupError):
    """The group is no group of consumers.  Its members are unknown here."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"The group {group_id!r} is a share group, or a group of Kafka Streams with the protocol of KIP-1071. Use "
            f"Kafka's tools kafka-share-groups or kafka-streams-groups."
        )


def describe(inspection: Cluster, group_id: str) -> GroupDescription:
    """Return a group and its members; raise OtherGroupKindError if it is no group of consumers."""
    found = inspection.describe_group(group_id)
    if found.is_other_kind:
        raise OtherGroupKindError(group_id)
    return found


def shown_note(metadata: str | None) -> Note | None:
    """Return the note in some metadata, to show it; None also for one of a newer version, whose meaning is unknown."""
    try:
        return read(metadata)
    except OffsetFormatError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition of a group.

    Attributes
    ----------
    tp : TopicPartition
        The partition.
    committed_offset : int or None
        The committed offset; None if there is none.
    leader_epoch : int or None
        Its leader epoch.
    metadata : str or None
        Its metadata; None without an offset.
    log_start_offset : int or None
        The log start; None if no leader answers, or there is no lag.
    log_end_offset : int or None
        The log end, open and aborted transactions included; None if no leader answers.
    owner : Member or None
        The member that owns the partition.
    status : Status or None
        Burrow's verdict; None if there is none.  ``HELDBACK`` if there is a problem, ``BEYOND`` if the log ends before
        the committed offset.
    lag_seconds : float or None
        Age of the record at the committed offset, 0 without a lag; None if unknown, or if there is no such record.
    catch_up_seconds : float or None
        Time until the lag is 0 at the latest rate; None if the lag does not fall, or that is unknown.
    problem : str or None
        Kafka's name of the error that keeps the partition from being read; None if the leader answers, or the topic
        does not exist.
    """

    tp: TopicPartition
    committed_offset: int | None
    leader_epoch: int | None = None
    metadata: str | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    owner: GroupMember | None = None
    status: Status | None = None
    lag_seconds: float | None = None
    catch_up_seconds: float | None = None
    problem: str | None = None

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group can still read; None if unknown.

        Negative if the committed offset is beyond the log end.  Kafka's own tool also counts expired offsets.
        """
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed_offset - (self.expired or 0)

    @property
    def expired(self) -> int | None:
        """The number of offsets that the brokers deleted before the group read them; None if unknown."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(0, (self.log_start_offset or 0) - self.committed_offset)

    @property
    def query_id(self) -> str | None:
        """The query of this project that committed; None if another program did."""
        note = shown_note(self.metadata)
        return note.query_id if isinstance(note, CommitNote) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group, its members and its partitions, sorted by topic and number."""

    group: str
    description: GroupDescription
    coordinator: GroupCoordinator
    partitions: tuple[PartitionView, ...]

    def check_exists(self) -> None:
        """Raise :class:`UnknownGroupError` if the cluster does not know the group."""
        if self.description.state == DEAD and not self.partitions:
            raise UnknownGroupError(self.group)

    @property
    def status(self) -> Status | None:
        """Burrow's verdict on the group; None if no partition has one."""
        judged = [partition.status for partition in self.partitions if partition.status is not None]
        return group_status(judged) if judged else None

    @property
    def lag(self) -> int | None:
        """The sum of the known lags; None if all of them are unknown."""
        known = [max(0, partition.lag) for partition in self.partitions if partition.lag is not None]
        return sum(known) if known or not self.partitions else None

    @property
    def expired(self) -> int:
        """The number of offsets that the brokers deleted before the group read them."""
        return sum(part.expired or 0 for part in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        """The time lag of the partition that is furthest behind; None if unknown for all of them."""
        return max((part.lag_seconds for part in self.partitions if part.lag_seconds is not None), default=None)

    @property
    def catch_up_seconds(self) -> float | None:
        """Time until no partition has a lag; None if that is unknown for one of them."""
        each = [part.catch_up_seconds for part in self.partitions if part.lag is not None]
        known = [seconds for seconds in each if seconds is not None]
        return max(known) if known and len(known) == len(each) else None

    def judged(self, judgements: Mapping[TopicPartition, Judgement]) -> GroupView:
        """Return the view with a verdict on each partition that has one."""

        def one(part: PartitionView) -> PartitionView:
            found = judgements.get(part.tp)
            return replace(part, **found._asdict()) if found else part

        return replace(self, partitions=tuple(map(one, self.partitions)))


def view_group(inspection: Cluster, group_id: str) -> GroupView:
    """Return what the cluster says about a group now, without time lags and verdicts.

    Raises what :class:`~pyspark_kafka_group.cluster.cluster.Cluster` says.
    """
    description = describe(inspection, group_id)
    committed = inspection.all_committed(group_id)
    owners = {tp: member for member in description.members for tp in member.assignment}
    partitions = sorted({*committed.found, *committed.failed, *owners})
    ends = inspection.log_ends(partitions, read_committed=False)
    behind = [tp for tp, end in ends.found.items() if tp in committed.found and committed.found[tp].offset < end]
    starts = inspection.log_starts(behind).found if behind else {}
    problems = {tp: problem for tp, problem in ends.failed.items() if problem not in GONE}

    def one(tp: TopicPartition) -> PartitionView:
        offset, end = committed.found.get(tp), ends.found.get(tp)
        is_beyond = offset is not None and end is not None and offset.offset > end
        return PartitionView(
            tp=tp,
            committed_offset=offset.offset if offset else None,
            leader_epoch=offset.leader_epoch if offset else None,
            metadata=offset.metadata if offset else None,
            log_start_offset=starts.get(tp),
            log_end_offset=end,
            owner=owners.get(tp),
            status=Status.HELDBACK if tp in problems else Status.BEYOND if is_beyond else None,
            problem=problems.get(tp),
        )

    return GroupView(
        group=group_id,
        description=description,
        coordinator=inspection.coordinator(group_id),
        partitions=tuple(map(one, partitions)),
    )


def with_time_lags(view: GroupView, inspection: Cluster) -> GroupView:
    """Return the view with how far each partition is behind in time, if its leader answers.

    Raises
    ------
    TryAgainError
        If the cluster does not answer.
    """
    behind = {
        part.tp: part.committed_offset
        for part in view.partitions
        if part.committed_offset is not None and part.lag is not None and part.lag > 0
    }
    leaders = inspection.look({tp.topic for tp in behind}).leaders if behind else None

    def records_at(times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, DatedOffset | None]:
        return inspection.records_at(times_ms, leaders=leaders).found

    seconds = lag_seconds(behind, records_at, now_ms=int(time.time() * 1000))

    def one(part: PartitionView) -> PartitionView:
        return replace(part, lag_seconds=0.0 if part.lag == 0 else seconds.get(part.tp))

    return replace(view, partitions=tuple(map(one, view.partitions)))


def with_statuses(view: GroupView, inspection: Cluster, properties: Properties) -> GroupView:
    """Return the view with a verdict on the lag of each partition.

    Raises
    ------
    OffsetsTopicUnreadableError
        If the offsets topic cannot be read.
    OffsetsTopicHeldBackError
        If an open transaction hides later commits.
    TryAgainError
        If the cluster does not answer.
    """
    now_ms = int(time.time() * 1000)
    committed = {part.tp: part.committed_offset for part in view.partitions if part.committed_offset is not None}
    ends = {part.tp: part.log_end_offset for part in view.partitions if part.log_end_offset is not None}
    commits = CommitWindows.of(read_group(properties, view.group, since_ms=now_ms - int(LOOK_BACK_S * 1000)))
    return view.judged(judge(committed, ends, commits, lambda times: inspection.at_times(times).found, now_ms=now_ms))
