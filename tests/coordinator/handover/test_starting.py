"""The state machine decides where partitions start, and when batches may plan them.

The tests in ``tests/simulation`` check long sequences of inputs.  Those in ``tests/offsets/test_start_position.py``
check each single decision.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    CommitAnswered,
    Forget,
    Lose,
    OffsetsAtStart,
    PartitionInfoReceived,
    Restored,
    Revoke,
)
from pyspark_kafka_group.coordinator.handover.outputs import Commit, Fail
from pyspark_kafka_group.coordinator.handover.state import Position
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.commit_metadata import ANYBODY, OUTSIDE
from pyspark_kafka_group.offsets.errors import DataLossError, OffsetRewindError, OutdatedCheckpointError
from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.offsets.skip_markers import SkipMarker
from pyspark_kafka_group.offsets.start_inputs import GroupOffset, RewindPolicy, StartingOffset
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset
from tests.coordinator.machine import (
    LEADER,
    LINEAGE,
    LOG,
    NEW_LINEAGE,
    NEW_LOG,
    A,
    B,
    C,
    Machine,
    active,
    entry,
    fed,
    info,
    lenient,
    note,
    processed,
    resolving,
    restored,
    span,
    starting,
    to_commit,
)

# ------------------------------------------------------------------------------ restored


def test_restored_entries_are_the_marks() -> None:
    machine = Machine()
    start = BatchOffset("q", {A: entry(3, 7), B: entry(9, 9)}, rewinds=2)
    machine.feed(Restored(start, "q"))
    assert machine.state.query_id == "q"
    assert machine.state.start == start
    assert machine.state.rewinds == 2
    assert machine.state.processed == {A: processed(7), B: processed(9)}


def test_a_restored_processed_offset_says_of_which_log_and_lineage_it_is() -> None:
    machine = Machine()
    machine.feed(Restored(BatchOffset("q", {A: entry(3, 7, log=NEW_LOG, lineage="l", leader=LeaderEpoch(9))}), "q"))
    [found] = machine.state.processed.values()
    assert (found.topic_id, found.lineage, found.leader_epoch) == (NEW_LOG, "l", 9)


def test_a_range_that_was_skipped_is_not_finished_and_processed_offsets_go_back() -> None:
    machine = Machine()
    start = BatchOffset("q", {A: entry(3, 7), B: entry(3, 7)})
    machine.feed(Restored(start, "q", {A: (SkipMarker.of(start, A),)}))
    assert machine.state.processed == {A: processed(3), B: processed(7)}
    assert machine.state.rewinds == 1


def test_an_unfinished_batch_does_not_move_the_marks() -> None:
    machine = Machine()
    unfinished = BatchOffset("q", {A: entry(7, 12)})
    machine.feed(Restored(BatchOffset("q", {A: entry(3, 7)}), "q", {}, unfinished))
    assert machine.state.processed == {A: processed(7)}
    assert machine.state.unfinished == unfinished


def test_an_unfinished_batch_that_reads_a_partition_first_tells_where_it_started() -> None:
    """Otherwise the query resolves the start again, and `latest` skips the records that the batch has read."""
    machine = Machine()
    unfinished = BatchOffset("q", {A: entry(3, 7), B: entry(4, 6)})
    machine.feed(Restored(BatchOffset("q", {A: entry(3, 3)}), "q", {}, unfinished))
    assert machine.state.processed == {A: processed(3), B: processed(4)}


def test_an_unfinished_batch_of_a_new_log_tells_where_the_query_started_it() -> None:
    """Regression: a restart restored the old log's offset, and the query reported the loss, or failed, once more."""
    unfinished = BatchOffset("q", {A: entry(0, 7, log=NEW_LOG, lineage="l")})
    machine = restored({A: entry(90, 90)}, unfinished=unfinished)
    assert machine.state.processed == {A: processed(0, log=NEW_LOG, lineage="l")}
    machine.told(A, info(0, by=note(since=0, log=NEW_LOG, lineage="l"), log=NEW_LOG))
    assert machine.plannable() == {A: (1, 0)}


def test_an_unfinished_batch_of_another_lineage_does_not_replace_the_processed_offset() -> None:
    machine = restored({A: entry(90, 90)}, unfinished=BatchOffset("q", {A: entry(0, 7, lineage="l")}))
    assert machine.state.processed == {A: processed(90)}


def test_leader_epochs_of_processed_offsets_and_of_the_unfinished_batch_are_asked_about() -> None:
    unfinished = BatchOffset("q", {A: entry(7, 9, leader=LeaderEpoch(6))})
    machine = restored({A: entry(3, 7), B: entry(3, 7, leader=None)}, unfinished=unfinished)
    assert machine.state.known_leader_epochs(A) == {LEADER, LeaderEpoch(6)}
    assert machine.state.known_leader_epochs(B) == set()
    assert machine.state.known_leader_epochs(C) == set()


# ------------------------------------------------------------------------------ info


def test_state_is_unsettled_until_the_last_start_is_durable() -> None:
    machine = resolving(A, B)
    assert machine.state.unsettled
    machine.answer(A, 3)
    assert machine.state.unsettled
    machine.answer(B, None)
    assert machine.state.unsettled
    machine.feed(CommitAnswered(None))
    assert not machine.state.unsettled


def test_partition_with_a_committed_offset_is_planned_from_there_at_once() -> None:
    machine = resolving()
    assert machine.answer(A, 7) == [events.Started(positions={A: Offset(7)})]
    assert machine.plannable() == {A: (1, 7)}


def test_position_says_of_which_log_and_leader_it_is() -> None:
    machine = resolving()
    machine.answer(A, 7)
    [position] = machine.state.plannable().values()
    assert position == Position(machine.epoch(A), Offset(7), LEADER, LOG)


def test_first_start_is_committed_before_it_is_planned() -> None:
    machine = resolving()
    assert machine.answer(A, None) == [Commit({A: to_commit(1, 0, note(since=0, lineage=NEW_LINEAGE))}, after_batch=0)]
    assert machine.state.plannable() == {}
    assert machine.feed(CommitAnswered(None)) == [
        events.Committed(offsets={A: Offset(0)}),
        events.Started(positions={A: Offset(0)}),
    ]
    assert machine.plannable() == {A: (1, 0)}


def test_offset_that_nobody_of_us_committed_is_committed_once_more_before_it_is_planned() -> None:
    machine = resolving()
    assert machine.told(A, info(7, by=None)) == [
        Commit({A: to_commit(1, 7, note(since=7, lineage=NEW_LINEAGE, former={OUTSIDE: 7}))}, after_batch=0)
    ]
    assert machine.state.plannable() == {}
    machine.feed(CommitAnswered(None))
    assert machine.plannable() == {A: (1, 7)}


def test_first_start_is_marked_with_its_lineage_once_it_is_committed() -> None:
    machine = fed(starting(), CommitAnswered(None))
    assert machine.state.processed == {A: processed(0, lineage=NEW_LINEAGE)}


def test_start_that_is_not_committed_yet_is_no_processed_offset() -> None:
    """Regression: the group had no offset, but this query had a processed offset.  That looked like deleted offsets."""
    machine = starting()
    assert machine.state.processed == {}
    machine.feed(CommitAnswered("refused"), Lose((A,)), Assign((A,)))
    machine.answer(A, None)
    assert machine.phase(A) is Phase.STARTING


def test_start_at_the_own_processed_offset_is_committed_beside_the_first_batch() -> None:
    machine = restored({A: entry(0, 9)})
    outputs = machine.answer(A, 4)
    assert outputs == [
        events.Started(positions={A: Offset(9)}),
        Commit({A: to_commit(1, 9, note(since=4, former={"another": 4}))}, after_batch=0),
    ]
    assert machine.plannable() == {A: (1, 9)}


def test_info_of_an_earlier_assignment_are_ignored() -> None:
    machine = resolving()
    old = machine.epoch(A)
    machine.feed(Revoke((A,)), Assign((A,)))
    assert machine.feed(PartitionInfoReceived({A: (old, info(7))}, NEW_LINEAGE)) == []
    assert machine.phase(A) is Phase.RESOLVING


def test_info_of_a_partition_that_has_left_are_ignored() -> None:
    machine = resolving()
    old = machine.epoch(A)
    machine.feed(Revoke((A,)))
    assert machine.feed(PartitionInfoReceived({A: (old, info(7))}, NEW_LINEAGE)) == []


def test_second_answer_about_a_partition_is_ignored() -> None:
    machine = active()
    assert machine.answer(A, 50) == []
    assert machine.plannable() == {A: (1, 0)}


@pytest.mark.parametrize("query", ["q", "another"])
def test_commit_that_has_arrived_late_is_no_rewind(query: str) -> None:
    """Regression: a plain commit arrived after its successor, and the next start took it for a reset."""
    machine = restored({A: entry(0, 9)})
    machine.told(A, info(4, by=note(query)))
    assert machine.due() == {A: 9}
    assert not [output for output in machine.said if isinstance(output, Fail | events.Rewound)]


def test_rewind_ends_the_query() -> None:
    [fail] = restored({A: entry(0, 9)}).told(A, info(4, by=None))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, OffsetRewindError)


def test_lost_records_end_the_query() -> None:
    [fail] = resolving().answer(A, 4, start=10)
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, DataLossError)


def test_commit_of_this_query_that_its_checkpoint_does_not_know_ends_it() -> None:
    [fail] = restored({A: entry(0, 4)}).told(A, info(9, by=note(since=0)))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, OutdatedCheckpointError)


def test_old_checkpoint_is_refused_by_offsets_of_partitions_that_the_query_does_not_own() -> None:
    machine = restored({A: entry(0, 4), B: entry(0, 4)})
    [fail] = machine.feed(OffsetsAtStart({B: GroupOffset(Offset(9), note("another", since=7, former={"q": 7}), None)}))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, OutdatedCheckpointError)
    assert (fail.error.partition, fail.error.committed, fail.error.finished) == (B.partition, 7, 4)


def test_offsets_that_the_checkpoint_knows_change_nothing() -> None:
    machine = restored({A: entry(0, 4)})
    before = machine.state
    found = {A: GroupOffset(Offset(4), note(since=0), None), B: GroupOffset(Offset(9), None, None)}
    assert machine.feed(OffsetsAtStart(found)) == []
    assert machine.state == before


@pytest.mark.parametrize(("epoch", "refused"), [(LeaderEpoch(LEADER - 1), False), (LEADER, True), (None, True)])
def test_late_commit_of_records_that_were_truncated_does_not_make_the_checkpoint_old(
    epoch: LeaderEpoch | None, refused: bool
) -> None:
    """Regression: such a plain commit arrived during the restart, and ended the query."""
    machine = restored({A: entry(0, 4)})
    out = machine.feed(OffsetsAtStart({A: GroupOffset(Offset(9), note(since=0), None, epoch)}))
    assert [isinstance(o, Fail) for o in out] == [True] * refused


@pytest.mark.parametrize(("offset", "refused"), [(4, False), (9, True)])
def test_reset_that_was_put_back_before_the_first_batch_says_nothing_of_batches(offset: int, refused: bool) -> None:
    """Regression: a query that had undone a reset before its first batch could not start again."""
    machine = restored({})
    out = machine.feed(OffsetsAtStart({A: GroupOffset(Offset(offset), note(since=0, former={ANYBODY: 4}), None)}))
    assert [isinstance(o, Fail) for o in out] == [True] * refused


@pytest.mark.parametrize(("offset", "refused"), [(9, False), (12, True)])
def test_reset_that_was_put_back_above_the_processed_offset_says_nothing_of_batches(offset: int, refused: bool) -> None:
    """Regression: as above, if the query had read the partition before, and another query had read further."""
    machine = restored({A: entry(0, 4)})
    out = machine.feed(OffsetsAtStart({A: GroupOffset(Offset(offset), note(since=2, former={ANYBODY: 9}), None)}))
    assert [isinstance(o, Fail) for o in out] == [True] * refused


def test_commit_of_the_batch_that_will_run_again_does_not_end_the_query() -> None:
    unfinished = BatchOffset("q", {A: entry(4, 9)})
    machine = restored({A: entry(0, 4)}, unfinished=unfinished)
    machine.told(A, info(9, by=note(since=0)))
    assert machine.plannable() == {A: (1, 9)}


def test_accepted_loss_is_told_with_its_range() -> None:
    outputs = lenient(finished=4).answer(A, 4, start=10)
    assert outputs == [
        events.RecordsLost(partition=A, gone=(Offset(4), Offset(10))),
        Commit({A: to_commit(1, 10, note(since=10, former={"another": 4}))}, after_batch=0),
    ]


def test_what_others_have_processed_is_noted_for_the_batch_that_runs_again() -> None:
    machine = restored({A: entry(0, 3)})
    machine.told(A, info(7, by=note("another", since=5, former={"q": 3})))
    assert machine.state.taken == {A: span(3, 7)}


# ------------------------------------------------------------------------------ rewound, lineage


def test_accepted_rewind_is_told_and_processed_offsets_go_back() -> None:
    machine = restored({A: entry(0, 9)}, on_rewind=RewindPolicy.GROUP)
    assert machine.told(A, info(4, by=note("another", lineage="after the reset"))) == [
        events.Rewound(partition=A, committed=Offset(4), position=Offset(4)),
        events.Started(positions={A: Offset(4)}),
    ]
    assert machine.state.processed == {A: processed(4, lineage="after the reset")}
    assert machine.state.rewinds == 1


def test_a_reset_tells_who_has_made_it_wherever_it_went() -> None:
    """A reset to a higher offset, which is no rewind, also names its author."""
    for offset, rewound in ((4, True), (20, False)):
        machine = restored({A: entry(0, 9)}, on_rewind=RewindPolicy.GROUP)
        reset = ResetNote("alice@laptop", 1_767_225_600_000, Offset(9))
        outputs = machine.told(A, replace(info(offset, by=None), reset=reset))
        told = events.OffsetReset(
            partition=A,
            by="alice@laptop",
            reset_at=1_767_225_600.0,
            previous=Offset(9),
            committed=Offset(offset),
            position=Offset(offset),
        )
        assert outputs[0] == told
        assert any(isinstance(output, events.Rewound) for output in outputs) is rewound


def test_group_is_put_back_to_the_checkpoint_beside_the_first_batch() -> None:
    machine = restored({A: entry(0, 9)}, on_rewind=RewindPolicy.CHECKPOINT)
    assert machine.told(A, info(4, by=None)) == [
        events.Rewound(partition=A, committed=Offset(4), position=Offset(9)),
        events.Started(positions={A: Offset(9)}),
        Commit({A: to_commit(1, 9, note(since=4, former={"": 9}))}, after_batch=0),
    ]
    assert machine.state.rewinds == 0


def test_reset_that_another_query_has_taken_up_is_still_a_reset() -> None:
    """The other query has committed since, with its own note.  Our processed offset has another lineage."""
    by = note("another", since=2, lineage="after the reset")
    [fail] = restored({A: entry(0, 9)}).told(A, info(4, by=by))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, OffsetRewindError)


def test_commit_of_another_query_of_the_same_lineage_is_no_reset() -> None:
    machine = restored({A: entry(0, 9)})
    machine.told(A, info(4, by=note("another", since=2)))
    assert machine.plannable() == {A: (1, 9)}


def test_query_that_follows_a_reset_which_another_has_taken_up_goes_on_with_its_lineage() -> None:
    by = note("another", since=2, lineage="after the reset")
    machine = restored({A: entry(0, 9)}, on_rewind=RewindPolicy.GROUP)
    machine.told(A, info(4, by=by))
    assert machine.plannable() == {A: (1, 4)}
    assert machine.state.processed == {A: processed(4, lineage="after the reset")}
    assert machine.state.rewinds == 1
    machine.plan((A, 6))
    assert machine.end().entries[A].lineage == "after the reset"
    machine.finish()
    assert machine.state.committing == Commit(
        {A: to_commit(1, 6, note(since=4, lineage="after the reset", former={"": 4}))}, after_batch=1
    )


def test_query_that_undoes_a_reset_which_another_has_taken_up_keeps_its_own_lineage() -> None:
    by = note("another", since=2, lineage="after the reset")
    machine = restored({A: entry(0, 9)}, on_rewind=RewindPolicy.CHECKPOINT)
    machine.told(A, info(4, by=by))
    assert machine.state.committing == Commit(
        {A: to_commit(1, 9, note(since=4, lineage=LINEAGE, former={"": 9}))}, after_batch=0
    )
    assert machine.plannable() == {A: (1, 9)}


def test_reset_to_what_is_further_on_is_followed_under_a_new_lineage() -> None:
    machine = restored({A: entry(0, 9)})
    machine.told(A, info(20, by=None))
    machine.feed(CommitAnswered(None))
    assert machine.plannable() == {A: (1, 20)}
    assert machine.state.processed == {A: processed(20, lineage=NEW_LINEAGE)}
    assert machine.state.rewinds == 1, "an end with these processed offsets must not look like one from before"


# ------------------------------------------------------------------------------ another log


def test_topic_that_was_created_again_ends_the_query() -> None:
    [fail] = restored({A: entry(0, 9)}).told(A, info(None, log=NEW_LOG))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, DataLossError)
    assert "was deleted and created again" in str(fail.error)


def test_topic_that_was_created_again_is_told_and_read_from_its_beginning() -> None:
    machine = lenient(finished=90)
    carried = note(since=2, log=NEW_LOG, lineage=NEW_LINEAGE, first=0, former={"": 2})
    assert machine.told(A, info(None, log=NEW_LOG, start=2)) == [
        events.Recreated(partition=A, position=Offset(2)),
        Commit({A: to_commit(1, 2, carried)}, after_batch=0),
    ]
    machine.feed(CommitAnswered(None))
    assert machine.state.processed == {A: processed(2, log=NEW_LOG, lineage=NEW_LINEAGE)}
    assert machine.state.rewinds == 1


def test_partition_of_a_recreated_topic_that_was_never_read_is_read_from_its_beginning_too() -> None:
    """Another partition's processed offset shows that the topic is a new one, so `startingOffsets` does not apply."""
    machine = restored({B: entry(90, 90)}, A, fail_on_data_loss=False)
    told = machine.told(A, info(None, log=NEW_LOG))
    assert told[0] == events.Recreated(partition=A, position=Offset(0))


def test_processed_offsets_of_the_old_log_go_once_the_new_one_has_begun() -> None:
    """Regression: they stayed in the checkpoint, and ended the query when it got their partitions years later."""
    machine = restored({A: entry(9, 9), B: entry(90, 90)}, fail_on_data_loss=False)
    machine.told(A, info(None, log=NEW_LOG))
    assert machine.state.processed.keys() == {A, B}, "nothing is durable yet"
    machine.feed(CommitAnswered(None))
    assert machine.state.processed == {A: processed(0, log=NEW_LOG, lineage=NEW_LINEAGE)}
    assert machine.state.rewinds == 1


def test_what_another_query_has_begun_in_a_new_log_is_gone_on_from() -> None:
    strict = restored({A: entry(0, 0, log=NEW_LOG)}, B)
    strict.told(B, info(7, by=note("another", log=NEW_LOG, first=0), log=NEW_LOG))
    assert strict.plannable() == {B: (1, 7)}


def test_processed_offsets_of_the_old_log_stay_while_their_partitions_are_owned() -> None:
    machine = restored({A: entry(9, 9), B: entry(90, 90)}, A, B, fail_on_data_loss=False)
    machine.told(A, info(None, log=NEW_LOG))
    machine.feed(CommitAnswered(None))
    assert machine.told(B, info(None, log=NEW_LOG))[0] == events.Recreated(partition=B, position=Offset(0))


def test_topic_stays_begun_anew_when_the_partition_that_showed_it_has_moved_away() -> None:
    """Regression: an answer older than that start sent the next partition to the end of the new log."""
    machine = restored({A: entry(9, 9)}, A, B, fail_on_data_loss=False)
    machine.state = replace(machine.state, policy=replace(machine.state.policy, default=StartingOffset.LATEST))
    machine.told(A, info(None, log=NEW_LOG))
    machine.feed(Revoke((A,)), CommitAnswered(None))
    assert A not in machine.state.owned
    machine.told(B, info(None, end=50, log=NEW_LOG))
    assert machine.state.owned[B].position == 0


def test_a_group_that_has_lost_its_offsets_of_a_topic_does_not_begin_other_partitions_as_a_new_one() -> None:
    """Regression: a partition that another query had read started at `startingOffsets`."""
    [fail] = restored({B: entry(90, 90)}, A).told(A, info(None))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, OffsetRewindError)
    assert "the group 'g' has no offsets of this topic" in str(fail.error)

    machine = restored({B: entry(90, 90)}, A, on_rewind=RewindPolicy.CHECKPOINT)
    assert machine.told(A, info(None, start=2))[0] == events.Rewound(partition=A, committed=None, position=Offset(2))
    carried = machine.state.owned[A].note
    assert carried is not None
    assert carried.initial_partition_count == 0, "nor does another member"


def test_info_that_are_older_than_the_start_of_another_partition_are_no_loss_of_offsets() -> None:
    machine = restored({}, A, B)
    machine.told(A, info(None))
    machine.feed(CommitAnswered(None))
    machine.told(B, info(None))
    machine.feed(CommitAnswered(None))
    assert machine.plannable() == {A: (1, 0), B: (1, 0)}


def test_records_that_were_truncated_are_told() -> None:
    machine = lenient(finished=9)
    found = info(9, leader=LeaderEpoch(5), epoch_ends={LEADER: Offset(6)})
    assert machine.told(A, found)[0] == events.RecordsLost(partition=A, gone=(Offset(6), Offset(9)))


def test_processed_offsets_go_back_with_a_truncated_log_once_its_start_is_committed() -> None:
    machine = lenient(finished=90)
    machine.answer(A, 90, end=10)
    assert machine.state.processed[A].offset == 90
    machine.feed(CommitAnswered(None))
    assert machine.state.processed == {A: processed(10)}


def test_processed_offsets_go_back_with_a_truncated_log_also_if_it_is_revoked_meanwhile() -> None:
    """Regression: the old processed offset came back, and the next start looked like a rewind."""
    machine = lenient(finished=90)
    machine.answer(A, 90, end=10)
    machine.feed(Revoke((A,)), CommitAnswered(None))
    assert machine.state.processed == {A: processed(10)}


def test_batch_of_other_partitions_does_not_bring_processed_offsets_of_a_truncated_log_back() -> None:
    """Regression: the batch in flight carried the processed offset of the old log."""
    machine = lenient(finished=90)
    machine.feed(Assign((B,)))
    machine.answer(B, 0)
    machine.plan((B, 5))
    machine.answer(A, 90, end=10)
    machine.feed(CommitAnswered(None))
    machine.finish()
    assert machine.state.processed[A] == processed(10)


def test_batch_of_other_partitions_does_not_bring_processed_offsets_of_a_recreated_topic_back() -> None:
    machine = lenient(finished=90)
    machine.feed(Assign((B,)))
    machine.answer(B, 0)
    machine.plan((B, 5))
    machine.told(A, info(None, log=NEW_LOG))
    machine.feed(CommitAnswered(None))
    machine.finish()
    assert machine.state.processed[A] == processed(0, log=NEW_LOG, lineage=NEW_LINEAGE)


# ------------------------------------------------------------------------------ forget


def test_processed_offsets_of_topics_that_are_gone_are_forgotten() -> None:
    machine = Machine()
    machine.feed(Restored(BatchOffset("q", {A: entry(0, 9)}), "q"))
    assert machine.feed(Forget(frozenset({"t"}))) == []
    assert machine.state.processed == {}
    assert machine.state.rewinds == 1, "an end without them must not look like one from before"


def test_processed_offsets_of_other_topics_are_kept() -> None:
    machine = Machine()
    machine.feed(Restored(BatchOffset("q", {A: entry(0, 9)}), "q"))
    before = machine.state
    assert machine.feed(Forget(frozenset({"another"}))) == []
    assert machine.state == before


def test_processed_offsets_of_what_is_owned_are_not_forgotten() -> None:
    """The topic exists again, and the group has assigned it to this member."""
    machine = restored({A: entry(0, 9), B: entry(0, 9)}, A)
    machine.feed(Forget(frozenset({"t"})))
    assert machine.state.processed == {A: processed(9), B: processed(9)}


def test_processed_offsets_are_not_forgotten_while_their_batch_runs() -> None:
    """The end of the batch would bring them back, and a replay of the batch needs them."""
    machine = active(A)
    machine.plan((A, 12))
    machine.feed(Lose((A,)), Forget(frozenset({"t"})))
    assert A in machine.state.processed
    machine.finish()
    machine.feed(Forget(frozenset({"t"})))
    assert machine.state.processed == {}


def test_forgotten_processed_offsets_are_not_in_the_next_end() -> None:
    machine = Machine()
    machine.feed(Restored(BatchOffset("q", {A: entry(0, 9)}), "q"), Forget(frozenset({"t"})))
    machine.plan(always=True)
    assert machine.end() == BatchOffset("q", {}, rewinds=1)


def test_a_topic_that_was_started_is_no_first_topic_after_it_is_forgotten() -> None:
    """Created again, it came later: `startingOffsets=latest` would leave out its records."""
    machine = Machine()
    machine.feed(Restored(BatchOffset("q", {A: entry(0, 9)}, first=("t", "u")), "q"))
    machine.plan(always=True)
    machine.finish()
    machine.feed(Forget(frozenset({"t"})))
    machine.plan(always=True)
    assert machine.end() == BatchOffset("q", {}, rewinds=1, first=("u",))


def test_a_first_topic_that_is_deleted_is_none_any_more() -> None:
    machine = Machine()
    machine.feed(Restored(BatchOffset("q", {}, first=("t", "u")), "q"), Forget(frozenset({"t"})))
    machine.plan(always=True)
    assert machine.end().first == ("u",)


def test_initial_offset_restores_nothing() -> None:
    machine = fed(Machine(), Restored(INITIAL, "q"))
    assert machine.state.processed == {}
    assert machine.state.rewinds == 0
