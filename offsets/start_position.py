"""Where a partition starts: one pure decision, made each time a partition is assigned.

An offset belongs to one log, and its note has the topic id (KIP-516).  If that is not the topic's id now, the topic was
deleted and created again.  Then the offset does not count, the records of the old log are lost (``failOnDataLoss``),
and the query reads the new log from its beginning.  The offsets that count decide by this table:

====================================================  =============================================
the group's committed offset C, the query's           the partition starts at
processed offset H
====================================================  =============================================
C, and no H or C >= H                                 C
C < H, and C is a commit of this project that         H, committed at once: the query died before it
descends from the same start as H                     could commit, or an older commit has arrived late
any other C < H, or no C, or C was set lower by       by ``onOffsetRewind``: nowhere, a named error
``kafka-group reset``, although H exists              (``fail``), at the higher of H and the offset
                                                      before the reset (``checkpoint``), or at C, and
                                                      without C as if for the first time, but not after H
                                                      (``group``)
no C, no H, but the checkpoint has an H of another    by ``onOffsetRewind``: nowhere, its beginning, or
partition, and the group no C of the whole topic      as if for the first time
H in this log, and a late commit of an old log, or     H, committed at once
of an older start of this query, has overwritten C
this query has committed batches, as C or one of the   nowhere: the checkpoint is an old copy
owners before C, that are not in its checkpoint
no C, no H: the group starts this topic               ``startingTimestamp``, or
                                                      ``startingOffsetsByTimestamp``, or
                                                      ``startingOffsets``, committed at once, so that
                                                      a later owner does not decide again
no C, no H: the partition was added to a topic that   its beginning
the group has started before, or to ``assign``, or the
topic was created again, or the group had lost its
offsets
H, with ``assign``                                    H
a log whose leader epochs have gone back, and that     nowhere (``failOnDataLoss``), or its beginning
does not end below C or H
a log that ends below C or H, or that was truncated   nowhere (``failOnDataLoss``), or the nearest
below it under a later leader epoch, or that begins   offset that exists
above it
====================================================  =============================================

An offset without a note was set by another program: a consumer that had the group before, or an operator's tool.  The
note of another cluster does not count either.  The query commits the offset once more before it plans anything, under
its own name and a new *lineage*.  All later commits keep that lineage.  A query that was not running then has a
processed offset of another lineage, and notices the reset.

A commit of the same lineage below H is no reset, whichever query has made it.  It has arrived late, or the coordinator
has lost later ones.  The queries of this lineage have processed everything below H, so H is committed again.

Members start at the same time.  So a committed offset in another partition does not show that the group has started the
topic before.  A second member would take its own first partition for one that was added later.  Therefore each commit
contains the number of partitions that the topic had when the group started it.  Only partitions with higher numbers
were added later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from pyspark_kafka_group.offsets.batch_offset import PartitionEntry
from pyspark_kafka_group.offsets.checkpoint_age import check_age
from pyspark_kafka_group.offsets.commit_metadata import ANYBODY, OUTSIDE, CommitNote, Former, differ
from pyspark_kafka_group.offsets.errors import DataLossError, NoOffsetAtTimeError, OffsetRewindError
from pyspark_kafka_group.offsets.start_inputs import (
    GroupOffset,
    NoMatch,
    PartitionInfo,
    ProcessedOffset,
    QueryInfo,
    RewindPolicy,
    StartingOffset,
    StartPolicy,
)
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The decision to start a partition at ``position``.

    Attributes
    ----------
    position : Offset
        The first offset to plan.
    committed : Offset or None
        The group's committed offset, as far as it still counts.  If it is lower than ``position``, or None, the query
        must commit the position.
    durable_first : bool
        Whether the query must commit ``position`` before it plans the partition.
    note : CommitNote
        The note of every commit of this partition.
    others : OffsetRange or None
        The range that another query has processed just below the committed offset, if its note shows one.
    leader_epoch : LeaderEpoch or None
        A leader epoch under which the log has everything below ``position``; None if unknown.
    lost : tuple of (Offset, Offset) or None
        The lost records, ``[from, until)``, with ``failOnDataLoss=false``.
    rewound : bool
        Whether the group's offset had gone back, and ``onOffsetRewind`` decided.
    recreated : bool
        Whether the log is another one than the query or the group has read before.
    truncated_batch : bool
        Whether the batch that Spark has logged and not finished reads records that were truncated meanwhile.
    """

    position: Offset
    committed: Offset | None
    durable_first: bool
    note: CommitNote
    others: OffsetRange | None = None
    leader_epoch: LeaderEpoch | None = None
    lost: tuple[Offset, Offset] | None = None
    rewound: bool = False
    recreated: bool = False
    truncated_batch: bool = False


def decide_start(tp: TopicPartition, info: PartitionInfo, query: QueryInfo, policy: StartPolicy) -> Start:
    """Decide where ``tp`` starts.

    Parameters
    ----------
    tp : TopicPartition
        The partition that was assigned.
    info : PartitionInfo
        The facts of the cluster about it.
    query : QueryInfo
        The facts of the query about it, from its last finished offset.
    policy : StartPolicy
        The options.

    Raises
    ------
    OffsetRewindError
        If the group's offset has gone back behind what the query has finished.
    OutdatedCheckpointError
        If this query has committed batches that its checkpoint does not contain.
    DataLossError
        If ``failOnDataLoss`` is true, and the topic was deleted and created again, or the offset to start at is
        outside the log.
    """
    if not policy.keeps_offsets and query.processed is not None:
        info = replace(info, committed=None, note=None, reset=None, bookmark=None, committed_leader_epoch=None)
    if policy.keeps_offsets and info.committed is not None and not _has_stale_commit(info):
        committed = GroupOffset(info.committed, info.note, info.topic_id, info.committed_leader_epoch)
        check_age(tp, committed, query, group_id=policy.group_id)
    found = _of_this_log(tp, info, query, policy)
    found = _not_truncated(tp, info, found, policy)
    start = _inside_the_log(tp, info, _wanted(tp, info, found, query, policy), policy, known=found)
    return _with_logged_batch(tp, info, start, query.logged, policy)


class _Evidence(NamedTuple):
    """The parts of C and H that count.

    Attributes
    ----------
    recreated : bool
        Whether a part belonged to another log, and this query has not begun the new one yet.
    lost : tuple of (Offset, Offset) or None
        The range that was truncated.
    too_high : bool
        Whether the group's offset was truncated, and the query must lower it.
    overwritten : bool
        Whether a late commit has overwritten the group's offset: of another log, or of an older start of this query.
    """

    processed: ProcessedOffset | None
    committed: Offset | None
    note: CommitNote | None
    recreated: bool = False
    lost: tuple[Offset, Offset] | None = None
    too_high: bool = False
    overwritten: bool = False


def _of_this_log(tp: TopicPartition, info: PartitionInfo, query: QueryInfo, policy: StartPolicy) -> _Evidence:
    """Remove the offsets that belong to another log."""
    processed, note, committed = query.processed, info.note, info.committed
    stale_processed = processed is not None and (
        _is_of_another_log(info, processed.topic_id, processed.leader_epoch)
        or _outgrown(info, processed)
        or _is_before_restore(info, processed)
    )
    stale_commit = _has_stale_commit(info) or _is_older_start(info, query)
    if stale_processed:
        processed = None
    if stale_commit:
        committed, note = None, None
    # A processed offset in the new log, or a commit of this query there, shows that it has begun the new log before.
    begun = processed is not None or (note is not None and note.query_id == query.query_id)
    recreated = not begun and (stale_processed or stale_commit or (committed is None and query.recreated))
    if recreated and policy.fail_on_data_loss:
        finished = query.processed.offset if query.processed is not None else info.committed if stale_commit else None
        recreation = partial(DataLossError.of_recreated, by_checkpoint=not stale_commit)
        error = DataLossError.of_restored if is_behind(info, query.processed) else recreation
        raise error(topic=tp.topic, partition=tp.partition, finished=finished, log_end=info.high_watermark)
    return _Evidence(processed, committed, note, recreated, overwritten=stale_commit)


def _has_stale_commit(info: PartitionInfo) -> bool:
    """Return whether the group's offset belongs to another log."""
    return _is_of_another_log(info, info.committed_topic_id, info.committed_leader_epoch)


def _is_older_start(info: PartitionInfo, query: QueryInfo) -> bool:
    """Return whether the group's offset is a start that this query has decided again since, and read on from.

    The commit has no effect on the query, because it arrived late.  The query would take it for a reset.
    """
    note, processed = info.note, query.processed
    if note is None or processed is None or note.query_id != query.query_id or info.committed != note.since:
        return False
    return note.lineage < processed.lineage


def _is_of_another_log(info: PartitionInfo, topic_id: str | None, leader_epoch: LeaderEpoch | None) -> bool:
    """Return whether an offset belongs to a topic or to leader epochs that no longer exist."""
    return differ(topic_id, info.topic_id) or _is_ahead(info, topic_id, leader_epoch)


def _is_ahead(info: PartitionInfo, topic_id: str | None, leader_epoch: LeaderEpoch | None) -> bool:
    """Return whether an offset of this topic has a newer leader epoch than the leader that answered."""
    if topic_id is None or topic_id != info.topic_id or leader_epoch is None or info.leader_epoch is None:
        return False
    return leader_epoch > info.leader_epoch


def is_behind(info: PartitionInfo, *known: ProcessedOffset | PartitionEntry | None) -> bool:
    """Return whether the leader that answered is older than the group's offset, or than one that the query knows.

    Either the leader does not know its successor yet, or the cluster was restored from an older copy.  Only time shows
    which.
    """
    of_group = _is_ahead(info, info.committed_topic_id, info.committed_leader_epoch)
    return of_group or any(one is not None and _is_ahead(info, one.topic_id, one.leader_epoch) for one in known)


def _is_before_restore(info: PartitionInfo, processed: ProcessedOffset) -> bool:
    """Return whether the group's offset shows that the log was restored since the query has processed this offset.

    The leader epoch of the group's offset no longer exists.  If a query had begun the restored log anew before this one
    processed its offset, the offset would have a later lineage.
    """
    note = info.note
    if note is None or not _is_ahead(info, note.topic_id, info.committed_leader_epoch):
        return False
    return processed.lineage <= note.lineage


def _outgrown(info: PartitionInfo, processed: ProcessedOffset) -> bool:
    """Return whether a processed offset belongs to another log, if the broker or the checkpoint has no topic id.

    The committed offsets of a topic are deleted with it, and a new log is usually shorter.  So a processed offset
    above the end, without a committed offset, counts as one of a topic that was created again.
    """
    nameless = info.topic_id is None or processed.topic_id is None
    return nameless and info.committed is None and processed.offset > info.high_watermark


def _not_truncated(tp: TopicPartition, info: PartitionInfo, found: _Evidence, policy: StartPolicy) -> _Evidence:
    """Lower offsets that were truncated to the end of the log for their leader epoch (KIP-320)."""
    processed, committed, lost = found.processed, found.committed, None
    if processed is not None:
        end = _epoch_end(info, processed.leader_epoch)
        if processed.offset > end:
            lost = end, processed.offset
            processed = processed._replace(offset=end)
    too_high = False
    if committed is not None:
        end = _epoch_end(info, info.committed_leader_epoch)
        if committed > end:
            lost = (end, committed) if lost is None else (min(end, lost[0]), max(committed, lost[1]))
            committed, too_high = end, True
    if lost is not None and policy.fail_on_data_loss:
        raise _data_loss(tp, info, lost)
    return found._replace(processed=processed, committed=committed, lost=lost, too_high=too_high)


def _epoch_end(info: PartitionInfo, leader_epoch: LeaderEpoch | None) -> Offset:
    if leader_epoch is None:
        return info.high_watermark
    return min(info.high_watermark, info.epoch_ends.get(leader_epoch, info.high_watermark))


def _wanted(tp: TopicPartition, info: PartitionInfo, found: _Evidence, query: QueryInfo, policy: StartPolicy) -> Start:
    """Return the start that the offsets call for, even if it is outside the log."""
    processed, committed, note = found.processed, found.committed, found.note
    rewound = policy.keeps_offsets and _went_back(info, found, query)
    on_rewind = RewindPolicy.GROUP if _is_intended(info, found) else policy.on_rewind
    if rewound and on_rewind is RewindPolicy.FAIL:
        raise OffsetRewindError(
            topic=tp.topic,
            partition=tp.partition,
            group_id=policy.group_id,
            committed=committed,
            finished=None if processed is None else processed.offset,
            reset=None if info.reset is None else str(info.reset),
            previous=_set_back_from(info),
        )
    put_back = rewound and on_rewind is RewindPolicy.CHECKPOINT
    if processed is not None and not (rewound and on_rewind is RewindPolicy.GROUP):
        wanted = max(processed.offset, processed.offset if committed is None else committed)
        wanted = max(wanted, (_set_back_from(info) or wanted) if put_back else wanted)
    elif committed is not None:
        wanted = (_set_back_from(info) or committed) if put_back else committed
    elif found.recreated or put_back or (policy.keeps_offsets and _begins_anew(info, query)):
        wanted = info.log_start
    else:
        wanted = _first_position(tp, info, policy)
    if processed is not None and committed is None:
        # Without an offset to follow, a start after what the query has finished would leave out unread records.
        wanted = min(wanted, processed.offset)
    known_lineage, decided_by = (None, info.reset) if note is None else (note.lineage, note)
    if processed is not None and (put_back or found.overwritten or not policy.keeps_offsets):
        known_lineage, decided_by = processed.lineage, None  # it restores the group's offset, or there is no group
    initial = info.topic_partitions if info.initial_partition_count is None else info.initial_partition_count
    created_again = found.recreated and not is_behind(info, query.processed)
    if created_again or _begins_anew(info, query) or (put_back and not info.topic_started):
        initial = 0  # what the group has read is unknown, so the owners of other partitions begin at their beginning
    others, since, former = _taken_over(query, committed, note, wanted)
    if rewound:
        former = (Former(ANYBODY, wanted),)  # the former owners in the metadata no longer count
    return Start(
        position=wanted,
        committed=None if found.too_high else committed,
        durable_first=committed is None or found.too_high or (note is None and wanted == committed),
        note=CommitNote(
            query_id=query.query_id,
            topic_id=info.topic_id,
            cluster_id=info.cluster_id,
            initial_partition_count=initial,
            since=since,
            lineage=known_lineage or query.new_lineage,
            former=former,
            intended=decided_by is not None and decided_by.intended,
        ),
        others=others,
        lost=found.lost,
        rewound=rewound,
        recreated=found.recreated,
    )


def _went_back(info: PartitionInfo, found: _Evidence, query: QueryInfo) -> bool:
    """Return whether another program has reset or deleted the group's offset."""
    processed, committed, note = found.processed, found.committed, found.note
    if _set_back_from(info) is not None and (processed is not None or query.read_before):
        return True  # perhaps not below what this query has finished, but below what another query has
    if processed is None:
        # The group has lost the offsets of the whole topic: this partition's may be among them.
        lost = query.read_before and not info.topic_started and not info.added and not found.recreated
        return committed is None and lost
    if committed is None:
        return not found.overwritten
    # Deliberate: a commit of the same lineage is no reset.  A plain commit may arrive after a later one, and what this
    # query has finished counts.
    decided = note is None or processed.lineage != note.lineage
    return committed < processed.offset and decided


def _is_intended(info: PartitionInfo, found: _Evidence) -> bool:
    """Return whether the reset says that queries shall accept it, or the note of one that has accepted it says so."""
    if info.reset is not None:
        return info.reset.intended
    note, processed = found.note, found.processed
    return note is not None and note.intended and processed is not None and processed.lineage < note.lineage


def _set_back_from(info: PartitionInfo) -> Offset | None:
    """Return the group's offset before a reset to a lower one, if the reset has a note."""
    reset, committed = info.reset, info.committed
    if reset is None or reset.previous is None or committed is None or reset.previous <= committed:
        return None
    return reset.previous


def _begins_anew(info: PartitionInfo, query: QueryInfo) -> bool:
    """Return whether all partitions of this log without an offset start at their beginning."""
    return query.begins_anew or (info.topic_started and info.initial_partition_count == 0)


def _taken_over(
    query: QueryInfo, committed: Offset | None, note: CommitNote | None, wanted: Offset
) -> tuple[OffsetRange | None, Offset, tuple[Former, ...]]:
    """Return the range that others have processed recently, where this query takes over, and the former owners."""
    if committed is None:
        # No query is known to have committed below: the offset may have been deleted.
        return None, wanted, (Former(ANYBODY, wanted),) if wanted else ()
    if note is None:
        return OffsetRange(Offset(0), committed), committed, (Former(OUTSIDE, committed),)
    mine = note.formerly_committed_by(query.query_id)
    if note.query_id != query.query_id:
        return OffsetRange(min(mine, committed), committed), committed, note.handed_on(committed)
    until = min(note.since, committed)
    return OffsetRange(min(mine, until), until), until, note.former


def _first_position(tp: TopicPartition, info: PartitionInfo, policy: StartPolicy) -> Offset:
    initial = info.initial_partition_count
    added_later = info.added or (info.topic_started and (initial is None or tp.partition >= initial))
    time_ms = policy.times_ms.get(tp, None if added_later else policy.time_ms)
    if time_ms is not None:
        if info.at_time is None:
            return _end_at_time(tp, info, policy, time_ms)
        return max(info.at_time, info.log_start)  # the log start was requested later
    of_topic = StartingOffset.EARLIEST if added_later else policy.topics.get(tp.topic, policy.default)
    wanted = policy.explicit.get(tp, of_topic)
    if wanted is StartingOffset.EARLIEST:
        return info.log_start
    if wanted is StartingOffset.LATEST:
        return info.log_end
    return wanted


def _end_at_time(tp: TopicPartition, info: PartitionInfo, policy: StartPolicy, time_ms: int) -> Offset:
    if policy.no_match is NoMatch.LATEST:
        return info.log_end
    option = "startingTimestamp" if policy.time_ms is not None else "startingOffsetsByTimestamp"
    raise NoOffsetAtTimeError(topic=tp.topic, partition=tp.partition, time_ms=time_ms, option=option)


def _inside_the_log(
    tp: TopicPartition, info: PartitionInfo, start: Start, policy: StartPolicy, *, known: _Evidence
) -> Start:
    wanted = start.position
    if info.log_start <= wanted <= info.high_watermark:
        return replace(start, leader_epoch=info.leader_epoch)
    if wanted < info.log_start:
        lost, nearest = (wanted, info.log_start), info.log_start
    else:
        lost, nearest = (info.high_watermark, wanted), info.log_end
    if policy.fail_on_data_loss:
        if known.processed is None and known.committed is None:  # then only the user's offset can be outside
            raise DataLossError.of_start(
                topic=tp.topic,
                partition=tp.partition,
                offset=wanted,
                log_start=info.log_start,
                log_end=info.high_watermark,
            )
        raise _data_loss(tp, info, lost)
    return replace(
        start,
        position=nearest,
        committed=start.committed if nearest > wanted else None,
        durable_first=True,
        note=start.note._replace(since=nearest),
        leader_epoch=info.leader_epoch,
        lost=start.lost or lost,
    )


def _with_logged_batch(
    tp: TopicPartition, info: PartitionInfo, start: Start, logged: PartitionEntry | None, policy: StartPolicy
) -> Start:
    """Check whether the batch that Spark will run again would now read other records than before."""
    if logged is None or not logged.range.size or differ(logged.topic_id, info.topic_id):
        return start
    until, end = logged.range.until, _epoch_end(info, logged.leader_epoch)
    if _is_ahead(info, logged.topic_id, logged.leader_epoch):
        end = info.log_start
    if until <= end:
        return start
    lost = (max(end, logged.range.start), until)
    if policy.fail_on_data_loss:
        raise _data_loss(tp, info, lost)
    return replace(start, truncated_batch=True, lost=start.lost or lost)


def _data_loss(tp: TopicPartition, info: PartitionInfo, lost: tuple[Offset, Offset]) -> DataLossError:
    return DataLossError(
        topic=tp.topic,
        partition=tp.partition,
        lost_from=lost[0],
        lost_until=lost[1],
        log_start=info.log_start,
        log_end=info.high_watermark,
    )
