"""The table of the state machine, and what cannot happen.

What holds over long sequences of inputs is shown in ``tests/simulation``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pyspark_kafka_group.coordinator import assignment as core
from pyspark_kafka_group.coordinator.assignment import (
    TRANSITIONS,
    Assign,
    Cause,
    CommitDone,
    Expire,
    Finish,
    IllegalTransitionError,
    Input,
    Lose,
    Phase,
    Plan,
    Replay,
    Revoke,
    step,
)
from pyspark_kafka_group.offsets.document import INITIAL, BatchOffset
from tests.coordinator.machine import (
    A,
    B,
    Machine,
    active,
    draining,
    fed,
    in_flight,
    mark,
    resolving,
    starting,
)

# ------------------------------------------------------------------------------ the table


REACHED: dict[tuple[Phase | None, Cause], Callable[[], Machine]] = {
    (None, Cause.ASSIGNED): resolving,
    (Phase.RESOLVING, Cause.START_DURABLE): active,
    (Phase.RESOLVING, Cause.START_DECIDED): starting,
    (Phase.RESOLVING, Cause.REVOKED_IDLE): lambda: fed(resolving(), Revoke((A,))),
    (Phase.RESOLVING, Cause.LOST): lambda: fed(resolving(), Lose((A,))),
    (Phase.STARTING, Cause.START_COMMITTED): lambda: fed(starting(), CommitDone(None)),
    (Phase.STARTING, Cause.REVOKED_BUSY): lambda: fed(starting(), Revoke((A,))),
    (Phase.STARTING, Cause.LOST): lambda: fed(starting(), Lose((A,))),
    (Phase.ACTIVE, Cause.REVOKED_IDLE): lambda: fed(active(), Revoke((A,))),
    (Phase.ACTIVE, Cause.REVOKED_BUSY): draining,
    (Phase.ACTIVE, Cause.LOST): lambda: fed(in_flight(), Lose((A,))),
    (Phase.DRAINING, Cause.SETTLED): lambda: fed(starting(), Revoke((A,)), CommitDone(None)),
    (Phase.DRAINING, Cause.EXPIRED): lambda: fed(draining(), Expire()),
    (Phase.DRAINING, Cause.LOST): lambda: fed(draining(), Lose((A,))),
}


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row[0] and row[0].value}-{row[1].value}")
def test_row_of_the_table_is_taken(row: tuple[Phase | None, Cause], monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    original = core._phase_after

    def noted(phase: Phase | None, cause: Cause) -> Phase | None:
        taken.append((phase, cause))
        return original(phase, cause)

    monkeypatch.setattr(core, "_phase_after", noted)
    machine = REACHED[row]()
    assert taken[-1] == row
    assert machine.phase(A) is TRANSITIONS[row]


@pytest.mark.parametrize(
    ("machine", "given"),
    [
        (resolving, Assign((A,))),
        (starting, Assign((A,))),
        (active, Assign((A,))),
        (draining, Assign((A,))),
        (draining, Revoke((A,))),
        (in_flight, Plan({}, always=True)),
        (in_flight, Replay(BatchOffset("q", {A: mark(0, 5)}))),
        (active, CommitDone(None)),
        (active, CommitDone("refused")),
    ],
    ids=[
        "assigned while resolving",
        "assigned while starting",
        "assigned while active",
        "assigned while draining",
        "revoked while draining",
        "planned while a batch is in flight",
        "replayed while a batch is in flight",
        "answer to no commit",
        "refusal of no commit",
    ],
)
def test_what_cannot_happen_raises_and_changes_nothing(machine: Callable[[], Machine], given: Input) -> None:
    fed = machine()
    before = fed.state
    copy = replace(before, owned=dict(before.owned), progress=dict(before.progress))
    with pytest.raises(IllegalTransitionError):
        fed.feed(given)
    assert fed.state is before
    assert before == copy


def test_illegal_transition_says_where_the_partition_stands() -> None:
    with pytest.raises(IllegalTransitionError, match="a partition that is draining cannot be: assigned"):
        draining().feed(Assign((A,)))


def test_step_leaves_the_state_it_was_given_as_it_was() -> None:
    machine = in_flight(A, B)
    for given in (Revoke((A,)), Lose((B,)), Finish(machine.state.batch.end if machine.state.batch else INITIAL)):
        before = machine.state
        copy = replace(before, owned=dict(before.owned), progress=dict(before.progress))
        step(before, given)
        assert before == copy
