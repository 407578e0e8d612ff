"""A member measures its times, and counts its events and partitions."""

from __future__ import annotations

import threading

import pytest

from pyspark_kafka_group.coordinator.activity import Activity, Time
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

TP = TopicPartition("orders", 0)
RANGES = {TP: OffsetRange(Offset(0), Offset(5))}


class Clock:
    s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def activity(clock: Clock) -> Activity:
    return Activity(clock=clock, calendar=lambda: 1000.0 + clock.s)


def test_a_batch_counts_from_its_plan_to_its_end_and_while_it_runs(activity: Activity, clock: Clock) -> None:
    activity.note(events.Planned(ranges=RANGES))
    clock.s += 3
    assert activity.spent()[Time.RUNNING] == 3
    activity.note(events.Finished(ranges=RANGES))
    clock.s += 10
    activity.note(events.Finished(ranges=RANGES))
    assert activity.spent()[Time.RUNNING] == 3
    activity.note(events.Replayed(ranges=RANGES, not_owned=(), skipped={}))
    clock.s += 2
    assert activity.spent()[Time.RUNNING] == 5


def test_the_time_of_batches_does_not_go_back_when_one_ends(activity: Activity, clock: Clock) -> None:
    """Regression: a reader on another thread saw it without the batch.  Prometheus adds the whole sum again then."""
    activity.note(events.Planned(ranges=RANGES))
    clock.s += 3
    read: list[float] = []
    reader = threading.Thread(target=lambda: read.append(activity.spent()[Time.RUNNING]))

    def end() -> float:
        """Return the time at which the batch ends, late: meanwhile another thread reads."""
        now = clock.s
        if not reader.ident:
            reader.start()
            reader.join(0.05)
            clock.s += 1
        return now

    activity._clock = end
    activity.note(events.Finished(ranges=RANGES))
    reader.join(5)
    assert read == [activity.spent()[Time.RUNNING]] == [3]
    activity.note(events.Planned(ranges=RANGES))
    clock.s += 2
    activity.note(events.Planned(ranges=RANGES))
    assert activity.spent()[Time.RUNNING] == 5, "a batch that another one replaces has run, too"


def test_what_spark_has_finished_is_counted_and_dated(activity: Activity, clock: Clock) -> None:
    assert (activity.consumed, activity.finished_at, activity.batch_s, activity.called_at) == (0, None, None, None)
    activity.note_call()
    activity.note(events.Planned(ranges=RANGES))
    clock.s += 3
    assert (activity.batch_s, activity.called_at) == (3, 1100.0)
    activity.note(events.Finished(ranges=RANGES))
    activity.note(events.Planned(ranges={**RANGES, TopicPartition("orders", 1): OffsetRange(Offset(7), Offset(9))}))
    assert (activity.consumed, activity.finished_at, activity.batch_s) == (5, 1103.0, 0)
    activity.note(events.Finished(ranges={**RANGES, TopicPartition("orders", 1): OffsetRange(Offset(7), Offset(9))}))
    assert (activity.consumed, activity.batch_s) == (12, None)


def test_what_is_waited_while_planning_is_not_planning(activity: Activity, clock: Clock) -> None:
    with activity.planning():
        clock.s += 1
        activity.add(Time.WAITING, 0.25)
        activity.add(Time.IDLE, 0.5)
        activity.add(Time.COMMITTING, 9)

    def fail() -> None:
        with activity.planning():
            clock.s += 2
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert activity.spent() == {
        Time.WAITING: 0.25,
        Time.IDLE: 0.5,
        Time.PLANNING: 2.25,
        Time.RUNNING: 0,
        Time.COMMITTING: 9,
    }


def test_partitions_are_counted_by_how_they_come_and_go(activity: Activity, clock: Clock) -> None:
    before = activity.assigned_at
    other = TopicPartition("orders", 1)
    activity.note(events.Assigned(partitions=(TP, other)))
    activity.note(events.Draining(partitions=(TP,)))
    activity.note(events.Released(partitions=(TP,)))
    activity.note(events.Expired(ranges=RANGES))
    clock.s += 1
    activity.note(events.Lost(partitions=(TP, other), ranges=RANGES))
    assert activity.moved == {"assigned": 2, "released": 1, "expired": 1, "lost": 2}
    assert (before, activity.assigned_at) == (None, 1101)
    assert activity.counts["draining"] == 1


def test_the_last_commit_has_a_time_and_a_failed_one_has_none(activity: Activity, clock: Clock) -> None:
    activity.note(events.CommitFailed(problem="NOT_COORDINATOR"))
    before = activity.committed_at
    activity.note(events.Committed(offsets={TP: Offset(5)}))
    clock.s += 7
    activity.note(events.CommitFailed(problem="NOT_COORDINATOR"))
    assert (before, activity.committed_at) == (None, 1100)


def test_the_replay_of_a_batch_that_others_own_runs_for_no_time(activity: Activity, clock: Clock) -> None:
    """Regression: nothing ended its clock, so an idle query seemed to run a batch for hours."""
    activity.note(events.Replayed(ranges={}, not_owned=(), skipped={}))
    clock.s += 3600
    assert activity.spent()[Time.RUNNING] == 0
