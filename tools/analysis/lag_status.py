"""What a lag means: the rules of Burrow, LinkedIn's lag monitor, which knows no thresholds.

It looks at the last commits of a partition.  A lag is no problem while the committed offset moves, and a lag of zero is
none whatever happened before.  Rules, order and defaults are those of Burrow's evaluator (``core/internal/evaluator/
caching.go``), with an allowed lag of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

INTERVALS = 10
"""How many commits of a partition are looked at."""

MIN_DISTANCE_S = 1.0
"""Commits closer than this, in seconds, count as one."""


class Status(IntEnum):
    """The verdict on one partition, or on a group; from ``ERR`` on somebody is woken up."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3  # only of a group: one of its partitions is worse
    STOP = 4
    STALL = 5
    REWIND = 6
    HELDBACK = 7  # not one of Burrow's: no leader answers, so that nothing can be read


class Point(NamedTuple):
    """One commit in the window: its time in seconds, the committed offset, and the lag then."""

    time: float
    offset: int
    lag: int


class Judgement(NamedTuple):
    """What is said of one partition.

    Attributes
    ----------
    status : Status
        The verdict.
    drain_seconds : float or None
        How long it takes until nothing is left to read, if things go on as in the window; None if that is never, or
        cannot be told.
    """

    status: Status
    drain_seconds: float | None


def drain_seconds(first: Point, last: Point, lag: int) -> float | None:
    """Return how long a lag lasts if it goes on falling as it fell between two points; None if it did not fall.

    Parameters
    ----------
    first, last : Point
        Two looks at the partition.
    lag : int
        How many offsets are left now.
    """
    if lag <= 0:
        return 0.0
    if last.time <= first.time or last.lag >= first.lag:
        return None
    return lag * (last.time - first.time) / (first.lag - last.lag)


def evaluate(window: Sequence[Point], recent_ends: Sequence[int], now: float) -> Status:
    """Return the verdict on one partition.

    Parameters
    ----------
    window : sequence of Point
        The last commits, oldest first.
    recent_ends : sequence of int
        Where the log ended lately, oldest first.
    now : float
        The time of the evaluation, in seconds, by the clock of the commits.
    """
    if not window or not recent_ends:
        return Status.NOTFOUND
    last = window[-1]
    if recent_ends[-1] <= last.offset:
        return Status.OK
    caught_up = any(end <= last.offset for end in recent_ends)
    if now - last.time > last.time - window[0].time and not caught_up:
        return Status.STOP
    for index in range(1, len(window)):
        before = window[index - 1].offset
        if window[index].offset < before and all(point.offset < before for point in window[index:]):
            return Status.REWIND
    if any(point.lag == 0 for point in window):
        return Status.OK
    if all(point.offset == last.offset for point in window):
        return Status.STALL
    if all(window[i].lag >= window[i - 1].lag for i in range(1, len(window))):
        return Status.WARN
    return Status.OK


def group_status(partitions: Iterable[Status]) -> Status:
    """Return the verdict on a group: that on its worst partition, ``ERR`` for all that wake somebody up."""
    worst = max(partitions, default=Status.NOTFOUND)
    return Status.ERR if worst > Status.WARN else worst
