"""The part of a query's progress that describes the group."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.coordinator.activity import Activity
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.state import Partition, State
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query.progress_report import FIELDS, Reporter, partitions_report

EPOCH = OwnershipEpoch(1)
POLICY = StartPolicy(group_id="etl", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True)


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def partition(phase: Phase, position: int | None = None, committed: int | None = None) -> Partition:
    return Partition(
        phase=phase,
        epoch=EPOCH,
        position=None if position is None else Offset(position),
        committed=None if committed is None else Offset(committed),
    )


STATE = State(
    policy=POLICY,
    owned={
        tp(10): partition(Phase.ACTIVE, 50, 40),
        tp(2): partition(Phase.ACTIVE, 7, 7),
        tp(3): partition(Phase.DRAINING, 20, 15),
        tp(0, "other"): partition(Phase.RESOLVING),
    },
)
ENDS = {tp(10): Offset(100), tp(2): Offset(5), tp(3): Offset(30), tp(9): Offset(1)}


def test_each_owned_partition_is_shown_where_it_belongs() -> None:
    """A log that ends below the position has no negative lag.

    The report omits partitions that the member does not own.
    """
    assert partitions_report(STATE, ENDS) == {
        "assigned": {"orders": {"2": 7, "10": 50}, "other": {"0": None}},
        "draining": {"orders": {"3": 20}},
        "logEnd": {"orders": {"2": 5, "3": 30, "10": 100}},
        "lag": {"orders": {"2": 0, "3": 15, "10": 60}},
        "expired": {},
        "ahead": {"orders": {"2": 2}},
        "totalLag": 75,
        "minLag": 0,
        "maxLag": 60,
        "avgLag": 25.0,
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 50,
        "avgOffsetsBehindLatest": 20.0,
    }


def test_what_the_brokers_have_deleted_is_no_lag_but_expired() -> None:
    """Regression: a group behind the log start showed a lag of records that no longer exist."""
    report = partitions_report(STATE, ENDS, {tp(10): Offset(70), tp(3): Offset(40), tp(2): Offset(1)})
    assert report["lag"] == {"orders": {"2": 0, "3": 0, "10": 30}}
    assert report["expired"] == {"orders": {"3": 15, "10": 30}}, "the log ends at 30 although the start came later"
    assert (report["totalLag"], report["maxLag"], report["maxOffsetsBehindLatest"]) == (30, 30, 30)


def test_partitions_are_in_numeric_order() -> None:
    assert list(partitions_report(STATE, ENDS)["logEnd"]["orders"]) == ["2", "3", "10"]


def test_without_partitions_there_is_no_lag() -> None:
    report = partitions_report(State(policy=POLICY), ENDS)
    assert (report["assigned"], report["totalLag"], report["avgOffsetsBehindLatest"]) == ({}, 0, 0.0)


def test_a_report_names_the_member_and_counts_its_events() -> None:
    activity = Activity()
    activity.counts["planned"] += 1
    reporter = Reporter(group_id="etl", client_id="kafka-group-1", activity=activity)
    report = reporter.report(STATE, ENDS, listed_at=7.0, member_id="m-1", control="/tmp/x/control")
    assert report["totalLag"] == 75
    assert {key: report[key] for key in ("group", "clientId", "memberId", "events", "control")} == {
        "group": "etl",
        "clientId": "kafka-group-1",
        "memberId": "m-1",
        "events": {"planned": 1},
        "control": "/tmp/x/control",
    }
    activity.counts["planned"] += 1
    again = reporter.report(STATE, ENDS, listed_at=7.0, member_id="m-1", control=None)
    assert again["events"] == {"planned": 2}
    assert again["control"] is None
    assert report["events"] == {"planned": 1}


def test_a_report_follows_the_state_and_the_ends() -> None:
    reporter = Reporter(group_id="etl", client_id="kafka-group-1", activity=Activity())

    def lag(
        state: State, ends: dict[TopicPartition, Offset], starts: dict[TopicPartition, Offset] | None = None
    ) -> object:
        return reporter.report(state, ends, starts or {}, listed_at=None, member_id="", control=None)["totalLag"]

    assert lag(STATE, ENDS) == 75
    assert lag(STATE, ENDS, {tp(10): Offset(99)}) == 16
    assert lag(STATE, {tp(10): Offset(41)}) == 1
    assert lag(State(policy=POLICY), ENDS) == 0
    assert lag(STATE, ENDS) == 75


def test_what_is_not_committed_yet_has_no_lag_and_what_has_no_end_is_only_assigned() -> None:
    state = State(policy=POLICY, owned={tp(0): partition(Phase.STARTING, 5), tp(1): partition(Phase.ACTIVE, 5, 5)})
    report = partitions_report(state, {tp(0): Offset(9)})
    assert report["assigned"] == {"orders": {"0": 5, "1": 5}}
    assert (report["lag"], report["logEnd"], report["maxOffsetsBehindLatest"]) == ({}, {"orders": {"0": 9}}, 4)


def test_every_field_is_in_the_table_that_the_docs_come_from() -> None:
    reporter = Reporter(group_id="etl", client_id="c", activity=Activity())
    assert list(reporter.report(STATE, ENDS, listed_at=1.0, member_id="m", control=None)) == list(FIELDS)


def test_a_report_says_when_and_where_the_time_went() -> None:
    seconds, calendar = [10.0], [1000.0]
    activity = Activity(clock=lambda: seconds[0], calendar=lambda: calendar[0])
    reporter = Reporter(group_id="etl", client_id="c", activity=activity, calendar=lambda: calendar[0])
    first = reporter.report(STATE, ENDS, listed_at=None, member_id="m", control=None)
    assert (first["committedAt"], first["commitAgeMs"], first["assignedAt"], first["generation"]) == (None,) * 4
    activity.generation = 4
    activity.note(events.Assigned(partitions=(tp(1), tp(2))))
    activity.note(events.Committed(offsets={}))
    activity.note(events.Planned(ranges={tp(1): OffsetRange(Offset(0), Offset(5))}))
    seconds[0], calendar[0] = 12.0, 1001.5
    report = reporter.report(STATE, ENDS, listed_at=999.0, member_id="m", control=None)
    assert report["timeMs"] == {"waiting": 0, "idle": 0, "planning": 0, "running": 2000, "committing": 0}
    assert (report["committedAt"], report["commitAgeMs"], report["logEndAt"]) == (1000.0, 1500, 999.0)
    assert (report["moved"], report["assignedAt"], report["generation"]) == ({"assigned": 2}, 1000.0, 4)
    assert report["ownershipEpoch"] == STATE.last_epoch


def test_a_batch_that_ends_meanwhile_costs_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: its time was read twice, and None the second time is a TypeError."""
    times = iter((2.0, 2.0, None))
    monkeypatch.setattr(Activity, "batch_s", property(lambda _: next(times)))
    reporter = Reporter(group_id="etl", client_id="c", activity=Activity())
    assert reporter.report(STATE, ENDS, listed_at=1.0, member_id="m", control=None)["batchMs"] == 2000
