"""The writes that ``benchmarks.lake`` times, in an environment whose PySpark has the format.

``python -m benchmarks.lake_writes OPTIONS`` prints one JSON object for each measurement.  It needs no Kafka.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.other_spark import tell
from benchmarks.samples import percentile
from integration.compatibility.lake_writer import FORMAT, create, session
from integration.postgres import execute, new_schema
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores import LakeTable, OffsetTable, into, lake_table
from pyspark_kafka_group.stores.lake_history import OffsetSpan

Write = Callable[[DataFrame, int, int], None]
"""A function that writes rows with the offsets ``[first, until)`` in all partitions."""

ONCE, ONCE_PARTITIONED, APPEND = "LakeTable", "LakeTable, partitioned table", "plain append"
DATABASE = "PostgreSQL"

_COLUMNS = "topic STRING, partition INT, offset BIGINT, value STRING"
_PARTITIONS = 8
_WRITES = 3


@dataclass(frozen=True, slots=True)
class _Place:
    """The session, its folder of tables, and the options of the run."""

    spark: SparkSession
    folder: Path
    options: dict[str, Any]
    retries: _Retries


class _Retries(logging.Handler):
    """Counts the attempts that conflicted with another commit."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        if "Trying again" in record.getMessage():
            self.count += 1


def main() -> None:
    """Run all measurements."""
    with tempfile.TemporaryDirectory(prefix="lake-") as folder:
        _run(Path(folder), json.loads(sys.argv[1]))


def _run(folder: Path, options: dict[str, Any]) -> None:
    place = _Place(session(folder), folder, options, retries := _Retries())
    logging.getLogger("pyspark_kafka_group").addHandler(retries)
    logging.getLogger("pyspark_kafka_group").setLevel(logging.INFO)
    for rows in options["sizes"]:
        _measure_size(place, rows)
    for writers in options["writers"]:
        for repetition in range(options["repetitions"]):
            for arm in (ONCE, ONCE_PARTITIONED, APPEND, DATABASE):
                _measure_writers(place, arm, writers, repetition)
    place.spark.stop()


def _measure_size(place: _Place, rows: int) -> None:
    """Measure single writes into a table with ``rows`` rows."""
    spark, each, per_batch = place.spark, rows // _PARTITIONS, place.options["per_batch"] // _PARTITIONS
    writes = {}
    for arm in (ONCE, APPEND):
        name = _create(place, f"size_{rows}_{arm}", partitioned=False)
        for part in range(10):
            _append(name)(_rows(spark, range(_PARTITIONS), each * part // 10, each * (part + 1) // 10), 0, 0)
        writes[arm] = _writer(arm, name, range(_PARTITIONS))
    first = each
    for repetition in range(-1, place.options["repetitions"]):
        for arm, write in writes.items():
            took = []
            for n in range(_WRITES):
                start = first + n * per_batch
                begin = time.monotonic()
                write(_rows(spark, range(_PARTITIONS), start, start + per_batch), start, start + per_batch)
                took.append(time.monotonic() - begin)
            if repetition >= 0:  # the first repetition is the warm-up of the JVM
                factors = {"format": FORMAT, "rows": rows}
                metrics = {"write_s": statistics.median(took)}
                tell(f"{FORMAT}, into a table of {rows:,} rows", factors, arm, metrics)
        first += _WRITES * per_batch


def _measure_writers(place: _Place, arm: str, writers: int, repetition: int) -> None:
    """Measure several threads that write concurrently, each to its own partition, like the members of a group."""
    if arm == DATABASE:
        with new_schema(os.environ["DATABASE_URL"]) as name:
            execute(name, 'CREATE TABLE rows (topic text, "partition" int, "offset" bigint, value text)')
            _measure_table(place, arm, writers, name, lambda: execute(name, "SELECT count(*) FROM rows")[0][0])
        return
    name = _create(place, f"writers_{writers}_{arm}_{repetition}", partitioned=arm == ONCE_PARTITIONED)

    def count() -> int:
        if FORMAT == "iceberg":
            place.spark.catalog.refreshTable(name)
        return place.spark.table(name).count()

    _measure_table(place, arm, writers, name, count)


def _measure_table(place: _Place, arm: str, writers: int, name: str, count: Callable[[], int]) -> None:
    spark, options, before = place.spark, place.options, place.retries.count
    per_batch = options["per_batch"]
    took: list[float] = []
    problems: list[BaseException] = []

    def run(partition: int) -> None:
        write = _writer(arm, name, [partition])
        try:
            for n in range(options["writes"]):
                begin, start = time.monotonic(), n * per_batch
                write(_rows(spark, [partition], start, start + per_batch), start, start + per_batch)
                took.append(time.monotonic() - begin)
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(writers)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lasted_s = time.monotonic() - begin
    if problems:
        raise problems[0]
    assert count() == writers * options["writes"] * per_batch, "rows are missing, or repeated"
    tell(
        f"{FORMAT}, {writers} writer{'s' * (writers > 1)}",
        {"format": FORMAT, "writers": writers},
        arm,
        {
            "rows_per_s": writers * options["writes"] * per_batch / lasted_s,
            "p50_s": percentile(Counter(took), 0.5),
            "p99_s": percentile(Counter(took), 0.99),
            "retries": (place.retries.count - before) / len(took),
        },
    )


def _create(place: _Place, name: str, *, partitioned: bool) -> str:
    parts = "PARTITIONED BY (topic, partition)" if partitioned else ""
    return create(place.spark, place.folder, "".join(c if c.isalnum() else "_" for c in name), _COLUMNS, parts)


def _rows(spark: SparkSession, partitions: Sequence[int], first: int, until: int) -> DataFrame:
    """Return rows with values of 100 B and with these offsets in each partition."""
    numbers = ", ".join(str(n) for n in partitions)
    return spark.range(first, until, 1, 4).selectExpr(
        "'orders' AS topic",
        f"explode(array({numbers})) AS partition",
        "id AS offset",
        "substr(repeat(md5(CAST(id AS STRING)), 4), 1, 100) AS value",
    )


def _writer(arm: str, name: str, partitions: Sequence[int]) -> Write:
    if arm == APPEND:
        return _append(name)
    if arm == DATABASE:
        offsets = OffsetTable(name, "benchmark")
        return lambda rows, first, _: _take(offsets.write(rows, first, into("rows", columns=tuple(rows.columns))))
    target = LakeTable(name)

    def write(rows: DataFrame, first: int, until: int) -> None:
        # A Kafka source reports the offsets of a batch.  Without these spans, LakeTable would count the rows.
        spans = {TopicPartition("orders", n): OffsetSpan(first, until) for n in partitions}
        way = target._format(rows.sparkSession, rows.columns)
        target._try(lambda: way.write(rows.sparkSession, lake_table._checked(rows, spans), spans), 0)

    return write


def _take(_found: object) -> None:
    """Drop a result."""


def _append(name: str) -> Write:
    def write(rows: DataFrame, _first: int, _until: int) -> None:
        if FORMAT == "delta":
            rows.write.format("delta").mode("append").save(name.removeprefix("delta.`").removesuffix("`"))
        else:
            rows.writeTo(name).append()

    return write


if __name__ == "__main__":
    main()
