"""A group, looked at again and again: what has changed between two looks.

Two looks tell rates, how long the lag lasts at these rates, and that there was a rebalance; what happens and is undone
between two looks is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.reset_note import ResetNote
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_view import GroupView
from pyspark_kafka_group.tools.analysis.history import Entry, Move
from pyspark_kafka_group.tools.analysis.lag_status import Point, drain_seconds
from pyspark_kafka_group.tools.analysis.membership import Owner


class Rates(NamedTuple):
    """Offsets per second: how fast the group reads a partition, and how fast the log grows; None if not known."""

    consumed: float | None
    produced: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look.

    Attributes
    ----------
    time_ms : int
        When, in milliseconds since 1970.
    view : GroupView
        What was seen, with how long each lag lasts at the rates since the look before.
    rates : mapping of TopicPartition to Rates
        Since the look before.
    rebalances : int
        How many were seen since the first look; there may have been more.
    """

    time_ms: int
    view: GroupView
    rates: dict[TopicPartition, Rates]
    rebalances: int

    @property
    def total(self) -> Rates:
        """The rates of all partitions together."""
        consumed = [rate.consumed for rate in self.rates.values() if rate.consumed is not None]
        produced = [rate.produced for rate in self.rates.values() if rate.produced is not None]
        return Rates(sum(consumed) if consumed else None, sum(produced) if produced else None)


def following(before: Sample | None, view: GroupView, *, time_ms: int) -> Sample:
    """Return the next look.

    Parameters
    ----------
    before : Sample or None
        The one before; None for the first.
    view : GroupView
        What is seen.
    time_ms : int
        When, in milliseconds since 1970.
    """
    if before is None or time_ms <= before.time_ms:
        return Sample(time_ms=time_ms, view=view, rates={}, rebalances=before.rebalances if before else 0)
    seconds = (time_ms - before.time_ms) / 1000
    old = {part.tp: part for part in before.view.partitions}
    rates, parts = {}, []
    for part in view.partitions:
        last, drain = old.get(part.tp), None
        if last is not None:
            consumed = _rate(last.committed_offset, part.committed_offset, seconds)
            rates[part.tp] = Rates(consumed, _rate(last.log_end_offset, part.log_end_offset, seconds))
            if last.lag is not None and part.lag is not None:
                begin, end = Point(0.0, 0, last.lag), Point(seconds, 0, part.lag)
                drain = drain_seconds(begin, end, part.lag)
        parts.append(replace(part, drain_seconds=drain))
    moved = _assignment(before.view) != _assignment(view)
    return Sample(
        time_ms=time_ms,
        view=replace(view, partitions=tuple(parts)),
        rates=rates,
        rebalances=before.rebalances + moved,
    )


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    return None if before is None or now is None or now < before else (now - before) / seconds


def _assignment(view: GroupView) -> object:
    """Return what changes with a rebalance: the group epoch, or who is there and has what."""
    description = view.description
    members = frozenset((member.member_id, member.assignment) for member in description.members)
    # A classic group that is just being assigned tells nothing of assignments: that is the change.
    return description.epoch, description.is_rebalancing, members


def changes(before: GroupView | None, view: GroupView, *, time_ms: int) -> Iterator[Entry]:
    """Return what has become of offsets between two looks; for the first look, what there is.

    Parameters
    ----------
    before : GroupView or None
        The look before.
    view : GroupView
        This look.
    time_ms : int
        When it was, in milliseconds since 1970.
    """
    old = {part.tp: part for part in before.partitions if part.committed_offset is not None} if before else {}
    new = {part.tp: part for part in view.partitions if part.committed_offset is not None}
    for tp in sorted({*old, *new}):
        last, part = old.get(tp), new.get(tp)
        previous = last.committed_offset if last else None
        if last is not None and part is not None:
            same = (last.committed_offset, last.metadata) == (part.committed_offset, part.metadata)
            if same:
                continue
        offset = part.committed_offset if part else None
        note = CommitNote.decode(part.metadata) if part else None
        owner = part.owner if part else None
        yield Entry(
            log_offset=None,
            time_ms=time_ms,
            tp=tp,
            move=_move(previous, offset),
            previous=previous,
            offset=offset,
            leader_epoch=part.leader_epoch if part else None,
            topic_id=note.topic_id if note else None,
            query_id=note.query_id if note else None,
            owner=Owner(owner.member_id, owner.client_id, owner.host) if owner else None,
            member_count=len(view.description.members),
            metadata=(part.metadata or "") if part else "",
            reset=ResetNote.decode(part.metadata) if part and note is None else None,
        )


def _move(previous: int | None, offset: int | None) -> Move:
    if offset is None:
        return Move.DELETED
    if previous is None:
        return Move.FIRST
    if offset == previous:
        return Move.SAME
    return Move.FORTH if offset > previous else Move.BACK
