"""Whether a checkpoint is an old copy: the group has commits of the query that the checkpoint lacks."""

from __future__ import annotations

from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.errors import OutdatedCheckpointError
from pyspark_kafka_group.offsets.start_inputs import GroupOffset, ProcessedOffset, QueryInfo
from pyspark_kafka_group.offsets.types import TopicPartition


def check_age(tp: TopicPartition, found: GroupOffset, query: QueryInfo, *, group_id: str) -> None:
    """Raise if this query has committed batches of ``tp`` that its checkpoint does not contain.

    The newest commit of the partition may belong to another query, but its note also names the former owners.

    Raises
    ------
    OutdatedCheckpointError
        If it has.
    """
    note = found.note
    if note is None or differ(note.topic_id, found.topic_id):
        return
    own = note.committed_by(query.query_id, found.offset)
    if own is None:
        return
    processed, logged = query.processed, query.logged
    if processed is not None and _is_before_truncation(found, processed):
        return  # a late commit: the checkpoint knows more
    if own <= note.decided:
        return  # the query has only committed its start after a reset, and has finished nothing since
    finished = [] if processed is None else [(processed.offset, processed.topic_id, processed.lineage)]
    if logged is not None:
        finished.append((logged.range.until, logged.topic_id, logged.lineage))
    for until, topic_id, lineage in finished:
        # A batch that runs again after a reset was logged under the old lineage, but its commit has the new one.
        same_start = own == until or lineage == note.lineage
        if own <= until and same_start and not differ(topic_id, found.topic_id):
            return
    raise OutdatedCheckpointError(
        topic=tp.topic,
        partition=tp.partition,
        group_id=group_id,
        committed=own,
        finished=None if processed is None else processed.offset,
    )


def _is_before_truncation(found: GroupOffset, processed: ProcessedOffset) -> bool:
    """Return whether the commit is of an older leader epoch of this log than the checkpoint's offset."""
    if found.leader_epoch is None or processed.leader_epoch is None or differ(processed.topic_id, found.topic_id):
        return False
    return found.leader_epoch < processed.leader_epoch
