"""The lifecycle of a membership: its table, and the effect of each value on the state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_kafka_group.coordinator.handover.inputs import CommitAnswered, End, Leave, Lose
from pyspark_kafka_group.coordinator.handover.lifecycle import LIFECYCLE, Ending, Lifecycle, lifecycle_after
from pyspark_kafka_group.coordinator.handover.transitions import IllegalTransitionError
from tests.coordinator.machine import A, Machine, active, fed, in_flight

REACHED: dict[Lifecycle, Callable[[], Machine]] = {
    Lifecycle.RUNNING: active,
    Lifecycle.FINISHING: lambda: fed(active(), End(Ending.FINISH)),
    Lifecycle.LEAVING: lambda: fed(active(), End(Ending.STOP)),
    Lifecycle.FAILED: lambda: fed(active(), End(Ending.FAIL)),
    Lifecycle.LEFT: lambda: fed(active(), Leave()),
}

IN_ORDER = list(Lifecycle)


def ended(machine: Machine, ending: Ending) -> Machine:
    return fed(machine, Leave() if ending is Ending.LEAVE else End(ending))


@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
@pytest.mark.parametrize("now", Lifecycle, ids=lambda now: now.value)
def test_every_ending_is_in_the_table_or_raises(now: Lifecycle, ending: Ending) -> None:
    machine = REACHED[now]()
    assert machine.state.lifecycle is now
    if (now, ending) in LIFECYCLE:
        assert ended(machine, ending).state.lifecycle is LIFECYCLE[now, ending]
    else:
        with pytest.raises(IllegalTransitionError, match=f"a membership that is {now.value} cannot be"):
            ended(machine, ending)
        assert machine.state.lifecycle is now


def test_only_what_was_left_cannot_be_left_again() -> None:
    missing = {(now, ending) for now in Lifecycle for ending in Ending} - LIFECYCLE.keys()
    assert missing == {(Lifecycle.LEFT, Ending.LEAVE)}
    with pytest.raises(IllegalTransitionError, match="a membership that is left cannot be: leaves the group"):
        lifecycle_after(Lifecycle.LEFT, Ending.LEAVE)


@pytest.mark.parametrize("row", LIFECYCLE, ids=lambda row: f"{row[0].value}-{row[1].value}")
def test_a_membership_never_goes_back(row: tuple[Lifecycle, Ending]) -> None:
    assert IN_ORDER.index(LIFECYCLE[row]) >= IN_ORDER.index(row[0])


@pytest.mark.parametrize("now", Lifecycle, ids=lambda now: now.value)
def test_only_a_running_membership_plans(now: Lifecycle) -> None:
    machine = REACHED[now]()
    assert bool(machine.state.plannable()) is (now is Lifecycle.RUNNING)
    assert machine.state.ending is (now is not Lifecycle.RUNNING)


# ------------------------------------------------------------------------------ clean


def test_a_membership_that_is_left_with_nothing_open_was_clean() -> None:
    assert fed(active(), End(Ending.FINISH), Leave()).state.clean


def test_a_membership_that_finishes_is_clean_once_its_batch_is_committed() -> None:
    machine = fed(in_flight(), End(Ending.FINISH))
    machine.finish()
    assert fed(machine, CommitAnswered(None), Leave()).state.clean


@pytest.mark.parametrize("ending", [Ending.FINISH, Ending.STOP])
def test_a_membership_that_is_left_in_the_middle_of_a_batch_was_not_clean(ending: Ending) -> None:
    assert not fed(in_flight(), End(ending), Leave()).state.clean


def test_a_membership_that_is_left_before_its_batch_is_committed_was_not_clean() -> None:
    machine = in_flight()
    machine.finish()
    assert not fed(machine, End(Ending.STOP), Leave()).state.clean


def test_a_membership_that_has_failed_is_not_clean_even_with_nothing_open() -> None:
    assert not fed(active(), End(Ending.FAIL), Leave()).state.clean


def test_a_membership_that_was_thrown_out_is_not_clean() -> None:
    assert not fed(active(), End(Ending.STOP), Leave(evicted=True)).state.clean


def test_what_was_lost_while_the_query_ran_does_not_make_its_end_unclean() -> None:
    assert fed(active(), Lose((A,)), End(Ending.FINISH), Leave()).state.clean


def test_a_membership_is_not_clean_before_it_is_left() -> None:
    assert not fed(active(), End(Ending.FINISH)).state.clean
