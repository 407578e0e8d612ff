"""One application that writes records into a lake table with `LakeTable`, for check_lake.py.

``python -m integration.compatibility.lake_writer FOLDER FIRST UNTIL [--wait]`` writes the records with these offsets.
With ``--wait`` it creates the file ``started`` in the middle of its job, and waits for the file ``go``.

The variable ``LAKE_CATALOG`` selects where the tables have their names.  ``jdbc`` is Iceberg's catalog in SQLite, and
``rest`` is the catalog that :mod:`integration.compatibility.rest_catalog` runs for the folder.  ``session`` is the
catalog of Spark's session, for Delta.  By default, the tables are folders.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from integration.compatibility.rest_catalog import SQLITE, address
from pyspark_kafka_group.stores import LakeTable
from pyspark_kafka_group.testing.jars import JarSet, resolve

COLUMNS = "topic STRING, partition INT, offset BIGINT, number BIGINT"
FORMAT = "iceberg" if pyspark.__version__.startswith(("4.0", "4.1")) else "delta"
"""Iceberg 1.12 has no runtime for Spark 4.2.  Delta 4.4 has no runtime for Spark 4.3."""

# Spark contains the other dependencies of Delta, in Spark's own versions.
DELTA = (
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "io.delta:delta-kernel-api:4.4.0",
    "io.delta:delta-kernel-defaults:4.4.0",
    "io.delta:delta-kernel-unitycatalog:4.4.0",
    "io.unitycatalog:unitycatalog-client:0.6.0",
)
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)

CATALOG = os.environ.get("LAKE_CATALOG", "")

_JARS = {
    "delta": JarSet(name="delta-4.4.0", label="Delta Lake 4.4.0", modules=DELTA),
    "iceberg": JarSet(name="iceberg-1.12.0", label="Iceberg 1.12.0", modules=ICEBERG),
    "sqlite": JarSet(name="sqlite-3.50.3", label="SQLite's driver 3.50.3", modules=(SQLITE,)),
}
_SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": CATALOG or "hadoop",
    },
}


def settings(folder: Path) -> dict[str, str]:
    """Return Spark's settings for the format, with its tables in ``folder``."""
    jars = resolve(_JARS[FORMAT])
    found = {"spark.sql.shuffle.partitions": "1", "spark.sql.catalog.lake.warehouse": str(folder), **_SETTINGS[FORMAT]}
    if CATALOG == "jdbc":
        jars = [*jars, *resolve(_JARS["sqlite"])]
        # A process waits for the others to write.
        found["spark.sql.catalog.lake.uri"] = f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=60000"
    if CATALOG == "rest":
        found["spark.sql.catalog.lake.uri"] = address(folder)
    return {**found, "spark.jars": ",".join(map(str, jars))}


def session(folder: Path) -> SparkSession:
    """Return a session with the format for this PySpark, and with its tables in ``folder``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )
    for name, value in settings(folder).items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def table(folder: Path, name: str) -> str:
    """Return the name of a table in the folder."""
    if FORMAT == "iceberg":
        return f"lake.db.{name}"
    return f"delta.`{folder}/{name}`" if not CATALOG else f"default.{name}"


def create(spark: SparkSession, folder: Path, name: str, columns: str = COLUMNS, clauses: str = "") -> str:
    """Create a table, unless another session has created it, and return its name in this session."""
    location = f"LOCATION '{folder}/{name}'" if FORMAT == "delta" and CATALOG else ""
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table(folder, name)} ({columns}) USING {FORMAT} {location} {clauses}")
    return table(folder, name)


def records(spark: SparkSession, first: int, until: int) -> DataFrame:
    """Return two rows for each record of two partitions."""
    return spark.sql(
        f"SELECT 'orders' AS topic, CAST(p.id AS INT) AS partition, o.id AS offset, n.id AS number "
        f"FROM range({first}, {until}, 1, 1) o, range(0, 2, 1, 1) p, range(0, 2, 1, 1) n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("until", type=int)
    parser.add_argument("--wait", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)  # shows the conflicts
    spark, folder = session(args.folder), args.folder
    rows = records(spark, args.first, args.until)

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted = folder / f"counted-{args.first}"
        if counted.exists():  # the first run only counts the rows
            (folder / "started").touch()
            while not (folder / "go").exists():
                time.sleep(0.05)
        counted.touch()
        yield from batches

    if args.wait:
        rows = rows.mapInArrow(waits, rows.schema)
    LakeTable(create(spark, folder, "orders")).write(rows, 0)
    print("written", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
