"""Which task reads which ranges, for streams and batch reads.  Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

Task = dict[TopicPartition, OffsetRange]
"""The ranges that one task reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSizes:
    """The options that decide how a batch is cut into tasks.

    Attributes
    ----------
    min_records : int
        The option ``minRecordsPerTask``.  Ranges with fewer offsets share a task, up to this number together.
    max_records : int or None
        The option ``maxRecordsPerPartition``.  Ranges with more offsets are split.  A shared task has at most this
        number.
    min_tasks : int or None
        The option ``minPartitions``: the lowest number of tasks, about.  Large ranges are split for it, in
        proportion.
    """

    min_records: int
    max_records: int | None = None
    min_tasks: int | None = None


def pack(
    ranges: Mapping[TopicPartition, OffsetRange],
    sizes: TaskSizes,
    leaders: Mapping[TopicPartition, Hashable] = MappingProxyType({}),
) -> list[Task]:
    """Return the ranges of each task of a batch.

    Parameters
    ----------
    ranges : mapping of TopicPartition to OffsetRange
        The ranges that the batch reads.
    sizes : TaskSizes
        The options.
    leaders : mapping
        The known leaders of partitions.  Small ranges of one leader share tasks first, so that a
        task connects to few brokers.  The number of tasks does not depend on it.
    """
    room = sizes.min_records if sizes.max_records is None else min(sizes.min_records, sizes.max_records)
    if sizes.min_tasks is not None:
        # With at most this many offsets in each task, there are at least `min_tasks` tasks.
        room = max(1, min(room, sum(r.size for r in ranges.values()) // sizes.min_tasks))
    tasks = _shared(ranges, room, leaders)
    if sizes.max_records is not None:
        tasks = [part for task in tasks for part in _cut(task, math.ceil(_size(task) / sizes.max_records))]
    if sizes.min_tasks is None or len(tasks) >= sizes.min_tasks:
        return tasks
    # As in Spark's own source: small tasks stay whole, and the others are cut to reach the number.
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
    """Return this task's share of ``tasks`` tasks with ``total`` offsets; halves are rounded up."""
    return max(1, math.floor(_size(task) / total * tasks + 0.5)) if total else 1


def _cut(task: Task, parts: int) -> list[Task]:
    """Cut a task of one range into nearly equal parts, the larger ones last.  Other tasks stay whole."""
    if parts <= 1 or len(task) > 1:
        return [task]
    (tp, r), found = next(iter(task.items())), []
    at = r.start
    for left in range(min(parts, r.size), 0, -1):
        until = Offset(at + (r.until - at) // left)
        found.append({tp: OffsetRange(at, until)})
        at = until
    return found


def _shared(
    ranges: Mapping[TopicPartition, OffsetRange], records_per_task: int, leaders: Mapping[TopicPartition, Hashable]
) -> list[Task]:
    """Return tasks of one range each, and tasks of several small ranges with at most ``records_per_task`` offsets."""
    tasks: list[Task] = []
    small: dict[Hashable, Task] = {}
    for tp, r in ranges.items():
        if r.size >= records_per_task:
            tasks.append({tp: r})
        else:
            small.setdefault(leaders.get(tp), {})[tp] = r
    shared: Task = {}
    room = records_per_task
    for of_leader in small.values():
        for tp, r in of_leader.items():
            if r.size > room:
                tasks.append(shared)
                shared, room = {}, records_per_task
            shared[tp] = r
            room -= r.size
    return [*tasks, shared] if shared else tasks
