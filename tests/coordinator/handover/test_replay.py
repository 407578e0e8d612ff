"""After a restart, the state machine runs a batch of Spark's log again.

The tests in ``tests/simulation`` check long sequences of inputs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    CommitAnswered,
    Finish,
    Replay,
    Restored,
    Revoke,
    SkipsStored,
)
from pyspark_kafka_group.coordinator.handover.outputs import Fail, StoreSkips
from pyspark_kafka_group.coordinator.handover.replay import is_own_commit
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.commit_metadata import ANYBODY, CommitNote
from pyspark_kafka_group.offsets.errors import DataLossError
from pyspark_kafka_group.offsets.skip_markers import SkipMarker
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from tests.coordinator.machine import (
    LEADER,
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
)

LOGGED = BatchOffset("q", {A: entry(0, 5), B: entry(0, 5), C: entry(7, 7)})

OF_B = SkipMarker(span(0, 5), 0)
"""The marker that the logged batch did not read B."""

# ------------------------------------------------------------------------------ ranges to read


def test_replay_reads_what_the_log_says_if_nobody_has_come_further() -> None:
    machine = active(A, B)
    assert machine.feed(Replay(LOGGED)) == [
        events.Replayed(ranges={A: span(0, 5), B: span(0, 5)}, not_owned=(), skipped={})
    ]
    assert machine.plannable() == {A: (1, 5), B: (1, 5)}


def test_replayed_batch_is_committed_when_it_is_finished() -> None:
    machine = active(A, B)
    machine.feed(Replay(LOGGED), Finish(LOGGED))
    assert machine.due() == {A: 5, B: 5}


def test_replay_leaves_out_what_somebody_else_has_committed_meanwhile() -> None:
    machine = resolving(A, B)
    machine.answer(A, 3)
    machine.answer(B, 9)
    machine.feed(Replay(LOGGED))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(3, 5)}
    assert machine.plannable() == {A: (1, 5), B: (1, 9)}


def test_replay_reads_again_what_this_query_itself_has_committed() -> None:
    """A sink may replace the rows of a batch, and therefore needs exactly the same rows again."""
    machine = restored({}, A, B, unfinished=LOGGED)
    machine.told(A, info(5, by=note(since=0)))
    machine.told(B, info(0, by=note(since=0)))
    assert machine.plannable() == {A: (1, 5), B: (1, 0)}
    machine.feed(Replay(LOGGED))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(0, 5), B: span(0, 5)}
    assert machine.plannable() == {A: (1, 5), B: (1, 5)}


def test_replay_reads_again_what_others_have_committed_only_above_it() -> None:
    """The others took the partition over at the offset that this query had reached."""
    machine = restored({}, A, B, unfinished=LOGGED)
    machine.told(A, info(9, by=note("another", since=5, former={"q": 5})))
    machine.told(B, info(0, by=note(since=0)))
    machine.feed(Replay(LOGGED))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(0, 5), B: span(0, 5)}
    assert machine.plannable() == {A: (1, 9), B: (1, 5)}


def test_replay_leaves_out_what_two_others_have_processed_in_turn() -> None:
    """Regression: the query knew only the last of them, and read a range of which it had finished nothing."""
    machine = restored({}, A, B, unfinished=LOGGED)
    machine.told(A, info(9, by=note("third", since=7, former={"second": 7})))
    machine.told(B, info(0, by=note(since=0)))
    machine.feed(Replay(LOGGED))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {B: span(0, 5)}
    assert machine.plannable() == {A: (1, 9), B: (1, 5)}


def test_replay_reads_what_it_cannot_tell_whether_others_have_processed() -> None:
    machine = restored({}, A, B, unfinished=LOGGED)
    machine.told(A, info(9, by=note("third", since=7, former={ANYBODY: 7})))
    machine.told(B, info(0, by=note(since=0)))
    machine.feed(Replay(LOGGED))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(0, 5), B: span(0, 5)}


def test_position_behind_a_replayed_range_has_the_leader_epoch_of_its_end() -> None:
    machine = active(A)
    end = BatchOffset("q", {A: entry(0, 5, leader=LeaderEpoch(7))})
    machine.feed(Replay(end))
    assert machine.state.plannable()[A].leader_epoch == 7


def test_position_further_on_than_a_replayed_range_keeps_its_leader_epoch() -> None:
    machine = resolving(A)
    machine.answer(A, 9)
    machine.feed(Replay(BatchOffset("q", {A: entry(0, 5, leader=LeaderEpoch(2))})))
    assert machine.state.plannable()[A].leader_epoch == LEADER


def test_what_others_have_processed_is_forgotten_once_the_batch_is_finished() -> None:
    machine = resolving(A)
    machine.answer(A, 3)
    end = BatchOffset("q", {A: entry(0, 5)})
    machine.feed(Replay(end), Finish(end))
    assert machine.state.taken == {}
    assert machine.state.unfinished is None


# ------------------------------------------------------------------------------ ownership


def skipping() -> Machine:
    """Return a machine that owns A, and has a durable marker that it skips B, which another member owns."""
    machine = active(A)
    machine.feed(SkipsStored({B: (OF_B,)}))
    return machine


@pytest.mark.parametrize("situation", ["not joined", "start unknown", "nobody's", "given back"])
def test_replay_waits_until_the_group_has_decided_who_owns_what_it_reads(situation: str) -> None:
    machine = {
        "not joined": lambda: fed(Machine(), Restored(INITIAL, "q")),
        "start unknown": lambda: fed(active(A), Assign((B,))),
        "nobody's": lambda: active(A),
        "given back": lambda: fed(starting(), Revoke((A,))),
    }[situation]()
    before = machine.state
    assert machine.feed(Replay(LOGGED)) == []
    assert machine.state == before


def test_range_of_another_member_is_marked_as_skipped_before_the_replay_runs() -> None:
    machine = active(A)
    assert machine.feed(Replay(LOGGED, frozenset({B}))) == [StoreSkips({B: (OF_B,)})]
    assert machine.state.batch is None


def test_skip_that_may_be_durable_holds_although_the_partition_has_come_back() -> None:
    """Regression: the query read the range.  After a restart, the marker said that it had not."""
    machine = active(A)
    [store] = machine.feed(Replay(LOGGED, frozenset({B})))
    machine.feed(Assign((B,)))
    machine.answer(B, 0)
    assert machine.feed(Replay(LOGGED)) == [store]
    machine.feed(SkipsStored({B: (OF_B,)}))
    assert machine.feed(Replay(LOGGED)) == [
        events.Replayed(ranges={A: span(0, 5)}, not_owned=(), skipped={B: span(0, 5)})
    ]


def test_replay_leaves_a_range_of_another_member_to_it() -> None:
    machine = skipping()
    assert machine.feed(Replay(LOGGED, frozenset({B}))) == [
        events.Replayed(ranges={A: span(0, 5)}, not_owned=(), skipped={B: span(0, 5)})
    ]
    machine.feed(Finish(LOGGED))
    assert machine.due() == {A: 5}


def test_range_that_was_skipped_once_is_skipped_again_though_it_is_ours_now() -> None:
    """The sink may have the batch from its first replay, without the range."""
    machine = skipping()
    machine.feed(Assign((B,)))
    machine.answer(B, 0)
    machine.feed(Replay(LOGGED))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(0, 5)}
    assert machine.plannable()[B] == (2, 0)


def test_skipped_range_does_not_count_as_finished() -> None:
    machine = skipping()
    machine.feed(Replay(LOGGED, frozenset({B})), Finish(LOGGED))
    assert machine.state.processed[B] == processed(0)


def test_batch_after_a_skip_has_an_end_that_was_never_logged_before() -> None:
    """Regression: with the processed offsets of the skipped batch, Spark saw nothing new in it."""
    machine = fed(Machine(), Restored(INITIAL, "q"), Assign((A,)))
    machine.answer(A, 0)
    end = BatchOffset("q", {A: entry(0, 5)})
    machine.feed(SkipsStored({A: (SkipMarker(span(0, 5), 0),)}), Replay(end), Finish(end))
    machine.plan((A, 5))
    assert machine.end().entries == end.entries
    assert machine.end() != end
    assert machine.end().to_json() != end.to_json()


def test_processed_offset_of_a_skipped_range_is_the_one_before_the_batch_when_the_query_starts_after_it() -> None:
    machine = fed(Machine(), Restored(LOGGED, "q", {B: (OF_B,)}))
    assert machine.state.processed[B].offset == 0
    assert machine.state.processed[A].offset == 5
    assert machine.state.rewinds == 1


@pytest.mark.parametrize("marker", [SkipMarker(span(0, 4), 0), SkipMarker(span(0, 5), 1)])
def test_marker_of_another_batch_does_not_count(marker: SkipMarker) -> None:
    machine = fed(Machine(), Restored(LOGGED, "q", {B: (marker,)}))
    assert machine.state.processed[B].offset == 5
    assert machine.state.rewinds == 0


def test_range_of_a_topic_that_is_not_subscribed_any_more_is_read_and_not_committed() -> None:
    machine = active(A)
    assert machine.feed(Replay(LOGGED, orphaned=frozenset({B}))) == [
        events.Replayed(ranges={A: span(0, 5), B: span(0, 5)}, not_owned=(B,), skipped={})
    ]
    machine.feed(Finish(LOGGED))
    assert machine.due() == {A: 5}


def test_range_of_a_topic_that_is_not_subscribed_any_more_is_left_to_the_query_that_has_it() -> None:
    """Regression: after a pipeline was split, both halves read the range."""
    machine = active(A)
    [store] = machine.feed(Replay(LOGGED, elsewhere=frozenset({B}), orphaned=frozenset({B})))
    assert isinstance(store, StoreSkips)
    assert store.markers.keys() == {B}


def test_replayed_range_above_a_rewound_group_offset_is_skipped_and_planned_again() -> None:
    machine = resolving(A)
    machine.answer(A, 2)
    end = BatchOffset("q", {A: entry(4, 9)})
    assert machine.feed(Replay(end)) == [StoreSkips({A: (SkipMarker(span(4, 9), 0),)})]
    machine.feed(SkipsStored({A: (SkipMarker(span(4, 9), 0),)}), Replay(end), Finish(end))
    assert machine.plannable() == {A: (1, 2)}


def test_replay_keeps_the_processed_offsets_of_partitions_it_does_not_read() -> None:
    machine = active(A, B)
    machine.feed(Replay(LOGGED))
    assert machine.state.processed[C] == processed(7)


def test_replay_does_not_bring_the_processed_offset_of_an_earlier_lineage_back() -> None:
    machine = active(A, B, C)
    machine.feed(Replay(BatchOffset("q", {**LOGGED.entries, C: entry(70, 70, lineage="of before")})))
    assert machine.state.processed[C] == processed(0)


def test_replay_of_a_batch_without_records_is_silent() -> None:
    machine = active()
    end = BatchOffset("q", {A: entry(0, 0)})
    assert machine.feed(Replay(end)) == []
    assert machine.feed(Finish(end)) == []


# ------------------------------------------------------------------------------ two batches


FINISHED = BatchOffset("q", {A: entry(0, 3), B: entry(0, 3)})
AFTER_IT = BatchOffset("q", {A: entry(3, 6), B: entry(3, 6)}, rewinds=1)


def test_skip_of_the_finished_batch_is_kept_beside_that_of_the_next_one() -> None:
    """A later restart checks both markers."""
    machine = fed(Machine(), Restored(FINISHED, "q", {B: (SkipMarker.of(FINISHED, B),)}, AFTER_IT), Assign((A,)))
    machine.answer(A, 3)
    assert machine.feed(Replay(AFTER_IT, frozenset({B}))) == [
        StoreSkips({B: (SkipMarker.of(FINISHED, B), SkipMarker.of(AFTER_IT, B))})
    ]


def test_both_skips_count_after_a_restart() -> None:
    markers = {B: (SkipMarker.of(FINISHED, B), SkipMarker.of(AFTER_IT, B))}
    machine = fed(Machine(), Restored(FINISHED, "q", markers, AFTER_IT), Assign((A, B)))
    assert machine.state.processed[B].offset == 0
    machine.answer(A, 3)
    machine.answer(B, 0)
    assert machine.feed(Replay(AFTER_IT)) == [
        events.Replayed(ranges={A: span(3, 6)}, not_owned=(), skipped={B: span(3, 6)})
    ]
    assert machine.plannable()[B] == (1, 0)


def test_skip_of_an_older_batch_is_not_kept() -> None:
    older = SkipMarker(span(0, 1), 0)
    machine = fed(Machine(), Restored(FINISHED, "q", {B: (older,)}, AFTER_IT), Assign((A,)))
    machine.answer(A, 3)
    assert machine.feed(Replay(AFTER_IT, frozenset({B}))) == [StoreSkips({B: (SkipMarker.of(AFTER_IT, B),)})]


def test_only_skips_that_are_not_durable_yet_are_stored() -> None:
    machine = active()
    machine.feed(SkipsStored({B: (OF_B,)}))
    [stored] = machine.feed(Replay(BatchOffset("q", {**LOGGED.entries, C: entry(7, 9)}), frozenset({B, C})))
    assert stored == StoreSkips({C: (SkipMarker(span(7, 9), 0),)})


# ------------------------------------------------------------------------------ own commits


def test_range_that_another_member_owns_but_this_query_has_committed_is_read_again() -> None:
    """The commit shows that this query has processed the range.  Without a replay, the sink would lose the rows."""
    machine = active(A)
    assert machine.feed(Replay(LOGGED, frozenset({B}), frozenset({B}))) == [
        events.Replayed(ranges={A: span(0, 5), B: span(0, 5)}, not_owned=(B,), skipped={})
    ]
    machine.feed(Finish(LOGGED))
    assert machine.due() == {A: 5}
    assert machine.state.processed[B].offset == 5


@pytest.mark.parametrize(
    ("committed", "by", "own"),
    [
        (5, note(), True),
        (9, note(), True),
        (5, note(log=None), True),
        (4, note(), False),
        (5, note("another"), False),
        (5, note(log=NEW_LOG), False),
        (5, None, False),
        (9, note(since=4), True),
        (9, note(since=5), False),
    ],
    ids=[
        "its end",
        "further on",
        "without a topic id",
        "below",
        "another query's",
        "another log's",
        "nobody's",
        "in the range",
        "behind it",
    ],
)
def test_commit_is_this_querys_own_if_it_covers_the_range_in_the_same_log(
    committed: int, by: CommitNote | None, own: bool
) -> None:
    assert is_own_commit(LOGGED, B, Offset(committed), by) is own


# ------------------------------------------------------------------------------ missing partitions


@pytest.mark.parametrize("missing", [{B}, {A, B}], ids=["of one", "of all"])
def test_replay_of_what_does_not_exist_any_more_ends_the_query(missing: set[TopicPartition]) -> None:
    machine = active(*({A, B} - missing or {C}))
    [fail] = machine.feed(Replay(LOGGED, missing=frozenset(missing)))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, DataLossError)
    assert machine.state.batch is None


def forgiving(machine: Machine) -> Machine:
    """Set ``failOnDataLoss=false`` for ``machine``, and return it."""
    machine.state = replace(machine.state, policy=replace(machine.state.policy, fail_on_data_loss=False))
    return machine


def test_replay_leaves_out_what_does_not_exist_any_more_and_is_finished_all_the_same() -> None:
    machine = forgiving(active(A))
    assert machine.feed(Replay(LOGGED, missing=frozenset({B}))) == [
        events.Replayed(ranges={A: span(0, 5)}, not_owned=(), skipped={})
    ]
    machine.feed(Finish(LOGGED))
    assert machine.due() == {A: 5}
    assert machine.state.processed[B].offset == 0, "nobody has read it"


def test_missing_partition_that_the_batch_does_not_read_is_of_no_interest() -> None:
    machine = active(A, B)
    machine.feed(Replay(LOGGED, missing=frozenset({C})))
    assert machine.state.batch is not None


# ------------------------------------------------------------------------------ other records


def test_processed_offset_of_a_truncated_log_does_not_come_back_with_a_batch_that_did_not_read_it() -> None:
    """Regression: the old processed offset came back, and the next start took the group's offset for a reset."""
    end = BatchOffset("q", {A: entry(0, 5), C: entry(7, 7)})
    machine = forgiving(restored({A: entry(0, 0), C: entry(0, 7)}, A, C, unfinished=end))
    newer = LeaderEpoch(LEADER + 1)
    machine.told(A, info(0, by=note()))
    cut = info(7, by=note(), end=3, leader=newer, epoch_ends={LEADER: Offset(2)})
    machine.told(C, replace(cut, committed_leader_epoch=LEADER))
    machine.feed(CommitAnswered(None), Replay(end))
    assert machine.state.processed[C] == processed(2, leader=newer)
    machine.feed(Finish(end))
    machine.plan((C, 3))
    assert machine.end().entries[C].range == span(2, 3)


def test_range_of_another_log_is_skipped() -> None:
    """Its offsets now belong to other records, so the batch would differ from its first run."""
    end = BatchOffset("q", {A: entry(0, 5)})
    machine = forgiving(restored({A: entry(0, 0)}, unfinished=end))
    machine.told(A, info(7, by=note("another", since=0, log=NEW_LOG), log=NEW_LOG))
    assert machine.feed(Replay(end)) == [StoreSkips({A: (SkipMarker.of(end, A),)})]
    machine.feed(SkipsStored({A: (SkipMarker.of(end, A),)}), Replay(end), Finish(end))
    assert machine.plannable() == {A: (1, 7)}
    assert (machine.state.processed[A].offset, machine.state.processed[A].topic_id) == (7, NEW_LOG)


def test_range_that_was_truncated_since_is_skipped() -> None:
    end = BatchOffset("q", {A: entry(90, 95)})
    machine = lenient(finished=90)
    machine.state = replace(machine.state, unfinished=end)
    found = info(90, end=100, leader=LeaderEpoch(5), epoch_ends={LEADER: Offset(92)})
    assert machine.told(A, found)[0] == events.RecordsLost(partition=A, gone=(Offset(92), Offset(95)))
    assert machine.state.truncated == {A}
    assert machine.feed(Replay(end)) == [StoreSkips({A: (SkipMarker.of(end, A),)})]
    machine.feed(SkipsStored({A: (SkipMarker.of(end, A),)}), Replay(end), Finish(end))
    assert machine.state.truncated == frozenset()
    assert machine.plannable() == {A: (1, 90)}


def test_truncated_range_ends_the_query_unless_loss_is_accepted() -> None:
    end = BatchOffset("q", {A: entry(90, 95)})
    machine = restored({A: entry(90, 90)}, unfinished=end)
    [fail] = machine.told(A, info(90, leader=LeaderEpoch(5), epoch_ends={LEADER: Offset(92)}))
    assert isinstance(fail, Fail)
    assert isinstance(fail.error, DataLossError)
    assert (fail.error.lost_from, fail.error.lost_until) == (92, 95)


def test_range_below_the_truncation_is_read_again() -> None:
    end = BatchOffset("q", {A: entry(90, 92)})
    machine = restored({A: entry(90, 90)}, unfinished=end)
    machine.told(A, info(90, leader=LeaderEpoch(5), epoch_ends={LEADER: Offset(92)}))
    machine.feed(Replay(end))
    assert machine.state.batch is not None
    assert machine.state.batch.running == {A: span(90, 92)}
