"""Batches: planned, finished by Spark, committed to the group."""

from __future__ import annotations

from dataclasses import replace

from pyspark_kafka_group.coordinator import events
from pyspark_kafka_group.coordinator.handover.inputs import CommitAnswered, Finish, PlanBatch
from pyspark_kafka_group.coordinator.handover.outputs import Output, ScheduleRetry
from pyspark_kafka_group.coordinator.handover.starting import goes_back
from pyspark_kafka_group.coordinator.handover.state import Batch, State, mark_of, raised, unrelated, updated
from pyspark_kafka_group.coordinator.handover.transitions import (
    Cause,
    IllegalTransitionError,
    Phase,
    phase_after,
)
from pyspark_kafka_group.offsets.document import BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.start import Mark
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


def plan(state: State, given: PlanBatch) -> tuple[State, list[Output]]:
    """Put a batch in flight."""
    if state.batch is not None:
        raise IllegalTransitionError("a batch is planned while another one is in flight")
    plannable = state.plannable()
    running: dict[TopicPartition, OffsetRange] = {}
    leader_epochs = {}
    for tp, (epoch, r, leader_epoch) in given.ranges.items():
        position = plannable.get(tp)
        if r.start < r.until and position is not None and (position.epoch, position.offset) == (epoch, r.start):
            running[tp] = r
            leader_epochs[tp] = leader_epoch
    if not running and not given.always:
        return state, []
    owned = state.owned
    epochs = {tp: owned[tp].epoch for tp in running}
    moved = {tp: owned[tp].planned(r.until, leader_epochs[tp]) for tp, r in running.items()}
    entries = {}
    for tp, (finished, seen, leader_epoch, topic_id, lineage) in state.marks.items():
        if tp in running:
            note = owned[tp].note
            assert note is not None  # it is active
            entries[tp] = PartitionEntry(running[tp], seen, leader_epochs[tp], note.topic_id, note.lineage)
        else:
            entries[tp] = PartitionEntry(OffsetRange(finished, finished), seen, leader_epoch, topic_id, lineage)
    end = BatchOffset(state.query_id, rewinds=state.rewinds, entries=entries)
    state = replace(updated(state, moved), batch=Batch(end=end, running=running, epochs=epochs))
    return state, [events.Planned(ranges=running)] if running else []


def finish(state: State, given: Finish) -> tuple[State, list[Output]]:
    """Note that Spark has durably finished the batch in flight."""
    batch = state.batch
    if batch is None or given.end != batch.end:
        return state, []  # said before: Spark says it up to twice
    changed = {}
    for tp, r in batch.running.items():
        p = state.owned.get(tp)
        if p is not None and p.epoch == batch.epochs.get(tp):
            changed[tp] = p.done(r.until)
    marks = dict(state.marks)
    # Deliberate: not the marks of what was not read.  A re-created log may have lowered them since.
    for tp, entry in batch.end.entries.items():
        if entry.range.start < entry.range.until and tp not in batch.skipped:
            marks[tp] = raised(marks.get(tp), mark_of(entry, finished=entry.range.until))
    finished_batches = state.finished_batches + 1
    behind_since = state.behind_since
    if behind_since is None and any(p.uncommitted for p in changed.values()):
        behind_since = finished_batches
    state = replace(
        updated(state, changed),
        marks=marks,
        batch=None,
        unfinished=None,
        taken={},
        truncated=frozenset(),
        finished_batches=finished_batches,
        behind_since=behind_since,
    )
    return state, [events.Finished(ranges=batch.running)] if batch.running else []


def answer_commit(state: State, given: CommitAnswered) -> tuple[State, list[Output]]:
    """Take the answer to the outstanding commit."""
    commit = state.committing
    if commit is None:
        raise IllegalTransitionError("an answer came to a commit that was not asked for")
    state = replace(state, committing=None)
    if given.problem is not None:
        return (
            replace(state, retry_pending=True),
            [events.CommitFailed(problem=given.problem), ScheduleRetry()],
        )
    owned = dict(state.owned)
    marks = dict(state.marks)
    started: dict[TopicPartition, Offset] = {}
    went_back = False
    for tp, (epoch, offset, leader_epoch, note) in commit.entries.items():
        known = marks.get(tp)
        p = owned.get(tp)
        mine = p is not None and p.epoch == epoch
        stored = Mark(offset, offset, leader_epoch, note.topic_id, note.lineage)
        if p is not None and mine and p.committed is None:
            # Deliberate: not raised but set.  In a truncated or re-created log the mark goes back with the start.
            marks[tp] = stored
        elif mine or known is None or not unrelated(known, note):
            marks[tp] = raised(known, stored)
        mark = marks[tp]
        if known is not None and (mark.topic_id != known.topic_id or mark.lineage != known.lineage):
            went_back |= goes_back(known, mark)
        elif known is not None:
            went_back |= mark.finished < known.finished
        if p is None or not mine:
            continue
        if p.phase is Phase.STARTING:
            phase = phase_after(p.phase, Cause.START_COMMITTED)
            assert phase is not None
            p = p._replace(phase=phase)
            started[tp] = offset
        owned[tp] = p.stored(offset)
    out: list[Output] = [events.Committed(offsets={tp: entry.offset for tp, entry in commit.entries.items()})]
    if started:
        out.append(events.Started(positions=started))
    behind_since = state.behind_since
    if behind_since is not None:
        behind_since = max(behind_since, commit.after_batch + 1)  # everything up to that batch is committed now
    return (
        replace(state, owned=owned, marks=marks, rewinds=state.rewinds + went_back, behind_since=behind_since),
        out,
    )
