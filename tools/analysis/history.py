"""The history of a group's offsets: each commit in the order of the log, who made it, and which way the offset moved.

Only committed transactions are in it, because the reader has ``read_committed``.  The order of the log decides: a
coordinator takes the offset that is last in the log, whenever its transaction ended.

``__consumer_offsets`` is compacted.  Of older times only the last commit of each partition is left, and the members of
that time may be unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.notes import BookmarkNote, ResetNote
from pyspark_kafka_group.tools.analysis.group_records import (
    CommitRecord,
    CommitTombstone,
    LoggedRecord,
    UndecodableRecord,
)
from pyspark_kafka_group.tools.analysis.group_view import GroupView, shown_note
from pyspark_kafka_group.tools.analysis.membership import LoggedMembers, Owner
from pyspark_kafka_group.tools.analysis.offsets_topic import read_group
from pyspark_kafka_group.wire.types import TopicPartition

DEFAULT_RETENTION_S = 7 * 24 * 3600.0
"""Kafka's default of ``offsets.retention.minutes``, in seconds."""


class Move(Enum):
    """How a commit has moved an offset, or why the offset ended."""

    FIRST = "first"  # no earlier one in the log
    FORTH = "forth"
    SAME = "same"
    BACK = "back"
    RECREATED = "recreated"  # the first one of a topic that was deleted and created again
    DELETED = "deleted"  # by a user, alone or with the group
    EXPIRED = "expired"  # by the coordinator, after the retention time
    TOPIC_DELETED = "topic_deleted"

    @property
    def ends(self) -> bool:
        """Whether the committed offset has ended."""
        return self in (Move.DELETED, Move.EXPIRED, Move.TOPIC_DELETED)

    @classmethod
    def between(cls, previous: int | None, offset: int) -> Move:
        """Return the move from one committed offset to the next."""
        if previous is None:
            return cls.FIRST
        if offset == previous:
            return cls.SAME
        return cls.FORTH if offset > previous else cls.BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One step of the history of one partition.

    Attributes
    ----------
    log_offset : int or None
        Offset of the record in the group's partition of ``__consumer_offsets``; None if it was polled.
    time_ms : int
        Time of the commit or of the end, in milliseconds since 1970.
    tp : TopicPartition
        The partition.
    move : Move
        How the offset has moved.
    previous : int or None
        The committed offset before; None if there was none.
    offset : int or None
        The committed offset; None if it has ended.
    leader_epoch : int or None
        The leader epoch of the record before the offset.
    topic_id : str or None
        The topic id, from the record or from the metadata of this project.
    query_id : str or None
        The query of this project that committed, from the metadata.
    owner : Owner or None
        The member that owned the partition, from the group's records.
    by_bookmark : bool
        Whether a bookmark has committed, from the metadata.
    member_count : int or None
        The number of members at that time; None if unknown.
    metadata : str
        The metadata of the commit.
    reset : ResetNote or None
        The note of ``kafka-group reset``, if it has set the offset.
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
    by_bookmark: bool = False
    member_count: int | None = None
    metadata: str = ""
    reset: ResetNote | None = None

    @classmethod
    def of_commit(cls, metadata: str, *, topic_id: str | None, **fields: Any) -> Entry:
        """Return the entry of a commit, with the facts of its metadata."""
        note = shown_note(metadata.rstrip("\0"))
        noted = note.topic_id if isinstance(note, CommitNote | BookmarkNote) else None
        return cls(
            metadata=metadata,
            topic_id=topic_id or noted,
            query_id=note.query_id if isinstance(note, CommitNote) else None,
            by_bookmark=isinstance(note, BookmarkNote),
            reset=note if isinstance(note, ResetNote) else None,
            **fields,
        )

    @property
    def by_outsider(self) -> bool:
        """Whether the committer was no member: an operator's tool, or a program that commits without joining.

        A bookmark never joins, but it commits what it has read.
        """
        return self.member_count == 0 and not self.by_reader

    @property
    def by_reader(self) -> bool:
        """Whether a member or a bookmark has committed."""
        return self.query_id is not None or self.owner is not None or self.by_bookmark


class _LastCommit(NamedTuple):
    offset: int
    time_ms: int
    expire_time_ms: int | None
    topic_id: str | None


class History:
    """Makes entries from the records of one group.

    Parameters
    ----------
    topic_ids : mapping
        The id of each topic that exists today, by name; None where brokers have no ids.
    retention_s : float
        ``offsets.retention.minutes`` of the brokers, in seconds.
    """

    def __init__(self, topic_ids: Mapping[str, str | None], *, retention_s: float = DEFAULT_RETENTION_S) -> None:
        self._topic_ids = topic_ids
        self._retention_ms = retention_s * 1000
        self._members = LoggedMembers({topic_id: name for name, topic_id in topic_ids.items() if topic_id})
        self._last: dict[TopicPartition, _LastCommit] = {}
        self.undecodable: list[LoggedRecord] = []
        """The records so far that could not be decoded."""

    def entries(self, records: Iterable[LoggedRecord]) -> Iterator[Entry]:
        """Return an entry for each commit and each end of an offset.

        Parameters
        ----------
        records : iterable of LoggedRecord
            The records of the group, in the order of the log.
        """
        for logged in records:
            match logged.record:
                case CommitRecord() as commit:
                    self._members.apply(commit)
                    yield self._committed(logged.log_offset, commit)
                case CommitTombstone(tp=tp):
                    if tp in self._last:  # otherwise an earlier one has said the same
                        yield self._ended(logged, tp)
                case UndecodableRecord():
                    self.undecodable.append(logged)
                case other:
                    self._members.apply(other)

    def _committed(self, log_offset: int, commit: CommitRecord) -> Entry:
        before = self._last.get(commit.tp)
        entry = Entry.of_commit(
            commit.metadata,
            topic_id=commit.topic_id,
            log_offset=log_offset,
            time_ms=commit.commit_time_ms,
            tp=commit.tp,
            move=Move.between(before.offset if before else None, commit.offset),
            previous=before.offset if before else None,
            offset=commit.offset,
            leader_epoch=commit.leader_epoch,
            owner=self._members.owner(commit.tp),
            member_count=self._members.count,
        )
        # Tools commit without a topic id.  The log still knows which topic the offsets before belong to.
        known_id = entry.topic_id or (before.topic_id if before else None)
        self._last[commit.tp] = _LastCommit(commit.offset, commit.commit_time_ms, commit.expire_time_ms, known_id)
        recreated = before is not None and differ(before.topic_id, entry.topic_id)
        return replace(entry, move=Move.RECREATED) if recreated else entry

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
            member_count=self._members.count,
        )

    def _why_ended(self, time_ms: int, tp: TopicPartition, before: _LastCommit) -> Move:
        if tp.topic not in self._topic_ids or differ(before.topic_id, self._topic_ids[tp.topic]):
            return Move.TOPIC_DELETED
        if before.expire_time_ms is not None:
            return Move.EXPIRED if time_ms >= before.expire_time_ms else Move.DELETED
        # Nothing expires earlier.  After that time, a deletion looks like an expiry.
        return Move.EXPIRED if time_ms - before.time_ms >= self._retention_ms else Move.DELETED


def read_history(
    inspection: Cluster,
    properties: Properties,
    group: str,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[Entry]:
    """Return the history of a group.  This asks the cluster at once, and reads the log as you take the entries.

    Parameters
    ----------
    inspection : Cluster
        Asks the cluster.
    properties : mapping
        Properties of the connection, as librdkafka names them.
    group : str
        The group.
    warn : callable
        Takes a text that says why the history is less certain.

    Raises
    ------
    OffsetsTopicUnreadableError
        If the offsets topic cannot be read.
    OffsetsTopicHeldBackError
        After the last entry, if an open transaction hides later commits.
    TryAgainError
        If the cluster does not answer.
    """
    settings = inspection.broker_settings(*inspection.coordinator(group)) or {}
    topic_ids = {name: info.topic_id for name, info in inspection.all_topics().items()}
    minutes = settings.get("offsets.retention.minutes", "")

    def entries() -> Iterator[Entry]:
        if not minutes.isdecimal():
            warn("this user may not see offsets.retention.minutes. 7 days are assumed, to tell expired from deleted.")
        retention_s = int(minutes) * 60.0 if minutes.isdecimal() else DEFAULT_RETENTION_S
        history = History(topic_ids, retention_s=retention_s)
        yield from history.entries(read_group(properties, group))
        for logged in history.undecodable[:3]:
            warn(f"a record of the group, at {logged.log_offset}, cannot be decoded: {logged.record[0]}")
        if len(history.undecodable) > 3:
            warn(f"{len(history.undecodable) - 3} more records cannot be decoded.")

    return entries()


def changes(before: GroupView | None, view: GroupView, *, time_ms: int) -> Iterator[Entry]:
    """Return how offsets have changed between two polls of a group; for the first poll, the offsets that it has.

    Parameters
    ----------
    before : GroupView or None
        The poll before.
    view : GroupView
        This poll.
    time_ms : int
        The time of this poll, in milliseconds since 1970.
    """
    old = {part.tp: part for part in before.partitions if part.committed_offset is not None} if before else {}
    new = {part.tp: part for part in view.partitions if part.committed_offset is not None}
    common: dict[str, Any] = {"log_offset": None, "time_ms": time_ms, "member_count": len(view.description.members)}
    for tp in sorted({*old, *new}):
        last, part = old.get(tp), new.get(tp)
        previous = last.committed_offset if last else None
        if part is None or part.committed_offset is None:
            yield Entry(tp=tp, move=Move.DELETED, previous=previous, offset=None, **common)
        elif last is None or (last.committed_offset, last.metadata) != (part.committed_offset, part.metadata):
            owner = part.owner
            yield Entry.of_commit(
                part.metadata or "",
                topic_id=None,
                tp=tp,
                move=Move.between(previous, part.committed_offset),
                previous=previous,
                offset=part.committed_offset,
                leader_epoch=part.leader_epoch,
                owner=Owner(owner.member_id, owner.client_id, owner.host) if owner else None,
                **common,
            )


def merged(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Return the entries without repeated commits of one offset by one committer."""
    latest: dict[TopicPartition, Entry] = {}
    for entry in entries:
        last = latest.get(entry.tp)
        same = last is not None and (last.owner, last.query_id) == (entry.owner, entry.query_id)
        if entry.move is Move.SAME and same:
            continue
        latest[entry.tp] = entry
        yield entry
