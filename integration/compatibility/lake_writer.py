"""One application that writes records into a lake table with `LakeTable`, for check_lake.py.

``python -m integration.compatibility.lake_writer FOLDER FIRST UNTIL [--wait]`` writes the records with these offsets.
With ``--wait`` it creates the file ``started`` in the middle of its job, and waits for the file ``go``.
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

from pyspark_kafka_group.stores import LakeTable
from pyspark_kafka_group.testing.jars import JarSet, resolve

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

_JARS = {
    "delta": JarSet(name="delta-4.4.0", label="Delta Lake 4.4.0", modules=DELTA),
    "iceberg": JarSet(name="iceberg-1.12.0", label="Iceberg 1.12.0", modules=ICEBERG),
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
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def settings(folder: Path) -> dict[str, str]:
    """Return Spark's settings for the format, with its tables in ``folder``."""
    return {
        "spark.sql.shuffle.partitions": "1",
        "spark.jars": ",".join(map(str, resolve(_JARS[FORMAT]))),
        "spark.sql.catalog.lake.warehouse": str(folder),
        **_SETTINGS[FORMAT],
    }


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


def table(folder: Path, name: str = "orders") -> str:
    """Return the name of a table in the folder."""
    return f"delta.`{folder}/{name}`" if FORMAT == "delta" else f"lake.db.{name}"


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
    LakeTable(table(folder)).write(rows, 0)
    print("written", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
