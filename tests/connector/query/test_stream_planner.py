"""A query without an end, with a group and logs that the test controls."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.coordinator.handover.inputs import LogChange
from pyspark_kafka_group.coordinator.handover.state import Partition
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query import stream_planner
from pyspark_kafka_group.query.log_watch import Changes, LogWatch
from pyspark_kafka_group.query.stream_planner import BatchDelay, PollInterval, StreamPlanner, pause_s
from pyspark_kafka_group.wire import deadline
from pyspark_kafka_group.wire.deadline import Deadline
from tests.connector.query.fakes import END, A, B, FakeGroup, FakeWatch


class Run:
    def __init__(self) -> None:
        self.group = FakeGroup(SimpleNamespace(s=1000.0))
        self.watch = FakeWatch()
        self.watch.ends = {A: Offset(60), B: Offset(70)}
        self.planner = StreamPlanner(cast(LogWatch, self.watch))


@pytest.fixture
def run() -> Run:
    return Run()


def look(run: Run) -> dict[TopicPartition, str]:
    ranges = run.planner.readable_ranges(cast(Membership, run.group), None)
    return {tp: str(planned.range) for tp, planned in ranges.items()}


def plan(run: Run) -> bool:
    """Poll once, and return whether a batch was planned."""
    return run.planner._poll(cast(Membership, run.group), None, always=False) is not None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (Changes(unsure={A}), []),
        (Changes(truncated={A}), [({A}, LogChange.TRUNCATED)]),
    ],
    ids=["not sure", "truncated"],
)
def test_a_log_that_may_be_another_one_is_not_planned_and_the_others_are(
    run: Run, changes: Changes, told: list[tuple[set[TopicPartition], LogChange]]
) -> None:
    run.group.own({A: 3, B: 5})
    run.watch.changes = [changes]
    assert look(run) == {B: "[5, 70)"}
    assert run.group.changed == told


def test_all_partitions_of_a_topic_that_was_created_again_are_decided_anew(run: Run) -> None:
    """This includes partitions that the query does not poll yet, because their start is unknown."""
    run.group.own({A: 3})
    resolving = Partition(Phase.RESOLVING, OwnershipEpoch(2))
    run.group.state = replace(run.group.state, owned={**run.group.state.owned, B: resolving})
    run.watch.changes = [Changes(recreated={"orders"})]
    assert look(run) == {}
    assert run.group.changed == [({A, B}, LogChange.RECREATED)]


def test_what_is_held_back_is_looked_at_again_and_changed_logs_are_told_meanwhile(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    run.planner = StreamPlanner(cast(LogWatch, run.watch), BatchDelay(200, 60.0, clock=lambda: now))
    changes = [Changes(), Changes(truncated={A}), Changes()]
    monkeypatch.setattr(run.watch, "check", lambda _, *, news: changes.pop(0))
    run.group.own({A: 3, B: 5})
    assert plan(run)
    assert run.group.planned == [{A: "[3, 60)", B: "[5, 70)"}]
    assert look(run) == {}
    assert run.group.changed == [({A}, LogChange.TRUNCATED)]
    now += 60
    assert look(run) == {A: "[0, 60)", B: "[5, 70)"}, "the very same ends, and the time is over"


@pytest.mark.parametrize("changes", [Changes(), Changes(unsure={A, B})], ids=["moved", "not sure"])
def test_a_batch_that_could_not_be_planned_waits_no_longer(
    run: Run, monkeypatch: pytest.MonkeyPatch, changes: Changes
) -> None:
    """Regression: the records waited for ``maxTriggerDelay`` once more."""
    run.planner = StreamPlanner(cast(LogWatch, run.watch), BatchDelay(200, 60.0, clock=lambda: 1000.0))
    run.group.own({A: 3, B: 5})
    run.watch.changes = [changes, Changes()]
    with monkeypatch.context() as patch:
        patch.setattr(run.group, "plan", lambda *_, **__: None)  # the partitions have moved
        assert not plan(run)
    assert plan(run)


def test_the_delay_begins_if_there_is_nothing_to_read_at_the_start(run: Run) -> None:
    run.planner = StreamPlanner(cast(LogWatch, run.watch), BatchDelay(200, 60.0, clock=lambda: 1000.0))
    run.group.own({A: 60, B: 70})
    run.watch.only_with_news = False
    assert look(run) == {}
    run.watch.ends, run.watch.version = {A: Offset(61), B: Offset(70)}, 2
    assert look(run) == {}


@pytest.fixture
def idle(run: Run) -> Run:
    """Return a query that has polled, and has read everything."""
    run.watch.only_with_news = False
    run.group.own({A: 60, B: 70})
    assert look(run) == {}
    assert run.watch.inspected == 1
    return run


def test_while_nothing_changes_the_logs_are_not_inspected_again(idle: Run) -> None:
    """Here each poll makes a new mapping of the same ends, and each commit a new state with the same positions."""
    assert look(idle) == {}
    idle.group.own({A: 60, B: 70})
    assert look(idle) == {}
    assert idle.watch.inspected == 1


def test_idle_logs_are_compared_now_and_then(idle: Run) -> None:
    """A topic that was created again looks like the old one if it has as many records as the query has read."""
    idle.planner._compare_at = Deadline.after(0)
    idle.watch.only_with_news = True
    idle.watch.changes = [Changes(recreated={"orders"})]
    look(idle)
    assert [change for _, change in idle.group.changed] == [LogChange.RECREATED]
    assert not idle.planner._compare_at.passed


def test_another_version_is_looked_at_though_the_ends_are_the_same(idle: Run) -> None:
    """The ends may come from another leader, and from another log."""
    idle.watch.version += 1
    idle.watch.changes = [Changes(truncated={A})]
    assert look(idle) == {}
    assert idle.group.changed == [({A}, LogChange.TRUNCATED)]


def test_other_positions_are_looked_at_though_the_version_is_the_same(idle: Run) -> None:
    idle.group.own({A: 60, B: 5})
    assert look(idle) == {B: "[5, 70)"}


@pytest.mark.parametrize("changes", [Changes(unsure={A, B}), Changes(truncated={A}, unsure={B})])
def test_what_was_left_out_is_read_later_though_nothing_is_new_then(run: Run, changes: Changes) -> None:
    """Regression: if librdkafka reported the same ends again, the records stayed unread until more arrived."""
    run.group.own({A: 0, B: 5})
    run.watch.changes = [changes]
    assert look(run) == {}
    assert look(run) == {A: "[0, 60)", B: "[5, 70)"}


@pytest.mark.parametrize(("pause_s", "seen"), [(0.04, True), (0.5, False)], ids=["cheap looks", "dear ones"])
def test_what_comes_before_a_call_returns_is_seen_by_it_where_looks_are_cheap(
    run: Run, monkeypatch: pytest.MonkeyPatch, *, pause_s: float, seen: bool
) -> None:
    """If a call returns no batch, Spark's processAllAvailable concludes that nothing is left."""
    monkeypatch.setattr(stream_planner, "_CALL_S", 0.0)
    run.planner.interval.due_at = Deadline.after(pause_s)
    run.group.own({A: 3, B: 5})
    run.watch.changes = [Changes()]
    end = run.planner.next_batch(cast(Membership, run.group), None, always=False)
    assert (end is not None) == seen


def test_the_first_batch_does_not_wait_for_what_is_held_back(run: Run) -> None:
    """Regression: one partition without a leader delayed all others for a minute, without a message."""
    run.group.answers = False  # the start of B is unknown
    run.group.own({A: 3})
    waited: list[float] = []

    def wait(timeout_s: float) -> bool:
        waited.append(timeout_s)
        if len(waited) == 3:
            run.group.held_back = {B: "LEADER_NOT_AVAILABLE"}
        return False

    run.group.wait_for_assignment = wait  # type: ignore[method-assign]  # counts the calls
    run.planner.begin(cast(Membership, run.group))
    assert len(waited) == 3
    assert look(run) == {A: "[3, 60)"}


@pytest.fixture
def patient(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a query that waits for its first partitions, with Spark 4.0 and 4.1."""
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: run.group.now.s))
    run.planner = StreamPlanner(cast(LogWatch, run.watch), patient=True)  # by the same clock
    return run


def test_the_first_batch_waits_for_partitions_that_others_give_back(patient: Run) -> None:
    """Regression: a run with once ended without a record, because cooperative joins begin with an empty assignment."""
    group = cast(Membership, patient.group)
    patient.group.assigned_later = [{}, {A: 0}]
    patient.planner.begin(group)
    patient.watch.changes = [Changes()]
    assert patient.planner.next_batch(group, None, always=False) is END
    assert patient.group.planned == [{A: "[0, 60)"}]


@pytest.mark.parametrize("under_kip_848", [True, False])
def test_only_under_kip_848_a_start_asks_whether_others_have_all_partitions(
    patient: Run, *, under_kip_848: bool
) -> None:
    """Regression: that protocol tells a member without partitions nothing, and its first batch waited a minute."""
    patient.planner = StreamPlanner(cast(LogWatch, patient.watch))
    patient.group.answers, patient.group.under_kip_848 = False, under_kip_848
    patient.planner.begin(cast(Membership, patient.group))
    assert (patient.group.now.s <= 1001) is under_kip_848
    assert bool(patient.group.asked_settled) is under_kip_848


@pytest.mark.parametrize("answers", [True, False])
def test_the_first_batch_does_not_wait_if_others_have_all_partitions(
    patient: Run, caplog: pytest.LogCaptureFixture, *, answers: bool
) -> None:
    """Under KIP-848, a member without partitions gets no answer."""
    patient.group.answers = answers
    patient.planner.begin(cast(Membership, patient.group))
    assert patient.group.now.s <= 1001
    assert caplog.messages == []


def test_the_first_batch_waits_a_minute_at_most_for_partitions(patient: Run, caplog: pytest.LogCaptureFixture) -> None:
    patient.group.settled = False
    patient.planner.begin(cast(Membership, patient.group))
    assert 1060 <= patient.group.now.s <= 1061
    assert [r.levelname for r in caplog.records] == ["WARNING"]


def test_a_query_with_its_partitions_does_not_ask_the_group(patient: Run) -> None:
    patient.group.own({A: 0})
    patient.planner.begin(cast(Membership, patient.group))
    assert (patient.group.now.s, patient.group.asked_settled) == (1000, [])


# ------------------------------------------------------------------------------------ pauses between polls


def test_right_after_something_came_the_pause_is_the_shortest() -> None:
    assert pause_s(idle_s=0.0, cost_s=0.0002) == 0.005


def test_a_cheap_look_is_repeated_soon_however_long_nothing_came() -> None:
    assert pause_s(idle_s=3600.0, cost_s=0.0002) == pytest.approx(0.05)


def test_an_expensive_look_becomes_rare_step_by_step() -> None:
    assert pause_s(idle_s=0.0, cost_s=0.005) == 0.005
    assert pause_s(idle_s=2.0, cost_s=0.005) == pytest.approx(0.2)
    assert pause_s(idle_s=60.0, cost_s=0.005) == pytest.approx(0.5)


def test_whatever_a_look_costs_there_is_one_each_second() -> None:
    assert pause_s(idle_s=3600.0, cost_s=10.0) == 1.0


@given(idle_s=st.floats(0, 1e5), cost_s=st.floats(0, 10))
def test_looks_take_at_most_half_of_a_core_at_once_and_one_percent_in_the_end(idle_s: float, cost_s: float) -> None:
    pause = pause_s(idle_s, cost_s)
    assert 0.005 <= pause <= 1.0
    assert pause >= min(cost_s, 1.0)
    assert pause_s(1e6, cost_s) >= min(99 * cost_s, 1.0)


def test_news_make_the_next_look_due_at_once() -> None:
    interval = PollInterval()
    with interval.measured():
        pass
    assert not interval.due_at.passed
    interval.news()
    assert interval.due_at.passed


def test_a_look_that_fails_is_followed_by_a_pause_too() -> None:
    interval = PollInterval()
    with pytest.raises(ValueError, match="no"), interval.measured():
        raise ValueError("no")
    assert not interval.due_at.passed
