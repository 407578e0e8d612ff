"""Judges a lag by the rules of Burrow, LinkedIn's lag monitor, which needs no thresholds.

Burrow looks at the last commits of a partition.  A lag is no problem while the committed offset moves, and a lag of
zero is never one.  Rules, order and defaults are those of Burrow's evaluator
(``core/internal/evaluator/caching.go``), with an allowed lag of 0.  One exception: a group that keeps up is OK.  At a
steady rate, lags at commits differ by chance, and never fall in one of six windows of three.

Burrow samples log ends all the time, and this module has only one poll.  It takes the commits from
``__consumer_offsets``.  The log end at the time of a commit is the first record of that time or later, so the clocks of
producers matter for topics with ``CreateTime``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_records import CommitRecord, CommitTombstone, GroupRecord, LoggedRecord

LOOK_BACK_S = 3600.0
"""Maximum age of the commits that are judged, in seconds."""

INTERVALS = 10
"""Number of commits of a partition that are judged."""

MIN_DISTANCE_S = 1.0
"""Commits closer than this, in seconds, count as one."""

# With fewer commits than this Burrow gives no verdict: they show neither how often the group commits, nor that an
# offset stands still or a lag never falls.  Then a stop needs a minute without commits.
_FEWEST = 3
_SILENCE_S = 60.0

_SAMPLE_S = 10.0  # how often Burrow samples log ends

EndsAt = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""Log ends at a time for each partition, in milliseconds; without logs that have not grown since."""


class Status(IntEnum):
    """The verdict on a partition or a group.  An operator has to act from ``ERR`` on."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3  # only of a group: one of its partitions is worse
    STOP = 4
    STALL = 5
    REWIND = 6
    HELDBACK = 7  # not in Burrow: no leader answers, so nothing can be read
    BEYOND = 8  # not in Burrow: the log ends before the committed offset


class Point(NamedTuple):
    """One commit: its time in seconds, the committed offset, and the lag at that time."""

    time: float
    offset: int
    lag: int


class Judgement(NamedTuple):
    """The verdict on one partition, and the seconds until it has caught up.

    They are 0 if it keeps up, and None if unknown or never.
    """

    status: Status
    catch_up_seconds: float | None


class _Commit(NamedTuple):
    time_ms: int
    offset: int


class CommitWindows:
    """The last commits of each partition."""

    def __init__(self) -> None:
        self._commits: dict[TopicPartition, deque[_Commit]] = {}

    @classmethod
    def of(cls, records: Iterable[LoggedRecord]) -> CommitWindows:
        """Return the windows of some records, in the order of the log."""
        made = cls()
        for logged in records:
            made.add(logged.record)
        return made

    def add(self, record: GroupRecord) -> None:
        """Take the next record.  Commits close to each other count as one, with the time of the first.

        Deliberate: a commit that goes back always counts.  Burrow would miss that rewind
        (`test_an_offset_that_went_back_is_a_rewind_however_close_the_commits_are`).
        """
        match record:
            case CommitRecord(tp=tp, offset=offset, commit_time_ms=time_ms):
                window = self._commits.setdefault(tp, deque(maxlen=INTERVALS))
                close = window and time_ms - window[-1].time_ms < MIN_DISTANCE_S * 1000
                if close and offset >= window[-1].offset:
                    window[-1] = _Commit(window[-1].time_ms, offset)
                else:
                    window.append(_Commit(time_ms, offset))
            case CommitTombstone(tp=tp):
                self._commits.pop(tp, None)
            case _:
                pass

    def of_partition(self, tp: TopicPartition) -> list[_Commit]:
        """Return the last commits of a partition, oldest first."""
        return [*self._commits.get(tp, ())]


def catch_up_seconds(first: Point, last: Point, lag: int) -> float | None:
    """Return how long a lag takes to reach 0 at the rate between two points; None if it did not fall.

    Parameters
    ----------
    first, last : Point
        Two polls of the partition.
    lag : int
        The lag now.
    """
    if lag <= 0:
        return 0.0
    if last.time <= first.time or last.lag >= first.lag:
        return None
    return lag * (last.time - first.time) / (first.lag - last.lag)


def evaluate(window: Sequence[Point], recent_ends: Sequence[int], now: float) -> Status:
    """Return Burrow's verdict on one partition.

    Parameters
    ----------
    window : sequence of Point
        The last commits, oldest first.
    recent_ends : sequence of int
        The latest log ends, oldest first.
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


def keeps_up(window: Sequence[Point]) -> bool:
    """Tell whether the last commit contains everything that the log had two commits ago."""
    return len(window) >= _FEWEST and window[-1].offset >= window[-_FEWEST].offset + window[-_FEWEST].lag


def group_status(partitions: Iterable[Status]) -> Status:
    """Return the verdict on a group: that on its worst partition, or ``ERR`` if that is worse than ``WARN``."""
    worst = max(partitions, default=Status.NOTFOUND)
    return Status.ERR if worst > Status.WARN else worst


def judge(
    committed: Mapping[TopicPartition, int],
    log_ends: Mapping[TopicPartition, int],
    commits: CommitWindows,
    ends_at: EndsAt,
    *,
    now_ms: int,
) -> dict[TopicPartition, Judgement]:
    """Return Burrow's verdict on each partition that has a committed offset and a log end that is not before it.

    Parameters
    ----------
    committed, log_ends : mapping
        The committed offsets and log ends now.
    commits : CommitWindows
        The commits of the last :data:`LOOK_BACK_S`.
    ends_at : callable
        Returns earlier log ends.
    now_ms : int
        The time, in milliseconds since 1970.
    """
    lags = {tp: log_ends[tp] - offset for tp, offset in committed.items() if offset <= log_ends.get(tp, -1)}
    verdicts = {tp: Judgement(Status.OK, 0.0) for tp, lag in lags.items() if lag == 0}
    behind = [tp for tp in lags if tp not in verdicts]
    if not behind:
        return verdicts
    # Without a record, the commit is older than all records.
    oldest = now_ms - int(LOOK_BACK_S * 1000)
    windows = {tp: commits.of_partition(tp) or [_Commit(oldest, committed[tp])] for tp in behind}

    def ends(times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {**{tp: log_ends[tp] for tp in times_ms}, **(ends_at(times_ms) if times_ms else {})}

    recent: dict[TopicPartition, list[int]] = {tp: [] for tp in behind}
    for age in range(INTERVALS - 1, 0, -1):
        time_ms = now_ms - int(age * _SAMPLE_S * 1000)
        for tp, end in ends(dict.fromkeys(behind, time_ms)).items():
            recent[tp].append(end)
    points: dict[TopicPartition, list[Point]] = {tp: [] for tp in behind}
    for index in range(INTERVALS):
        asked = {tp: windows[tp][index] for tp in behind if index < len(windows[tp])}
        for tp, end in ends({tp: commit.time_ms for tp, commit in asked.items()}).items():
            commit = asked[tp]
            points[tp].append(Point(commit.time_ms / 1000, commit.offset, max(0, end - commit.offset)))
    for tp in behind:
        status = _status(points[tp], [*recent[tp], log_ends[tp]], now_ms / 1000)
        if keeps_up(points[tp]) and status in (Status.OK, Status.WARN):
            verdicts[tp] = Judgement(Status.OK, 0.0)
            continue
        # Two points right after commits: between commits any lag grows.  Without commits none falls.
        enough = len(points[tp]) >= _FEWEST
        seconds = catch_up_seconds(points[tp][0], points[tp][-1], lags[tp]) if enough else None
        verdicts[tp] = Judgement(status, seconds if status in (Status.OK, Status.WARN) else None)
    return verdicts


def _status(window: list[Point], recent_ends: list[int], now: float) -> Status:
    last = window[-1].time
    if len(window) >= _FEWEST:
        return evaluate(window, recent_ends, now)
    verdict = evaluate(window, recent_ends, now if now - last > _SILENCE_S else last)
    return Status.OK if verdict in (Status.STALL, Status.WARN) else verdict
