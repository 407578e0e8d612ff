"""All that a member knows, as values that are never changed in place."""

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
"""Before the first assignment."""

_ACTIVE = Phase.ACTIVE  # Deliberate: to look a member of an enumeration up takes as long as all else in `plannable`.


class Position(NamedTuple):
    """Where the next batch may begin to read a partition.

    Attributes
    ----------
    epoch : OwnershipEpoch
        The assignment under which it is owned.
    offset : Offset
        The next offset.
    leader_epoch : LeaderEpoch or None
        One under which the log had everything below ``offset``.
    topic_id : str or None
        Of which log it is an offset.
    """

    epoch: OwnershipEpoch
    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    topic_id: str | None = None


class Partition(NamedTuple):
    """One owned partition.

    Deliberate: no dataclass.  There may be 10,000, each is made anew several times for each batch, and a frozen
    dataclass takes five times as long to copy.

    Attributes
    ----------
    epoch : OwnershipEpoch
        The assignment under which it is owned.
    position : Offset or None
        The next offset to plan; None while resolving.
    leader_epoch : LeaderEpoch or None
        One under which the log had everything below the position; None if it is not known.
    finished, committed : Offset or None
        Up to where Spark has finished it, and up to where the group has it committed.
    note : CommitNote or None
        Carried by each commit; None while resolving.
    fetching : bool
        Whether the cluster has been asked where it starts.
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
        """Whether the group does not have what is finished."""
        return self.finished is not None and (self.committed is None or self.finished > self.committed)

    @property
    def plannable(self) -> bool:
        """Whether a batch may read it from its position on."""
        return self.phase is _ACTIVE and self.position is not None

    @property
    def next(self) -> Position:
        """Where the next batch may begin to read it, if it is plannable."""
        assert self.position is not None
        return Position(self.epoch, self.position, self.leader_epoch, self.topic_id)

    @property
    def topic_id(self) -> str | None:
        """The id of the log that it is read from, as far as it is known."""
        return None if self.note is None else self.note.topic_id

    # Deliberate: not _replace, which takes three times as long.

    def planned(self, until: Offset, leader_epoch: LeaderEpoch | None) -> Partition:
        """Return the partition with everything before ``until`` planned."""
        return Partition(
            self.phase, self.epoch, until, leader_epoch, self.finished, self.committed, self.note, self.fetching
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
        """Return the partition with ``committed`` being what the group has; None if it has nothing."""
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
        What is read.
    epochs : mapping of TopicPartition to OwnershipEpoch
        Under which assignment each partition was planned; without one it was not ours (a replay).
    skipped : frozenset of TopicPartition
        What a replay does not read of the ranges that ``end`` has.
    """

    end: BatchOffset
    running: Mapping[TopicPartition, OffsetRange]
    epochs: Mapping[TopicPartition, OwnershipEpoch]
    skipped: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that a member knows.

    Attributes
    ----------
    query_id : str
        Names the query for its whole life; empty before :class:`Restored`.
    lifecycle : Lifecycle
        Where the membership stands.
    start : BatchOffset
        The end of the last batch that Spark had finished when the process began.
    unfinished : BatchOffset or None
        The end of the batch of Spark's log that is to run again; None once it has.
    taken : mapping of TopicPartition to OffsetRange
        What others have processed lately, of partitions that the unfinished batch may read.
    truncated : frozenset of TopicPartition
        Of what partitions the unfinished batch would read other records now than it did.
    markers : Markers
        The skips that are durable.
    rewinds : int
        How often a processed offset of the query has gone back.
    owned : mapping of TopicPartition to Partition
        What the group has given to this member.
    processed : mapping of TopicPartition to ProcessedOffset
        What the query knows of each partition, owned or not.
    deleted : frozenset of str
        Topics that do not exist any more, as far as it is known.
    refreshing : bool
        Whether the next commit has everything, also what is committed.
    doubted : mapping of TopicPartition to Offset
        The lowest offset of each partition that the group may still take from a commit without an answer: such a
        request can arrive after its successor.
    reading : bool
        Whether committed offsets are being read back.
    finished_batches : int
        How many batches Spark has finished.
    behind_since : int or None
        The value of ``finished_batches`` when the oldest was finished of what is not committed; None if all is.
    clean : bool
        Once the membership has been left: with nothing in flight and nothing uncommitted.
    """

    policy: StartPolicy
    query_id: str = ""
    lifecycle: Lifecycle = Lifecycle.RUNNING
    start: BatchOffset = INITIAL
    unfinished: BatchOffset | None = None
    taken: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    truncated: frozenset[TopicPartition] = frozenset()
    markers: Markers = field(default_factory=dict)
    rewinds: int = 0
    owned: Mapping[TopicPartition, Partition] = field(default_factory=dict)
    processed: Mapping[TopicPartition, ProcessedOffset] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()
    batch: Batch | None = None
    committing: Commit | None = None
    retry_pending: bool = False
    refreshing: bool = False
    doubted: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    reading: bool = False
    finished_batches: int = 0
    behind_since: int | None = None
    last_epoch: OwnershipEpoch = NO_EPOCH
    clean: bool = False

    @property
    def unsettled(self) -> bool:
        """Whether it is still open where some owned partition starts; those of deleted topics do not count."""
        return any(
            p.phase in (Phase.RESOLVING, Phase.STARTING) and tp.topic not in self.deleted
            for tp, p in self.owned.items()
        )

    @property
    def uncommitted(self) -> bool:
        """Whether something finished, of a partition that is still owned, is not committed."""
        return any(p.uncommitted for p in self.owned.values())

    @property
    def in_doubt(self) -> bool:
        """Whether the group's offset of some owned partition may still go back by a late commit."""
        return any(tp in self.doubted and p.committed is not None for tp, p in self.owned.items())

    @property
    def may_plan(self) -> bool:
        """Whether a batch may be planned: batch N+2 waits until N is committed."""
        return self.behind_since is None or self.behind_since >= self.finished_batches

    @property
    def ending(self) -> bool:
        """Whether no batch is planned any more."""
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
        return {tp: p.next for tp, p in self.owned.items() if p.plannable}


def updated(state: State, changed: Mapping[TopicPartition, Partition]) -> State:
    """Return the state with some owned partitions changed."""
    return replace(state, owned={**state.owned, **changed})


def moved(state: State, partitions: Iterable[TopicPartition], cause: Cause) -> State:
    """Return the state with some owned partitions in their next phase, or gone."""
    owned = dict(state.owned)
    for tp in partitions:
        phase = phase_after(owned[tp].phase, cause)
        if phase is None:
            del owned[tp]
        else:
            owned[tp] = owned[tp]._replace(phase=phase)
    return replace(state, owned=owned)


def busy(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Tell whether ``tp`` has something in flight under this epoch, or finished and not surely committed."""
    in_doubt = tp in state.doubted and p.committed is not None
    return in_doubt or p.uncommitted or (state.batch is not None and state.batch.epochs.get(tp) == p.epoch)


def in_flight(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Tell whether the batch in flight reads ``tp`` under this epoch."""
    return state.batch is not None and state.batch.epochs.get(tp) == p.epoch


def blocked(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Tell whether a batch or a commit of an earlier assignment is under way for ``tp``, and decides where to start."""
    batch, commit = state.batch, state.committing
    if batch is not None and tp in batch.running and batch.epochs.get(tp) != p.epoch:
        return True
    return commit is not None and tp in commit.entries and commit.entries[tp].epoch != p.epoch


def uncommitted_ranges(state: State, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
    """Return what of ``partitions`` the next owner may process again: in flight, or not committed."""
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
    """Return ``old`` raised to what is new; processed offsets of one log and lineage only rise."""
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
    """Tell whether a processed offset and another one, or a commit, are of two logs, or descend from two starts."""
    return one.lineage != other.lineage or differ(one.topic_id, other.topic_id)


def processed_at(entry: PartitionEntry, offset: Offset) -> ProcessedOffset:
    """Return an end of the range of ``entry`` as a processed offset."""
    return ProcessedOffset(offset, entry.leader_epoch, entry.topic_id, entry.lineage)
