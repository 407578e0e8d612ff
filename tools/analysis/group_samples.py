"""Repeated polls of a group: rates, the time to catch up, and rebalances between two of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_view import GroupView, PartitionView

WINDOW_S = 30.0
"""How far back rates look, in seconds.  Within a shorter time, batches of several seconds would come by chance."""

_FEWEST = 3
"""Commits that a rate needs, also if they are older than the window: triggers may be minutes apart."""

_STEADY_S = 30.0
_STEADY_COMMITS = 2
"""A partition keeps up if it is this far behind in time, or by as many offsets as in this many commits."""


class Rates(NamedTuple):
    """Offsets per second: how fast the group reads, and how fast the log grows; None if unknown."""

    consumed: float | None
    produced: float | None


class _Seen(NamedTuple):
    """An offset, and the time of the poll that saw it first, in seconds."""

    time: float
    offset: int


class _Track(NamedTuple):
    """The results of the polls for one partition.

    Attributes
    ----------
    since : float
        The time of the first poll.
    commits : tuple of _Seen
        The last changes of the committed offset, oldest first.  The first poll shows none, because it does
        not show when the offset was committed.
    committed : int or None
        The committed offset at the last poll.
    ends : tuple of _Seen
        The log ends within the window.
    """

    since: float
    commits: tuple[_Seen, ...]
    committed: int | None
    ends: tuple[_Seen, ...]

    def rates(self, now: float) -> Rates:
        """Return the rates over the window."""
        return Rates(self._consumed(now), self._produced())

    def _consumed(self, now: float) -> float | None:
        """Return the rate from the first commit to the last one, so that a commit more or less does not count."""
        if self.committed is None:
            return None
        if len(self.commits) < _FEWEST:  # between two, the pauses of the polls would count too much
            watched_s = now - self.since
            return 0.0 if watched_s >= WINDOW_S and not self.commits else None
        first, last = self.commits[0], self.commits[-1]
        times = [commit.time for commit in self.commits]
        longest_s = max(after - before for before, after in pairwise(times))
        silent_s = now - last.time
        end = now if silent_s > 2 * longest_s and silent_s > WINDOW_S / 2 else last.time
        return (last.offset - first.offset) / (end - first.time)

    def _produced(self) -> float | None:
        if len(self.ends) < 2:
            return None
        first, last = self.ends[0], self.ends[-1]
        return (last.offset - first.offset) / (last.time - first.time)

    @property
    def largest_step(self) -> int:
        """The most offsets of one commit; 0 if unknown."""
        offsets = [commit.offset for commit in self.commits]
        return max((after - before for before, after in pairwise(offsets)), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSample:
    """One poll.

    Attributes
    ----------
    time_ms : int
        Its time, in milliseconds since 1970.
    view : GroupView
        The group, with the time to catch up at the current rates.
    rates : mapping of TopicPartition to Rates
        The rates over the last commits.
    rebalances : int
        The number of rebalances seen since the first poll.  A rebalance between two polls may not show.
    tracks : mapping
        What the polls have shown of each partition.
    """

    time_ms: int
    view: GroupView
    rates: dict[TopicPartition, Rates]
    rebalances: int
    tracks: Mapping[TopicPartition, _Track] = field(default_factory=dict, repr=False)

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
    if before is not None and time_ms <= before.time_ms:
        return replace(before, view=view, time_ms=time_ms, rates={})
    now, old = time_ms / 1000, before.tracks if before else {}
    tracks = {part.tp: _followed(old.get(part.tp), part, now) for part in view.partitions}
    rates = {tp: track.rates(now) for tp, track in tracks.items()}
    parts = tuple(
        replace(part, catch_up_seconds=_catch_up_seconds(part, rates[part.tp], tracks[part.tp].largest_step))
        for part in view.partitions
    )
    moved = before is not None and _assignment(before.view) != _assignment(view)
    return GroupSample(
        time_ms=time_ms,
        view=replace(view, partitions=parts),
        rates=rates if before is not None else {},
        rebalances=(before.rebalances if before is not None else 0) + moved,
        tracks=tracks,
    )


def _followed(track: _Track | None, part: PartitionView, now: float) -> _Track:
    end = () if part.log_end_offset is None else (_Seen(now, part.log_end_offset),)
    offset = part.committed_offset
    if track is None or track.committed is None or offset is None or offset < track.committed:
        # The first poll, or the offset went back or away: what came before says nothing about the rate now.
        ends = end if track is None else (*track.ends, *end)
        return _Track(now, (), offset, _within(ends, now, fewest=2))
    commits = (*track.commits, _Seen(now, offset)) if offset != track.committed else track.commits
    return track._replace(
        commits=_within(commits, now, fewest=_FEWEST),
        committed=offset,
        ends=_within((*track.ends, *end), now, fewest=2),
    )


def _within(seen: tuple[_Seen, ...], now: float, *, fewest: int) -> tuple[_Seen, ...]:
    """Return the observations within the window, and at least the last ``fewest``.  A falling log end restarts them."""
    recent = sum(now - one.time <= WINDOW_S for one in seen)
    kept = seen[-max(recent, fewest) :]
    fell = [at for at in range(1, len(kept)) if kept[at].offset < kept[at - 1].offset]
    return kept[fell[-1] :] if fell else kept


def _catch_up_seconds(part: PartitionView, rates: Rates, largest_step: int) -> float | None:
    """Return how long the lag takes to reach 0: 0 if the group keeps up, None if unknown or never."""
    lag = part.lag
    if lag is None or part.lag_seconds is None:
        return None
    if part.lag_seconds <= _STEADY_S or lag <= _STEADY_COMMITS * largest_step:
        return 0.0
    if rates.consumed is None or rates.produced is None or rates.consumed <= rates.produced:
        return None
    return lag / (rates.consumed - rates.produced)


def _assignment(view: GroupView) -> object:
    """Return what changes with a rebalance: the group epoch, the members and their partitions."""
    description = view.description
    members = frozenset((member.member_id, member.assignment) for member in description.members)
    # A classic group reports no assignments during a rebalance.  That change also counts.
    return description.epoch, description.is_rebalancing, members
