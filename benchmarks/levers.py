"""What settings of Spark, and of Spark's own source, bring to steady throughput.

The query is that of :mod:`benchmarks.throughput`.

The ceiling is the same query without reading: what a Python source can pass to the JVM at all.

Spark reads these settings only once, so each run has a new session.  Its first query does not count.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.environment import Say, bench
from benchmarks.processes import Watch
from benchmarks.queries import ONE_SETTING, rotated, run_to_the_end
from benchmarks.records import BASE_SHAPE
from benchmarks.results import Cell, Result
from benchmarks.throughput import Variant, figures, filled, writer
from benchmarks.views import BUILTIN, CEILING, OURS, TUNED

_UNIX = {"spark.python.unix.domain.socket.enabled": "true"}

ARMS: dict[str, tuple[str, dict[str, str]]] = {
    "defaults": (OURS, {}),
    "Unix sockets": (OURS, _UNIX),
    "1 MB buffers": (OURS, {"spark.buffer.size": str(1024 * 1024)}),
    "ceiling": (CEILING, {}),
    "ceiling, Unix sockets": (CEILING, _UNIX),
}
"""The source and the settings of each arm."""

BUILTIN_ARMS: dict[str, tuple[str, dict[str, str]]] = {arm: (arm, {}) for arm in (BUILTIN, *ONE_SETTING, TUNED)}
"""The arms of Spark's own source, for records of the usual size."""

QUICK: dict[str, Any] = {"records": 60_000, "megabytes": 20, "batches": 2, "repetitions": 1, "sizes": [100]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, default=6_000_000, help="in a topic, at most (default: %(default)s)")
    parser.add_argument("--megabytes", type=int, default=1_500, help="in a topic, at most (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=4, help="of a run, the first one not counted (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1_000, 10_000], help="of values (%(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        for size in args.sizes:
            variant = Variant(value_size=size)
            reading = filled(place, variant, args)
            cell = Cell(name=variant.name, factors={"records": reading.records, "value_size": size})
            result.cells.append(cell)
            arms = ARMS | (BUILTIN_ARMS if size == BASE_SHAPE.value_size else {})
            for repetition in range(args.repetitions):
                for arm in rotated(tuple(arms), repetition):
                    source, settings = arms[arm]
                    place.new_session(settings)
                    run_to_the_end(writer(place, source, variant, reading))
                    with Watch() as watch:
                        batches = run_to_the_end(writer(place, source, variant, reading))
                    measured = figures(batches, variant.shape, watch, in_python=arm in ARMS)
                    cell.add(arm, measured)
                    say(f"{variant.name}, {arm}: {measured['records_per_s']:,.0f} records/s")
            place.kafka.delete_topic(reading.topics)
