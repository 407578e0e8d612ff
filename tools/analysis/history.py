"""The history of a group's offsets: each commit in the order of the log, who made it, and which way the offset went.

The log's order is the truth, also for commits in transactions: they come here only if their transaction was committed
(the reader has ``read_committed``), and a coordinator gives a partition the offset that stands last in the log,
whenever the transaction ended.

What the log does not have cannot be told: ``__consumer_offsets`` is compacted, so of times that are long past only the
last commit of each partition is left, and the membership of then may be unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.reset_note import ResetNote
from pyspark_kafka_group.tools.analysis.group_records import GroupRecord, OffsetCommit, OffsetTombstone, Undecodable
from pyspark_kafka_group.tools.analysis.membership import Membership, Owner
from pyspark_kafka_group.wire.types import TopicPartition

DEFAULT_RETENTION_S = 7 * 24 * 3600.0
"""How long Kafka keeps the offsets of a group that nobody uses, unless ``offsets.retention.minutes`` says otherwise."""


class Move(Enum):
    """Where a commit has moved an offset, or what ended it."""

    FIRST = "first"  # there was none, as far as the log goes
    FORTH = "forth"
    SAME = "same"
    BACK = "back"
    RECREATED = "recreated"  # the first of a topic that was deleted and created again: of another log
    DELETED = "deleted"  # by somebody, or with the group
    EXPIRED = "expired"  # by the coordinator, after the retention time
    TOPIC_DELETED = "topic_deleted"

    @property
    def ends(self) -> bool:
        """Whether there is no offset any more."""
        return self in (Move.DELETED, Move.EXPIRED, Move.TOPIC_DELETED)


class LoggedRecord(NamedTuple):
    """A record of the group's partition of ``__consumer_offsets``, where it stands there and when it was written."""

    log_offset: int
    time_ms: int
    record: GroupRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One step of the history of one partition.

    Attributes
    ----------
    log_offset : int or None
        Where the record stands in the group's partition of ``__consumer_offsets``; None if that was not read.
    time_ms : int
        When it was committed, or ended, in milliseconds since 1970.
    tp : TopicPartition
        Of which partition.
    move : Move
        Which way it went.
    previous : int or None
        The committed offset before; None if there was none.
    offset : int or None
        The committed offset; None if there is none any more.
    leader_epoch : int or None
        The leader epoch of the record before the offset.
    topic_id : str or None
        The id of the topic, from the record or from our metadata.
    query_id : str or None
        The query of this project that has committed, by the metadata.
    owner : Owner or None
        The member that had the partition, by the group's own records.
    member_count : int or None
        How many members the group had; None if the log does not tell any more.
    metadata : str
        What the committer wrote beside the offset.
    reset : ResetNote or None
        What ``kafka-group reset`` says of itself, if it has set the offset.
    """

    log_offset: int | None
    time_ms: int
    tp: TopicPartition
    move: Move
    previous: int | None
    offset: int | None
    leader_epoch: int | None = None
    topic_id: str | None = None
    query_id: str | None = None
    owner: Owner | None = None
    member_count: int | None = None
    metadata: str = ""
    reset: ResetNote | None = None

    @property
    def by_nobody(self) -> bool:
        """Whether no member can have done it: an operator's tool, or a program that commits without joining."""
        return self.query_id is None and self.owner is None and self.member_count == 0


class _Known(NamedTuple):
    offset: int
    time_ms: int
    expire_time_ms: int | None
    topic_id: str | None


class History:
    """Makes entries out of the records of one group.

    Parameters
    ----------
    topic_ids : mapping
        The id of each topic that there is today, by its name; None where brokers have no ids.
    retention_s : float
        ``offsets.retention.minutes`` of the brokers, in seconds.
    """

    def __init__(self, topic_ids: Mapping[str, str | None], *, retention_s: float = DEFAULT_RETENTION_S) -> None:
        self._topic_ids = topic_ids
        self._retention_ms = retention_s * 1000
        self._membership = Membership({topic_id: name for name, topic_id in topic_ids.items() if topic_id})
        self._last: dict[TopicPartition, _Known] = {}
        self.undecodable: list[LoggedRecord] = []
        """The records so far that could not be decoded."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a committed offset now."""
        return sorted(self._last)

    def entries(self, records: Iterable[LoggedRecord]) -> Iterator[Entry]:
        """Return an entry for each commit and each end of an offset.

        Parameters
        ----------
        records : iterable of LoggedRecord
            The records of the group, in the order of the log.
        """
        for logged in records:
            match logged.record:
                case OffsetCommit():
                    self._membership.apply(logged.record)
                    yield self._committed(logged, logged.record)
                case OffsetTombstone():
                    if logged.record.tp in self._last:  # else it says what an earlier one has said
                        yield self._ended(logged, logged.record.tp)
                case Undecodable():
                    self.undecodable.append(logged)
                case _:
                    self._membership.apply(logged.record)

    def _committed(self, logged: LoggedRecord, commit: OffsetCommit) -> Entry:
        note = CommitNote.decode(commit.metadata.rstrip("\0"))
        topic_id = commit.topic_id or (note.topic_id if note else None)
        before = self._last.get(commit.tp)
        # A commit without a topic id, as tools make them, does not make the log forget whose offsets came before.
        known_id = topic_id or (before.topic_id if before else None)
        self._last[commit.tp] = _Known(commit.offset, commit.commit_time_ms, commit.expire_time_ms, known_id)
        return Entry(
            log_offset=logged.log_offset,
            time_ms=commit.commit_time_ms,
            tp=commit.tp,
            move=_move(before, commit.offset, topic_id),
            previous=before.offset if before else None,
            offset=commit.offset,
            leader_epoch=commit.leader_epoch,
            topic_id=topic_id,
            query_id=note.query_id if note else None,
            owner=self._membership.owner(commit.tp),
            member_count=self._membership.count,
            metadata=commit.metadata,
            reset=ResetNote.decode(commit.metadata.rstrip("\0")) if note is None else None,
        )

    def _ended(self, logged: LoggedRecord, tp: TopicPartition) -> Entry:
        before = self._last.pop(tp)
        return Entry(
            log_offset=logged.log_offset,
            time_ms=logged.time_ms,
            tp=tp,
            move=self._why_ended(logged.time_ms, tp, before),
            previous=before.offset,
            offset=None,
            topic_id=before.topic_id,
            member_count=self._membership.count,
        )

    def _why_ended(self, time_ms: int, tp: TopicPartition, before: _Known) -> Move:
        if tp.topic not in self._topic_ids or differ(before.topic_id, self._topic_ids[tp.topic]):
            return Move.TOPIC_DELETED
        if before.expire_time_ms is not None:
            return Move.EXPIRED if time_ms >= before.expire_time_ms else Move.DELETED
        # Nothing expires earlier; somebody may delete later, and that cannot be told apart.
        return Move.EXPIRED if time_ms - before.time_ms >= self._retention_ms else Move.DELETED


def _move(before: _Known | None, offset: int, topic_id: str | None) -> Move:
    if before is None:
        return Move.FIRST
    if differ(before.topic_id, topic_id):
        return Move.RECREATED
    if offset == before.offset:
        return Move.SAME
    return Move.FORTH if offset > before.offset else Move.BACK


def only_partitions(entries: Iterable[Entry], wanted: Mapping[str, frozenset[int] | None]) -> Iterator[Entry]:
    """Return the entries of some partitions: the numbers by topic, None for all of it; of all if nothing is wanted."""
    for entry in entries:
        numbers = wanted.get(entry.tp.topic, frozenset())
        if not wanted or numbers is None or entry.tp.partition in numbers:
            yield entry


def merged(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Return the entries without commits of the same offset by the same committer, which only say "I am alive"."""
    said: dict[TopicPartition, Entry] = {}
    for entry in entries:
        if entry.move is Move.SAME and (last := said.get(entry.tp)) is not None and _same_committer(last, entry):
            continue
        said[entry.tp] = entry
        yield entry


def _same_committer(one: Entry, other: Entry) -> bool:
    return one.owner == other.owner and one.query_id == other.query_id
