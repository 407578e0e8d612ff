"""Writes to PostgreSQL by ``foreachBatch``: with the offset table, and with the same COPY without it.

Both write in the tasks, with one transaction for each task.  A third arm counts the rows and writes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import Reading, rotated, run_to_the_end, stream
from benchmarks.records import BASE_SHAPE, load
from benchmarks.results import Cell, Result
from benchmarks.views import OURS
from integration.postgres import execute, new_schema, postgres_from_environment
from pyspark_kafka_group.stores import OffsetTable, into
from pyspark_kafka_group.stores.database import Database

WITH_TABLE, WITHOUT, NOTHING = "with the offset table", "without it", "nothing written"
ARMS = (WITH_TABLE, WITHOUT, NOTHING)

COLUMNS = ("topic", "partition", "offset", "key", "value")
_TABLE = 'CREATE TABLE rows (topic text, "partition" int, "offset" bigint, key bytea, value bytea)'
_PARTITIONS = 8

QUICK: dict[str, Any] = {"records": 4_000, "per_batch": [1_000], "repetitions": 1}

Sink = Callable[[DataFrame, int], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, default=400_000, help="of a run (default: %(default)s)")
    parser.add_argument("--per-batch", type=int, nargs="*", default=[10_000, 100_000], help="(default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place, postgres_from_environment() as server:
        topic = place.topic(_PARTITIONS)
        load(place.servers, topic, shape=BASE_SHAPE, partitions=_PARTITIONS, records=args.records, codec="none")
        for arm in ARMS:
            say(f"warming up {arm}")
            _rows_per_s(place, server, arm, Reading(topics=topic, partitions=_PARTITIONS, records=args.records))
        for per_batch in args.per_batch:
            cell = Cell(name=f"{per_batch:,} rows a batch", factors={"per_batch": per_batch})
            result.cells.append(cell)
            reading = Reading(topics=topic, partitions=_PARTITIONS, records=args.records, per_batch=per_batch)
            for repetition in range(args.repetitions):
                for arm in rotated(ARMS, repetition):
                    found = _rows_per_s(place, server, arm, reading)
                    cell.add(arm, {"rows_per_s": found})
                    say(f"{cell.name}, {arm}: {found:,.0f} rows/s")


def _rows_per_s(place: Bench, server: str, arm: str, reading: Reading) -> float:
    """Write the whole topic, and return the rows per second during the batches."""
    with contextlib.ExitStack() as stack:
        url = "" if arm == NOTHING else stack.enter_context(new_schema(server))
        if url:
            execute(url, _TABLE)
        rows = stream(place, OURS, reading).select(*COLUMNS).writeStream.foreachBatch(_sink(arm, url))
        writer = rows.option("checkpointLocation", place.checkpoint()).trigger(availableNow=True)
        batches = run_to_the_end(writer)
        if url:
            assert execute(url, "SELECT count(*) FROM rows") == [(reading.records,)], f"{arm}: rows are missing"
        return sum(batch.rows for batch in batches) / sum(batch.trigger_s for batch in batches)


def _sink(arm: str, url: str) -> Sink:
    if arm == WITH_TABLE:
        table = OffsetTable(url, "benchmark")
        return lambda batch, batch_id: _take(table.write(batch, batch_id, into("rows", columns=COLUMNS)))
    if arm == NOTHING:
        return lambda batch, _: _take(batch.count())

    def append(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        database = Database.checked(url, lock_timeout_s=60.0, idle_timeout_s=60.0)
        copy = into("rows", columns=COLUMNS)
        with database.transaction() as connection:
            for found in batches:
                copy(connection, found)
        yield from ()

    return lambda batch, _: _take(batch.mapInArrow(append, "n INT").collect())


def _take(_found: object) -> None:
    """Drop the result of a sink, because Spark expects None."""
