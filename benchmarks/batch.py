"""Batch reads: ``spark.read`` reads a whole topic.  The time includes planning and the start of tasks."""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import named, rotated
from benchmarks.records import BASE_SHAPE, load
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, OURS, TUNED

ARMS = (BUILTIN, TUNED, OURS)

_WARM_UPS = 4
"""Reads before the first one that counts.  A small read takes long in a JVM that has just started."""

QUICK: dict[str, Any] = {"records": [20_000], "partitions": [2], "codecs": ["none"], "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, nargs="*", default=[1_000, 4_000_000], help="in a topic (%(default)s)")
    parser.add_argument("--partitions", type=int, nargs="*", default=[8, 64], help="of a topic (%(default)s)")
    parser.add_argument("--codecs", nargs="*", default=["none", "lz4", "zstd"], help="of the largest, 8 partitions")
    parser.add_argument("--repetitions", type=int, default=5, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        warm = False
        todo = [(partitions, records, "none") for partitions in args.partitions for records in args.records]
        todo += [(args.partitions[0], args.records[-1], codec) for codec in args.codecs if codec != "none"]
        for partitions, records, codec in todo:
            topic = place.topic(partitions)
            load(place.servers, topic, shape=BASE_SHAPE, partitions=partitions, records=records, codec=codec)
            cell = Cell(
                name=f"{records:,} records, {partitions} partitions" + f", {codec}" * (codec != "none"),
                factors={"records": records, "partitions": partitions, "codec": codec},
            )
            result.cells.append(cell)
            if not warm:
                for arm in ARMS * _WARM_UPS:
                    _read(place, arm, topic)
                warm = True
            for repetition in range(args.repetitions):
                for arm in rotated(ARMS, repetition):
                    took_s = _read(place, arm, topic)
                    cell.add(arm, {"read_s": took_s, "records_per_s": records / took_s})
                    say(f"{cell.name}, {arm}: {took_s:.2f} s")
            place.kafka.delete_topic(topic)


def _read(place: Bench, arm: str, topic: str) -> float:
    """Read a whole topic into the ``noop`` sink, and return the time since ``load()``."""
    begin = time.monotonic()
    options = {"kafka.bootstrap.servers": place.servers, "subscribe": topic}
    kind, tuning = named(arm)
    records = place.spark.read.format(kind).options(**options, **tuning).load()
    records.write.format("noop").mode("overwrite").save()
    return time.monotonic() - begin
