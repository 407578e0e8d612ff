"""The goals of the second round of work on speed, and whether the stored results reach them.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from benchmarks.results import Cell, Result
from benchmarks.samples import paired_ratios, spread
from benchmarks.tables import MISSING, Table, figure
from benchmarks.views import BUILTIN, CEILING, EXACTLY_ONCE, OURS


class Goal(NamedTuple):
    """A goal for one figure: at least ``goal``, or at most if ``most`` is set.

    Attributes
    ----------
    benchmark, cell, metric, arm : str
        The figure.  ``cell`` is a row of the tables; if it is empty, the goal is for each row.
    over : str
        The source to divide by; empty for the figure itself.
    before : mapping of str to float
        The figure before this round, by row.
    """

    title: str
    benchmark: str
    cell: str
    metric: str
    arm: str
    over: str
    goal: float
    most: bool
    before: Mapping[str, float]


_CLASSIC, _CONSUMER = f"{OURS}, classic", f"{OURS}, consumer"

_READING = ("records_per_s", OURS, BUILTIN, 2.5, False)
"""The goal of each read cell: metric, arm, over, goal, most."""

GOALS = (
    Goal(
        "Reading, records/s over the built-in source",
        "throughput",
        "",
        *_READING,
        {
            "base: 100 B, 8 part.": 1.952,
            "10 B": 1.985,
            "1 kB": 1.684,
            "10 kB": 1.826,
            "lz4": 1.959,
            "zstd": 1.703,
            "headers": 1.682,
            "1 partition": 2.401,
            "64 partitions": 2.845,
            "aggregation": 1.914,
            "value only": 2.407,
        },
    ),
    Goal(
        "Batch read, records/s over the built-in source",
        "batch",
        "4,000,000 records, 8 partitions",
        *_READING,
        {"4,000,000 records, 8 partitions": 2.601},
    ),
    Goal(
        "Batch read, records/s over the built-in source",
        "batch",
        "4,000,000 records, 64 partitions",
        *_READING,
        {"4,000,000 records, 64 partitions": 5.317},
    ),
    Goal(
        "Batch read, records/s over the built-in source",
        "tls",
        "",
        *_READING,
        {
            "100 B, plain text": 3.12,
            "100 B, SSL": 2.957,
            "1,000 B, plain text": 4.461,
            "1,000 B, SSL": 3.621,
            "100 B, SASL_SSL": 2.595,
            "1,000 B, SASL_SSL": 3.291,
        },
    ),
    Goal(
        "Sink, records/s over the built-in sink",
        "sink",
        "",
        "records_per_s",
        OURS,
        BUILTIN,
        1.3,
        False,
        {"100 B": 1.067, "1 kB": 1.209, "100 B, 2 headers": 0.649},
    ),
    Goal(
        "Sink, exactly once, over the built-in sink",
        "sink",
        "",
        "records_per_s",
        EXACTLY_ONCE,
        BUILTIN,
        1.0,
        False,
        {"100 B": 0.872, "1 kB": 1.203, "100 B, 2 headers": 0.669},
    ),
    Goal(
        "Applications, records/s over the built-in source",
        "scaling",
        "",
        "records_per_s",
        OURS,
        BUILTIN,
        1.0,
        False,
        {"1 x local[1]; or local[1]": 1.209, "2 x local[1]; or local[2]": 1.116, "4 x local[1]; or local[4]": 0.865},
    ),
    Goal(
        "First row, s after the built-in source, classic",
        "start",
        "rebalance delay 0 ms",
        "over_builtin_s",
        _CLASSIC,
        "",
        0.8,
        True,
        {"rebalance delay 0 ms": 1.416},
    ),
    Goal(
        "First row, s after the built-in source, consumer",
        "start",
        "rebalance delay 0 ms",
        "over_builtin_s",
        _CONSUMER,
        "",
        0.8,
        True,
        {"rebalance delay 0 ms": 1.385},
    ),
    *(
        Goal(title, "start", "new application, rebalance delay 0 ms", "over_builtin_s", arm, "", 0.8, True, {})
        for title, arm in (
            ("First row, s after the built-in source, classic", _CLASSIC),
            ("First row, s after the built-in source, consumer", _CONSUMER),
        )
    ),
    Goal(
        "Planning, ms", "planning", "10,000 partitions", "plan_ms", OURS, "", 100, True, {"10,000 partitions": 169.047}
    ),
    Goal(
        "Offset JSON over the built-in source's",
        "planning",
        "",
        "offset_bytes",
        OURS,
        BUILTIN,
        1.3,
        True,
        {"100 partitions": 2.204, "1,000 partitions": 2.019, "10,000 partitions": 2.011},
    ),
    Goal(
        "Latency p50 over the built-in source's",
        "latency",
        "",
        "p50_ms",
        OURS,
        BUILTIN,
        0.6,
        True,
        {"100 records/s": 0.609, "10,000 records/s": 0.915},
    ),
    Goal(
        "Latency p99 over the built-in source's",
        "latency",
        "",
        "p99_ms",
        OURS,
        BUILTIN,
        0.6,
        True,
        {"100 records/s": 0.6, "10,000 records/s": 0.815},
    ),
    *(
        Goal(f"From topic to topic, {p} over Spark's", "kafka_to_kafka", "", f"{p}_ms", OURS, BUILTIN, 1.0, True, {})
        for p in ("p50", "p99")
    ),
    Goal(
        "Hand-over of applications, p50, s",
        "scaling",
        "",
        "hand_over_p50_s",
        OURS,
        "",
        0.3,
        True,
        {"1 to 2 to 4 to 2 applications": 1.321},
    ),
    Goal("Hand-over of members, classic, p50, s", "hand_over", "", "p50_s", "classic", "", 0.3, True, {}),
    Goal("Hand-over of members, classic, p99, s", "hand_over", "", "p99_s", "classic", "", 1.0, True, {}),
)


def table(results: Mapping[str, Result]) -> Table:
    """Return the goals with the figures of the results."""
    header = ["", "goal", "before", "now", "Spark allows", ""]
    rows = [row for goal in GOALS if goal.benchmark in results for row in _rows(goal, results[goal.benchmark].cells)]
    return Table(title="Goals", header=header, rows=rows)


def _rows(goal: Goal, cells: list[Cell]) -> Iterator[list[str]]:
    for cell in cells:
        if goal.cell not in ("", cell.name):
            continue
        now = _median(cell, goal.metric, goal.arm, goal.over)
        if now is None:
            continue
        allowed = _median(cell, goal.metric, CEILING, goal.over)
        reached = now <= goal.goal if goal.most else now >= goal.goal
        sign = "at most" if goal.most else "at least"
        before = goal.before.get(cell.name)
        yield [
            f"{goal.title}, {cell.name}",
            f"{sign} {figure(goal.goal)}",
            figure(before),
            figure(now),
            MISSING if allowed is None else figure(allowed),
            "reached" if reached else "missed",
        ]


def _median(cell: Cell, metric: str, arm: str, over: str) -> float | None:
    samples = cell.samples(arm, metric)
    found = spread(paired_ratios(samples, cell.samples(over, metric)) if over else samples)
    return None if found is None else found.median
