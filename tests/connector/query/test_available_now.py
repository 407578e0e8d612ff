"""A run with availableNow, with a group and logs that the test controls."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from pyspark_kafka_group.coordinator.handover.inputs import LogChange
from pyspark_kafka_group.coordinator.handover.state import Batch, Partition
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import AssignmentTimeoutError, DataLossError, NoPartitionsError
from pyspark_kafka_group.offsets.start_inputs import ProcessedOffset
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query import available_now
from pyspark_kafka_group.query.available_now import AvailableNow
from pyspark_kafka_group.query.log_watch import Changes, LogWatch
from pyspark_kafka_group.wire import deadline
from tests.connector.query.fakes import END, A, B, FakeGroup, FakeWatch

SETTINGS = parse({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "etl", "subscribe": "orders"}).group


class Run:
    def __init__(self, target: dict[TopicPartition, int], now: SimpleNamespace) -> None:
        self.target = {tp: Offset(end) for tp, end in target.items()}
        self.group = FakeGroup(now)
        self.watch = FakeWatch()
        self.watch.ends = {tp: Offset(end + 50) for tp, end in target.items()}  # more records have come since
        self.planner = AvailableNow(SETTINGS, cast(LogWatch, self.watch), self.target)

    def plan(self, *, always: bool = False) -> BatchOffset | None:
        return self.planner.next_batch(cast(Membership, self.group), None, always=always)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Fake the time that the run sees."""
    made = SimpleNamespace(s=1000.0)
    fake = SimpleNamespace(monotonic=lambda: made.s)
    monkeypatch.setattr(available_now, "time", fake)
    monkeypatch.setattr(deadline, "time", fake)
    monkeypatch.setattr(lasting, "time", fake)
    return made


@pytest.fixture
def run(now: SimpleNamespace) -> Run:
    return Run({A: 10, B: 20}, now)


def test_a_run_reads_up_to_the_ends_of_its_beginning(run: Run) -> None:
    run.group.own({A: 3, B: 20})
    assert run.plan() is END
    assert run.group.planned == [{A: "[3, 10)"}]
    assert run.group.asked_settled == [], "who has something to read goes on"


def test_a_run_ends_when_its_share_is_read_and_the_group_has_settled(run: Run) -> None:
    run.group.own({A: 10})
    assert run.plan() is None
    assert run.group.planned == []
    assert run.group.asked_settled == [{A, B}]


def test_an_empty_first_assignment_is_not_taken_for_nothing_to_read(run: Run) -> None:
    """Cooperative joins begin with an empty assignment."""
    run.group.assigned_later = [{}, {}, {A: 0, B: 0}]
    assert run.plan() is END
    assert run.group.planned == [{A: "[0, 10)", B: "[0, 20)"}]


def test_a_run_that_has_read_its_share_waits_for_what_others_give_back(run: Run) -> None:
    run.group.own({A: 10})
    run.group.assigned_later = [{A: 10}, {A: 10, B: 5}]
    assert run.plan() is END
    assert run.group.planned == [{B: "[5, 20)"}]


@pytest.mark.parametrize("always", [False, True])
def test_first_partitions_that_come_while_the_group_is_asked_are_read(run: Run, always: bool) -> None:
    """The group's answer covers these partitions, but the query has not polled them yet."""
    run.group.assigned_while_asked = {A: 0, B: 5}
    assert run.plan(always=always) is END
    assert run.group.planned == [{A: "[0, 10)", B: "[5, 20)"}]


def test_partitions_that_are_added_while_the_group_is_asked_are_read(run: Run) -> None:
    run.group.own({A: 10})
    run.group.assigned_while_asked = {A: 10, B: 5}
    assert run.plan() is END
    assert run.group.planned == [{B: "[5, 20)"}]


def test_partitions_that_come_while_the_last_batch_is_committed_are_read(run: Run) -> None:
    """Regression: two runs that exchanged partitions at this moment both ended, and left one partition unread."""
    run.group.own({A: 10})
    owned = {A: run.group.state.owned[A].stored(Offset(5))}
    run.group.state = replace(run.group.state, owned=owned)
    run.group.assigned_while_committing = {B: 5}
    assert run.plan() is END
    assert run.group.planned == [{B: "[5, 20)"}]


def test_a_run_whose_partition_is_taken_while_its_last_batch_is_committed_asks_again_for_its_share(run: Run) -> None:
    """Regression: it ended, although the group was about to give it another partition."""
    run.group.own({A: 10})
    run.group.state = replace(run.group.state, owned={A: run.group.state.owned[A].stored(Offset(5))})
    run.group.assigned_while_committing = {}
    assert run.plan() is None
    assert len(run.group.asked_settled) == 2


def test_partitions_that_move_while_a_batch_is_planned_do_not_end_the_run(run: Run) -> None:
    """Regression: Spark ended the run, although this member got the partition again."""
    run.group.own({A: 0})
    run.group.assigned_while_planning = {}
    run.group.assigned_later = [{A: 0}]
    assert run.plan() is END
    assert run.group.planned == [{A: "[0, 10)"}]


def test_a_plan_that_the_group_refuses_for_ever_is_an_error_in_the_end(run: Run, now: SimpleNamespace) -> None:
    run.group.own({A: 0})
    run.group.plan = lambda *_, **__: None  # type: ignore[method-assign]
    with pytest.raises(AssignmentTimeoutError):
        run.plan()
    assert now.s > 1330


def test_batch_0_of_an_empty_first_assignment_waits_as_well(run: Run) -> None:
    run.group.assigned_later = [{}, {A: 0}]
    assert run.plan(always=True) is END
    assert run.group.planned == [{A: "[0, 10)"}]


def test_batch_0_runs_though_there_is_nothing_to_read(run: Run) -> None:
    run.group.own({A: 10})
    assert run.plan(always=True) is END
    assert run.group.planned == [{}]


def test_a_run_whose_pattern_matches_no_topic_ends_without_a_group(now: SimpleNamespace) -> None:
    run = Run({}, now)
    run.group.answers = False
    assert run.plan(always=True) is END
    assert run.plan() is None
    assert run.group.planned == [{}]
    assert run.group.asked_settled == []
    assert now.s == 1000.0, "it waits for nothing"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("always", [False, True])
def test_a_run_that_is_given_no_partition_in_a_settled_group_is_an_error_after_5_s(
    run: Run, now: SimpleNamespace, restarted: bool, always: bool
) -> None:
    """This includes a restarted run: the reads of former runs prove nothing for this one."""
    if restarted:
        run.group.state = replace(run.group.state, processed={A: ProcessedOffset(Offset(5), None, None, "l")})
    with pytest.raises(NoPartitionsError, match="'etl'"):
        run.plan(always=always)
    assert 1005 < now.s < 1006
    assert run.group.planned == []


@pytest.mark.parametrize("always", [False, True])
def test_a_run_to_which_the_group_never_says_anything_is_an_error_as_soon(
    run: Run, now: SimpleNamespace, always: bool
) -> None:
    """Under KIP-848, a member without partitions gets no message."""
    run.group.answers = False
    with pytest.raises(NoPartitionsError, match="'etl'"):
        run.plan(always=always)
    assert 1005 < now.s < 1006
    assert run.group.planned == []


def test_the_5_s_begin_anew_when_the_group_is_not_settled_meanwhile(run: Run, now: SimpleNamespace) -> None:
    settled = iter([True] * 40 + [False] + [True] * 1000)
    run.group.is_stable = lambda *_: next(settled)  # type: ignore[method-assign]
    with pytest.raises(NoPartitionsError):
        run.plan()
    assert now.s > 1009


def test_a_run_that_had_partitions_and_has_given_them_to_others_ends(run: Run) -> None:
    run.group.own({A: 10})
    run.group.own({})
    assert run.plan() is None


@pytest.mark.parametrize("answers", [False, True])
def test_a_group_that_does_not_settle_is_an_error_in_the_end(run: Run, now: SimpleNamespace, answers: bool) -> None:
    run.group.answers, run.group.settled = answers, False
    with pytest.raises(AssignmentTimeoutError, match="'etl' has not given each partition"):
        run.plan()
    assert run.group.planned == []
    if answers:
        assert 1330 < now.s < 1331


def test_a_log_that_was_created_again_gets_a_new_target(run: Run) -> None:
    """The run reads the new log up to the end that it had when the run noticed the change."""
    run.group.own({A: 3, B: 20})
    run.watch.ends[A] = Offset(7)
    run.watch.changes = [Changes(recreated={"orders"})]
    run.watch.ends[B] = Offset(2)
    assert run.plan() is END
    assert run.group.changed == [({A, B}, LogChange.RECREATED)]
    assert run.target == {A: 7, B: 2}
    assert run.group.planned == [{A: "[0, 7)", B: "[0, 2)"}]


def test_a_log_that_was_truncated_gets_a_new_target_and_no_other_does(run: Run) -> None:
    run.group.own({A: 8, B: 5})
    run.watch.ends[A] = Offset(6)
    run.watch.changes = [Changes(truncated={A})]
    assert run.plan() is END
    assert run.group.changed == [({A}, LogChange.TRUNCATED)]
    assert run.target == {A: 6, B: 20}


def test_a_log_end_that_goes_back_for_a_moment_does_not_end_the_run(now: SimpleNamespace) -> None:
    run = Run({A: 100}, now)
    run.group.own({A: 60})
    looks = iter([60, 60, 100])
    run.watch.list_ends = lambda _: {A: Offset(next(looks))}  # type: ignore[method-assign,assignment]
    assert run.plan() is END
    assert run.group.planned == [{A: "[60, 100)"}]


def test_a_share_that_is_read_needs_no_log_end(run: Run, now: SimpleNamespace) -> None:
    """The log ends go back behind what was read, for example when a new leader is elected."""
    run.group.own({A: 10, B: 20})
    run.watch.ends = {A: Offset(4), B: Offset(4)}
    assert run.plan() is None
    assert now.s == 1000.0, "it waits for nothing"


def test_a_run_does_not_end_while_the_start_of_a_partition_is_unknown(run: Run) -> None:
    """The partition is assigned, so the group is stable.  But the query cannot plan it yet."""
    run.group.own({A: 10, B: 5})
    known = run.group.state
    resolving = Partition(Phase.RESOLVING, OwnershipEpoch(1))
    run.group.state = replace(known, owned={**known.owned, B: resolving})
    run.group.assigned_later = [{A: 10, B: 5}]
    run.group.is_stable = lambda *_: True  # type: ignore[method-assign]
    assert run.plan() is END
    assert run.group.planned == [{B: "[5, 20)"}]


def test_a_log_that_stays_shorter_is_an_error_after_10_s(run: Run, now: SimpleNamespace) -> None:
    """Regression: the run succeeded, although records that it was to read were gone."""
    run.group.own({A: 3, B: 20})
    run.watch.ends[A] = Offset(3)
    with pytest.raises(DataLossError, match=r"orders-0: offsets \[3, 10\) are beyond the end of the log, 3"):
        run.plan()
    assert 1010 < now.s < 1011


def test_without_fail_on_data_loss_it_ends_the_run_with_a_warning(
    run: Run, now: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(SETTINGS, start=replace(SETTINGS.start, fail_on_data_loss=False))
    run.planner = AvailableNow(settings, cast(LogWatch, run.watch), run.target)
    run.group.own({A: 3, B: 20})
    run.watch.ends[A] = Offset(3)
    assert run.plan() is None
    assert 1010 < now.s < 1011
    assert [r.getMessage() for r in caplog.records] == [
        "etl-1: the log of orders-0 ended at offset 10 when the run started, but has ended at 3 for 10 s. The run ends "
        "without the records in between. If they come back, the next run reads them. Check the broker's log for an "
        "unclean leader election."
    ]


def test_a_deleted_topic_has_nothing_left_to_read(run: Run) -> None:
    run.group.own({A: 3, B: 5})
    run.watch.ends.clear()
    run.watch.changes = [Changes(deleted={"orders"})]
    assert run.plan() is None
    assert run.group.changed == [({A, B}, LogChange.DELETED)]
    assert run.target == {}


def test_partitions_of_which_it_is_not_known_are_left_for_later_and_do_not_end_the_run(run: Run) -> None:
    run.group.own({A: 3})
    run.watch.changes = [Changes(unsure={A})] * 3
    assert run.plan() is END
    assert run.group.planned == [{A: "[3, 10)"}]
    assert run.group.asked_settled == []


def test_a_batch_in_flight_is_given_back_while_nothing_more_is_to_be_planned(run: Run) -> None:
    run.group.own({A: 10})
    run.group.state = replace(run.group.state, batch=Batch(end=END, running={}, epochs={}))
    assert run.plan() is END
    assert run.group.planned == []
