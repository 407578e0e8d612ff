"""The state machine plans, finishes and commits batches.

The tests in ``tests/simulation`` check long sequences of inputs.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    CommitAnswered,
    End,
    Finish,
    Lose,
    PlanBatch,
    PlannedRange,
    Restored,
    Retry,
    Revoke,
)
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending
from pyspark_kafka_group.coordinator.handover.outputs import Commit, ScheduleRetry
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch, TopicPartition
from tests.coordinator.machine import (
    LEADER,
    LOG,
    NEW_LINEAGE,
    A,
    B,
    C,
    Machine,
    active,
    draining,
    entry,
    in_flight,
    info,
    note,
    processed,
    resolving,
    restored,
    span,
    starting,
    to_commit,
)

# ------------------------------------------------------------------------------ plan


def test_planned_batch_moves_the_positions_and_is_in_flight() -> None:
    machine = active(A, B)
    assert machine.plan((A, 5)) == [events.Planned(ranges={A: span(0, 5)})]
    assert machine.plannable() == {A: (1, 5), B: (1, 0)}
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(0, 5)}


def test_end_of_a_batch_holds_its_ranges_and_the_processed_offsets_of_all_other_partitions() -> None:
    machine = restored({C: entry(2, 8)}, A, B)
    machine.answer(A, 3)
    machine.answer(B, 4)
    machine.plan((A, 6))
    assert machine.state.batch is not None
    assert machine.state.batch.end == BatchOffset("q", {A: entry(3, 6), B: entry(4, 4), C: entry(8, 8)})


def test_range_from_another_position_is_dropped() -> None:
    machine = active(A, B)
    machine.feed(
        PlanBatch({tp: PlannedRange(OwnershipEpoch(1), r) for tp, r in {A: span(2, 5), B: span(0, 5)}.items()})
    )
    assert machine.state.batch is not None
    assert machine.state.batch.running == {B: span(0, 5)}


def test_range_of_an_earlier_assignment_is_dropped() -> None:
    machine = active()
    machine.feed(Revoke((A,)), Assign((A,)))
    machine.answer(A, 0)
    machine.feed(PlanBatch({A: PlannedRange(OwnershipEpoch(1), span(0, 5))}))
    assert machine.state.batch is None


def test_range_of_a_partition_that_has_left_is_dropped() -> None:
    machine = active(A, B)
    positions = machine.state.plannable()
    machine.feed(Revoke((A,)))
    machine.feed(PlanBatch({tp: PlannedRange(p.epoch, span(p.offset, 5)) for tp, p in positions.items()}))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {B: span(0, 5)}


def test_plan_of_nothing_puts_no_batch_in_flight() -> None:
    machine = active()
    assert machine.plan((A, 0)) == []
    assert machine.state.batch is None


def test_first_batch_is_put_in_flight_even_if_it_reads_nothing() -> None:
    machine = active()
    assert machine.plan(always=True) == []
    assert machine.state.batch is not None
    assert machine.state.batch.end == BatchOffset("q", {A: entry(0, 0)})


def test_an_empty_batch_of_a_query_that_starts_again_is_a_new_one() -> None:
    """Spark compares offsets as text.  It runs no batch if the end equals the start."""
    start = BatchOffset("q", {A: entry(7, 7)}, rewinds=2)
    machine = Machine()
    machine.feed(Restored(start, "q"), PlanBatch({}, always=True))
    assert machine.state.batch is not None
    end = machine.state.batch.end
    assert end == replace(start, rewinds=3)
    machine.feed(Finish(end), PlanBatch({}, always=True))
    assert machine.state.batch.end == end, "nothing but the start is to differ from"


def test_an_empty_batch_after_one_that_read_something_is_new_as_it_is() -> None:
    machine = Machine()
    machine.feed(Restored(BatchOffset("q", {A: entry(3, 7)}), "q"), PlanBatch({}, always=True))
    assert machine.state.batch is not None
    assert machine.state.batch.end == BatchOffset("q", {A: entry(7, 7)})


def test_draining_partition_is_not_planned_and_the_others_are() -> None:
    machine = draining(A, B)
    machine.finish()
    assert machine.plannable() == {B: (1, 5)}


def test_nothing_is_planned_once_the_query_ends() -> None:
    machine = active()
    machine.feed(End(Ending.STOP))
    assert machine.state.plannable() == {}


def test_next_batch_does_not_wait_for_the_commit_of_the_last_one() -> None:
    machine = in_flight()
    machine.finish()
    assert machine.state.committing is not None
    assert machine.plannable() == {A: (1, 5)}


def test_batch_after_next_waits_until_the_last_one_is_committed() -> None:
    machine = in_flight()
    machine.finish()
    machine.plan((A, 8))
    machine.finish()
    assert machine.state.plannable() == {}
    machine.feed(CommitAnswered(None))
    assert machine.plannable() == {A: (1, 8)}


def test_refused_commit_lets_no_further_batch_begin() -> None:
    """Otherwise, if the group refuses every commit, the query reads on without limit and later repeats everything."""
    machine = in_flight()
    machine.finish()
    machine.plan((A, 8))
    machine.finish()
    machine.feed(CommitAnswered("refused"))
    assert machine.state.plannable() == {}
    machine.feed(Retry())
    assert machine.state.plannable() == {}
    machine.feed(CommitAnswered(None))
    assert machine.plannable() == {A: (1, 8)}


def test_commit_of_the_first_of_two_batches_lets_the_next_one_begin() -> None:
    machine = in_flight(A, B)
    machine.finish()
    machine.plan((B, 8))
    machine.finish()
    machine.feed(CommitAnswered(None))
    assert machine.due() == {B: 8}
    assert machine.plannable() == {A: (1, 5), B: (1, 8)}


def test_what_was_lost_is_not_waited_for() -> None:
    machine = in_flight(A, B)
    machine.finish()
    machine.plan((A, 8))
    machine.finish()
    machine.feed(Lose((A,)))
    assert machine.state.plannable() == {}, "B of the first batch is not committed"
    machine.feed(Lose((B,)), Assign((C,)))
    machine.answer(C, 0)
    assert machine.plannable() == {C: (2, 0)}


def test_start_that_is_being_committed_keeps_no_batch_of_the_others_waiting() -> None:
    machine = active(A)
    machine.feed(Assign((B,)))
    machine.answer(B, None)
    assert machine.state.committing is not None
    for until in (5, 6, 7):
        machine.plan((A, until))
        machine.finish()
        machine.feed(CommitAnswered(None))
    assert machine.plannable()[A] == (1, 7)


def test_empty_batches_wait_for_no_commit() -> None:
    machine = starting()
    for _ in range(3):
        machine.plan(always=True)
        assert machine.state.batch is not None
        machine.finish()


STEPS = st.sampled_from(["plan", "plan A", "plan B", "finish", "accept", "refuse", "retry", "lose B", "assign B"])


def uncommitted_batches(machine: Machine, batches: list[dict[TopicPartition, tuple[OwnershipEpoch, Offset]]]) -> int:
    """Return how many finished batches contain uncommitted records of partitions that this query still owns."""

    def waits(tp: TopicPartition, epoch: OwnershipEpoch, until: Offset) -> bool:
        p = machine.state.owned.get(tp)
        return p is not None and p.epoch == epoch and (p.committed is None or p.committed < until)

    return sum(any(waits(tp, *read) for tp, read in batch.items()) for batch in batches)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=60))
def test_never_is_more_than_one_finished_batch_uncommitted_when_the_next_is_planned(steps: list[str]) -> None:
    """So a query that dies repeats at most two batches, whatever the group answers."""
    machine = active(A, B)
    batches: list[dict[TopicPartition, tuple[OwnershipEpoch, Offset]]] = []
    for step in steps:
        state = machine.state
        if step.startswith("plan") and state.batch is None:
            wanted = {"plan": {A, B}, "plan A": {A}, "plan B": {B}}[step]
            machine.plan(*((tp, p.offset + 1) for tp, p in state.plannable().items() if tp in wanted))
            if machine.state.batch is not None:
                assert uncommitted_batches(machine, batches) <= 1
        elif step == "finish" and state.batch is not None:
            running, epochs = state.batch.running, state.batch.epochs
            machine.finish()
            batches.append({tp: (epochs[tp], r.until) for tp, r in running.items()})
        elif step in ("accept", "refuse") and state.committing is not None:
            machine.feed(CommitAnswered(None if step == "accept" else "refused"))
        elif step == "retry" and state.retry_pending:
            machine.feed(Retry())
        elif step == "lose B":
            machine.feed(Lose((B,)))
        elif step == "assign B" and B not in state.owned:
            machine.feed(Assign((B,)))
            if machine.state.owned[B].fetching:
                machine.answer(B, 0)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=60))
def test_a_batch_can_be_planned_again_once_everything_is_committed(steps: list[str]) -> None:
    """The limit on uncommitted batches never blocks a query forever."""
    machine = active(A, B)
    for step in steps:
        state = machine.state
        if step.startswith("plan") and state.batch is None:
            machine.plan(*((tp, p.offset + 1) for tp, p in state.plannable().items()))
        elif step == "finish" and state.batch is not None:
            machine.finish()
        elif step in ("accept", "refuse") and state.committing is not None:
            machine.feed(CommitAnswered(None if step == "accept" else "refused"))
        elif step == "retry" and state.retry_pending:
            machine.feed(Retry())
    if machine.state.batch is not None:
        machine.finish()
    while machine.state.uncommitted:
        machine.feed(Retry())
        machine.feed(CommitAnswered(None))
    assert machine.state.plannable().keys() == {A, B}


# ------------------------------------------------------------------------------ finish and commit


def test_finished_batch_is_committed() -> None:
    machine = in_flight()
    assert machine.finish() == [
        events.Finished(ranges={A: span(0, 5)}),
        Commit({A: to_commit(1, 5, note(since=0))}, after_batch=1),
    ]


def test_batch_in_flight_is_not_committed() -> None:
    assert in_flight().state.committing is None


def test_second_word_that_a_batch_is_finished_changes_nothing() -> None:
    machine = in_flight()
    assert machine.state.batch is not None
    end = machine.state.batch.end
    machine.finish()
    before = machine.state
    assert machine.feed(Finish(end)) == []
    assert machine.state == before


def test_end_of_an_older_batch_does_not_finish_the_one_in_flight() -> None:
    machine = in_flight()
    assert machine.state.batch is not None
    first = machine.state.batch.end
    machine.finish()
    machine.plan((A, 8))
    machine.feed(Finish(first))
    assert machine.state.batch is not None


def test_finished_batch_without_records_is_not_told_and_not_committed() -> None:
    machine = active()
    machine.plan(always=True)
    assert machine.finish() == []


def test_what_finishes_during_a_commit_is_committed_after_it() -> None:
    machine = in_flight()
    machine.finish()
    machine.plan((A, 8))
    assert machine.finish() == [events.Finished(ranges={A: span(5, 8)})]
    machine.feed(CommitAnswered(None))
    assert machine.due() == {A: 8}


def test_failed_commit_is_told_and_tried_again_after_a_pause() -> None:
    machine = in_flight()
    machine.finish()
    assert machine.feed(CommitAnswered("no answer")) == [events.CommitFailed(problem="no answer"), ScheduleRetry()]
    assert machine.feed(Retry()) == [Commit({A: to_commit(1, 5, note(since=0))}, after_batch=1)]


def test_nothing_is_committed_during_the_pause_after_a_failed_commit() -> None:
    machine = in_flight()
    machine.finish()
    machine.feed(CommitAnswered("no answer"))
    machine.plan((A, 8))
    assert machine.finish() == [events.Finished(ranges={A: span(5, 8)})]
    machine.feed(Retry())
    assert machine.due() == {A: 8}


def test_retry_with_nothing_to_commit_is_silent() -> None:
    assert active().feed(Retry()) == []


def test_one_commit_holds_everything_that_is_due() -> None:
    machine = in_flight(A, B)
    machine.finish()
    assert machine.due() == {A: 5, B: 5}


def test_batch_of_an_earlier_assignment_is_not_committed_for_the_new_one() -> None:
    machine = in_flight()
    machine.feed(Lose((A,)), Assign((A,)))
    machine.finish()
    assert machine.state.committing is None
    assert not machine.state.uncommitted


def test_answer_to_a_commit_does_not_touch_a_later_assignment() -> None:
    machine = in_flight()
    machine.finish()
    machine.feed(Lose((A,)), Assign((A,)), CommitAnswered(None))
    assert machine.phase(A) is Phase.RESOLVING
    assert machine.state.owned[A].committed is None


def test_start_of_a_partition_and_end_of_a_batch_are_one_commit() -> None:
    machine = in_flight()
    machine.feed(Assign((B,)))
    machine.answer(B, None)
    assert machine.due() == {B: 0}
    machine.finish()
    machine.feed(CommitAnswered("refused"), Retry())
    assert machine.due() == {A: 5, B: 0}


# ------------------------------------------------------------------------------ logs, leaders, lineages


def test_end_of_a_batch_says_under_which_leader_its_ranges_were_found() -> None:
    machine = active(A, B)
    machine.feed(PlanBatch({A: PlannedRange(machine.epoch(A), span(0, 5), LeaderEpoch(7))}))
    assert machine.end().entries == {A: entry(0, 5, leader=LeaderEpoch(7)), B: entry(0, 0)}
    assert machine.state.plannable()[A].leader_epoch == 7


def test_commit_carries_the_leader_epoch_of_its_batch() -> None:
    machine = active()
    machine.feed(PlanBatch({A: PlannedRange(machine.epoch(A), span(0, 5), LeaderEpoch(7))}))
    machine.finish()
    assert machine.state.committing == Commit({A: to_commit(1, 5, note(since=0), leader=LeaderEpoch(7))}, after_batch=1)


def test_commit_of_a_batch_does_not_carry_the_leader_epoch_of_the_next_one() -> None:
    """The log has more records under the later epoch.  If they are truncated, the commit would look truncated too."""
    machine = in_flight()
    machine.finish()
    machine.feed(CommitAnswered("refused"))
    machine.feed(PlanBatch({A: PlannedRange(machine.epoch(A), span(5, 8), LeaderEpoch(7))}))
    machine.feed(Retry())
    assert machine.state.committing == Commit({A: to_commit(1, 5, note(since=0), leader=LEADER)}, after_batch=1)


def test_lineage_of_a_start_is_in_all_that_follows() -> None:
    machine = starting()
    machine.feed(CommitAnswered(None))
    machine.plan((A, 5))
    assert machine.end().entries == {A: entry(0, 5, lineage=NEW_LINEAGE)}
    machine.finish()
    assert machine.state.committing == Commit({A: to_commit(1, 5, note(since=0, lineage=NEW_LINEAGE))}, after_batch=1)
    machine.feed(CommitAnswered(None))
    assert machine.state.processed == {A: processed(5, lineage=NEW_LINEAGE)}


def test_answer_to_a_commit_of_an_earlier_lineage_does_not_touch_the_processed_offset() -> None:
    """The query has lost the partition and owns it again.  In between, another query continued from a reset offset."""
    machine = in_flight()
    machine.finish()
    machine.feed(Lose((A,)), Assign((A,)))
    machine.told(A, info(50, by=note("another", lineage=NEW_LINEAGE)))
    machine.feed(CommitAnswered(None))
    assert machine.state.processed == {A: processed(50, lineage=NEW_LINEAGE)}


def test_log_without_an_id_is_read_and_committed_without_one() -> None:
    """Brokers before 2.8 have no topic ids."""
    machine = resolving()
    machine.told(A, info(None, log=None))
    machine.feed(CommitAnswered(None))
    machine.plan((A, 5))
    assert machine.end().entries == {A: entry(0, 5, log=None, lineage=NEW_LINEAGE)}
    machine.finish()
    assert machine.state.committing is not None
    assert machine.state.committing.entries[A].note.topic_id is None
    assert LOG not in machine.state.committing.entries[A].note.encode()


def test_start_at_the_own_processed_offset_keeps_no_batch_waiting() -> None:
    """The finished batch is committed.  Only the start of another partition still waits for its commit."""
    machine = restored({B: entry(0, 9)}, A)
    machine.answer(A, 0)
    machine.plan((A, 5))
    machine.finish()
    machine.feed(Assign((B,)))
    machine.answer(B, 4)
    machine.feed(CommitAnswered(None))
    assert machine.due() == {B: 9}
    assert {tp: position.offset for tp, position in machine.state.plannable().items()} == {A: 5, B: 9}
