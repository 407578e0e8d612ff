"""Writes: batch jobs write rows from memory to a new topic each, compared with Spark's own sink.

All arms write the same cached DataFrame.  A run with the ``noop`` sink shows the cost of reading it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.environment import Bench, Say, bench
from benchmarks.processes import Part, Watch
from benchmarks.queries import rotated
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, OURS

EXACTLY_ONCE = "kafka-group, exactly once"
NOOP = "noop"
ARMS = (BUILTIN, OURS, EXACTLY_ONCE, NOOP)

_PARTITIONS = 8
_PARTS = (Part.JVM, Part.WORKER, Part.BROKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    name: str
    value_size: int
    headers: bool = False
    share: float = 1.0  # of the number of records


ROWS = (
    _Rows(name="100 B", value_size=100),
    _Rows(name="1 kB", value_size=1000, share=0.25),
    _Rows(name="100 B, 2 headers", value_size=100, headers=True, share=0.5),
)

QUICK: dict[str, Any] = {"records": 20_000, "repetitions": 1, "rows": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, default=1_000_000, help="of a run, at most (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--rows", type=int, default=len(ROWS), help="how many of the rows (default: all)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        for rows in ROWS[: args.rows]:
            records = max(1000, int(args.records * rows.share))
            cell = Cell(name=rows.name, factors={"records": records, "value_size": rows.value_size})
            result.cells.append(cell)
            made = cached(place, rows, records)
            for arm in ARMS:
                say(f"warming up {arm}")
                write_s(place, arm, made)
            for repetition in range(args.repetitions):
                for arm in rotated(ARMS, repetition):
                    begin = time.time()
                    with Watch() as watch:
                        seconds = write_s(place, arm, made)
                        end = time.time()
                    # Afterwards: the watch takes its last sample at the end of its block.
                    cpu_us = {f"{part.value}_cpu_us": 1e6 * watch.cpu_s(part, begin, end) / records for part in _PARTS}
                    cell.add(
                        arm,
                        {
                            "records_per_s": records / seconds,
                            "seconds": seconds,
                            "cpu_us": sum(cpu_us.values()),
                            **cpu_us,
                        },
                    )
                    say(f"{rows.name}, {arm}: {records / seconds:,.0f} records/s")
            made.unpersist()


def cached(place: Bench, rows: _Rows, records: int) -> DataFrame:
    """Return cached rows with a 16-byte key and a value that is half random."""
    key = "lpad(cast(id as string), 16, '0') as key"
    half = rows.value_size // 2
    value = (
        f"concat(left(repeat(sha2(cast(id as string), 256), {half // 64 + 1}), {half}), repeat('x', {half})) as value"
    )
    header = "named_struct('key', '{0}', 'value', cast('0123456789abcdef' as binary))"
    headers = f"array({header.format('header-0')}, {header.format('header-1')}) as headers"
    columns = [key, value, *([headers] if rows.headers else [])]
    made = place.spark.range(0, records, 1, 2).selectExpr(*columns).cache()
    made.count()
    return made


def write_s(place: Bench, arm: str, rows: DataFrame) -> float:
    topic = place.topic(_PARTITIONS)
    options = {"delivery": "exactly-once"} if arm == EXACTLY_ONCE else {}
    writer = rows.write.format(arm.partition(",")[0]).mode("overwrite" if arm == NOOP else "append")
    if arm != NOOP:
        writer = writer.option("kafka.bootstrap.servers", place.servers).option("topic", topic).options(**options)
    begin = time.monotonic()
    writer.save()
    seconds = time.monotonic() - begin
    place.kafka.delete_topic(topic)
    return seconds
