"""The notes that this project keeps in the metadata of committed offsets, as JSON with a version.

The kind of a note shows in one key:

==============  ===================================================================================================
key             note
==============  ===================================================================================================
``q``           :class:`~pyspark_kafka_group.offsets.commit_metadata.CommitNote`: a query has committed
``m``           :class:`SkipNote`: a restarted query has left ranges to other members
``reset``       :class:`ResetNote`: an operator has set the offset with ``kafka-group reset``
``bookmark``    :class:`BookmarkNote`: a bookmark has committed
==============  ===================================================================================================

Other programs write other metadata, or none.  A query treats an offset without a commit note as an operator's decision.
It does the same if the note names another cluster: MirrorMaker 2 translates offsets, but copies their metadata.

A note of a newer version is refused.  It must not look like the metadata of another program, which means something
else: a reset, or a batch that has skipped nothing.  So a version rises only if older versions would read the notes
wrongly.  Otherwise a note gets another key, which they ignore: during an upgrade, two versions share a group.  Every
version keeps the outline by which :func:`read` tells a note from the JSON of another program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.skip_markers import SkipMarker
from pyspark_kafka_group.offsets.types import LARGEST_NUMBER, Offset, OffsetRange, TopicPartition, printable

VERSION = 1

_LONGEST_NAME = 200
"""Brokers allow 4096 bytes of metadata, and a character may take six in JSON."""

_YEAR_10000_MS = 253_402_300_800_000
"""The first time that Python's dates do not have, in milliseconds since 1970."""


class ResetNote(NamedTuple):
    """The note of a reset.

    ``{"v": 1, "reset": {"by": "alice@laptop", "at": 1767225600000, "from": 100}}``, and ``"intended": true`` if it is.

    Attributes
    ----------
    by : str
        The operator: a user and a machine.
    time_ms : int
        The time of the reset, in milliseconds since 1970, by that machine's clock.
    previous : Offset or None
        The offset that was committed before; None if there was none.
    intended : bool
        Whether queries shall accept it, each once, whatever their ``onOffsetRewind``.  The first one replaces the note
        by that of its own commit, which hands this on.
    """

    by: str
    time_ms: int
    previous: Offset | None
    intended: bool = False

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        reset = {"by": self.by[:_LONGEST_NAME], "at": self.time_ms, "from": self.previous}
        if self.intended:
            reset["intended"] = True
        return _text({"reset": reset})

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ResetNote:
        """Return the note of a document; an error of its types for one that is damaged."""
        reset = document["reset"]
        by, time_ms, previous = reset["by"], reset["at"], reset.get("from")
        if not isinstance(by, str) or type(time_ms) is not int or not 0 <= time_ms < _YEAR_10000_MS:
            raise TypeError
        before = Offset(previous) if type(previous) is int and previous >= 0 else None
        return cls(by, time_ms, before, reset.get("intended") is True)

    @property
    def time(self) -> str:
        """The time of the reset as a text for people."""
        return datetime.fromtimestamp(self.time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    def __str__(self) -> str:
        before = "there was none before" if self.previous is None else f"it was {self.previous} before"
        return f"{printable(self.by)} set it with 'kafka-group' at {self.time}; {before}"


class BookmarkNote(NamedTuple):
    """The note of an offset that a bookmark has committed.

    ``{"v": 1, "bookmark": {"t": "<topic id>", "n": 6, "e": 4, "c": "<cluster id>"}}``.  A bookmark commits all
    partitions at once.  So a partition below ``n`` without an offset has lost it, and any other partition was added
    later.

    Attributes
    ----------
    topic_id : str or None
        The id of the topic (KIP-516) whose log the offset belongs to; None if the broker has no ids.
    partition_count : int
        The number of partitions of the topic.
    leader_epoch : int or None
        The epoch of the leader when the range was planned; None if unknown.  No record before the offset has a later
        one.  It is here because a commit that never expires has no field for it.
    cluster_id : str or None
        The id of the cluster; None if the brokers have none.
    """

    topic_id: str | None
    partition_count: int
    leader_epoch: int | None = None
    cluster_id: str | None = None

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        cluster = {} if self.cluster_id is None else {"c": self.cluster_id}
        return _text({"bookmark": {"t": self.topic_id, "n": self.partition_count, "e": self.leader_epoch, **cluster}})

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> BookmarkNote:
        """Return the note of a document; an error of its types for one that is damaged."""
        bookmark = document["bookmark"]
        topic_id, count, epoch = bookmark.get("t"), bookmark["n"], bookmark.get("e")
        if type(count) is not int:
            raise TypeError
        known = type(epoch) is int and 0 <= epoch <= LARGEST_NUMBER
        ids = (one if isinstance(one, str) else None for one in (topic_id, bookmark.get("c")))
        return cls(next(ids), count, epoch if known else None, next(ids))


class SkipNote(NamedTuple):
    """The note in the companion group of a query: the skip markers of one partition.

    ``{"v": 1, "m": [[100, 160, 2]]}``: the start and the end of a range, and the rewinds of its batch.
    """

    markers: tuple[SkipMarker, ...]

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        return _text({"m": [[marker.range.start, marker.range.until, marker.rewinds] for marker in self.markers]})

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SkipNote:
        """Return the note of a document; an error of its types for one that is damaged."""
        return cls(tuple(SkipMarker(OffsetRange.checked(start, until), n) for start, until, n in document["m"]))


Note = CommitNote | SkipNote | ResetNote | BookmarkNote


def read(metadata: str | None, tp: TopicPartition | None = None, cluster_id: str | None = None) -> Note | None:
    """Return the note in the metadata of a committed offset; None if another program wrote the metadata, or damaged it.

    Parameters
    ----------
    metadata : str or None
        The metadata.
    tp : TopicPartition, optional
        The partition, for the error.
    cluster_id : str, optional
        The id of the cluster.  None is also returned for the note of a commit to another one.

    Raises
    ------
    OffsetFormatError
        If a newer version of this project has written the note.
    """
    if not metadata:
        return None
    try:
        document = json.loads(metadata)
    except (ValueError, RecursionError):
        return None
    read_kind = _reader(document)
    if read_kind is None:
        return None
    version = document.get("v")
    if type(version) is int and version > VERSION:
        which = "a committed offset" if tp is None else f"the committed offset of {tp}"
        raise OffsetFormatError(
            f"its format version is {version}, not {VERSION}.",
            "A newer version of pyspark-kafka-group wrote it. Use that version here, too.",
            what=f"The metadata of {which}",
        )
    try:
        note = read_kind(document) if version == VERSION else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    foreign = isinstance(note, CommitNote | BookmarkNote) and differ(note.cluster_id, cluster_id)
    return None if foreign else note


def read_commit(
    metadata: str | None, tp: TopicPartition | None = None, cluster_id: str | None = None
) -> CommitNote | None:
    """Return the note of a query's commit; None for all other metadata.  Raises as :func:`read`."""
    note = read(metadata, tp, cluster_id)
    return note if isinstance(note, CommitNote) else None


def _reader(document: Any) -> Callable[[Mapping[str, Any]], Note] | None:
    """Return what reads a note of this outline; None for the JSON of another program."""
    match document:
        case {"q": str(), "l": str()}:
            return CommitNote.of
        case {"m": [*ranges]} if all(isinstance(one, list) for one in ranges):
            return SkipNote.of
        case {"reset": dict()}:
            return ResetNote.of
        case {"bookmark": dict()}:
            return BookmarkNote.of
    return None


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps({"v": VERSION, **document}, separators=(",", ":"))
