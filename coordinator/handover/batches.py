"""Batches: planned, finished by Spark, committed to the group."""

from __future__ import annotations

from dataclasses import replace

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import CommitAnswered, Finish, PlanBatch
from pyspark_kafka_group.coordinator.handover.outputs import Output, ScheduleRetry
from pyspark_kafka_group.coordinator.handover.reading_back import doubted_after
from pyspark_kafka_group.coordinator.handover.starting import goes_back, processed_in_old_logs
from pyspark_kafka_group.coordinator.handover.state import Batch, State, raised, unrelated
from pyspark_kafka_group.coordinator.handover.transitions import Cause, IllegalTransitionError, Phase, phase_after
from pyspark_kafka_group.offsets.batch_offset import BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.start_inputs import ProcessedOffset
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition


def plan(state: State, given: PlanBatch) -> tuple[State, list[Output]]:
    """Put a batch in flight."""
    if state.batch is not None:
        raise IllegalTransitionError("a batch is planned while another one is in flight")
    owned = dict(state.owned)
    running: dict[TopicPartition, OffsetRange] = {}
    epochs: dict[TopicPartition, OwnershipEpoch] = {}
    for tp, (epoch, r, leader_epoch) in given.ranges.items() if state.plans else ():
        p = owned.get(tp)
        if p is not None and p.epoch == epoch and p.plannable and p.position == r.start < r.until:
            running[tp] = r
            epochs[tp] = epoch
            owned[tp] = p.planned(r.until, leader_epoch)
    if not running and not given.always:
        return state, []
    entries = {}
    for tp, (finished, leader_epoch, topic_id, lineage) in state.processed.items():
        read = running.get(tp)
        if read is None:
            entries[tp] = PartitionEntry(OffsetRange(finished, finished), leader_epoch, topic_id, lineage)
        else:
            p = owned[tp]
            note = p.note
            assert note is not None  # it is active
            entries[tp] = PartitionEntry(read, p.leader_epoch, note.topic_id, note.lineage)
    first = state.first_topics
    if first:
        started = {tp.topic for tp in entries}
        first = tuple(topic for topic in first if topic not in started)
    end = BatchOffset(state.query_id, rewinds=state.rewinds, entries=entries, first=first)
    if not running and end == state.start:
        # Otherwise Spark would see nothing new, and make no batch.
        end = replace(end, rewinds=end.rewinds + 1)
        state = replace(state, rewinds=end.rewinds)
    # A topic that was started once and created again since then came later.
    state = replace(state, owned=owned, batch=Batch(end=end, running=running, epochs=epochs), first_topics=first)
    return state, [events.Planned(ranges=running)] if running else []


def finish(state: State, given: Finish) -> tuple[State, list[Output]]:
    """Note that Spark has durably finished the batch in flight."""
    batch = state.batch
    if batch is None or given.end != batch.end:
        return state, []  # Spark reports a finished batch up to twice
    owned = dict(state.owned)
    behind = False
    for tp, epoch in batch.epochs.items():
        p = owned.get(tp)
        if p is not None and p.epoch == epoch:
            owned[tp] = p = p.done(batch.running[tp].until)
            behind = behind or p.uncommitted
    processed = dict(state.processed)
    # Deliberate: not the processed offsets of partitions that the batch did not read.  A re-created log may have
    # lowered them since.
    for tp, ((start, until), leader_epoch, topic_id, lineage) in batch.end.entries.items():
        if start < until and tp not in batch.skipped:
            processed[tp] = raised(processed.get(tp), ProcessedOffset(until, leader_epoch, topic_id, lineage))
    finished_batches = state.finished_batches + 1
    behind_since = state.behind_since
    if behind_since is None and behind:
        behind_since = finished_batches
    state = replace(
        state,
        owned=owned,
        processed=processed,
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
        raise IllegalTransitionError("an answer came, but no commit is outstanding")
    state = replace(state, committing=None)
    if given.problem is not None:
        doubted = doubted_after(state, commit) if given.unclear else state.doubted
        return (
            replace(state, retry_pending=True, doubted=doubted),
            [events.CommitFailed(problem=given.problem), ScheduleRetry()],
        )
    owned = dict(state.owned)
    processed = dict(state.processed)
    started: dict[TopicPartition, Offset] = {}
    went_back = False
    starting = Phase.STARTING
    for tp, (epoch, offset, leader_epoch, note) in commit.entries.items():
        known = processed.get(tp)
        p = owned.get(tp)
        mine = p is not None and p.epoch == epoch
        stored = ProcessedOffset(offset, leader_epoch, note.topic_id, note.lineage)
        if p is not None and mine and p.committed is None:
            # Deliberate: set, not raised.  In a truncated or re-created log the processed offset goes back.
            new = stored
        elif mine or known is None or not unrelated(known, note):
            new = raised(known, stored)
        else:
            continue
        processed[tp] = new
        went_back = went_back or (known is not None and goes_back(known, new))
        if p is None or not mine:
            continue
        if p.phase is starting:
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
    of_old_logs = processed_in_old_logs(replace(state, processed=processed), started)
    if of_old_logs:
        went_back = True
        processed = {tp: one for tp, one in processed.items() if tp not in of_old_logs}
    return (
        replace(state, owned=owned, processed=processed, rewinds=state.rewinds + went_back, behind_since=behind_since),
        out,
    )
