"""Offsets that went back, or that somebody has moved on over records that nobody read.

The rule is Burrow's: an offset that is lower than the one before is a rewind until the old offset is reached again.
It is looked at over the whole history, not over a window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark_kafka_group.tools.analysis.history import Entry, Move
from pyspark_kafka_group.wire.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """A committed offset went back.

    Attributes
    ----------
    entry : Entry
        The commit that went back.
    high : int
        The highest offset committed before.
    lowest : int
        The lowest one committed until ``high`` was reached again.
    ended : Move or None
        How the offset before it had ended, if that came first: with nothing committed, a reader begins anew.
    recovered_ms : int or None
        When ``high`` was reached again, in milliseconds since 1970; None if it was not.
    """

    entry: Entry
    high: int
    lowest: int
    ended: Move | None = None
    recovered_ms: int | None = None

    @property
    def tp(self) -> TopicPartition:
        """Of which partition."""
        return self.entry.tp

    @property
    def size(self) -> int:
        """How many offsets it went back at most."""
        return self.high - self.lowest


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A committed offset was moved on by nobody of the group, over what members would have read.

    Attributes
    ----------
    entry : Entry
        The commit that has moved it.
    """

    entry: Entry

    @property
    def tp(self) -> TopicPartition:
        """Of which partition."""
        return self.entry.tp

    @property
    def size(self) -> int:
        """How many offsets it went on."""
        return (self.entry.offset or 0) - (self.entry.previous or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A committed offset has ended, and there is none since: a reader begins where its ``startingOffsets`` say."""

    entry: Entry

    @property
    def tp(self) -> TopicPartition:
        """Of which partition."""
        return self.entry.tp


Finding = Rewind | Gap | Ended


class _Watch:
    """What is known of one partition on the way through its history."""

    def __init__(self) -> None:
        self.high: int | None = None
        self.open: Rewind | None = None
        self.ended: Entry | None = None
        self.by_member = False  # whether a member, or a query of this project, has made the last commit


def find(entries: Iterable[Entry]) -> list[Finding]:
    """Return what is found in a history, in the order in which it began.

    Parameters
    ----------
    entries : iterable of Entry
        The history of a group, whole.
    """
    watches: dict[TopicPartition, _Watch] = {}
    found: list[Finding] = []
    for entry in entries:
        watch = watches.setdefault(entry.tp, _Watch())
        if entry.offset is None:
            watch.ended = entry
            continue
        if entry.move is Move.RECREATED or _of_another_topic(watch, entry):
            if watch.open:
                found.append(watch.open)
            watch.high, watch.open = None, None
        found += _step(watch, entry, entry.offset)
        watch.ended, watch.by_member = None, entry.query_id is not None or entry.owner is not None
    for watch in watches.values():
        found += [watch.open] if watch.open else []
        if watch.ended and watch.ended.move is not Move.TOPIC_DELETED:  # of that one nobody can read anything
            found.append(Ended(entry=watch.ended))
    return sorted(found, key=lambda finding: finding.entry.log_offset or 0)


def _step(watch: _Watch, entry: Entry, offset: int) -> list[Finding]:
    done: list[Finding] = []
    if watch.high is None:
        watch.high = offset
        return done
    if watch.open is not None and offset >= watch.high:
        done.append(replace(watch.open, recovered_ms=entry.time_ms))
        watch.open = None
    elif watch.open is not None:
        watch.open = replace(watch.open, lowest=min(watch.open.lowest, offset))
    elif offset < watch.high:
        ended = watch.ended.move if watch.ended else None
        watch.open = Rewind(entry=entry, high=watch.high, lowest=offset, ended=ended)
    if entry.move is Move.FORTH and entry.by_nobody and watch.by_member:
        done.append(Gap(entry=entry))
    watch.high = max(watch.high, offset)
    return done


def _of_another_topic(watch: _Watch, entry: Entry) -> bool:
    ended = watch.ended
    return ended is not None and ended.move is Move.TOPIC_DELETED
