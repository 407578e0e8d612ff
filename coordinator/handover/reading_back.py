"""Read the group's offsets back, because a commit may arrive late.

A plain commit without an answer may reach the broker after a later one, and move the group's offset back.  So its
partitions stay in doubt as long as the member owns them.  The query reads their offsets back from time to time and
before they leave.  It commits them again if they have gone back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark_kafka_group.coordinator.handover.inputs import OffsetsReadBack, ReadBack
from pyspark_kafka_group.coordinator.handover.lifecycle import Lifecycle
from pyspark_kafka_group.coordinator.handover.outputs import Commit, FetchOffsets, Output, ScheduleRetry
from pyspark_kafka_group.coordinator.handover.state import Partition, State, in_flight
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition


def doubted_after(state: State, commit: Commit) -> Mapping[TopicPartition, Offset]:
    """Return the offsets in doubt after ``commit`` got no answer."""
    lowest = {tp: min(entry.offset, state.doubted.get(tp, entry.offset)) for tp, entry in commit.entries.items()}
    return {**state.doubted, **{tp: offset for tp, offset in lowest.items() if tp in state.owned}}


def begin(state: State, given: ReadBack) -> tuple[State, list[Output]]:
    """Begin to read the group's offsets, unless that is under way."""
    if state.reading or not given.partitions:
        return state, []
    return replace(state, reading=True), [FetchOffsets(given.partitions)]


def compare(state: State, given: OffsetsReadBack) -> tuple[State, list[Output]]:
    """Commit again offsets that have gone back."""
    state = replace(state, reading=False)
    if given.found is None:
        return replace(state, retry_pending=True), [ScheduleRetry()]
    outstanding = state.committing.entries if state.committing is not None else {}
    owned, doubted = dict(state.owned), dict(state.doubted)
    for tp, stored in given.found.items():
        p = owned.get(tp)
        if p is None or p.note is None or p.committed is None or tp in outstanding:
            continue
        if p.phase not in (Phase.ACTIVE, Phase.DRAINING):
            continue
        if stored is not None and _descends(stored.note, p.note):
            if not _is_same_log(stored.note, p.note) or _is_of_cut_records(stored, p):
                # A late commit of another log: the group has no offset of this log, not even its start.
                owned[tp] = p.stored(Offset(0) if p.committed else None)
                continue
            if stored.offset < p.committed:
                owned[tp] = p.stored(stored.offset)
                continue
        if _leaves(state, tp, p):  # otherwise another commit follows, and another read-back
            doubted.pop(tp, None)
    return replace(state, owned=owned, doubted=doubted), []


def confirm(state: State) -> tuple[State, list[Output]]:
    """End the doubt about partitions that have left, and read back those that are about to leave."""
    state = replace(state, doubted={tp: offset for tp, offset in state.doubted.items() if tp in state.owned})
    if state.committing is not None or state.retry_pending:
        return state, []
    asked = tuple(tp for tp in state.doubted if _leaves(state, tp, state.owned[tp]))
    return begin(state, ReadBack(asked))


def _leaves(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Return whether only the doubt keeps a partition here."""
    if p.committed is None or p.uncommitted or p.phase not in (Phase.ACTIVE, Phase.DRAINING):
        return False
    if state.lifecycle is Lifecycle.LEAVING:
        return True  # the batch in flight will never finish
    return (p.phase is Phase.DRAINING or state.ending) and not in_flight(state, tp, p)


def _descends(note: CommitNote | None, other: CommitNote) -> bool:
    """Return whether a commit is of the same query or lineage.  All others come from an owner after this one."""
    return note is not None and (note.query_id == other.query_id or note.lineage == other.lineage)


def _is_of_cut_records(stored: GroupOffset, p: Partition) -> bool:
    """Return whether the log was truncated after this commit of the query, and the query has finished less since."""
    note, mine = stored.note, p.note
    if note is None or mine is None or p.finished is None:
        return False
    return note.query_id == mine.query_id and stored.offset > p.finished


def _is_same_log(note: CommitNote | None, other: CommitNote) -> bool:
    return note is not None and not differ(note.topic_id, other.topic_id) and note.lineage == other.lineage
