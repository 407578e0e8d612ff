"""CPU time of a query that has nothing to read, with few and with many partitions.

With the default trigger, Spark polls the source about 90 times a second.  Each query settles, and then idles in windows
of equal length.  The benchmark first measures a session without any query.  It attributes all further CPU time of the
JVM to the query.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.environment import Bench, Say, bench
from benchmarks.processes import Part, Watch
from benchmarks.queries import Reading, has_run_a_batch, noop, rotated, running, stream, wait_for
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, OURS

ARMS = (BUILTIN, OURS)

QUICK: dict[str, Any] = {"partitions": [1, 100], "seconds": 3, "windows": 1, "settle": 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--partitions", type=int, nargs="*", default=[1, 100, 1_000], help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of a window (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=3, help="in a row for each query (default: %(default)s)")
    parser.add_argument("--settle", type=float, default=8, help="seconds before the first one (default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        topics = {count: place.topic(count) for count in args.partitions}
        say("a session without query")
        _warm_up(place, topics[args.partitions[0]], args.settle)
        resting = [w["jvm_cpu_percent"] or 0.0 for w in _windows(args.seconds, args.windows)]
        result.settings["resting_jvm_cpu_percent"] = resting
        for at, (count, topic) in enumerate(topics.items()):
            name = f"{count:,} partitions" if count > 1 else "1 partition"
            cell = Cell(name=name, factors={"partitions": count})
            result.cells.append(cell)
            for arm in rotated(ARMS, at):
                for window in _idling(place, arm, topic, count, args):
                    used = (window["total_cpu_percent"] or 0.0) - sum(resting) / len(resting)
                    cell.add(arm, {**window, "jvm_share_percent": used})
                say(f"{cell.name}, {arm}: {cell.samples(arm, 'total_cpu_percent')} %")


def _idling(place: Bench, arm: str, topic: str, count: int, args: argparse.Namespace) -> list[dict[str, float | None]]:
    reading = Reading(topics=topic, partitions=count, latest=True)
    with running(noop(stream(place, arm, reading), place)) as query:
        if arm == OURS:
            wait_for(query, lambda: has_run_a_batch(query), "the assignment")
        time.sleep(args.settle)
        windows = _windows(args.seconds, args.windows)
        wait_for(query, lambda: True, "the query to be well")
        return windows


def _warm_up(place: Bench, topic: str, settle_s: float) -> None:
    """Let each source idle once, so that the JVM compiles its code, and then let the JVM settle."""
    for arm in ARMS:
        with running(noop(stream(place, arm, Reading(topics=topic, partitions=1, latest=True)), place)):
            time.sleep(settle_s)
    time.sleep(settle_s)


def _windows(seconds: float, count: int) -> list[dict[str, float | None]]:
    with Watch(pause_s=1.0) as watch:
        begin = time.time()
        # One sample per second, because the watch itself also uses CPU time.
        time.sleep(seconds * count + 0.5)
    found: list[dict[str, float | None]] = []
    for window in range(count):
        first = begin + window * seconds

        def percent(part: Part, first: float = first) -> float:
            return 100 * watch.cpu_s(part, first, first + seconds) / seconds

        jvm, source = percent(Part.JVM), percent(Part.SOURCE)
        found.append(
            {
                "jvm_cpu_percent": jvm,
                "source_cpu_percent": source,
                "total_cpu_percent": jvm + source,
                "broker_cpu_percent": percent(Part.BROKER),
            }
        )
    return found
