"""The real shell in the simulated world.  One schedule in five of ``test_simulation`` also runs with it."""

from __future__ import annotations

import time

import pytest

from tests.simulation.kept import KEPT, Kept
from tests.simulation.mutants import Mutant, planted
from tests.simulation.routines import Routine, wait
from tests.simulation.schedule import check, from_seed, parse, tell
from tests.simulation.shell_mutants import SHELL_MUTANTS
from tests.simulation.speed import quick

MUTANT_SCHEDULES = 1200
"""The maximum number of schedules to catch a mutant.  Fifty are enough for most of them."""


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.name)
def test_kept_schedule_violates_nothing(kept: Kept) -> None:
    assert check(kept.config, parse(kept.actions), real_shell=True) is None


@pytest.mark.parametrize("mutant", SHELL_MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_of_the_shell_is_caught(mutant: Mutant) -> None:
    with planted(mutant), quick():
        for seed in (mutant.seed, *range(MUTANT_SCHEDULES)):
            if check(*from_seed(seed), real_shell=True) is not None:
                return
    pytest.fail(f"{MUTANT_SCHEDULES} schedules do not tell the mutant from the real shell")


def test_seed_gives_the_same_run_every_time() -> None:
    for seed in range(5):
        assert tell(*from_seed(seed), real_shell=True) == tell(*from_seed(seed), real_shell=True)


def test_nothing_sleeps_in_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose clock `shell` does not replace makes each schedule slow, and its deadlines never pass."""

    def sleep(seconds: float) -> None:
        raise AssertionError(f"a module sleeps for {seconds} s: replace its clock in tests/simulation/shell.py")

    monkeypatch.setattr(time, "sleep", sleep)
    for seed in range(100):
        assert check(*from_seed(seed), real_shell=True) is None


def test_routine_runs_until_it_waits_and_ends_where_it_is_abandoned() -> None:
    said = []

    def talk() -> None:
        said.append(1)
        wait()
        said.append(2)
        wait()
        said.append(3)

    routine = Routine(talk)
    assert said == []
    routine.resume()
    assert said == [1]
    routine.resume()
    routine.abandon()
    assert said == [1, 2]
    assert routine.over


def test_routine_hands_its_error_to_whoever_resumes_it() -> None:
    def fail() -> None:
        wait()
        raise LookupError("here")

    routine = Routine(fail)
    routine.resume()
    with pytest.raises(LookupError, match="here"):
        routine.resume()
