"""An oracle with the rules of Burrow, LinkedIn's lag monitor.

Burrow judges a group by the last commits of each partition, not by thresholds.  If an ordinary rebalance raises an
alarm, operators see a defect of the consumer.  The product contains the rules
(:mod:`pyspark_kafka_group.tools.analysis.lag_judgement`).  This module makes the windows from the records of a run.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from integration.oracles import Committed
from pyspark_kafka_group.tools.analysis.lag_judgement import INTERVALS, MIN_DISTANCE_S, Point, Status, evaluate


class Ends(NamedTuple):
    """The log ends at one time."""

    time: float
    ends: Mapping[str, int]


class Judgement(NamedTuple):
    """A verdict at one time."""

    time: float
    tp: str
    status: Status


def evaluate_history(
    commits: Iterable[Committed],
    ends: Sequence[Ends],
    *,
    intervals: int = INTERVALS,
    min_distance_s: float = MIN_DISTANCE_S,
) -> list[Judgement]:
    """Return Burrow's verdict on each partition at the time of each sample of the log ends.

    Like Burrow with ``minimum-complete=1``, judge a partition only when its window is full.
    """
    times = [sample.time for sample in ends]
    waiting = deque(sorted(commits, key=lambda c: c.time))
    windows: dict[str, deque[Point]] = {}
    judgements = []
    for index, sample in enumerate(ends):
        while waiting and waiting[0].time <= sample.time:
            commit = waiting.popleft()
            if commit.offset is not None:
                known = ends[max(0, bisect.bisect_right(times, commit.time) - 1)].ends.get(commit.tp, commit.offset)
                window = windows.setdefault(commit.tp, deque(maxlen=intervals))
                _add(window, Point(commit.time, commit.offset, max(0, known - commit.offset)), min_distance_s)
        recent = ends[max(0, index - intervals + 1) : index + 1]
        for tp, window in windows.items():
            if len(window) == intervals:
                ends_of_log = [at.ends[tp] for at in recent if tp in at.ends]
                judgements.append(Judgement(sample.time, tp, evaluate(list(window), ends_of_log, sample.time)))
    return judgements


def _add(window: deque[Point], point: Point, min_distance_s: float) -> None:
    if window and point.time - window[-1].time < min_distance_s:
        window[-1] = Point(window[-1].time, point.offset, point.lag)
    else:
        window.append(point)


def judge_burrow(judgements: Iterable[Judgement]) -> list[str]:
    """Return a violation for each verdict that is worse than a warning."""
    return [f"Burrow: {j.tp} is {j.status.name} at {j.time:.3f}" for j in judgements if j.status > Status.WARN]
