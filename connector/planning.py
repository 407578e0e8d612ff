"""Which offsets the next batch reads, and which task reads which.  Pure: positions and log ends in, ranges out."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition

Plannable = Mapping[TopicPartition, tuple[OwnershipEpoch, Offset]]
"""Epoch and position of each partition that may be read."""

Plan = dict[TopicPartition, tuple[OwnershipEpoch, OffsetRange]]


def plan(plannable: Plannable, ends: Mapping[TopicPartition, Offset], limit: int | None) -> Plan:
    """Return the range to read of each partition that has something to read.

    Parameters
    ----------
    plannable : mapping
        Epoch and position of each partition that may be read.
    ends : mapping of TopicPartition to Offset
        Where to stop reading (exclusive).  A partition without an end is left for the next batch, and an end
        below the position, as a new leader may report for a moment, counts as nothing new.
    limit : int or None
        About how many offsets to read at most, shared in proportion to the backlogs.  As in Spark's own source
        a share below one is rounded up, so that no partition starves beside a large one, and the sum may
        exceed the limit by less than the number of partitions.
    """
    sizes = {tp: ends[tp] - position for tp, (_, position) in plannable.items() if tp in ends and ends[tp] > position}
    total = sum(sizes.values())
    if limit is not None and total > limit:
        for tp, size in sizes.items():
            share = limit * size / total
            sizes[tp] = math.ceil(share) if share < 1 else math.floor(share)
    ranges: Plan = {}
    for tp, size in sizes.items():
        epoch, position = plannable[tp]
        ranges[tp] = epoch, OffsetRange(position, Offset(position + size))
    return ranges


Task = dict[TopicPartition, OffsetRange]
"""What one task reads."""


def pack(ranges: Mapping[TopicPartition, OffsetRange], records_per_task: int) -> list[Task]:
    """Return what each task of a batch reads.

    Parameters
    ----------
    ranges : mapping of TopicPartition to OffsetRange
        What the batch reads.
    records_per_task : int
        Ranges with fewer offsets share a task, as long as it has no more than this many.
    """
    tasks: list[Task] = []
    shared: Task = {}
    room = records_per_task
    for tp, r in ranges.items():
        if len(r) >= records_per_task:
            tasks.append({tp: r})
            continue
        if len(r) > room:
            tasks.append(shared)
            shared, room = {}, records_per_task
        shared[tp] = r
        room -= len(r)
    return [*tasks, shared] if shared else tasks
