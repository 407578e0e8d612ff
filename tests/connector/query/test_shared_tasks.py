"""The query logs a warning if a small topic shares one task while the user's code is slow."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from pyspark_kafka_group.offsets.task_ranges import TaskSizes, pack
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.query.shared_tasks import SharedTasks

RANGES = {TopicPartition("orders", n): OffsetRange(Offset(0), Offset(1000)) for n in range(8)}
BY_DEFAULT = TaskSizes(min_records=10_000, shared_by_default=True)


class Clock:
    """A fake of both clocks.  The wall clock begins in the middle of a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed_s = 0.0
        monkeypatch.setattr("pyspark_kafka_group.query.shared_tasks.time.monotonic", lambda: 7.0 + self.passed_s)
        monkeypatch.setattr("pyspark_kafka_group.query.shared_tasks.time.time", lambda: 1000.5 + self.passed_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Clock:
    caplog.set_level(logging.WARNING, logger="pyspark_kafka_group")
    return Clock(monkeypatch)


def batches(
    watch: SharedTasks,
    clock: Clock,
    lengths_s: Sequence[float],
    *,
    sizes: TaskSizes = BY_DEFAULT,
    finished_after_s: float | None = None,
) -> None:
    """Let Spark ask for the next batch after each of these times."""
    for number, length_s in enumerate(lengths_s):
        watch.planned(RANGES, pack(RANGES, sizes))
        if finished_after_s is not None:
            clock.passed_s += finished_after_s
            watch.told({"end": number})
            clock.passed_s -= finished_after_s
        clock.passed_s += length_s
        watch.called({"end": number}, "etl")


def test_slow_batches_with_one_task_are_warned_of_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Regression: a service call for each record took eight times as long, and no message said why."""
    batches(SharedTasks(BY_DEFAULT), clock, [40, 40, 40, 40])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "etl: the last batch took 40 s. Its 8 partitions shared 1 task, because" in warning
    assert "set minRecordsPerTask to 1" in warning


@pytest.mark.parametrize(
    ("sizes", "lengths_s"),
    [
        (BY_DEFAULT, [40]),  # a single slow batch may be chance
        (BY_DEFAULT, [9, 9, 9, 9]),
        (TaskSizes(min_records=10_000), [40, 40, 40]),  # the user's own number
        (TaskSizes(min_records=1, shared_by_default=True), [40, 40, 40]),  # with minPartitions, no task is shared
    ],
)
def test_others_are_not(
    clock: Clock, caplog: pytest.LogCaptureFixture, sizes: TaskSizes, lengths_s: Sequence[float]
) -> None:
    batches(SharedTasks(sizes), clock, lengths_s, sizes=sizes)
    assert caplog.text == ""


def test_the_wait_for_a_trigger_does_not_count(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Spark begins triggers of a minute at full minutes."""
    clock.passed_s = 0.5
    batches(SharedTasks(BY_DEFAULT), clock, [60, 60, 60, 60])
    assert caplog.text == ""


def test_what_the_listener_says_counts(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    quick, slow = SharedTasks(BY_DEFAULT), SharedTasks(BY_DEFAULT)
    batches(quick, clock, [61, 61, 61], finished_after_s=2)
    assert caplog.text == ""
    clock.passed_s = 0.5
    batches(slow, clock, [60, 60, 60], finished_after_s=50)
    assert "the last batch took 50 s" in caplog.text


def test_full_tasks_are_what_takes_the_time(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    large = {**RANGES, TopicPartition("orders", 8): OffsetRange(Offset(0), Offset(9_000_000))}
    watch = SharedTasks(BY_DEFAULT)
    for number in range(3):
        watch.planned(large, pack(large, BY_DEFAULT))
        clock.passed_s += 40
        watch.called({"end": number}, "etl")
    assert caplog.text == ""
