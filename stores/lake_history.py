"""Finds the records whose rows a lake table had and has no longer, because the table was rolled back.  Pure.

Each commit of :class:`~pyspark_kafka_group.stores.LakeTable` notes the offsets that it covers in its own metadata.  A
rollback leaves the notes of the commits that it takes back, until the table's maintenance removes them.  So a record is
lost if a commit that was taken back covers it, and no commit that counts does.

Rows are not compared, because a query may leave out any record.  If notes are missing, fewer lost records are found,
and never too many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition

NOTE = "kafka-group.offsets"
"""The name of the note."""


class OffsetSpan(NamedTuple):
    """Offsets of a partition: ``[start, until)``."""

    start: int
    until: int


Spans = Mapping[TopicPartition, OffsetSpan]
"""The offsets that a batch may write, by partition."""

Lost = Mapping[TopicPartition, Sequence[OffsetSpan]]
"""The offsets whose rows are lost, in order."""


class TableCommit(NamedTuple):
    """A commit to a table.

    Attributes
    ----------
    spans : Spans
        The offsets that it covers; empty if it has no note.
    counts : bool
        Whether the table contains the commit.  False if a rollback has taken it back.
    """

    spans: Spans
    counts: bool


class Snapshot(NamedTuple):
    """A snapshot of an Iceberg table.

    Attributes
    ----------
    id, parent : int, int or None
        Its id, and that of the snapshot that it follows.
    note : str or None
        The note of its commit.
    added : bool
        Whether it has added rows.
    """

    id: int
    parent: int | None
    note: str | None
    added: bool


class Version(NamedTuple):
    """A version of a Delta table.

    Attributes
    ----------
    number : int
        Its number.
    time : datetime
        When it was committed.
    restored : int or datetime or None
        The version, or the time, to which this version has rolled the table back; None for others.
    note : str or None
        The note of its commit.
    added : bool
        Whether it has added rows.
    """

    number: int
    time: datetime
    restored: int | datetime | None
    note: str | None
    added: bool


def as_note(spans: Spans) -> str:
    """Return the note of a commit that covers these offsets."""
    by_topic: dict[str, dict[str, list[int]]] = {}
    for tp, span in sorted(spans.items()):
        by_topic.setdefault(tp.topic, {})[str(tp.partition)] = [*span]
    return json.dumps(by_topic, separators=(",", ":"))


def noted(note: str | None) -> Spans:
    """Return the offsets that a note names."""
    return {
        TopicPartition(topic, int(partition)): OffsetSpan(*span)
        for topic, partitions in json.loads(note or "{}").items()
        for partition, span in partitions.items()
    }


def of_snapshots(snapshots: Iterable[Snapshot], current: int | None) -> list[TableCommit]:
    """Return the commits to an Iceberg table whose newest snapshot is ``current``.

    Snapshots that do not descend from a known snapshot of the table are left out.  Perhaps the commits after the
    missing one have expired as well.
    """
    by_id = {snapshot.id: snapshot for snapshot in snapshots}
    counts: set[int] = set()
    at = current
    while at in by_id:
        counts.add(at)
        at = by_id[at].parent
    descends = dict.fromkeys(counts, True)

    def known(at: int | None) -> bool:
        path = []
        while at in by_id and at not in descends:
            path.append(at)
            at = by_id[at].parent
        answer = at in descends and descends[at]
        descends.update(dict.fromkeys(path, answer))
        return answer

    return [
        TableCommit(noted(snapshot.note), counts=snapshot.id in counts)
        for snapshot in by_id.values()
        if snapshot.id in counts or (snapshot.added and known(snapshot.id))
    ]


def restored_version(version: Version, versions: Iterable[Version]) -> int | None:
    """Return the number of the version to which a version has rolled the table back; None if it did not.

    For a time, this is the newest version then.  It is -1 if ``versions`` do not go back so far.
    """
    if not isinstance(version.restored, datetime):
        return version.restored
    then = [v.number for v in versions if v.number < version.number and v.time <= version.restored]
    return max(then, default=-1)


def of_versions(versions: Sequence[Version]) -> list[TableCommit]:
    """Return the commits to a Delta table.  Older ones may be missing."""
    by_number = {version.number: version for version in versions}
    counts: set[int] = set()
    at = max(by_number, default=-1)
    while at in by_number:
        counts.add(at)
        restored = restored_version(by_number[at], versions)
        at = at - 1 if restored is None else restored
    return [
        TableCommit(noted(version.note), counts=version.number in counts)
        for version in versions
        if version.number in counts or version.added
    ]


def lost(commits: Iterable[TableCommit]) -> Lost:
    """Return the offsets that only commits cover that a rollback has taken back."""
    found: dict[bool, dict[TopicPartition, list[OffsetSpan]]] = {True: {}, False: {}}
    for commit in commits:
        for tp, span in commit.spans.items():
            found[commit.counts].setdefault(tp, []).append(span)
    rests = {tp: _without(spans, found[True].get(tp, ())) for tp, spans in found[False].items()}
    return {tp: spans for tp, spans in rests.items() if spans}


def before(gone: Lost, spans: Spans) -> Lost:
    """Return the lost offsets below the offsets that a batch covers.  The group will not read them again."""
    found = {
        tp: [
            OffsetSpan(span.start, min(span.until, spans[tp].start))
            for span in gone[tp]
            if span.start < spans[tp].start
        ]
        for tp in gone.keys() & spans.keys()
    }
    return {tp: parts for tp, parts in found.items() if parts}


def _without(spans: Iterable[OffsetSpan], others: Iterable[OffsetSpan]) -> list[OffsetSpan]:
    """Return the offsets that are in ``spans`` and in none of ``others``, as few spans as possible."""
    left = list(spans)
    for other in others:
        parts = [
            part
            for span in left
            for part in (
                OffsetSpan(span.start, min(span.until, other.start)),
                OffsetSpan(max(span.start, other.until), span.until),
            )
        ]
        left = [part for part in parts if part.start < part.until]
    merged: list[OffsetSpan] = []
    for span in sorted(left):
        if merged and span.start <= merged[-1].until:
            merged[-1] = OffsetSpan(merged[-1].start, max(merged[-1].until, span.until))
        else:
            merged.append(span)
    return merged
