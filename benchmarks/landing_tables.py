"""The ways from a topic into a table that the benchmarks of landing compare, and the tables.

Iceberg's tables are in one catalog in SQLite, for Spark and for landing: `LAKE_CATALOG` is ``jdbc``.
"""

from __future__ import annotations

import json
import time
import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.formats import AVRO
from benchmarks.queries import TUNING, Batch
from benchmarks.samples import percentile
from benchmarks.views import APPEND, APPEND_TUNED, LAKE_TABLE, LANDING
from integration.compatibility.lake_writer import FORMAT, create
from pyspark_kafka_group.landing import DeltaLanding, IcebergLanding
from pyspark_kafka_group.landing.landing import Landed, Landing
from pyspark_kafka_group.stores import LakeTable

ARMS = (APPEND_TUNED, APPEND, LAKE_TABLE, LANDING)
TYPED = "Avro"
BYTES = {"100 B": 100, "1 kB": 1000}
PARTITIONS = 8

_CATALOG = "lake"


class Commit(NamedTuple):
    """A commit of landing, and when it ended, in seconds since 1970."""

    end: float
    landed: Landed


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A topic to copy.

    Attributes
    ----------
    servers, topic : str
        The cluster and the topic.
    kind : str
        Of the values: a key of `BYTES`, or `TYPED`.
    per_batch : int
        Records of a batch.
    group : str
        The group of applications that share the topic; by default, a new one.
    more : mapping of str to str
        More options of the source.
    """

    servers: str
    topic: str
    kind: str
    per_batch: int
    group: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    def options(self, arm: str) -> dict[str, str]:
        """Return the options of the source of an arm."""
        given = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.per_batch),
            **self.more,
        }
        if arm == APPEND_TUNED:
            return {**given, **TUNING}
        typed = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO)} if self.kind == TYPED else {}
        return {**given, **typed, "kafka.group.id": self.group or uuid.uuid4().hex}

    def rows(self, spark: SparkSession, arm: str) -> DataFrame:
        """Return the stream of an arm that does not land."""
        source = "kafka" if arm == APPEND_TUNED else "kafka-group"
        rows = spark.readStream.format(source).options(**self.options(arm)).load()
        typed = arm == APPEND_TUNED and self.kind == TYPED
        return rows.withColumn("value", from_avro("value", json.dumps(AVRO))) if typed else rows


class Table:
    """A table of one arm, created if it does not exist, and how to write into it.

    Parameters
    ----------
    spark : SparkSession
        The session.
    folder : Path
        The folder of all tables.
    arm : str
        Of `ARMS`.
    case : Case
        It has the columns.
    name : str
        Its name in the folder.

    Attributes
    ----------
    commits : list of Commit
        The commits of landing until now.
    """

    def __init__(self, spark: SparkSession, folder: Path, arm: str, case: Case, name: str) -> None:
        self._spark, self._arm, self._path = spark, arm, folder / name
        self.commits: list[Commit] = []
        self._landing: Landing | None = None
        self._name = ""
        if arm != LANDING:
            rows = case.rows(spark, arm)
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema)
            self._name = create(spark, folder, name, columns)
        elif FORMAT == "delta":
            self._landing = DeltaLanding(str(self._path))
        else:
            self._landing = IcebergLanding(f"db.{name}", _catalog(folder), catalog_name=_CATALOG)

    def writer(self, case: Case) -> DataStreamWriter:
        """Return the writer of the stream that copies a topic."""
        if self._landing is not None:
            return self._landing.stream(self._spark, case.options(self._arm)).foreachBatch(self._land)
        rows = case.rows(self._spark, self._arm)
        if self._arm == LAKE_TABLE:
            target = LakeTable(self._name)
            return rows.writeStream.foreachBatch(lambda batch, number: _take(target.write(batch, number)))
        return rows.writeStream.format(FORMAT).option("path", str(self._path) if FORMAT == "delta" else self._name)

    def _land(self, batch: DataFrame, number: int) -> None:
        assert self._landing is not None
        landed = self._landing.commit(batch, number)
        if landed.records:
            self.commits.append(Commit(time.time(), landed))


def count(folder: Path, name: str) -> int:
    """Return the rows of a table; 0 if it does not exist."""
    if FORMAT == "delta":
        place = folder / name
        return DeltaTable(place).count() if DeltaTable.is_deltatable(str(place)) else 0
    catalog = load_catalog(_CATALOG, **_catalog(folder))
    known = catalog.table_exists(f"db.{name}")
    return catalog.load_table(f"db.{name}").scan().count() if known else 0


def data_times(folder: Path) -> list[float]:
    """Return when each data file of all tables was closed, in order, in seconds since 1970."""
    return sorted(file.stat().st_mtime for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts)


def commit_s(batch: Batch, times: Sequence[float]) -> float | None:
    """Return the time from the last data file of a batch until the table has the batch."""
    at = bisect_right(times, batch.written)
    return batch.written - times[at - 1] if at and times[at - 1] >= batch.begin else None


def commit_figures(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    """Return the percentiles of the times of commits."""
    found = Counter(seconds)
    return {f"{name}_p50_s": percentile(found, 0.5), f"{name}_p99_s": percentile(found, 0.99)}


def landed_figures(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return the figures of `Landed.seconds`; none for other arms."""
    return {"commit_s": fmean(seconds), **commit_figures("landed", seconds)} if seconds else {}


def _take(_found: object) -> None:
    """Drop a result."""


def _catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
