"""Tells the user's ``foreachBatch`` the ranges of the batch in flight.  Pure."""

from __future__ import annotations

from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


def batch_report(state: State, end: BatchOffset, group_id: str | None = None) -> dict[TopicPartition, ReadRange] | None:
    """Return the ranges of the batch that ends at ``end``; None if this batch is not in flight.

    A repeated batch may read less than Spark has logged, because other members own the rest.  ``group_id`` is the group
    that the query reads for; None without one.
    """
    batch = state.batch
    if batch is None or batch.end != end:
        return None
    return {
        tp: _read_range(state, tp, r, end.entries[tp].topic_id)._replace(group_id=group_id)
        for tp, r in batch.running.items()
    }


def _read_range(state: State, tp: TopicPartition, r: OffsetRange, topic_id: str | None) -> ReadRange:
    p = state.owned.get(tp)
    entry = state.start.entries.get(tp)
    if entry is not None and differ(entry.topic_id, topic_id):
        entry = None
    if p is None or p.note is None:
        # A replay of a partition that this query does not own: the checkpoint knows what was finished before.
        finished = Offset(0) if entry is None or not entry.range.size else entry.range.until
        return ReadRange(r.start, r.until, finished=min(r.start, finished), begun=finished > 0, topic_id=topic_id)
    # `since` is the offset at which this query took over.  `decided` may come from a start at the end of a log, or from
    # a reset.
    decided = p.note.decided
    finished = max(p.committed or Offset(0), p.finished or Offset(0))
    if finished <= max(p.note.since, decided):
        # This query has finished nothing yet.  Deliberate: do not use its start, which may be behind records that are
        # gone.  Do not use an offset either that a former owner only put back below `decided`.
        finished = max((f.until for f in p.note.former if f.until > decided), default=Offset(0))
    begun = finished > 0
    if entry is not None and not state.policy.keeps_offsets:
        # Without a group, only the checkpoint knows what was finished before this process.
        finished, begun = max(finished, entry.range.until), begun or entry.range.size > 0
    return ReadRange(r.start, r.until, finished=min(r.start, finished), begun=begun, topic_id=topic_id)
