"""What the state machine does when partitions are assigned: where they start, and when they may be planned.

What holds over long sequences of inputs is shown in ``tests/simulation``.
"""

from __future__ import annotations

from pyspark_kafka_group.coordinator import events
from pyspark_kafka_group.coordinator.assignment import (
    Adopt,
    Answer,
    Assign,
    Commit,
    CommitDone,
    Fail,
    FetchFacts,
    Lose,
    Phase,
    Progress,
    Revoke,
)
from pyspark_kafka_group.offsets.document import BatchOffset
from pyspark_kafka_group.offsets.errors import DataLossError, OffsetRewindError
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch
from tests.coordinator.machine import (
    A,
    B,
    Machine,
    active,
    facts,
    lenient,
    mark,
    resolving,
    starting,
)

# ------------------------------------------------------------------------------ adopt


def test_adopted_marks_are_the_progress() -> None:
    machine = Machine()
    machine.feed(Adopt(BatchOffset("q", {A: mark(3, 7, 3), B: mark(9, 9)}), "q"))
    assert machine.state.query_id == "q"
    assert machine.state.progress == {
        A: Progress(finished=Offset(7), seen=Offset(3)),
        B: Progress(finished=Offset(9), seen=None),
    }


# ------------------------------------------------------------------------------ assign and start


def test_assigned_partitions_are_asked_about_under_one_new_epoch() -> None:
    machine = Machine()
    outputs = machine.feed(Assign((A, B)))
    assert outputs == [events.Assigned(partitions=(A, B)), FetchFacts({A: OwnershipEpoch(1), B: OwnershipEpoch(1)})]


def test_partition_that_comes_back_has_a_new_epoch() -> None:
    machine = active()
    machine.feed(Revoke((A,)), Assign((A,)))
    assert machine.epoch(A) == 2


def test_empty_assignment_changes_nothing() -> None:
    machine = active()
    before = machine.state
    assert machine.feed(Assign(())) == []
    assert machine.state == before


def test_facts_are_asked_for_once() -> None:
    machine = resolving()
    assert machine.feed(Assign((B,))) == [
        events.Assigned(partitions=(B,)),
        FetchFacts({B: OwnershipEpoch(2)}),
    ]


def test_state_is_unsettled_until_the_last_start_is_durable() -> None:
    machine = resolving(A, B)
    assert machine.state.unsettled
    machine.answer(A, 3)
    assert machine.state.unsettled
    machine.answer(B, None)
    assert machine.state.unsettled
    machine.feed(CommitDone(None))
    assert not machine.state.unsettled


def test_partition_with_a_committed_offset_is_planned_from_there_at_once() -> None:
    machine = resolving()
    assert machine.answer(A, 7) == [events.Started(positions={A: Offset(7)})]
    assert machine.state.plannable() == {A: (1, 7)}


def test_first_start_is_committed_before_it_is_planned() -> None:
    machine = resolving()
    assert machine.answer(A, None) == [Commit({A: (OwnershipEpoch(1), Offset(0), 3)}, after_batch=0)]
    assert machine.state.plannable() == {}
    assert machine.feed(CommitDone(None)) == [
        events.Committed(offsets={A: Offset(0)}),
        events.Started(positions={A: Offset(0)}),
    ]
    assert machine.state.plannable() == {A: (1, 0)}


def test_start_that_is_not_committed_yet_is_no_progress() -> None:
    """Regression: the group has no offset, this query has a mark, and that looked like deleted offsets."""
    machine = starting()
    assert machine.state.progress == {}
    machine.feed(CommitDone("refused"), Lose((A,)), Assign((A,)))
    machine.answer(A, None)
    assert machine.phase(A) is Phase.STARTING


def test_start_at_the_own_mark_is_committed_beside_the_first_batch() -> None:
    machine = Machine()
    machine.feed(Adopt(BatchOffset("q", {A: mark(0, 9, 4)}), "q"), Assign((A,)))
    outputs = machine.answer(A, 4)
    assert outputs == [
        events.Started(positions={A: Offset(9)}),
        Commit({A: (OwnershipEpoch(1), Offset(9), 3)}, after_batch=0),
    ]
    assert machine.state.plannable() == {A: (1, 9)}


def test_facts_of_an_earlier_assignment_are_ignored() -> None:
    machine = resolving()
    old = machine.epoch(A)
    machine.feed(Revoke((A,)), Assign((A,)))
    assert machine.feed(Answer({A: (old, facts(7))})) == []
    assert machine.phase(A) is Phase.RESOLVING


def test_facts_of_a_partition_that_has_left_are_ignored() -> None:
    machine = resolving()
    old = machine.epoch(A)
    machine.feed(Revoke((A,)))
    assert machine.feed(Answer({A: (old, facts(7))})) == []


def test_second_answer_about_a_partition_is_ignored() -> None:
    machine = active()
    assert machine.answer(A, 50) == []
    assert machine.state.plannable() == {A: (1, 0)}


def test_rewind_ends_the_query() -> None:
    machine = Machine()
    machine.feed(Adopt(BatchOffset("q", {A: mark(0, 9, 9)}), "q"), Assign((A,)))
    [fail] = machine.answer(A, 4)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, OffsetRewindError)


def test_lost_records_end_the_query() -> None:
    [fail] = resolving().answer(A, 4, start=10)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, DataLossError)


def test_accepted_loss_is_told_with_its_range() -> None:
    outputs = lenient(finished=4).answer(A, 4, start=10)
    assert outputs == [
        events.Skipped(partition=A, gone=(Offset(4), Offset(10))),
        Commit({A: (OwnershipEpoch(1), Offset(10), 3)}, after_batch=0),
    ]


def test_marks_go_back_with_a_recreated_topic_once_its_start_is_committed() -> None:
    machine = lenient(finished=90)
    machine.answer(A, 90, end=10)
    assert machine.state.progress[A].finished == 90
    machine.feed(CommitDone(None))
    assert machine.state.progress[A] == Progress(finished=Offset(10), seen=Offset(10))


def test_marks_go_back_with_a_recreated_topic_also_if_it_is_revoked_meanwhile() -> None:
    """Regression: the old mark came back, and the next start looked like a rewind."""
    machine = lenient(finished=90)
    machine.answer(A, 90, end=10)
    machine.feed(Revoke((A,)), CommitDone(None))
    assert machine.state.progress[A] == Progress(finished=Offset(10), seen=Offset(10))


def test_batch_of_other_partitions_does_not_bring_marks_of_a_recreated_topic_back() -> None:
    """Regression: the batch in flight carried the mark of the old log."""
    machine = lenient(finished=90)
    machine.feed(Assign((B,)))
    machine.answer(B, 0)
    machine.plan((B, 5))
    machine.answer(A, 90, end=10)
    machine.feed(CommitDone(None))
    machine.finish()
    assert machine.state.progress[A] == Progress(finished=Offset(10), seen=Offset(10))
