"""Landing beside plain appends: Spark's own source and this one into Parquet files, and landing into lake tables.

Delta and Iceberg have no runtime for the newest Spark.  So the appends write a plain folder of Parquet files, which
costs less than a commit to a lake table.  ``benchmarks.lake`` has the times of ``LakeTable``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.environment import Bench, Say, bench
from benchmarks.processes import Part, Watch
from benchmarks.queries import PATIENCE_S, TUNING, batches_of, progress_of, rotated
from benchmarks.records import Shape, load
from benchmarks.results import Cell, Result
from benchmarks.views import APPEND, APPEND_TUNED, LANDING_DELTA, LANDING_ICEBERG
from pyspark_kafka_group.landing import DeltaLanding, IcebergLanding
from pyspark_kafka_group.landing.landing import Landing

ARMS = (APPEND_TUNED, APPEND, LANDING_DELTA, LANDING_ICEBERG)

QUICK: dict[str, Any] = {"records": 50_000, "sizes": [100], "batches": 2, "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--records", type=int, default=4_000_000, help="of 100 B (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000], help="of values (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=5, help="the first is not measured (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each size of values to the result."""
    with bench(say) as place:
        for size in args.sizes:
            records = args.records * 100 // size
            topic = place.topic(8)
            load(place.servers, topic, shape=Shape(value_size=size), partitions=8, records=records)
            cell = Cell(name=f"values of {size} B", factors={"value_size": size})
            result.cells.append(cell)
            for repetition in range(args.repetitions):
                for arm in rotated(ARMS, repetition):
                    figures = _run(place, topic, arm, records, args.batches)
                    cell.add(arm, figures)
                    say(f"{cell.name}, {arm}: {figures}")
            place.kafka.delete_topic(topic)


def _run(place: Bench, topic: str, arm: str, records: int, batches: int) -> dict[str, float]:
    """Copy the topic, and return the figures of all batches but the first."""
    checkpoint = place.checkpoint()
    with tempfile.TemporaryDirectory(prefix="landing-") as folder, Watch() as watch:
        landing = _landing(arm, Path(folder))
        writer = _writer(place, topic, landing or arm, Path(folder), -(-records // batches))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        if not query.awaitTermination(int(PATIENCE_S)):
            raise RuntimeError(f"{arm} does not end")
        found = [batch for batch in batches_of(progress_of(query)) if batch.add_batch_s > 0][1:]
        measured = records - -(-records // batches)
        _check(arm, Path(folder), records, place)
        lasted_s = sum(batch.trigger_s for batch in found)
        begin, end = found[0].begin, found[-1].end
        commits = {"commit_s": landing.total.seconds / batches} if landing is not None else {}
        return {
            **commits,
            "records_per_s": measured / lasted_s,
            "jvm_cpu_s": watch.cpu_s(Part.JVM, begin, end) / measured * 1e6,
            "python_cpu_s": watch.cpu_s(Part.WORKER, begin, end) / measured * 1e6,
            "worker_rss_mb": watch.largest_worker_mb(begin, end),
        }


def _landing(arm: str, folder: Path) -> Landing | None:
    if arm == LANDING_DELTA:
        return DeltaLanding(str(folder / "table"))
    return IcebergLanding("bench.records", _catalog(folder)) if arm == LANDING_ICEBERG else None


def _writer(place: Bench, topic: str, target: Landing | str, folder: Path, per_batch: int) -> DataStreamWriter:
    options = {
        "kafka.bootstrap.servers": place.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(per_batch),
    }
    group = {**options, "kafka.group.id": f"{topic}-{folder.name}"}
    if isinstance(target, Landing):
        return target.stream(place.spark, group)
    source, given = ("kafka", options | TUNING) if target == APPEND_TUNED else ("kafka-group", group)
    rows = place.spark.readStream.format(source).options(**given).load()
    return rows.writeStream.format("parquet").option("path", str(folder / "table"))


def _catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def _check(arm: str, folder: Path, records: int, place: Bench) -> None:
    if arm == LANDING_DELTA:
        count = DeltaTable(folder / "table").count()
    elif arm == LANDING_ICEBERG:
        count = load_catalog("default", **_catalog(folder)).load_table("bench.records").scan().count()
    else:
        count = place.spark.read.parquet(str(folder / "table")).count()
    if count != records:
        raise RuntimeError(f"{arm} has written {count} rows of {records} records")
