"""A batch of Spark's log runs again: which of its ranges the query reads, and which it leaves to others."""

from __future__ import annotations

from dataclasses import replace

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import Replay
from pyspark_kafka_group.coordinator.handover.outputs import Fail, Output, StoreSkips
from pyspark_kafka_group.coordinator.handover.state import (
    Batch,
    Partition,
    State,
    processed_at,
    raised,
    unrelated,
    updated,
)
from pyspark_kafka_group.coordinator.handover.transitions import IllegalTransitionError, Phase
from pyspark_kafka_group.offsets.batch_offset import BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.errors import DataLossError
from pyspark_kafka_group.offsets.skip_markers import is_marked, with_skips
from pyspark_kafka_group.offsets.start_inputs import ProcessedOffset
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition


def replay(state: State, given: Replay) -> tuple[State, list[Output]]:
    """Put the batch in flight, once the group has decided who owns each range and the skips are durable."""
    if state.batch is not None:
        raise IllegalTransitionError("a batch is replayed while another one is in flight")
    end = given.end
    running: dict[TopicPartition, OffsetRange] = {}
    epochs: dict[TopicPartition, OwnershipEpoch] = {}
    moved: dict[TopicPartition, Partition] = {}
    skipped: set[TopicPartition] = set()
    # A marker may be durable although nobody has answered, and after a restart it counts.
    decided = {**state.markers, **state.unstored}
    gone = given.missing & end.ranges().keys()
    if gone and state.policy.fail_on_data_loss:
        return state, [Fail(DataLossError.of_deleted(sorted({tp.topic for tp in gone})))]
    for tp, r in end.ranges().items():
        p = state.owned.get(tp)
        if tp in gone:
            continue
        if is_marked(decided, end, tp):
            skipped.add(tp)  # even if owned: the sink may have the batch from the replay that skipped this range
        elif p is not None:
            if p.phase is not Phase.ACTIVE or p.position is None:
                return state, []
            changed = tp in state.truncated or differ(p.topic_id, end.entries[tp].topic_id)
            if changed or p.position < r.start:
                skipped.add(tp)  # rewound, or these are other records now: later batches read from the position on
                continue
            rest = _not_taken(r, state.taken.get(tp))
            moved[tp] = _read_again(p, end.entries[tp])
            if rest.size:
                running[tp] = rest
                epochs[tp] = p.epoch
        elif tp in given.own_commits:
            running[tp] = r
        elif tp in given.elsewhere:
            skipped.add(tp)  # its owner began at the group's offset, at or below this range
        elif tp in given.orphaned:
            running[tp] = r
        else:
            return state, []
    wanted = with_skips(state.markers, state.start, end, skipped)
    unmarked = {tp: wanted[tp] for tp in sorted(skipped) if state.markers.get(tp) != wanted[tp]}
    if unmarked:
        return replace(state, unstored={**state.unstored, **unmarked}), [StoreSkips(unmarked)]
    processed, went_back = _processed_beside(state, end, skipped | gone)
    state = replace(
        updated(state, moved),
        processed=processed,
        rewinds=max(state.rewinds, end.rewinds + went_back),
        batch=Batch(end=end, running=running, epochs=epochs, skipped=frozenset(skipped | gone)),
    )
    not_owned = tuple(tp for tp in running if tp not in epochs)
    ranges = end.ranges()
    event = events.Replayed(ranges=running, not_owned=not_owned, skipped={tp: ranges[tp] for tp in sorted(skipped)})
    return state, [event] if ranges else []


def _processed_beside(
    state: State, end: BatchOffset, left_out: set[TopicPartition]
) -> tuple[dict[TopicPartition, ProcessedOffset], bool]:
    """Return the processed offsets while the batch runs again, and whether one of them went back."""
    processed = dict(state.processed)
    went_back = bool(left_out)
    for tp, entry in end.entries.items():
        if not entry.range.size:
            known, logged = processed.get(tp), processed_at(entry, entry.range.until)
            if known is None or not (unrelated(known, logged) or _began_again(state.owned.get(tp), known, logged)):
                processed[tp] = raised(known, logged)
            else:
                went_back = True  # the partition has started again since that batch was logged
        elif tp in left_out and tp not in processed:
            processed[tp] = processed_at(entry, entry.range.start)
    return processed, went_back


def is_own_commit(end: BatchOffset, tp: TopicPartition, committed: Offset, note: CommitNote | None) -> bool:
    """Return whether this query, or an owner after it, has committed an offset beyond the batch that ends at ``end``.

    The group's offset may no longer show who committed it.  Then it may have been this query: the batch is read twice
    rather than not at all.
    """
    entry = end.entries[tp]
    if note is None or differ(note.topic_id, entry.topic_id) or committed < entry.range.until:
        return False
    assert end.query_id is not None
    # A query that took over behind the range has committed what others processed.
    by_itself = note.query_id == end.query_id and note.since < entry.range.until
    return by_itself or note.formerly_committed_by(end.query_id) >= entry.range.until


def _began_again(p: Partition | None, known: ProcessedOffset, logged: ProcessedOffset) -> bool:
    """Return whether ``known`` is lower because the log was truncated, or an older copy restored, below ``logged``."""
    if known.leader_epoch is None or logged.leader_epoch is None or known.offset >= logged.offset:
        return False
    # A lower epoch alone may also be of an earlier batch: the query has no start of its own then.
    restored = p is not None and p.position == known.offset and known.leader_epoch < logged.leader_epoch
    return restored or known.leader_epoch > logged.leader_epoch


def _not_taken(r: OffsetRange, taken: OffsetRange | None) -> OffsetRange:
    """Return the part of ``r`` that no other query has processed.

    The query reads again what it has committed itself.  The batch must give what Spark has logged, because a sink may
    replace what it wrote for this batch.
    """
    if taken is None or taken.start >= r.until:
        return r
    return OffsetRange(Offset(min(max(taken.until, r.start), r.until)), r.until)


def _read_again(p: Partition, entry: PartitionEntry) -> Partition:
    """Return the partition with the range planned, unless it is already beyond the range."""
    assert p.position is not None
    until = entry.range.until
    return p if p.position >= until else p.planned(until, entry.leader_epoch)
