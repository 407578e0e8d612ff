"""What the state machine does with a batch: planned, finished, committed, replayed.

What holds over long sequences of inputs is shown in ``tests/simulation``.
"""

from __future__ import annotations

import pytest

from pyspark_kafka_group.coordinator import events
from pyspark_kafka_group.coordinator.assignment import (
    Adopt,
    Assign,
    Commit,
    CommitDone,
    Exit,
    Finish,
    Lose,
    Marked,
    MarkSkips,
    Phase,
    Plan,
    Progress,
    Replay,
    Retry,
    Revoke,
    ScheduleRetry,
)
from pyspark_kafka_group.offsets.document import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.skips import SkipMarker
from pyspark_kafka_group.offsets.types import Offset, OwnershipEpoch
from tests.coordinator.machine import (
    A,
    B,
    C,
    Machine,
    active,
    draining,
    fed,
    in_flight,
    mark,
    resolving,
    span,
    starting,
)

# ------------------------------------------------------------------------------ plan


def test_planned_batch_moves_the_positions_and_is_in_flight() -> None:
    machine = active(A, B)
    assert machine.plan((A, 5)) == [events.Planned(ranges={A: span(0, 5)})]
    assert machine.state.plannable() == {A: (1, 5), B: (1, 0)}
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(0, 5)}


def test_end_of_a_batch_holds_its_ranges_and_the_marks_of_all_other_partitions() -> None:
    machine = Machine()
    machine.feed(Adopt(BatchOffset("q", {C: mark(2, 8, 2)}), "q"), Assign((A, B)))
    machine.answer(A, 3)
    machine.answer(B, 4)
    machine.plan((A, 6))
    assert machine.state.batch is not None
    assert machine.state.batch.end == BatchOffset("q", {A: mark(3, 6, 3), B: mark(4, 4, 4), C: mark(8, 8, 2)})


def test_range_from_another_position_is_dropped() -> None:
    machine = active(A, B)
    machine.feed(Plan({A: (OwnershipEpoch(1), span(2, 5)), B: (OwnershipEpoch(1), span(0, 5))}))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {B: span(0, 5)}


def test_range_of_an_earlier_assignment_is_dropped() -> None:
    machine = active()
    machine.feed(Revoke((A,)), Assign((A,)))
    machine.answer(A, 0)
    machine.feed(Plan({A: (OwnershipEpoch(1), span(0, 5))}))
    assert machine.state.batch is None


def test_range_of_a_partition_that_has_left_is_dropped() -> None:
    machine = active(A, B)
    positions = machine.state.plannable()
    machine.feed(Revoke((A,)))
    machine.feed(Plan({tp: (epoch, span(position, 5)) for tp, (epoch, position) in positions.items()}))
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
    assert machine.state.batch.end == BatchOffset("q", {A: mark(0, 0, 0)})


def test_draining_partition_is_not_planned_and_the_others_are() -> None:
    machine = draining(A, B)
    machine.finish()
    assert machine.state.plannable() == {B: (1, 5)}


def test_nothing_is_planned_once_the_query_ends() -> None:
    machine = active()
    machine.feed(Exit())
    assert machine.state.plannable() == {}


def test_next_batch_does_not_wait_for_the_commit_of_the_last_one() -> None:
    machine = in_flight()
    machine.finish()
    assert machine.state.committing is not None
    assert machine.state.plannable() == {A: (1, 5)}


def test_batch_after_next_waits_for_an_answer_to_the_commit() -> None:
    machine = in_flight()
    machine.finish()
    machine.plan((A, 8))
    machine.finish()
    assert machine.state.plannable() == {}
    machine.feed(CommitDone(None))
    assert machine.state.plannable() == {A: (1, 8)}


def test_refused_commit_is_an_answer_too() -> None:
    machine = in_flight()
    machine.finish()
    machine.plan((A, 8))
    machine.finish()
    machine.feed(CommitDone("refused"))
    assert machine.state.plannable() == {A: (1, 8)}


# ------------------------------------------------------------------------------ finish and commit


def test_finished_batch_is_committed() -> None:
    machine = in_flight()
    assert machine.finish() == [
        events.Finished(ranges={A: span(0, 5)}),
        Commit({A: (OwnershipEpoch(1), Offset(5), 3)}, after_batch=1),
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


def test_committed_offset_is_seen_and_goes_into_the_next_end() -> None:
    machine = in_flight()
    machine.finish()
    machine.feed(CommitDone(None))
    assert machine.state.progress[A] == Progress(finished=Offset(5), seen=Offset(5))
    machine.plan((A, 6))
    assert machine.state.batch is not None
    assert machine.state.batch.end.marks[A].seen == 5


def test_what_finishes_during_a_commit_is_committed_after_it() -> None:
    machine = in_flight()
    machine.finish()
    machine.plan((A, 8))
    assert machine.finish() == [events.Finished(ranges={A: span(5, 8)})]
    machine.feed(CommitDone(None))
    assert machine.due() == {A: 8}


def test_failed_commit_is_told_and_tried_again_after_a_pause() -> None:
    machine = in_flight()
    machine.finish()
    assert machine.feed(CommitDone("no answer")) == [events.CommitFailed(problem="no answer"), ScheduleRetry()]
    assert machine.feed(Retry()) == [Commit({A: (OwnershipEpoch(1), Offset(5), 3)}, after_batch=1)]


def test_nothing_is_committed_during_the_pause_after_a_failed_commit() -> None:
    machine = in_flight()
    machine.finish()
    machine.feed(CommitDone("no answer"))
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
    machine.feed(Lose((A,)), Assign((A,)), CommitDone(None))
    assert machine.phase(A) is Phase.RESOLVING
    assert machine.state.owned[A].committed is None


# ------------------------------------------------------------------------------ replay


LOGGED = BatchOffset("q", {A: mark(0, 5, 0), B: mark(0, 5, 0), C: mark(7, 7, 7)})


def test_replay_reads_what_the_log_says_if_nobody_has_come_further() -> None:
    machine = active(A, B)
    assert machine.feed(Replay(LOGGED)) == [
        events.Replayed(ranges={A: span(0, 5), B: span(0, 5)}, not_owned=(), skipped={})
    ]
    assert machine.state.plannable() == {A: (1, 5), B: (1, 5)}


def test_replayed_batch_is_committed_when_it_is_finished() -> None:
    machine = active(A, B)
    machine.feed(Replay(LOGGED), Finish(LOGGED))
    assert machine.due() == {A: 5, B: 5}


def test_replay_leaves_out_what_somebody_has_committed_meanwhile() -> None:
    machine = resolving(A, B)
    machine.answer(A, 3)
    machine.answer(B, 9)
    machine.feed(Replay(LOGGED))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(3, 5)}
    assert machine.state.plannable() == {A: (1, 5), B: (1, 9)}


def skipping() -> Machine:
    """A is ours, B is another's, and that is durable."""
    machine = active(A)
    machine.feed(Marked({B: SkipMarker(span(0, 5), 0)}))
    return machine


@pytest.mark.parametrize("situation", ["not joined", "start unknown", "nobody's", "given back"])
def test_replay_waits_until_the_group_has_decided_who_owns_what_it_reads(situation: str) -> None:
    machine = {
        "not joined": lambda: fed(Machine(), Adopt(INITIAL, "q")),
        "start unknown": lambda: fed(active(A), Assign((B,))),
        "nobody's": lambda: active(A),
        "given back": lambda: fed(starting(), Revoke((A,))),
    }[situation]()
    before = machine.state
    assert machine.feed(Replay(LOGGED)) == []
    assert machine.state == before


def test_range_of_another_member_is_marked_as_skipped_before_the_replay_runs() -> None:
    machine = active(A)
    assert machine.feed(Replay(LOGGED, frozenset({B}))) == [MarkSkips({B: SkipMarker(span(0, 5), 0)})]
    assert machine.state.batch is None


def test_replay_leaves_a_range_of_another_member_to_it() -> None:
    machine = skipping()
    assert machine.feed(Replay(LOGGED, frozenset({B}))) == [
        events.Replayed(ranges={A: span(0, 5)}, not_owned=(), skipped={B: span(0, 5)})
    ]
    machine.feed(Finish(LOGGED))
    assert machine.due() == {A: 5}


def test_range_that_was_skipped_once_is_skipped_again_though_it_is_ours_now() -> None:
    """The sink may hold the batch as it was replayed the first time, without the range."""
    machine = skipping()
    machine.feed(Assign((B,)))
    machine.answer(B, 0)
    machine.feed(Replay(LOGGED))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(0, 5)}
    assert machine.state.plannable()[B] == (2, 0)


def test_skipped_range_does_not_count_as_finished() -> None:
    machine = skipping()
    machine.feed(Replay(LOGGED, frozenset({B})), Finish(LOGGED))
    assert machine.state.progress[B] == Progress(finished=Offset(0), seen=Offset(0))


def test_batch_after_a_skip_has_an_end_that_was_never_logged_before() -> None:
    """Regression: with the same marks as the skipped batch Spark would take it for nothing new."""
    machine = fed(Machine(), Adopt(INITIAL, "q"), Assign((A,)))
    machine.answer(A, 0)
    end = BatchOffset("q", {A: mark(0, 5, 0)})
    machine.feed(Marked({A: SkipMarker(span(0, 5), 0)}), Replay(end), Finish(end))
    machine.plan((A, 5))
    assert machine.state.batch is not None
    assert machine.state.batch.end.marks == end.marks
    assert machine.state.batch.end != end
    assert machine.state.batch.end.to_json() != end.to_json()


def test_mark_of_a_skipped_range_is_the_one_before_the_batch_when_the_query_starts_after_it() -> None:
    machine = fed(Machine(), Adopt(LOGGED, "q", {B: SkipMarker(span(0, 5), 0)}))
    assert machine.state.progress[B].finished == 0
    assert machine.state.progress[A].finished == 5
    assert machine.state.rewinds == 1


@pytest.mark.parametrize("marker", [SkipMarker(span(0, 4), 0), SkipMarker(span(0, 5), 1)])
def test_marker_of_another_batch_does_not_count(marker: SkipMarker) -> None:
    machine = fed(Machine(), Adopt(LOGGED, "q", {B: marker}))
    assert machine.state.progress[B].finished == 5
    assert machine.state.rewinds == 0


def test_range_of_a_topic_that_is_not_subscribed_any_more_is_read_and_not_committed() -> None:
    machine = active(A)
    assert machine.feed(Replay(LOGGED, orphaned=frozenset({B}))) == [
        events.Replayed(ranges={A: span(0, 5), B: span(0, 5)}, not_owned=(B,), skipped={})
    ]
    machine.feed(Finish(LOGGED))
    assert machine.due() == {A: 5}


def test_replayed_range_above_a_rewound_group_offset_is_skipped_and_planned_again() -> None:
    machine = resolving(A)
    machine.answer(A, 2)
    end = BatchOffset("q", {A: mark(4, 9, 2)})
    assert machine.feed(Replay(end)) == [MarkSkips({A: SkipMarker(span(4, 9), 0)})]
    machine.feed(Marked({A: SkipMarker(span(4, 9), 0)}), Replay(end), Finish(end))
    assert machine.state.plannable() == {A: (1, 2)}


def test_replay_keeps_the_marks_of_partitions_it_does_not_read() -> None:
    machine = active(A, B)
    machine.feed(Replay(LOGGED))
    assert machine.state.progress[C] == Progress(finished=Offset(7), seen=Offset(7))


def test_replay_of_a_batch_without_records_is_silent() -> None:
    machine = active()
    end = BatchOffset("q", {A: mark(0, 0, 0)})
    assert machine.feed(Replay(end)) == []
    assert machine.feed(Finish(end)) == []
