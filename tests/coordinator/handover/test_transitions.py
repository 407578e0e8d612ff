"""The transition table of the state machine, and inputs that cannot occur.

The tests in ``tests/simulation`` check long sequences of inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pyspark_kafka_group.coordinator.handover import transitions
from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    CommitAnswered,
    Expire,
    Finish,
    Input,
    Leave,
    LogChange,
    LogChangeFound,
    Lose,
    PlanBatch,
    Replay,
    Revoke,
)
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.handover.transitions import (
    TRANSITIONS,
    Cause,
    IllegalTransitionError,
    Phase,
    phase_after,
)
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from tests.coordinator.machine import (
    A,
    B,
    Machine,
    active,
    draining,
    entry,
    fed,
    in_flight,
    resolving,
    starting,
)

Row = tuple[Phase | None, Cause]

# ------------------------------------------------------------------------------ the table

RECREATED = LogChangeFound((A,), LogChange.RECREATED)

REACHED: dict[Row, Callable[[], Machine]] = {
    (None, Cause.ASSIGNED): resolving,
    (Phase.RESOLVING, Cause.START_DURABLE): active,
    (Phase.RESOLVING, Cause.START_DECIDED): starting,
    (Phase.RESOLVING, Cause.LOG_CHANGED): lambda: fed(resolving(), RECREATED),
    (Phase.RESOLVING, Cause.REVOKED_IDLE): lambda: fed(resolving(), Revoke((A,))),
    (Phase.RESOLVING, Cause.LOST): lambda: fed(resolving(), Lose((A,))),
    (Phase.STARTING, Cause.START_COMMITTED): lambda: fed(starting(), CommitAnswered(None)),
    (Phase.STARTING, Cause.LOG_CHANGED): lambda: fed(starting(), RECREATED),
    (Phase.STARTING, Cause.REVOKED_BUSY): lambda: fed(starting(), Revoke((A,))),
    (Phase.STARTING, Cause.LOST): lambda: fed(starting(), Lose((A,))),
    (Phase.ACTIVE, Cause.LOG_CHANGED): lambda: fed(active(), RECREATED),
    (Phase.ACTIVE, Cause.REVOKED_IDLE): lambda: fed(active(), Revoke((A,))),
    (Phase.ACTIVE, Cause.REVOKED_BUSY): draining,
    (Phase.ACTIVE, Cause.LOST): lambda: fed(in_flight(), Lose((A,))),
    (Phase.DRAINING, Cause.LOG_CHANGED): lambda: fed(draining(), RECREATED),
    (Phase.DRAINING, Cause.SETTLED): lambda: fed(starting(), Revoke((A,)), CommitAnswered(None)),
    (Phase.DRAINING, Cause.EXPIRED): lambda: fed(draining(), Expire()),
    (Phase.DRAINING, Cause.LOST): lambda: fed(draining(), Lose((A,))),
}


class NotedTable(dict[Row, Phase | None]):
    """The transition table, with a record of the rows that the state machine has read."""

    def __init__(self) -> None:
        super().__init__(TRANSITIONS)
        self.looked_at: list[Row] = []

    def __getitem__(self, row: Row) -> Phase | None:
        self.looked_at.append(row)
        return super().__getitem__(row)


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row[0] and row[0].value}-{row[1].value}")
def test_row_of_the_table_is_taken(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    table = NotedTable()
    monkeypatch.setattr(transitions, "TRANSITIONS", table)
    machine = REACHED[row]()
    assert table.looked_at[-1] == row
    assert machine.phase(A) is TRANSITIONS[row]


@pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.value)
@pytest.mark.parametrize("phase", [None, *Phase], ids=lambda phase: "not owned" if phase is None else phase.value)
def test_what_is_not_in_the_table_raises(phase: Phase | None, cause: Cause) -> None:
    if (phase, cause) in TRANSITIONS:
        assert phase_after(phase, cause) is TRANSITIONS[phase, cause]
    else:
        with pytest.raises(IllegalTransitionError, match=f"cannot be: {cause.value}"):
            phase_after(phase, cause)


@pytest.mark.parametrize(
    ("machine", "given"),
    [
        (resolving, Assign((A,))),
        (starting, Assign((A,))),
        (active, Assign((A,))),
        (draining, Assign((A,))),
        (draining, Revoke((A,))),
        (in_flight, PlanBatch({}, always=True)),
        (in_flight, Replay(BatchOffset("q", {A: entry(0, 5)}))),
        (active, CommitAnswered(None)),
        (active, CommitAnswered("refused")),
        (lambda: fed(active(), Leave()), Leave()),
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
        "left twice",
    ],
)
def test_what_cannot_happen_raises_and_changes_nothing(machine: Callable[[], Machine], given: Input) -> None:
    fed = machine()
    before = fed.state
    copy = replace(before, owned=dict(before.owned), processed=dict(before.processed))
    with pytest.raises(IllegalTransitionError):
        fed.feed(given)
    assert fed.state is before
    assert before == copy


def test_illegal_transition_says_where_the_partition_stands() -> None:
    with pytest.raises(IllegalTransitionError, match="a partition that is draining cannot be: assigned"):
        draining().feed(Assign((A,)))


def test_step_leaves_the_state_it_was_given_as_it_was() -> None:
    machine = in_flight(A, B)
    for given in (
        Revoke((A,)),
        Lose((B,)),
        LogChangeFound((A, B), LogChange.TRUNCATED),
        Finish(machine.state.batch.end if machine.state.batch else INITIAL),
    ):
        before = machine.state
        copy = replace(before, owned=dict(before.owned), processed=dict(before.processed))
        step(before, given)
        assert before == copy
