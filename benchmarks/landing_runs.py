"""The runs that ``benchmarks.landing`` times, in an environment whose PySpark has the format.

``python -m benchmarks.landing_runs OPTIONS`` prints one JSON object for each measurement.
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.environment import Bench, bench
from benchmarks.formats import AVRO, avro_values, load_values
from benchmarks.other_spark import tell
from benchmarks.processes import Part, Watch
from benchmarks.queries import TUNING, batches_of, progress_of, rotated
from benchmarks.records import Shape, load
from benchmarks.views import APPEND, APPEND_TUNED, LAKE_TABLE, LANDING
from integration.compatibility.lake_writer import FORMAT, create, settings
from pyspark_kafka_group.landing import DeltaLanding, IcebergLanding
from pyspark_kafka_group.landing.landing import Landing
from pyspark_kafka_group.stores import LakeTable

ARMS = (APPEND_TUNED, APPEND, LAKE_TABLE, LANDING)

_AVRO = "Avro"
_BYTES = {"100 B": 100, "1 kB": 1000}
_TYPED = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO)}
_PARTITIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A topic to copy."""

    topic: str
    kind: str
    records: int
    batches: int

    @property
    def per_batch(self) -> int:
        return -(-self.records // self.batches)


def main() -> None:
    """Run all measurements."""
    options = json.loads(sys.argv[1])
    with (
        tempfile.TemporaryDirectory(prefix="landing-") as name,
        bench(lambda _: None, settings=settings(Path(name))) as place,
    ):
        folder = Path(name)
        for kind in options["kinds"]:
            records = options["records"] * 100 // _BYTES.get(kind, 100)
            case = _Case(topic=_topic(place, kind, records), kind=kind, records=records, batches=options["batches"])
            cell, factors = f"{FORMAT}, {kind}", {"format": FORMAT, "kind": kind}
            for repetition in range(options["repetitions"]):
                for arm in rotated(ARMS, repetition):
                    tell(cell, factors, arm, _run(place, case, arm, _Table.new(place, folder, arm, case)))
            if kind == next(iter(_BYTES)) and options["large"]:
                _measure_large(place, case, folder, options)
            place.kafka.delete_topic(case.topic)


def _measure_large(place: Bench, case: _Case, folder: Path, options: Mapping[str, Any]) -> None:
    """Land into a table with many rows of another topic."""
    rows = options["large"]
    other = _Case(topic=_topic(place, case.kind, rows), kind=case.kind, records=rows, batches=options["batches"])
    table = _Table.new(place, folder, LANDING, case)
    _run(place, other, LANDING, table)
    place.kafka.delete_topic(other.topic)
    factors = {"format": FORMAT, "kind": case.kind, "rows": rows}
    tell(
        f"{FORMAT}, {case.kind}, a table of {rows:,} rows",
        factors,
        LANDING,
        _run(place, case, LANDING, table),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table of one arm: its name, its folder, and how to land into it."""

    name: str
    path: Path
    landing: Landing | None = None

    @classmethod
    def new(cls, place: Bench, folder: Path, arm: str, case: _Case) -> _Table:
        short = f"t{uuid.uuid4().hex[:8]}"
        path = folder / short
        if arm == LANDING:
            landing = DeltaLanding(str(path)) if FORMAT == "delta" else IcebergLanding(f"db.{short}", _catalog(folder))
            return cls(name=f"db.{short}", path=path, landing=landing)
        rows = _rows(place, arm, case)
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema)
        return cls(name=create(place.spark, folder, short, columns), path=path)

    @property
    def seconds(self) -> float:
        """The time of all commits until now."""
        return 0.0 if self.landing is None else self.landing.total.seconds

    def rows(self, place: Bench) -> int:
        if self.landing is not None and not self.landing.total.records:
            return 0  # it does not exist yet
        if FORMAT == "delta":
            return DeltaTable(self.path).count()
        if self.landing is not None:
            return load_catalog("default", **_catalog(self.path.parent)).load_table(self.name).scan().count()
        place.spark.catalog.refreshTable(self.name)
        return place.spark.table(self.name).count()


def _topic(place: Bench, kind: str, records: int) -> str:
    topic = place.topic(_PARTITIONS)
    if kind == _AVRO:
        load_values(place.servers, topic, avro_values(AVRO), records)
    else:
        shape = Shape(value_size=_BYTES[kind])
        load(place.servers, topic, shape=shape, partitions=_PARTITIONS, records=records)
    return topic


def _options(place: Bench, case: _Case) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": place.servers,
        "subscribe": case.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(case.per_batch),
    }


def _ours(place: Bench, case: _Case) -> dict[str, str]:
    typed = _TYPED if case.kind == _AVRO else {}
    return {**_options(place, case), **typed, "kafka.group.id": uuid.uuid4().hex}


def _rows(place: Bench, arm: str, case: _Case) -> DataFrame:
    if arm != APPEND_TUNED:
        return place.spark.readStream.format("kafka-group").options(**_ours(place, case)).load()
    rows = place.spark.readStream.format("kafka").options(**_options(place, case), **TUNING).load()
    return rows.withColumn("value", from_avro("value", json.dumps(AVRO))) if case.kind == _AVRO else rows


def _run(place: Bench, case: _Case, arm: str, table: _Table) -> dict[str, float]:
    """Copy the topic, and return the figures of all batches but the first."""
    before, committed_s = table.rows(place), table.seconds
    with Watch() as watch:
        writer = _writer(place, case, arm, table).option("checkpointLocation", place.checkpoint())
        query = writer.start()
        query.processAllAvailable()  # PySpark 4.1, for Iceberg, has no availableNow for Python sources
        query.stop()
        found = [batch for batch in batches_of(progress_of(query)) if batch.add_batch_s > 0][1:]
        measured = case.records - case.per_batch
        if (count := table.rows(place) - before) != case.records:
            raise RuntimeError(f"{arm} has written {count} rows of {case.records} records")
        lasted_s = sum(batch.trigger_s for batch in found)
        begin, end = found[0].begin, found[-1].end
        commits = {} if table.landing is None else {"commit_s": (table.seconds - committed_s) / case.batches}
        return {
            **commits,
            "records_per_s": measured / lasted_s,
            "jvm_cpu_s": watch.cpu_s(Part.JVM, begin, end) / measured * 1e6,
            "python_cpu_s": watch.cpu_s(Part.WORKER, begin, end) / measured * 1e6,
            "worker_rss_mb": watch.largest_worker_mb(begin, end),
        }


def _writer(place: Bench, case: _Case, arm: str, table: _Table) -> DataStreamWriter:
    if table.landing is not None:
        return table.landing.stream(place.spark, _ours(place, case))
    rows = _rows(place, arm, case)
    if arm == LAKE_TABLE:
        target = LakeTable(table.name)
        return rows.writeStream.foreachBatch(lambda batch, number: _take(target.write(batch, number)))
    return rows.writeStream.format(FORMAT).option("path", str(table.path) if FORMAT == "delta" else table.name)


def _take(_found: object) -> None:
    """Drop a result."""


def _catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/landed"}


if __name__ == "__main__":
    main()
