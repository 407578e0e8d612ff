"""Resident memory of the Python workers that read large ranges.

Each repetition has a new session, and therefore new workers.  First they read the ceiling run.  Their peak is then the
memory of a worker that passes Arrow batches to Spark without Kafka.  Then they read a whole topic in one batch, with a
large range per task.  The built-in source reads in Spark's JVM and has no such workers.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.environment import Bench, Say, bench
from benchmarks.processes import Part, forget_peaks, peak_mb, pids_of, resident_mb
from benchmarks.queries import Reading, noop, run_to_the_end, stream
from benchmarks.records import Shape, load
from benchmarks.results import Cell, Result
from benchmarks.throughput import records_for
from benchmarks.views import CEILING, OURS

PARTITIONS = 8

QUICK: dict[str, Any] = {"sizes": [100], "records": 100_000, "megabytes": 20, "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1_000, 10_000], help="of values (%(default)s)")
    parser.add_argument("--records", type=int, default=6_000_000, help="in a topic, at most (default: %(default)s)")
    parser.add_argument("--megabytes", type=int, default=1_500, help="in a topic, at most (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        readings: dict[int, Reading] = {}
        for size in args.sizes:
            shape = Shape(value_size=size)
            records = records_for(shape, args.records, args.megabytes)
            say(f"{size} B: filling a topic with {records:,} records")
            topic = place.topic(PARTITIONS)
            load(place.servers, topic, shape=shape, partitions=PARTITIONS, records=records)
            readings[size] = Reading(topics=topic, partitions=PARTITIONS, shape=shape, records=records)
        cells = {
            size: Cell(name=f"{size:,} B, {reading.records // PARTITIONS:,} a range", factors={"value_size": size})
            for size, reading in readings.items()
        }
        result.cells += cells.values()
        for _ in range(args.repetitions):
            for size, reading in readings.items():
                place.new_session()
                measured = _run(place, reading)
                cells[size].add(OURS, measured)
                say(f"{size} B: {measured['extra_mb']:.0f} MB more than {measured['baseline_mb']:.0f} MB")


def _run(place: Bench, reading: Reading) -> dict[str, float | None]:
    small = Reading(topics="", partitions=reading.partitions, shape=reading.shape, records=100_000)
    run_to_the_end(noop(stream(place, CEILING, small), place, availableNow=True))
    workers = pids_of(Part.WORKER)
    baseline = max(map(peak_mb, workers))
    forget_peaks(workers)
    run_to_the_end(noop(stream(place, OURS, reading), place, availableNow=True))
    # Spark may have started more workers.
    workers = pids_of(Part.WORKER)
    peak = max(map(peak_mb, workers))
    return {
        "baseline_mb": baseline,
        "peak_mb": peak,
        "extra_mb": peak - baseline,
        "after_mb": max(map(resident_mb, workers)),
    }
