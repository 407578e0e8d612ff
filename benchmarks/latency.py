"""End-to-end latency: from a record's creation until a sink has processed it.

A producer in a separate process sends records at a steady rate.  Its client stamps each record when the application
produces it (CreateTime).  The sink is ``foreachBatch`` with one small aggregation: the number of records that were
created in each millisecond.  When Spark has collected it, the query has read every record of the batch.  The latency of
a record is the time from its creation to this moment.  So it includes the producer's linger (1 ms), the broker, Spark's
polling and planning, the source, and the aggregation, which is the same for both sources.  All times come from one
clock.

The ceiling runs batches of as many rows and tasks, which are in its memory.  The difference between it and
``kafka-group`` is the most that a fetch before the batch could save.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from statistics import median
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import (
    Batch,
    Reading,
    batches_of,
    has_run_a_batch,
    progress_of,
    rotated,
    run_to_the_end,
    running,
    stream,
    wait_for,
)
from benchmarks.results import Cell, Result
from benchmarks.samples import percentile
from benchmarks.steady_producer import producing
from benchmarks.views import BUILTIN, CEILING, OURS

ARMS = (BUILTIN, OURS)
PARTITIONS = 8

_CEILING_BATCHES = 60
_CEILING_WARM_UP = 20
"""Batches of the ceiling, and how many of them do not count."""

_QUIET_S = 0.5
"""After this time without a batch, no further batch follows."""

QUICK: dict[str, Any] = {"rates": [100, 10_000], "seconds": 3, "warm_up": 1, "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rates", type=int, nargs="*", default=[100, 1_000, 10_000], help="records/s (%(default)s)")
    parser.add_argument("--seconds", type=float, default=28, help="measured in each repetition (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=4, help="seconds before that (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=2, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        for arm in ARMS:
            say(f"warming up {arm}")
            _run(place, arm, max(args.rates), 0, args.warm_up)
        for rate in args.rates:
            cell = Cell(name=f"{rate:,} records/s", factors={"rate": rate, "partitions": PARTITIONS})
            result.cells.append(cell)
            for repetition in range(args.repetitions):
                for arm in rotated(ARMS, repetition):
                    measured = _run(place, arm, rate, args.warm_up, args.seconds)
                    cell.add(arm, measured)
                    say(f"{cell.name}, {arm}: p50 {measured['p50_ms']} ms, p99 {measured['p99_ms']} ms")
                    if arm == OURS:
                        cell.add(CEILING, _run_ceiling(place, int(measured["batch_rows"] or 1)))


class Sink:
    """Counts the latencies of the records that were created in a window.

    ``begin`` and ``end`` are milliseconds since 1970.  Before the benchmark sets them, the sink counts nothing.
    """

    def __init__(self) -> None:
        self.latencies: Counter[float] = Counter()
        self.begin = self.end = 0.0
        self.newest = 0.0
        self.quiet_since = 0.0  # 0 during a batch

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        """Process a batch of ``foreachBatch``."""
        self.quiet_since = 0.0
        created = batch.groupBy(f.unix_millis("timestamp").alias("ms")).count().collect()
        self.take({row["ms"]: row["count"] for row in created}, time.time() * 1000)
        self.quiet_since = time.monotonic()

    def take(self, created: dict[float, int], now: float) -> None:
        """Add the latencies of the records that were created in each millisecond."""
        for at, count in created.items():
            self.newest = max(self.newest, at)
            if self.begin <= at < self.end:
                self.latencies[now - at] += count


def _run(place: Bench, arm: str, rate: int, warm_up_s: float, seconds: float) -> dict[str, float | None]:
    topic = place.topic(PARTITIONS)
    sink = Sink()
    reading = Reading(topics=topic, partitions=PARTITIONS, latest=True)
    records = stream(place, arm, reading).select("timestamp")
    writer = records.writeStream.foreachBatch(sink).option("checkpointLocation", place.checkpoint())
    with running(writer) as query:
        if arm == OURS:  # batch 0 runs even without records; the built-in source has no batch before the first record
            wait_for(query, lambda: has_run_a_batch(query), "the assignment")
        with producing(place.servers, topic, PARTITIONS, rate):
            wait_for(query, lambda: sink.newest > 0, "the first record")
            sink.begin = (time.time() + warm_up_s) * 1000
            sink.end = sink.begin + seconds * 1000
            wait_for(query, lambda: sink.newest >= sink.end, "the end of the window")
        # Stop the query between batches: a stop during foreachBatch takes long and logs errors.
        wait_for(query, lambda: sink.quiet_since and time.monotonic() > sink.quiet_since + _QUIET_S, "the last batch")
        batches = [b for b in batches_of(progress_of(query)) if b.begin * 1000 >= sink.begin]
    place.kafka.delete_topic(topic)
    return {
        "p50_ms": percentile(sink.latencies, 0.5),
        "p99_ms": percentile(sink.latencies, 0.99),
        "records": sum(sink.latencies.values()),
        **_of_batches(batches),
    }


def _run_ceiling(place: Bench, rows: int) -> dict[str, float | None]:
    # In the source's batches, the small ranges share one task.
    reading = Reading(topics="", partitions=1, records=rows * _CEILING_BATCHES, per_batch=rows)
    records = stream(place, CEILING, reading).select("timestamp")
    writer = records.writeStream.foreachBatch(Sink()).option("checkpointLocation", place.checkpoint())
    return _of_batches(run_to_the_end(writer.trigger(availableNow=True))[_CEILING_WARM_UP:])


def _of_batches(batches: list[Batch]) -> dict[str, float | None]:
    """Return medians of batches."""
    if not batches:
        return {"batch_ms": None, "add_batch_ms": None, "batch_rows": None}
    return {
        "batch_ms": median(batch.trigger_s * 1000 for batch in batches),
        "add_batch_ms": median(batch.add_batch_s * 1000 for batch in batches),
        "batch_rows": median(batch.rows for batch in batches),
    }
