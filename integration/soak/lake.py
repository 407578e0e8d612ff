"""The lake table that the applications of a soak fill together."""

from __future__ import annotations

from pathlib import Path

from integration.compatibility.lake_writer import FORMAT, session, table
from integration.sink import Delivery, runs


def create(folder: Path) -> str:
    """Create the table, and return its name."""
    spark, name = session(folder), table(folder, "soak")
    spark.sql(f"CREATE TABLE {name} (topic STRING, partition INT, offset BIGINT) USING {FORMAT}")
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
