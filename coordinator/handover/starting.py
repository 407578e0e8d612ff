"""Where partitions start, from the knowledge of the checkpoint and of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import Forget, OffsetsAtStart, PartitionInfoReceived, Restored
from pyspark_kafka_group.coordinator.handover.outputs import Fail, Output
from pyspark_kafka_group.coordinator.handover.state import Partition, State, processed_at, unrelated, updated
from pyspark_kafka_group.coordinator.handover.transitions import Cause, Phase, phase_after
from pyspark_kafka_group.offsets.checkpoint_age import check_age
from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.errors import DataError
from pyspark_kafka_group.offsets.skip_markers import is_marked
from pyspark_kafka_group.offsets.start_inputs import PartitionInfo, ProcessedOffset, QueryInfo
from pyspark_kafka_group.offsets.start_position import Start, decide_start
from pyspark_kafka_group.offsets.types import Offset, TopicPartition


def restore(state: State, given: Restored) -> tuple[State, list[Output]]:
    """Take over from the checkpoint what this query has finished."""
    start, unfinished = given.start, given.unfinished
    skipped = {tp for tp in start.entries if is_marked(given.markers, start, tp)}
    processed = {
        tp: processed_at(entry, entry.range.start if tp in skipped else entry.range.until)
        for tp, entry in start.entries.items()
    }
    for tp, entry in unfinished.entries.items() if unfinished is not None else ():
        if tp not in processed or differ(processed[tp].topic_id, entry.topic_id):
            # The unfinished batch is the first one of this log, so its range begins at the start of the partition.
            processed[tp] = processed_at(entry, entry.range.start)
    return (
        replace(
            state,
            query_id=given.query_id,
            start=start,
            unfinished=unfinished,
            rewinds=start.rewinds + bool(skipped),
            first_topics=(unfinished or start).first,
            markers=dict(given.markers),
            processed=processed,
        ),
        [],
    )


def check_checkpoint(state: State, given: OffsetsAtStart) -> tuple[State, list[Output]]:
    """Refuse a checkpoint that lacks batches which this query has committed, before any batch runs."""
    logged = {} if state.unfinished is None else state.unfinished.entries
    for tp, found in sorted(given.offsets.items()):
        query = QueryInfo(
            query_id=state.query_id, new_lineage="", processed=state.processed.get(tp), logged=logged.get(tp)
        )
        try:
            check_age(tp, found, query, group_id=state.policy.group_id)
        except DataError as error:
            return state, [Fail(error)]
    return state, []


def forget(state: State, given: Forget) -> tuple[State, list[Output]]:
    """Drop the processed offsets of topics that no longer exist, unless something of them is still under way."""
    under_way = {tp.topic for tp in state.owned}
    if state.batch is not None:
        under_way |= {tp.topic for tp in state.batch.end.ranges()}
    if state.unfinished is not None:
        under_way |= {tp.topic for tp in state.unfinished.ranges()}
    if state.committing is not None:
        under_way |= {tp.topic for tp in state.committing.entries}
    gone = given.topics - under_way
    processed = {tp: one for tp, one in state.processed.items() if tp.topic not in gone}
    first_topics = tuple(topic for topic in state.first_topics if topic not in gone)
    if len(processed) == len(state.processed):
        return replace(state, first_topics=first_topics), []
    return replace(state, processed=processed, first_topics=first_topics, rewinds=state.rewinds + 1), []


def receive_info(state: State, given: PartitionInfoReceived) -> tuple[State, list[Output]]:
    """Decide where partitions start."""
    out: list[Output] = []
    recreated = _recreated_topics(state, given)
    read_before, begun_anew = _topics_read_before(state, given), _topics_begun_anew(state, given)
    started: dict[TopicPartition, Offset] = {}
    changed: dict[TopicPartition, Partition] = {}
    processed = dict(state.processed)
    taken = dict(state.taken)
    truncated: set[TopicPartition] = set()
    topics_begun = dict(state.begun_anew)
    went_back = False
    for tp, (epoch, info) in given.info.items():
        p = state.owned.get(tp)
        if p is None or p.epoch != epoch or p.phase is not Phase.RESOLVING:
            continue  # the partition has left since the question
        try:
            query = QueryInfo(
                query_id=state.query_id,
                new_lineage=given.new_lineage,
                processed=state.processed.get(tp),
                logged=None if state.unfinished is None else state.unfinished.entries.get(tp),
                recreated=tp.topic in recreated,
                read_before=tp.topic in read_before,
                begins_anew=tp.topic in begun_anew,
            )
            start = decide_start(tp, info, query, state.policy)
        except DataError as error:
            return state, [*out, Fail(error)]
        changed[tp] = _decided(p, start)
        if start.note.initial_partition_count == 0:
            topics_begun[tp.topic] = start.note.topic_id
        if start.others is not None:
            taken[tp] = start.others
        if start.truncated_batch:
            truncated.add(tp)
        if changed[tp].phase is Phase.ACTIVE:
            started[tp] = start.position
            old = processed.get(tp)
            processed[tp] = ProcessedOffset(start.position, start.leader_epoch, start.note.topic_id, start.note.lineage)
            went_back |= old is not None and goes_back(old, processed[tp])
        out += _start_events(tp, info, start)
    if started:
        out.append(events.Started(positions=started))
    of_old_logs = processed_in_old_logs(replace(state, processed=processed), started)
    if of_old_logs:
        went_back = True
        processed = {tp: one for tp, one in processed.items() if tp not in of_old_logs}
    return (
        replace(
            updated(state, changed),
            processed=processed,
            taken=taken,
            truncated=state.truncated | truncated,
            begun_anew=topics_begun,
            rewinds=state.rewinds + went_back,
            deleted=_still_deleted(state, {tp.topic for tp in changed}),
        ),
        out,
    )


def _still_deleted(state: State, topics: set[str]) -> frozenset[TopicPartition]:
    """Return the deleted partitions of other topics.  If one partition of a topic is there again, others may be."""
    return frozenset(tp for tp in state.deleted if tp.topic not in topics)


def _decided(p: Partition, start: Start) -> Partition:
    """Return a partition whose start is decided."""
    phase = phase_after(p.phase, Cause.START_DECIDED if start.durable_first else Cause.START_DURABLE)
    assert phase is not None
    return Partition(
        phase=phase,
        epoch=p.epoch,
        position=start.position,
        leader_epoch=start.leader_epoch,
        finished=start.position,
        committed=start.committed if start.committed != start.position or not start.durable_first else None,
        note=start.note,
    )


def processed_in_old_logs(state: State, started: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions whose processed offset belongs to an older log than the one that has just started.

    The query no longer needs these offsets: in the new log, it reads partitions without a committed offset from their
    beginning.  Partitions that are owned or under way keep theirs, because the query still has to report that their
    topic was created again.
    """
    topic_ids = {tp.topic: state.processed[tp].topic_id for tp in started}
    if not topic_ids:
        return set()
    busy = {*state.owned}
    if state.batch is not None:
        busy |= state.batch.end.ranges().keys()
    if state.unfinished is not None:
        busy |= state.unfinished.ranges().keys()
    if state.committing is not None:
        busy |= state.committing.entries.keys()
    old = {tp for tp, one in state.processed.items() if differ(one.topic_id, topic_ids.get(tp.topic))}
    return old - busy


def goes_back(old: ProcessedOffset, new: ProcessedOffset) -> bool:
    """Return whether a processed offset is anything but a later one of the same log."""
    return new.offset < old.offset or unrelated(old, new)


def _recreated_topics(state: State, given: PartitionInfoReceived) -> set[str]:
    """Return the topics of which a processed offset, of any partition, belongs to another log."""
    topic_ids = {tp.topic: info.topic_id for tp, (_, info) in given.info.items()}
    return {tp.topic for tp, one in state.processed.items() if differ(one.topic_id, topic_ids.get(tp.topic))}


def _topics_read_before(state: State, given: PartitionInfoReceived) -> set[str]:
    """Return the topics of which the checkpoint has a processed offset in the current log.

    Topics that only this process has begun are left out: an answer may be older than the commit of a start.
    """
    topic_ids = {tp.topic: info.topic_id for tp, (_, info) in given.info.items()}
    known = ((tp.topic, entry.topic_id) for tp, entry in state.start.entries.items() if tp in state.processed)
    return {topic for topic, topic_id in known if topic in topic_ids and not differ(topic_id, topic_ids[topic])}


def _topics_begun_anew(state: State, given: PartitionInfoReceived) -> set[str]:
    """Return the topics of which this process has begun the current log anew.

    The answer for another partition may be older than the commit that notes this.
    """
    topic_ids = {tp.topic: info.topic_id for tp, (_, info) in given.info.items()}
    begun = state.begun_anew.items()
    return {topic for topic, topic_id in begun if topic in topic_ids and not differ(topic_id, topic_ids[topic])}


def _start_events(tp: TopicPartition, info: PartitionInfo, start: Start) -> list[Output]:
    """Return the events that a start calls for."""
    said: list[Output] = []
    if start.recreated:
        said.append(events.Recreated(partition=tp, position=start.position))
    if start.lost is not None:
        said.append(events.RecordsLost(partition=tp, gone=start.lost))
    if info.reset is not None:
        reset = events.OffsetReset(
            partition=tp,
            by=info.reset.by,
            reset_at=info.reset.time_ms / 1000,
            previous=info.reset.previous,
            committed=info.committed,
            position=start.position,
        )
        said.append(reset)
    if start.rewound:
        said.append(events.Rewound(partition=tp, committed=info.committed, position=start.position))
    return said
