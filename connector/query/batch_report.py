"""Tells the user's ``foreachBatch`` the ranges of the batch in flight.  Pure."""

from __future__ import annotations

from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.commit_metadata import ANYBODY, differ
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


def batch_report(state: State, end: BatchOffset) -> dict[TopicPartition, ReadRange] | None:
    """Return what the batch in flight really reads; None if the batch that ends at ``end`` is not in flight.

    A batch that runs again may read less than Spark has logged: other members have the rest.
    """
    batch = state.batch
    if batch is None or batch.end != end:
        return None
    return {tp: _read_range(state, tp, r, end.entries[tp].topic_id) for tp, r in batch.running.items()}


def _read_range(state: State, tp: TopicPartition, r: OffsetRange, topic_id: str | None) -> ReadRange:
    p = state.owned.get(tp)
    if p is None or p.note is None:
        # The partition has moved meanwhile, and its history with it.
        return ReadRange(r.start, r.until, finished=r.start, begun=False, topic_id=topic_id)
    since = Offset(0) if p.note.since is None else p.note.since
    finished = max(p.committed or Offset(0), p.finished or Offset(0))
    begun = finished > since or any(former.query != ANYBODY for former in p.note.owners_before)
    if not begun:
        finished = Offset(0)
    entry = state.start.entries.get(tp)
    if entry is not None and not state.policy.keeps_offsets and not differ(entry.topic_id, topic_id):
        # Without a group the checkpoint alone knows what was finished before this process.
        finished, begun = max(finished, entry.range.until), begun or entry.range.size > 0
    # Deliberate: not always the start of the range.  Where records were deleted unread, it is behind what was finished.
    return ReadRange(r.start, r.until, finished=min(r.start, finished), begun=begun, topic_id=topic_id)
