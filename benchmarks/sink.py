"""Writes: batch jobs write rows from memory to a new topic each, compared with Spark's own sink.

All arms write the same cached DataFrame of text that compresses to about half.  Each case runs three ways:

* both sinks with their defaults,
* both tuned alike: see `TUNING`,
* cold: the first write of a new JVM.  All other figures are warm: the arms run until they no longer get faster.

A run with the ``noop`` sink shows the cost of reading the rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.environment import Bench, Say, bench, session
from benchmarks.processes import Part, Watch
from benchmarks.queries import rotated
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, EXACTLY_ONCE, EXACTLY_ONCE_TUNED, OURS, OURS_TUNED, TUNED

NOOP = "noop"
ARMS = (BUILTIN, OURS, EXACTLY_ONCE, TUNED, OURS_TUNED, EXACTLY_ONCE_TUNED, NOOP)

TUNING = {"kafka.linger.ms": "20", "kafka.batch.size": "1000000", "kafka.buffer.memory": str(128 * 1024 * 1024)}
"""What an expert sets.  For `kafka-group`, this batch size is the default, and linger.ms has no effect."""

_PARTITIONS = 8
_PARTS = (Part.JVM, Part.WORKER, Part.BROKER)
_MOST_ROUNDS = 12
_FASTER = 0.97  # a round of warm-up that takes less than this share of the fastest one is not the last


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
CODECS = ("none", "lz4", "zstd")

QUICK: dict[str, Any] = {"records": 20_000, "repetitions": 1, "rows": 1, "codecs": ["none"], "rounds": 1, "cold": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, default=1_000_000, help="of a run, at most (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--rows", type=int, default=len(ROWS), help="how many of the rows (default: all)")
    parser.add_argument("--codecs", nargs="*", default=[*CODECS], choices=CODECS, help="(default: all)")
    parser.add_argument("--sources", nargs="*", choices=ARMS, default=list(ARMS), help="(default: all)")
    parser.add_argument("--rounds", type=int, default=_MOST_ROUNDS, help="of warm-up, at most (default: %(default)s)")
    parser.add_argument("--cold", type=int, default=1, help="cold runs of each arm (default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    result.settings["tuned"] = TUNING
    with bench(say) as place:
        for rows, codec in itertools.product(ROWS[: args.rows], args.codecs):
            if rows.headers and codec != "none":
                continue
            records = max(1000, int(args.records * rows.share))
            cell = Cell(
                name=rows.name if codec == "none" else f"{rows.name} {codec}",
                factors={"records": records, "value_size": rows.value_size, "codec": codec},
            )
            result.cells.append(cell)
            made = cached(place.spark, rows, records)
            _warm_up(place, made, codec, args, cell.name)
            for repetition in range(args.repetitions):
                for arm in rotated(args.sources, repetition):
                    cell.add(arm, _measured(place, arm, made, codec, records))
                    say(f"{cell.name}, {arm}: {cell.arms[arm]['records_per_s'][-1]:,.0f} records/s")
            made.unpersist()
            for repetition in range(args.cold):
                for arm in rotated([arm for arm in args.sources if arm != NOOP], repetition):
                    seconds = _cold_s(place, arm, rows, codec, records)
                    cell.add(arm, {"cold_records_per_s": records / seconds})
                    say(f"{cell.name}, {arm}, cold: {records / seconds:,.0f} records/s")


def _warm_up(place: Bench, made: DataFrame, codec: str, args: argparse.Namespace, name: str) -> None:
    """Let all arms write, until a round is no faster than the ones before."""
    fastest = float("inf")
    for number in range(args.rounds):
        seconds = sum(write_s(place, arm, made, codec) for arm in args.sources)
        place.say(f"{name}: warming up, round {number + 1}: {seconds:.1f} s")
        if number > 1 and seconds > _FASTER * fastest:
            return
        fastest = min(fastest, seconds)


def _measured(place: Bench, arm: str, made: DataFrame, codec: str, records: int) -> dict[str, float | None]:
    begin = time.time()
    with Watch() as watch:
        seconds = write_s(place, arm, made, codec)
        end = time.time()
    # Afterwards: the watch takes its last sample at the end of its block.
    cpu_us = {f"{part.value}_cpu_us": 1e6 * watch.cpu_s(part, begin, end) / records for part in _PARTS}
    return {"records_per_s": records / seconds, "seconds": seconds, "cpu_us": sum(cpu_us.values()), **cpu_us}


def cached(spark: SparkSession, rows: _Rows, records: int) -> DataFrame:
    """Return cached rows with a 16-byte key, and a value of which half is random text."""
    key = "lpad(cast(id as string), 16, '0') as key"
    half = rows.value_size // 2
    # 44 characters of Base64 for each hash.
    hashes = f"transform(sequence(1, {half // 44 + 1}), n -> base64(unhex(sha2(concat(id, '-', n), 256))))"
    value = f"concat(left(concat_ws('', {hashes}), {half}), repeat('x', {half})) as value"
    header = "named_struct('key', '{0}', 'value', cast('0123456789abcdef' as binary))"
    headers = f"array({header.format('header-0')}, {header.format('header-1')}) as headers"
    columns = [key, value, *([headers] if rows.headers else [])]
    made = spark.range(0, records, 1, 2).selectExpr(*columns).cache()
    made.count()
    return made


def write_s(place: Bench, arm: str, rows: DataFrame, codec: str) -> float:
    """Write rows to a new topic, and return how long that took."""
    topic = place.topic(_PARTITIONS)
    seconds = _written_s(place.servers, topic, arm, rows, codec)
    place.kafka.delete_topic(topic)
    return seconds


def _written_s(servers: str, topic: str, arm: str, rows: DataFrame, codec: str) -> float:
    writer = rows.write.format(arm.partition(",")[0]).mode("overwrite" if arm == NOOP else "append")
    if arm != NOOP:
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.compression.type": codec}
        options |= {"delivery": "exactly-once"} if arm in (EXACTLY_ONCE, EXACTLY_ONCE_TUNED) else {}
        options |= TUNING if arm in (TUNED, OURS_TUNED, EXACTLY_ONCE_TUNED) else {}
        writer = writer.options(**options)
    begin = time.monotonic()
    writer.save()
    return time.monotonic() - begin


def _cold_s(place: Bench, arm: str, rows: _Rows, codec: str, records: int) -> float:
    """Return how long the first write of a new JVM takes."""
    topic = place.topic(_PARTITIONS)
    given = json.dumps([place.servers, topic, arm, ROWS.index(rows), codec, records])
    command = [sys.executable, "-m", "benchmarks.sink", given]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    place.kafka.delete_topic(topic)
    return float(found.stdout.splitlines()[-1])


def main(arguments: Sequence[str]) -> None:
    """Write once, in a JVM of its own, and print the seconds."""
    servers, topic, arm, number, codec, records = json.loads(arguments[0])
    spark = session({})
    made = cached(spark, ROWS[number], records)
    print(_written_s(servers, topic, arm, made, codec))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
