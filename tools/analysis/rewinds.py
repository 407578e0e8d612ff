"""Finds offsets that went back, that an outsider moved over unread records, or that have ended.

The rule for rewinds is Burrow's: an offset that is lower than the one before is a rewind until the group reaches the
old offset again.  Burrow looks at a window of commits, this module at the whole history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark_kafka_group.tools.analysis.history import Entry, Move
from pyspark_kafka_group.wire.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """A committed offset that went back.

    Attributes
    ----------
    entry : Entry
        The commit that went back.
    high : int
        The offset committed before.
    lowest : int
        The lowest offset committed until the group reached ``high`` again.
    again_ms : int or None
        When the offset last went back further before that, in milliseconds since 1970; None if it has not.
    ended : Move or None
        How the offset before it had ended, if it had.  Then a reader started without a committed offset.
    recovered_ms : int or None
        When the group reached ``high`` again, in milliseconds since 1970; None if it has not.
    topic_deleted : bool
        Whether the topic was deleted before that.
    """

    entry: Entry
    high: int
    lowest: int
    again_ms: int | None = None
    ended: Move | None = None
    recovered_ms: int | None = None
    topic_deleted: bool = False

    @property
    def needs_attention(self) -> bool:
        """Whether the group has not recovered, and no ``kafka-group reset`` has set the offset."""
        return self.recovered_ms is None and not self.topic_deleted and self.entry.reset is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A committed offset that an outsider moved forth, over records that members would have read."""

    entry: Entry

    @property
    def needs_attention(self) -> bool:
        """Whether the outsider was not ``kafka-group reset``."""
        return self.entry.reset is None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedOffset:
    """A committed offset that has ended.  There is none since, so a reader starts at ``startingOffsets``."""

    entry: Entry
    needs_attention: bool = True


Incident = Rewind | Gap | EndedOffset


class _PartitionState:
    """State of one partition while its history is read."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.open: list[Rewind] = []
        self.ended: Entry | None = None
        self.by_reader = False  # whether a member or a bookmark has made the last commit

    @property
    def topic_deleted(self) -> bool:
        return self.ended is not None and self.ended.move is Move.TOPIC_DELETED


def find_incidents(entries: Iterable[Entry], *, since_ms: int | None = None) -> list[Incident]:
    """Return the incidents of a history, in the order in which they began.

    Parameters
    ----------
    entries : iterable of Entry
        The whole history of a group.
    since_ms : int or None
        Leave out what happened before this time, in milliseconds since 1970.  A rewind happens each time that the
        offset goes back.
    """
    partitions: dict[TopicPartition, _PartitionState] = {}
    found: list[Incident] = []
    for entry in entries:
        state = partitions.setdefault(entry.tp, _PartitionState())
        if entry.offset is None:
            state.ended = entry
            continue
        if entry.move is Move.RECREATED or state.topic_deleted:
            found += [replace(rewind, topic_deleted=True) for rewind in state.open]
            state.last, state.open = None, []
        found += _step(state, entry, entry.offset)
        state.ended, state.by_reader = None, entry.by_reader
    for state in partitions.values():
        found += [replace(rewind, topic_deleted=state.topic_deleted) for rewind in state.open]
        if state.ended and not state.topic_deleted:
            found.append(EndedOffset(entry=state.ended))
    found.sort(key=lambda incident: incident.entry.log_offset or 0)
    return [incident for incident in found if since_ms is None or _latest_ms(incident) >= since_ms]


def _latest_ms(incident: Incident) -> int:
    again_ms = incident.again_ms if isinstance(incident, Rewind) else None
    return incident.entry.time_ms if again_ms is None else again_ms


def _step(state: _PartitionState, entry: Entry, offset: int) -> list[Incident]:
    done: list[Incident] = [replace(r, recovered_ms=entry.time_ms) for r in state.open if offset >= r.high]
    state.open = [replace(r, lowest=min(r.lowest, offset)) for r in state.open if offset < r.high]
    if state.last is not None and offset < state.last:
        # What goes back further is the same rewind.  Deliberate: but a reset must not excuse what follows it.
        if state.open and not (state.open[-1].entry.reset and not entry.reset):
            state.open[-1] = replace(state.open[-1], again_ms=entry.time_ms)
        else:
            ended = state.ended.move if state.ended else None
            state.open.append(Rewind(entry=entry, high=state.last, lowest=offset, ended=ended))
    if entry.move is Move.FORTH and entry.by_outsider and state.by_reader:
        done.append(Gap(entry=entry))
    state.last = offset
    return done
