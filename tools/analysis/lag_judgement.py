"""From the last commits in ``__consumer_offsets`` and the timestamps of records to Burrow's verdict, in one look.

Burrow samples log ends all the time.  One look has to do without: where a log ended at some time is told by the first
record of that time or later, so the clocks of producers matter where topics have ``CreateTime``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_records import OffsetCommit, OffsetTombstone
from pyspark_kafka_group.tools.analysis.group_view import GroupView
from pyspark_kafka_group.tools.analysis.history import LoggedRecord
from pyspark_kafka_group.tools.analysis.lag_status import (
    INTERVALS,
    MIN_DISTANCE_S,
    Judgement,
    Point,
    Status,
    drain_seconds,
    evaluate,
)

LOOK_BACK_S = 3600.0
"""How old the commits may be that are looked at, in seconds."""

# Fewer commits than this show neither that an offset stands still nor that a lag never falls, nor how often there are
# commits: Burrow waits until its window is full.  Then only a silence of so many seconds is one.
_FEWEST = 3
_SILENCE_S = 60.0

_SAMPLE_S = 10.0  # how often Burrow asks for log ends

EndsAt = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""Where logs ended at a time of each, in milliseconds; without those that have not grown since."""


class _Commit(NamedTuple):
    time_ms: int
    offset: int


def judge(
    view: GroupView, records: Iterable[LoggedRecord], ends_at: EndsAt, *, now_ms: int
) -> dict[TopicPartition, Judgement]:
    """Return Burrow's verdict on each partition that has a committed offset and a log end, and how long its lag lasts.

    Parameters
    ----------
    view : GroupView
        The group now.
    records : iterable of LoggedRecord
        Its records of the last :data:`LOOK_BACK_S`, in the order of the log.
    ends_at : callable
        Tells where logs ended.
    now_ms : int
        The time, in milliseconds since 1970.
    """
    now_ends = {part.tp: part.log_end_offset for part in view.partitions if part.log_end_offset is not None}
    offsets = {
        part.tp: part.committed_offset
        for part in view.partitions
        if part.committed_offset is not None and part.tp in now_ends
    }
    verdicts = {tp: Judgement(Status.OK, 0.0) for tp, offset in offsets.items() if now_ends[tp] <= offset}
    behind = {tp: offset for tp, offset in offsets.items() if tp not in verdicts}
    if not behind:
        return verdicts
    windows = _windows(records)
    oldest = _Commit(now_ms - int(LOOK_BACK_S * 1000), 0)
    for tp, offset in behind.items():
        if tp not in windows:  # it was committed before that
            windows[tp] = [oldest._replace(offset=offset)]

    def ends(times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {**{tp: now_ends[tp] for tp in times_ms}, **ends_at(times_ms)}

    recent: dict[TopicPartition, list[int]] = {tp: [] for tp in behind}
    for age in range(INTERVALS - 1, 0, -1):
        time_ms = now_ms - int(age * _SAMPLE_S * 1000)
        for tp, end in ends(dict.fromkeys(behind, time_ms)).items():
            recent[tp].append(end)
    points: dict[TopicPartition, list[Point]] = {tp: [] for tp in behind}
    for index in range(INTERVALS):
        asked = {tp: windows[tp][index] for tp in behind if index < len(windows[tp])}
        for tp, end in (ends({tp: commit.time_ms for tp, commit in asked.items()}) if asked else {}).items():
            commit = asked[tp]
            points[tp].append(Point(commit.time_ms / 1000, commit.offset, max(0, end - commit.offset)))
    for tp, offset in behind.items():
        status = _status(points[tp], [*recent[tp], now_ends[tp]], now_ms / 1000)
        # Two points right after commits: between commits any lag grows.  Without commits none falls.
        drain = drain_seconds(points[tp][0], points[tp][-1], now_ends[tp] - offset)
        verdicts[tp] = Judgement(status, drain if status in (Status.OK, Status.WARN) else None)
    return verdicts


def _status(window: list[Point], recent_ends: list[int], now: float) -> Status:
    last = window[-1].time
    if len(window) >= _FEWEST:
        return evaluate(window, recent_ends, now)
    verdict = evaluate(window, recent_ends, now if now - last > _SILENCE_S else last)
    return Status.OK if verdict in (Status.STALL, Status.WARN) else verdict


def _windows(records: Iterable[LoggedRecord]) -> dict[TopicPartition, list[_Commit]]:
    """Return the last commits of each partition; those that are very close count as one, with the time of the first.

    Deliberate: not one that goes back.  Burrow would miss a rewind there.
    """
    windows: dict[TopicPartition, deque[_Commit]] = {}
    for logged in records:
        match logged.record:
            case OffsetCommit(tp=tp, offset=offset, commit_time_ms=time_ms):
                window = windows.setdefault(tp, deque(maxlen=INTERVALS))
                close = window and time_ms - window[-1].time_ms < MIN_DISTANCE_S * 1000
                if close and offset >= window[-1].offset:
                    window[-1] = _Commit(window[-1].time_ms, offset)
                else:
                    window.append(_Commit(time_ms, offset))
            case OffsetTombstone(tp=tp):
                windows.pop(tp, None)
            case _:
                pass
    return {tp: [*window] for tp, window in windows.items()}
