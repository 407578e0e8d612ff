"""The knowledge of a member, as values that are never changed in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pyspark_kafka_group.coordinator.handover.lifecycle import Lifecycle
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.coordinator.handover.transitions import Cause, Phase, phase_after
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.skip_markers import Markers
from pyspark_kafka_group.offsets.start_inputs import ProcessedOffset, StartPolicy
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, OwnershipEpoch, TopicPartition

NO_EPOCH = OwnershipEpoch(0)
"""The ownership epoch before the first assignment."""

_ACTIVE = Phase.ACTIVE  # Deliberate: to look up a member of an enumeration takes as long as the rest of `plannable`.


class Position(NamedTuple):
    """The offset at which the next batch may begin to read a partition.

    Attributes
    ----------
    epoch : OwnershipEpoch
        The assignment under which the member owns it.
    offset : Offset
        The next offset to read.
    leader_epoch : LeaderEpoch or None
        A leader epoch under which the log had everything below ``offset``; None if unknown.
    topic_id : str or None
        The id of the log that ``offset`` belongs to; None if unknown.
    """

    epoch: OwnershipEpoch
    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    topic_id: str | None = None


class Partition(NamedTuple):
    """One owned partition.

    Deliberate: not a dataclass.  There may be 10,000 partitions, each batch copies every one several times, and a
    frozen dataclass takes five times as long to copy.

    Attributes
    ----------
    phase : Phase
        How far it has come.
    epoch : OwnershipEpoch
        The assignment under which the member owns it.
    position : Offset or None
        The next offset to plan; None while resolving.
    leader_epoch : LeaderEpoch or None
        A leader epoch under which the log had everything below the position; None if unknown.
    finished, committed : Offset or None
        The next offset after what Spark has finished, and the group's committed offset.
    note : CommitNote or None
        The metadata of each commit; None while resolving.
    fetching : bool
        Whether the query has asked the cluster where it starts.
    """

    phase: Phase
    epoch: OwnershipEpoch
    position: Offset | None = None
    leader_epoch: LeaderEpoch | None = None
    finished: Offset | None = None
    committed: Offset | None = None
    note: CommitNote | None = None
    fetching: bool = False

    @property
    def uncommitted(self) -> bool:
        """Whether Spark has finished offsets that are not committed."""
        return self.finished is not None and (self.committed is None or self.finished > self.committed)

    @property
    def plannable(self) -> bool:
        """Whether a batch may read it from its position on."""
        return self.phase is _ACTIVE and self.position is not None

    @property
    def topic_id(self) -> str | None:
        """The id of the log that it is read from; None if unknown."""
        return None if self.note is None else self.note.topic_id

    # Deliberate: not _replace, which takes three times as long.

    def planned(self, until: Offset, leader_epoch: LeaderEpoch | None) -> Partition:
        """Return the partition with everything before ``until`` planned."""
        return Partition(
            self.phase,
            self.epoch,
            until,
            leader_epoch,
            self.finished,
            self.committed,
            self.note,
            self.fetching,
        )

    def done(self, until: Offset) -> Partition:
        """Return the partition with everything before ``until`` finished."""
        return Partition(
            self.phase,
            self.epoch,
            self.position,
            self.leader_epoch,
            until if self.finished is None or until > self.finished else self.finished,
            self.committed,
            self.note,
            self.fetching,
        )

    def stored(self, committed: Offset | None) -> Partition:
        """Return the partition with ``committed`` as the group's offset; None without one."""
        return Partition(
            self.phase,
            self.epoch,
            self.position,
            self.leader_epoch,
            self.finished,
            committed,
            self.note,
            self.fetching,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The batch in flight.

    Attributes
    ----------
    end : BatchOffset
        Its end offset, as Spark logs it.
    running : mapping of TopicPartition to OffsetRange
        The ranges that it reads.
    epochs : mapping of TopicPartition to OwnershipEpoch
        The assignment under which each partition was planned.  A replay also reads partitions without one, which the
        member does not own.
    skipped : frozenset of TopicPartition
        The partitions of ``end`` that a replay does not read.
    """

    end: BatchOffset
    running: Mapping[TopicPartition, OffsetRange]
    epochs: Mapping[TopicPartition, OwnershipEpoch]
    skipped: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The knowledge of a member.

    Attributes
    ----------
    query_id : str
        The id of the query, for its whole life; empty before :class:`Restored`.
    lifecycle : Lifecycle
        How far the membership has come.
    start : BatchOffset
        The end of the last batch that Spark had finished when the process began.
    unfinished : BatchOffset or None
        The end of the logged batch that Spark has to run again; None after that.
    taken : mapping of TopicPartition to OffsetRange
        The ranges that others have processed recently, of partitions that the unfinished batch may read.
    truncated : frozenset of TopicPartition
        The partitions of which the unfinished batch would now read other records than before.
    markers : Markers
        The durable skips.
    unstored : Markers
        The skips that are being made durable.  They may be durable already, if a request got no answer.
    begun_anew : mapping of str to str or None
        The id of each topic that this process has begun anew, because the topic was created again.
    rewinds : int
        How often a processed offset of the query has gone back.
    first_topics : tuple of str
        The topics that existed at the first start of the query, and that it had not started then.
    owned : mapping of TopicPartition to Partition
        The partitions that the group has assigned to this member.
    processed : mapping of TopicPartition to ProcessedOffset
        The processed offset of each partition, owned or not.
    deleted : frozenset of TopicPartition
        The partitions that no longer exist, as far as the query has learned.
    doubted : mapping of TopicPartition to Offset
        The lowest offset of each partition that the group may still take from a commit without an answer.  Such a
        request can arrive after a later one.
    reading : bool
        Whether committed offsets are being read back.
    finished_batches : int
        The number of batches that Spark has finished.
    behind_since : int or None
        The value of ``finished_batches`` when the oldest batch was finished that is not committed; None if all are.
    clean : bool
        Whether the member left with nothing in flight and nothing uncommitted.
    """

    policy: StartPolicy
    query_id: str = ""
    lifecycle: Lifecycle = Lifecycle.RUNNING
    start: BatchOffset = INITIAL
    unfinished: BatchOffset | None = None
    taken: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    truncated: frozenset[TopicPartition] = frozenset()
    markers: Markers = field(default_factory=dict)
    unstored: Markers = field(default_factory=dict)
    begun_anew: Mapping[str, str | None] = field(default_factory=dict)
    rewinds: int = 0
    first_topics: tuple[str, ...] = ()
    owned: Mapping[TopicPartition, Partition] = field(default_factory=dict)
    processed: Mapping[TopicPartition, ProcessedOffset] = field(default_factory=dict)
    deleted: frozenset[TopicPartition] = frozenset()
    batch: Batch | None = None
    committing: Commit | None = None
    retry_pending: bool = False
    doubted: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    reading: bool = False
    finished_batches: int = 0
    behind_since: int | None = None
    last_epoch: OwnershipEpoch = NO_EPOCH
    clean: bool = False

    @property
    def unsettled(self) -> bool:
        """Whether an owned partition has no start yet.  Deleted ones do not count."""
        return any(
            p.phase in (Phase.RESOLVING, Phase.STARTING) and tp not in self.deleted for tp, p in self.owned.items()
        )

    @property
    def uncommitted(self) -> bool:
        """Whether Spark has finished offsets of an owned partition that are not committed."""
        return any(p.uncommitted for p in self.owned.values())

    @property
    def in_doubt(self) -> bool:
        """Whether a late commit may still move the group's offset of an owned partition back."""
        return any(tp in self.doubted and p.committed is not None for tp, p in self.owned.items())

    @property
    def may_plan(self) -> bool:
        """Whether commits allow another batch: batch N+2 waits until N is committed."""
        return self.behind_since is None or self.behind_since >= self.finished_batches

    @property
    def ending(self) -> bool:
        """Whether the membership is ending, so that no batch is planned."""
        return self.lifecycle is not Lifecycle.RUNNING

    @property
    def plans(self) -> bool:
        """Whether a batch may be planned now."""
        return self.may_plan and not self.ending

    def known_leader_epochs(self, tp: TopicPartition) -> set[LeaderEpoch]:
        """Return the leader epochs under which this query knows offsets of ``tp``."""
        processed = self.processed.get(tp)
        logged = None if self.unfinished is None else self.unfinished.entries.get(tp)
        epochs = (processed and processed.leader_epoch, logged and logged.leader_epoch)
        return {epoch for epoch in epochs if epoch is not None}

    def plannable(self) -> dict[TopicPartition, Position]:
        """Return the position of every partition that the next batch may read."""
        if not self.plans:
            return {}
        # Deliberate: not `p.topic_id`.  With 10,000 partitions, each call of a property takes a millisecond.
        return {
            tp: Position(p.epoch, at, p.leader_epoch, None if p.note is None else p.note.topic_id)
            for tp, p in self.owned.items()
            if p.plannable and (at := p.position) is not None
        }


def updated(state: State, changed: Mapping[TopicPartition, Partition]) -> State:
    """Return the state with some owned partitions changed."""
    return replace(state, owned={**state.owned, **changed})


def moved(state: State, partitions: Iterable[TopicPartition], cause: Cause) -> State:
    """Return the state with some owned partitions in their next phase, or removed."""
    owned = dict(state.owned)
    for tp in partitions:
        phase = phase_after(owned[tp].phase, cause)
        if phase is None:
            del owned[tp]
        else:
            owned[tp] = owned[tp]._replace(phase=phase)
    return replace(state, owned=owned)


def busy(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Return whether ``tp`` is in flight under this epoch, or finished and not surely committed."""
    in_doubt = tp in state.doubted and p.committed is not None
    return in_doubt or p.uncommitted or (state.batch is not None and state.batch.epochs.get(tp) == p.epoch)


def in_flight(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Return whether the batch in flight reads ``tp`` under this epoch."""
    return state.batch is not None and state.batch.epochs.get(tp) == p.epoch


def blocked(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Return whether a batch or a commit of an earlier assignment is under way, which decides where ``tp`` starts."""
    batch, commit = state.batch, state.committing
    if batch is not None and tp in batch.running and batch.epochs.get(tp) != p.epoch:
        return True
    return commit is not None and tp in commit.entries and commit.entries[tp].epoch != p.epoch


def uncommitted_ranges(state: State, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges of ``partitions`` that the next owner may process again: in flight, or not committed."""
    ranges = {}
    for tp in partitions:
        p = state.owned[tp]
        if p.finished is None:
            continue
        end = p.finished
        if state.batch is not None and state.batch.epochs.get(tp) == p.epoch:
            end = state.batch.running[tp].until
        start = p.finished if p.committed is None else p.committed
        start = min(start, state.doubted.get(tp, start))
        if start < end:
            ranges[tp] = OffsetRange(start, end)
    return ranges


def raised(old: ProcessedOffset | None, new: ProcessedOffset) -> ProcessedOffset:
    """Return ``old`` raised to ``new``.  Processed offsets of one log and lineage only rise."""
    if old is None:
        return new
    same = new.topic_id == old.topic_id and new.lineage == old.lineage
    if same and new.offset >= old.offset and new.leader_epoch is not None:
        return new  # the most common case, for up to 10,000 partitions at a time
    if unrelated(old, new):
        return new
    if new.offset < old.offset:
        return old
    leader_epoch = new.leader_epoch
    if new.offset == old.offset and leader_epoch is None:
        leader_epoch = old.leader_epoch
    return ProcessedOffset(
        new.offset, leader_epoch, old.topic_id if new.topic_id is None else new.topic_id, new.lineage
    )


def unrelated(one: ProcessedOffset, other: ProcessedOffset | CommitNote) -> bool:
    """Return whether two offsets belong to different logs, or descend from different starts."""
    return one.lineage != other.lineage or differ(one.topic_id, other.topic_id)


def processed_at(entry: PartitionEntry, offset: Offset) -> ProcessedOffset:
    """Return ``offset``, an end of the range of ``entry``, as a processed offset."""
    return ProcessedOffset(offset, entry.leader_epoch, entry.topic_id, entry.lineage)
