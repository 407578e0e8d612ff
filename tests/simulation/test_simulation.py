"""The real state machine in a simulated world: no random schedule may violate an invariant.

``SIMULATION_SCHEDULES`` sets how many schedules run, and ``SIMULATION_SEED`` sets the first seed.
``SIMULATION_DEEPER`` sets how many steps deeper the tests explore the small worlds: by default -3, because the last
steps take most of the time.  ``make test-all`` also takes those.  A failure prints the shrunk run.
You can keep that run in :mod:`tests.simulation.kept`.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from pyspark_kafka_group.coordinator.handover import (
    batches,
    inputs,
    outputs,
    ownership,
    starting,
    transitions,
)
from pyspark_kafka_group.coordinator.handover import state as states
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.handover.transitions import Cause, Phase
from tests.simulation import query
from tests.simulation.explore import Scope, explore
from tests.simulation.kept import KEPT, Kept
from tests.simulation.mutants import MUTANTS, Mutant, planted
from tests.simulation.pinned import EQUIVALENT, PINNED, Equivalent, Pinned, fails
from tests.simulation.schedule import RARE_EVERY, check, from_seed, parse, shrink, tell
from tests.simulation.scopes import SCOPES
from tests.simulation.speed import quick, replace
from tests.simulation.world import Config, World

SCHEDULES = int(os.environ.get("SIMULATION_SCHEDULES", "200"))
FIRST_SEED = int(os.environ.get("SIMULATION_SEED", "2000"))
DEEPER = int(os.environ.get("SIMULATION_DEEPER", "-3"))

ROOT = Path(__file__).parents[2]

MISTAKES = {
    "hand-over": "released while in flight",
    "commits that go wrong": "failed commit taken for done",
    "crashes and deadlines": "own processed offset forgotten",
    "static members": "own processed offset forgotten",
}
"""The mistake that each exhaustive scope must find."""

MUTANT_SCHEDULES = 3000
"""The maximum number of schedules to catch a mutant.  A hundred are enough for most of them."""

TWO_RUNS = range(13, 1000, RARE_EVERY)
FAULTS = {
    "is refused: the place of its former process": range(300),
    "ends: Spark: concurrent update of the log": TWO_RUNS,
    "ends: OutdatedCheckpointError": TWO_RUNS,
    "ends: MemberFencedError": TWO_RUNS,
    "cannot read its skip markers": range(5, 1000, RARE_EVERY),
}
"""For each rare fault, a text of the story, and seeds of which at least one must produce the fault."""

ALL_WITHIN_SCHEDULES = 20_000
"""The maximum number of schedules to produce every input and every transition.  Changes of logs are rare, so it takes
more than a thousand.  None of them may violate an invariant either."""


@pytest.mark.timeout(300 + SCHEDULES / 100 + 300 * max(0, DEEPER))
def test_no_schedule_violates_an_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    """The schedules run in separate processes, on all cores."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(FIRST_SEED)]
    command += ["--schedules", str(SCHEDULES), "--deeper", str(DEEPER)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.fail(run.stdout + run.stderr, pytrace=False)
    with capsys.disabled():
        print(f" {run.stdout.strip()} ", end="")


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.name)
def test_exhaustive_exploration_finds_a_planted_mistake(scope: Scope) -> None:
    mutant = next(m for m in MUTANTS if m.name == MISTAKES[scope.name.split(",")[0]])
    with planted(mutant), quick():
        explored = explore(scope)
    assert explored.violation is not None
    with planted(mutant):
        again = check(scope.config, explored.actions)
    assert str(again) == str(explored.violation)
    assert check(scope.config, explored.actions) is None


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.name)
def test_kept_schedule_violates_nothing_and_still_makes_its_point(kept: Kept) -> None:
    actions = parse(kept.actions)
    assert check(kept.config, actions) is None
    assert kept.part in tell(kept.config, actions)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant) -> None:
    with planted(mutant):
        for kept in KEPT:
            if check(kept.config, parse(kept.actions)) is not None:
                return
        for seed in (mutant.seed, *range(MUTANT_SCHEDULES)):
            if check(*from_seed(seed)) is not None:
                return
    pytest.fail(f"{MUTANT_SCHEDULES} schedules do not tell the mutant from the real code")


@pytest.mark.parametrize("pinned", PINNED, ids=lambda pinned: pinned.mutant.name)
def test_mutant_is_caught_by_its_unit_test(pinned: Pinned) -> None:
    assert not fails(pinned.killer)
    with planted(pinned.mutant):
        assert fails(pinned.killer)


@pytest.mark.parametrize("equivalent", EQUIVALENT, ids=lambda equivalent: equivalent.mutant.name)
def test_mutant_that_changes_nothing_can_still_be_made(equivalent: Equivalent) -> None:
    """Each mutant still fits the code, so the reason beside it still applies."""
    with planted(equivalent.mutant):
        assert all(check(kept.config, parse(kept.actions)) is None for kept in KEPT)


@pytest.mark.parametrize(("fault", "seeds"), FAULTS.items())
def test_random_schedules_meet_each_rare_fault(fault: str, seeds: range) -> None:
    assert any(fault in tell(*from_seed(seed)) for seed in seeds)


def test_seed_gives_the_same_run_every_time() -> None:
    for seed in range(5):
        assert tell(*from_seed(seed)) == tell(*from_seed(seed))


def test_failing_run_is_shrunk_to_one_that_fails_alike_and_can_be_read_back() -> None:
    mutant = next(m for m in MUTANTS if m.name == "committed when planned")
    with planted(mutant):
        seed = next(seed for seed in range(MUTANT_SCHEDULES) if check(*from_seed(seed)) is not None)
        config, actions = from_seed(seed)
        found = check(config, actions)
        assert found is not None
        small_config, small = shrink(config, actions, found.kind)
        lines = tell(small_config, small).splitlines()
        again = check(small_config, parse(lines[1]))
        assert again is not None
        assert again.kind == found.kind
        assert lines[-1] == f"VIOLATED: {again}"
        for at in range(len(small)):
            without = check(small_config, small[:at] + small[at + 1 :])
            assert without is None or without.kind != found.kind


def test_quick_copy_equals_the_real_one() -> None:
    state = states.State(policy=World(Config()).policy)
    changes: dict[str, Any] = {"query_id": "q", "rewinds": 2, "clean": True}
    assert replace(state, **changes) == dataclasses.replace(state, **changes)
    assert replace(state) == state


def test_random_schedules_feed_every_input_and_take_every_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[Phase | None, Cause]] = set()
    fed: Counter[type] = Counter()
    phase_after = transitions.phase_after

    def noted_phase_after(phase: Phase | None, cause: Cause) -> Phase | None:
        taken.add((phase, cause))
        return phase_after(phase, cause)

    def noted_step(state: states.State, given: inputs.Input) -> tuple[states.State, tuple[outputs.Output, ...]]:
        fed[type(given)] += 1
        return step(state, given)

    for module in (batches, ownership, starting, states):
        monkeypatch.setattr(module, "phase_after", noted_phase_after)
    monkeypatch.setattr(query, "step", noted_step)
    kinds = set(get_args(inputs.Input))
    for seed in range(ALL_WITHIN_SCHEDULES):
        assert check(*from_seed(seed)) is None
        if taken == transitions.TRANSITIONS.keys() and min(fed[kind] for kind in kinds) >= 5:
            break
    assert taken == transitions.TRANSITIONS.keys()
    assert {kind.__name__ for kind in fed} == {kind.__name__ for kind in kinds}
    assert min(fed.values()) >= 5
