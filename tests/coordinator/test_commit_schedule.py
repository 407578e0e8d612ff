"""The schedule sends and retries commits, by a clock that the test moves."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.coordinator.commits import CommitSchedule
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.offsets.types import TopicPartition
from tests.coordinator.machine import A, note, to_commit

SMALL = Commit({A: to_commit(1, 5, note())}, after_batch=1)
LARGE = Commit({TopicPartition("t", n): to_commit(1, 5, note()) for n in range(1001)}, after_batch=1)
HUGE = Commit({TopicPartition("t", n): to_commit(1, 5, note()) for n in range(20_000)}, after_batch=1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def schedule(clock: Clock) -> CommitSchedule:
    return CommitSchedule(clock)


# ------------------------------------------------------------------------------ holding back


def test_nothing_is_sent_that_was_not_decided(schedule: CommitSchedule) -> None:
    assert schedule.take() is None
    assert schedule.held_for_s == 0.0


def test_commit_is_taken_once(schedule: CommitSchedule) -> None:
    schedule.hold(SMALL)
    assert schedule.take() is SMALL
    assert schedule.take() is None


def test_small_commit_is_not_held_back(schedule: CommitSchedule) -> None:
    schedule.hold(SMALL)
    schedule.hold_back()
    assert schedule.held_for_s <= 0


@pytest.mark.parametrize(("commit", "pause_s"), [(LARGE, 0.02002), (HUGE, 0.2)])
def test_large_commit_that_a_command_decides_is_held_back_while_spark_plans(
    schedule: CommitSchedule, clock: Clock, commit: Commit, pause_s: float
) -> None:
    schedule.hold(commit)
    schedule.hold_back()
    assert schedule.held_for_s == pytest.approx(pause_s, rel=1e-3)
    assert schedule.take() is None
    clock.now += pause_s / 2
    schedule.hold_back()
    assert schedule.held_for_s == pytest.approx(pause_s / 2, rel=1e-3), "the next command does not prolong it"
    clock.now += 1
    assert schedule.held_for_s <= 0
    assert schedule.take() is commit


def test_large_commit_that_no_caller_waits_for_is_not_held_back(schedule: CommitSchedule) -> None:
    schedule.hold(LARGE)
    assert schedule.held_for_s <= 0


def test_what_was_sent_is_not_held_back_any_more(schedule: CommitSchedule) -> None:
    schedule.hold(LARGE)
    schedule.take()
    schedule.hold_back()
    assert schedule.held_for_s == 0.0


# ------------------------------------------------------------------------------ retries


def pauses(schedule: CommitSchedule, clock: Clock, count: int) -> list[float]:
    """Return the lengths of ``count`` pauses in a row."""
    found = []
    for _ in range(count):
        schedule.retry_later()
        found.append(round(schedule.until_retry_s(60.0), 6))
        clock.now += found[-1]
        assert schedule.take_retry()
    return found


def test_no_retry_is_due_before_a_failure(schedule: CommitSchedule) -> None:
    assert not schedule.take_retry()
    assert schedule.until_retry_s(0.05) == 0.05


def test_retry_is_due_once_when_its_pause_is_over(schedule: CommitSchedule, clock: Clock) -> None:
    schedule.retry_later()
    assert not schedule.take_retry()
    clock.now += 1
    assert schedule.take_retry()
    assert not schedule.take_retry()


def test_pauses_grow_up_to_a_second(schedule: CommitSchedule, clock: Clock) -> None:
    assert pauses(schedule, clock, 7) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_pause_after_a_success_is_short_again(schedule: CommitSchedule, clock: Clock) -> None:
    pauses(schedule, clock, 3)
    schedule.succeeded()
    assert pauses(schedule, clock, 1) == [0.05]


def test_wait_ends_when_a_retry_is_due_and_is_never_negative(schedule: CommitSchedule, clock: Clock) -> None:
    schedule.retry_later()
    assert schedule.until_retry_s(0.01) == 0.01
    assert schedule.until_retry_s(60.0) == pytest.approx(0.05)
    clock.now += 1
    assert schedule.until_retry_s(60.0) == 0.0
