"""Which offsets the next batch reads, and which task reads which.  Pure: positions and log ends in, ranges out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafka_group.coordinator.handover.inputs import PlannedRange
from pyspark_kafka_group.coordinator.handover.state import Position
from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, TopicPartition

Plannable = Mapping[TopicPartition, Position]
"""The position of each partition that may be read."""

PlannedRanges = dict[TopicPartition, PlannedRange]

LeaderEpochs = Mapping[TopicPartition, LeaderEpoch]
"""That of the leader of each partition; without those that are not known."""


def recreated_topics(plannable: Plannable, topic_ids: Mapping[str, str]) -> set[str]:
    """Return the topics that were deleted and created again since their partitions got their positions.

    Parameters
    ----------
    plannable : mapping
        The position of each partition that may be read, and of which log it is.
    topic_ids : mapping of str to str
        The topics' ids now; without those that are not known.
    """
    return {tp.topic for tp, position in plannable.items() if differ(position.topic_id, topic_ids.get(tp.topic))}


def to_validate(
    plannable: Plannable, ends: Mapping[TopicPartition, Offset], leader_epochs: LeaderEpochs
) -> dict[TopicPartition, LeaderEpoch]:
    """Return the partitions that have another leader than the one which had everything below their position.

    What they know may have been truncated, and has to be compared with where the log ends for the leader epoch that is
    returned (KIP-320).  So has what is about to be read where it is not known which leader has told the end.
    """
    found = {}
    for tp, (_, offset, leader_epoch, _) in plannable.items():
        if leader_epoch is None:
            continue
        now = leader_epochs.get(tp)
        if now > leader_epoch if now is not None else ends.get(tp, offset) > offset:
            found[tp] = leader_epoch
    return found


def under_old_leaders(plannable: Plannable, leader_epochs: LeaderEpochs) -> set[TopicPartition]:
    """Return the partitions whose log end was told under an older leader than one that is known.

    Either it does not know yet that it was replaced, or this is another log, which has begun to count anew.
    """
    return {
        tp
        for tp, position in plannable.items()
        if position.leader_epoch is not None and leader_epochs.get(tp, position.leader_epoch) < position.leader_epoch
    }


def truncated(
    plannable: Plannable, ends: Mapping[TopicPartition, Offset], epoch_ends: Mapping[TopicPartition, Offset]
) -> set[TopicPartition]:
    """Return the partitions whose log, or the part of it that their leader epoch had, ends below their position.

    Parameters
    ----------
    plannable : mapping
        The position of each partition that may be read.
    ends : mapping of TopicPartition to Offset
        Log ends, as far as they are known.
    epoch_ends : mapping of TopicPartition to Offset
        Where the log ends for the leader epoch of the position, as far as it was asked for.
    """
    return {
        tp
        for tp, (_, offset, _, _) in plannable.items()
        if ends.get(tp, offset) < offset or epoch_ends.get(tp, offset) < offset
    }


def plan(
    plannable: Plannable, ends: Mapping[TopicPartition, Offset], leader_epochs: LeaderEpochs, limit: int | None
) -> PlannedRanges:
    """Return the range to read of each partition that has something to read.

    Parameters
    ----------
    plannable : mapping
        The position of each partition that may be read.
    ends : mapping of TopicPartition to Offset
        Where to stop reading (exclusive).  A partition without an end is left for the next batch, and so is one whose
        end is below its position.
    leader_epochs : mapping of TopicPartition to LeaderEpoch
        Under which leader the log reaches to its end.
    limit : int or None
        About how many offsets to read at most, shared in proportion to the backlogs.  As in Spark's own source
        a share below one is rounded up, so that no partition starves beside a large one, and the sum may
        exceed the limit by less than the number of partitions.
    """
    ranges: PlannedRanges = {}
    total = 0
    for tp, (epoch, at, _, _) in plannable.items():
        end = ends.get(tp, at)
        if end > at:
            ranges[tp] = PlannedRange(epoch, OffsetRange(at, end), leader_epochs.get(tp))
            total += end - at
    if limit is None or total <= limit:
        return ranges
    return {tp: PlannedRange(epoch, _share(r, limit, total), leader) for tp, (epoch, r, leader) in ranges.items()}


def _share(r: OffsetRange, limit: int, total: int) -> OffsetRange:
    """Return the beginning of ``r`` that is its share of ``limit``, if all ranges have ``total`` offsets."""
    share = limit * r.size / total
    return OffsetRange(r.start, Offset(r.start + (math.ceil(share) if share < 1 else math.floor(share))))


def backlog(plannable: Plannable, ends: Mapping[TopicPartition, Offset]) -> int:
    """Return how many offsets there are to read; the arguments are those of :func:`plan`."""
    return sum(max(0, ends.get(tp, at) - at) for tp, (_, at, _, _) in plannable.items())


Task = dict[TopicPartition, OffsetRange]
"""What one task reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSizes:
    """How a batch is cut into tasks.

    Attributes
    ----------
    min_records : int
        ``minRecordsPerTask``: ranges with fewer offsets share a task, as long as it has no more than this many.
    max_records : int or None
        ``maxRecordsPerPartition``: ranges with more offsets are split; a shared task has no more either.
    min_tasks : int or None
        ``minPartitions``: about how many tasks there are at least; large ranges are split for it, in proportion.
    """

    min_records: int
    max_records: int | None = None
    min_tasks: int | None = None


def pack(ranges: Mapping[TopicPartition, OffsetRange], sizes: TaskSizes) -> list[Task]:
    """Return what each task of a batch reads.

    Parameters
    ----------
    ranges : mapping of TopicPartition to OffsetRange
        What the batch reads.
    sizes : TaskSizes
        The options.
    """
    room = sizes.min_records if sizes.max_records is None else min(sizes.min_records, sizes.max_records)
    if sizes.min_tasks is not None:
        # Tasks with this many at most are at least as many as there shall be.
        room = max(1, min(room, sum(r.size for r in ranges.values()) // sizes.min_tasks))
    tasks = _shared(ranges, room)
    if sizes.max_records is not None:
        tasks = [part for task in tasks for part in _cut(task, math.ceil(_size(task) / sizes.max_records))]
    if sizes.min_tasks is None or len(tasks) >= sizes.min_tasks:
        return tasks
    # As Spark's own source: small ones stay whole, and what is left to be had comes from the others.
    total = sum(map(_size, tasks))
    whole = [task for task in tasks if _parts(task, total, sizes.min_tasks) == 1]
    rest, wanted = total - sum(map(_size, whole)), max(sizes.min_tasks - len(whole), 1)
    return [
        part
        for task in tasks
        for part in _cut(task, 1 if _parts(task, total, sizes.min_tasks) == 1 else _parts(task, rest, wanted))
    ]


def _size(task: Task) -> int:
    return sum(r.size for r in task.values())


def _parts(task: Task, total: int, tasks: int) -> int:
    """Return how many of ``tasks`` tasks with ``total`` offsets are due to this one; halves are rounded up."""
    return max(1, math.floor(_size(task) / total * tasks + 0.5)) if total else 1


def _cut(task: Task, parts: int) -> list[Task]:
    """Cut a task of one range into nearly equal parts, the larger ones last; one of several ranges stays whole."""
    if parts <= 1 or len(task) > 1:
        return [task]
    (tp, r), found = next(iter(task.items())), []
    at = r.start
    for left in range(parts, 0, -1):
        until = Offset(at + (r.until - at) // left)
        if until > at:
            found.append({tp: OffsetRange(at, until)})
        at = until
    return found


def _shared(ranges: Mapping[TopicPartition, OffsetRange], records_per_task: int) -> list[Task]:
    """Return tasks of one range, and of several small ones with no more offsets than this together."""
    tasks: list[Task] = []
    shared: Task = {}
    room = records_per_task
    for tp, r in ranges.items():
        if r.size >= records_per_task:
            tasks.append({tp: r})
            continue
        if r.size > room:
            tasks.append(shared)
            shared, room = {}, records_per_task
        shared[tp] = r
        room -= r.size
    return [*tasks, shared] if shared else tasks
