"""The option ``where`` beside Spark's own filter behind the same source, and the reader alone without an engine.

A part of the records has the wanted keys, or the wanted numbers in typed values.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.environment import Bench, Say, bench
from benchmarks.formats import AVRO, DDL, avro_values, json_values, load_values
from benchmarks.queries import rotated
from benchmarks.records import BASE_SHAPE
from benchmarks.results import Cell, Result
from benchmarks.views import OURS
from pyspark_kafka_group import read_arrow

WHERE, AFTER, ALONE = "where", "df.where", "read_arrow"
ARMS = (WHERE, AFTER, ALONE)

_TYPED: dict[str, dict[str, str]] = {
    "bytes": {},
    "json": {"valueFormat": "json", "valueSchema": DDL},
    "avro": {"valueFormat": "avro", "valueSchema": json.dumps(AVRO)},
}
_KEPT = {1: ("key = '07'", "value.id % 100 = 7"), 10: ("key < '10'", "value.id % 10 = 7"), 100: ("key >= '00'", "")}
"""The conditions on the key and on the value that keep a percentage of the records."""

_WARM_UPS = 3

QUICK: dict[str, Any] = {"records": 20_000, "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, default=3_000_000, help="(default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        values = {"bytes": BASE_SHAPE.values(), "json": json_values(), "avro": avro_values(AVRO)}
        for kind, options in _TYPED.items():
            topic = place.topic(8)
            load_values(place.servers, topic, values[kind], args.records)
            given = {"kafka.bootstrap.servers": place.servers, "subscribe": topic, **options}
            for percent, (by_key, by_value) in _KEPT.items():
                for what, where in (("key", by_key), ("value", by_value if options else "")):
                    if where:
                        cell = Cell(
                            name=f"{kind}, {percent} % by {what}",
                            factors={"format": kind, "percent": percent, "by": what},
                        )
                        result.cells.append(cell)
                        _compare(place, cell, given, where, args)
            place.kafka.delete_topic(topic)


def _compare(place: Bench, cell: Cell, options: dict[str, str], where: str, args: argparse.Namespace) -> None:
    def read(**more: str) -> DataFrame:
        return place.spark.read.format(OURS).options(**options, **more).load()

    def write(rows: DataFrame) -> None:
        rows.write.format("noop").mode("overwrite").save()

    reads: dict[str, Callable[[], Any]] = {
        WHERE: lambda: write(read(where=where)),
        AFTER: lambda: write(read().where(where)),
        ALONE: lambda: sum(batch.num_rows for batch in read_arrow({**options, "where": where})),
    }
    for arm in ARMS * _WARM_UPS:
        reads[arm]()
    for repetition in range(args.repetitions):
        for arm in rotated(ARMS, repetition):
            begin = time.monotonic()
            reads[arm]()
            took_s = time.monotonic() - begin
            cell.add(arm, {"records_per_s": args.records / took_s})
            place.say(f"{cell.name}, {arm}: {args.records / took_s:,.0f} records/s")
