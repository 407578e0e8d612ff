"""Repeated polls of a group: rates, the time to catch up, and rebalances between two of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_view import GroupView
from pyspark_kafka_group.tools.analysis.lag_judgement import Point, catch_up_seconds


class Rates(NamedTuple):
    """Offsets per second: how fast the group reads, and how fast the log grows; None if unknown."""

    consumed: float | None
    produced: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSample:
    """One poll.

    Attributes
    ----------
    time_ms : int
        Its time, in milliseconds since 1970.
    view : GroupView
        The group, with the time to catch up at the rates since the poll before.
    rates : mapping of TopicPartition to Rates
        The rates since the poll before.
    rebalances : int
        The number of rebalances seen since the first poll.  A rebalance between two polls may not show.
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


def following(before: GroupSample | None, view: GroupView, *, time_ms: int) -> GroupSample:
    """Return the sample of a poll.

    Parameters
    ----------
    before : GroupSample or None
        The sample before; None for the first.
    view : GroupView
        The group now.
    time_ms : int
        The time, in milliseconds since 1970.
    """
    if before is None or time_ms <= before.time_ms:
        return GroupSample(time_ms=time_ms, view=view, rates={}, rebalances=before.rebalances if before else 0)
    seconds = (time_ms - before.time_ms) / 1000
    old = {part.tp: part for part in before.view.partitions}
    rates, parts = {}, []
    for part in view.partitions:
        last, left = old.get(part.tp), None
        if last is not None:
            consumed = _rate(last.committed_offset, part.committed_offset, seconds)
            rates[part.tp] = Rates(consumed, _rate(last.log_end_offset, part.log_end_offset, seconds))
            if last.lag is not None and part.lag is not None:
                left = catch_up_seconds(Point(0.0, 0, last.lag), Point(seconds, 0, part.lag), part.lag)
        parts.append(replace(part, catch_up_seconds=left))
    moved = _assignment(before.view) != _assignment(view)
    return GroupSample(
        time_ms=time_ms,
        view=replace(view, partitions=tuple(parts)),
        rates=rates,
        rebalances=before.rebalances + moved,
    )


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    return None if before is None or now is None or now < before else (now - before) / seconds


def _assignment(view: GroupView) -> object:
    """Return what changes with a rebalance: the group epoch, the members and their partitions."""
    description = view.description
    members = frozenset((member.member_id, member.assignment) for member in description.members)
    # A classic group reports no assignments during a rebalance.  That change also counts.
    return description.epoch, description.is_rebalancing, members
