"""The lake table that the applications of a soak fill together."""

from __future__ import annotations

from pathlib import Path

from integration.compatibility import lake_writer
from integration.compatibility.lake_writer import session, table
from integration.sink import Delivery, runs


def create(folder: Path) -> str:
    """Create the table, and return its name."""
    spark = session(folder)
    name = lake_writer.create(spark, folder, "soak", "topic STRING, partition INT, offset BIGINT")
    spark.stop()
    return name


def deliveries(folder: Path) -> list[Delivery]:
    """Return the rows of the table.  A record with two rows is in two deliveries."""
    spark = session(folder)
    rows = spark.table(table(folder, "soak")).groupBy("topic", "partition").agg({"offset": "collect_list"}).collect()
    spark.stop()
    return [
        Delivery("the table", 0.0, 0, topic, partition, *run)
        for topic, partition, offsets in rows
        for run in runs(offsets)
    ]
