"""The source divides the ranges of a batch among tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.task_ranges import TaskSizes, pack
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


def sized(*sizes: int) -> dict[TopicPartition, OffsetRange]:
    return {TopicPartition("t", n): OffsetRange(Offset(7), Offset(7 + size)) for n, size in enumerate(sizes)}


def test_no_option_asks_for_more_tasks_than_records() -> None:
    """Regression: planning took seconds for ``minPartitions`` of ten million, and years for the largest number."""
    assert len(pack(sized(10), TaskSizes(min_records=1, min_tasks=2**63 - 1))) == 10


def test_small_ranges_share_a_task() -> None:
    assert [list(task) for task in pack(sized(3, 100, 3, 3, 3), TaskSizes(min_records=10))] == [
        [("t", 1)],
        [("t", 0), ("t", 2), ("t", 3)],
        [("t", 4)],
    ]


def spread(tasks: list[dict[TopicPartition, OffsetRange]]) -> list[list[tuple[int, int]]]:
    """Return the partitions and the numbers of records of each task."""
    return [[(tp.partition, r.size) for tp, r in task.items()] for task in tasks]


def test_small_ranges_share_a_task_only_as_long_as_there_are_enough_tasks() -> None:
    assert spread(pack(sized(*[10] * 8), TaskSizes(min_records=1000, min_tasks=4))) == [
        [(0, 10), (1, 10)],
        [(2, 10), (3, 10)],
        [(4, 10), (5, 10)],
        [(6, 10), (7, 10)],
    ]
    assert spread(pack(sized(10, 10, 90), TaskSizes(min_records=1000, min_tasks=4))) == [
        [(2, 30)],
        [(2, 30)],
        [(2, 30)],
        [(0, 10), (1, 10)],
    ]


@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=30),
    least=st.integers(1, 100),
    most=st.none() | st.integers(1, 100),
    min_tasks=st.none() | st.integers(1, 60),
)
def test_however_a_batch_is_cut_every_record_is_read_once_and_in_order(
    sizes: list[int], least: int, most: int | None, min_tasks: int | None
) -> None:
    wanted = sized(*sizes)
    tasks = pack(wanted, TaskSizes(min_records=least, max_records=most, min_tasks=min_tasks))
    assert all(r.size for task in tasks for r in task.values())
    assert all(len(task) == 1 or sum(r.size for r in task.values()) <= least for task in tasks)
    for tp, whole in wanted.items():
        at = whole.start
        for start, until in (task[tp] for task in tasks if tp in task):
            assert start == at
            at = until
        assert at == whole.until
    if most is not None:
        assert all(sum(r.size for r in task.values()) <= most for task in tasks)
    if min_tasks is not None:
        # Shares are rounded, so a share of one and a half tasks may become one task.
        assert len(tasks) >= min(min_tasks, sum(sizes)) * 2 / 3 - 1


def cut(ranges: list[tuple[int, int]], min_tasks: int | None, max_records: int | None) -> list[tuple[int, int, int]]:
    """Return the topic number and the offsets of each task."""
    wanted = {TopicPartition(f"t{n}", 1): OffsetRange(Offset(a), Offset(b)) for n, (a, b) in enumerate(ranges, 1)}
    found: list[tuple[int, int, int]] = []
    for task in pack(wanted, TaskSizes(min_records=1, max_records=max_records, min_tasks=min_tasks)):
        ((tp, r),) = task.items()
        found.append((int(tp.topic[1:]), *r))
    return found


@pytest.mark.parametrize(
    ("ranges", "min_tasks", "max_records", "expected"),
    [
        # minPartitions
        ([(1, 2)], None, None, [(1, 1, 2)]),
        ([(1, 2), (1, 2), (1, 2)], 3, None, [(1, 1, 2), (2, 1, 2), (3, 1, 2)]),
        ([(1, 5)], 4, None, [(1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 4, 5)]),
        ([(1, 5), (1, 21)], 4, None, [(1, 1, 5), (2, 1, 7), (2, 7, 14), (2, 14, 21)]),
        ([(1, 21)], 4, None, [(1, 1, 6), (1, 6, 11), (1, 11, 16), (1, 16, 21)]),
        ([(1, 2), (1, 1001)], 4, None, [(1, 1, 2), (2, 1, 334), (2, 334, 667), (2, 667, 1001)]),
        ([(1, 5), (1, 21)], 1, None, [(1, 1, 5), (2, 1, 21)]),
        ([(1, 11)], 3, None, [(1, 1, 4), (1, 4, 7), (1, 7, 11)]),
        (
            [(0, 10), (0, 10), (0, 1)],
            6,
            None,
            [(1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 3), (2, 3, 6), (2, 6, 10), (3, 0, 1)],
        ),
        (
            [(0, 10000), (0, 15000), (0, 20000)],
            9,
            None,
            [(1, n, n + 5000) for n in (0, 5000)]
            + [(2, n, n + 5000) for n in (0, 5000, 10000)]
            + [(3, n, n + 5000) for n in (0, 5000, 10000, 15000)],
        ),
        (
            [(0, 500), (0, 12000), (0, 15001)],
            6,
            None,
            [(1, 0, 500), (2, 0, 6000), (2, 6000, 12000), (3, 0, 5000), (3, 5000, 10000), (3, 10000, 15001)],
        ),
        (
            [(0, 1), (0, 1), (0, 10000)],
            6,
            None,
            [(1, 0, 1), (2, 0, 1), (3, 0, 2500), (3, 2500, 5000), (3, 5000, 7500), (3, 7500, 10000)],
        ),
        ([(0, 1), (0, 1), (0, 2)], 4, None, [(1, 0, 1), (2, 0, 1), (3, 0, 1), (3, 1, 2)]),
        # maxRecordsPerPartition
        ([(1, 5)], None, 4, [(1, 1, 5)]),
        ([(1, 2)], None, 4, [(1, 1, 2)]),
        ([(1, 6)], None, 4, [(1, 1, 3), (1, 3, 6)]),
        (
            [(1, 40), (1, 50), (1, 60)],
            None,
            20,
            [(1, 1, 20), (1, 20, 40), (2, 1, 17), (2, 17, 33), (2, 33, 50), (3, 1, 20), (3, 20, 40), (3, 40, 60)],
        ),
        # both
        ([(1, 40)], 1, 20, [(1, 1, 20), (1, 20, 40)]),
        ([(1, 40)], 4, 20, [(1, 1, 10), (1, 10, 20), (1, 20, 30), (1, 30, 40)]),
    ],
)
def test_ranges_are_cut_where_sparks_own_source_cuts_them(
    ranges: list[tuple[int, int]],
    min_tasks: int | None,
    max_records: int | None,
    expected: list[tuple[int, int, int]],
) -> None:
    """The cases of KafkaOffsetRangeCalculatorSuite (Spark 4.2), without empty ranges, which `pack` never gets."""
    assert cut(ranges, min_tasks, max_records) == expected
