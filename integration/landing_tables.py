"""The tables that landings of tests fill: a folder, of Iceberg if its name says so, else of Delta."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from integration.sink import Delivery, runs
from pyspark_kafka_group.landing import DeltaLanding, IcebergLanding
from pyspark_kafka_group.landing.landing import Landing

FORMATS = ("delta", "iceberg")

_NAME = "shop.orders"


def landing_in(folder: Path) -> Landing:
    """Return a landing in the table of a folder."""
    if folder.name != "iceberg":
        return DeltaLanding(str(folder))
    folder.mkdir(exist_ok=True)
    return IcebergLanding(_NAME, catalog=_catalog_of(folder))


def rows_of(folder: Path) -> Counter[tuple[str, int, int]]:
    """Return how often the table has each record.  Reads all rows, without a key."""
    if folder.name != "iceberg":
        table = DeltaTable(folder).to_pyarrow_table(columns=["topic", "partition", "offset"])
    else:
        table = _table_of(folder).scan(selected_fields=("topic", "partition", "offset")).to_arrow()
    return Counter(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def deliveries(folder: Path) -> list[Delivery]:
    """Return the rows of the table, file by file, at the time of the commit.  A record with two rows is in two."""
    found = []
    for path, seconds in _files(folder):
        rows = pq.read_table(path, columns=["topic", "partition", "offset"], partitioning=None)
        tps = set(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
        ((topic, partition),) = tps  # each file is of one topic-partition
        found += [Delivery("the table", seconds, 0, topic, partition, *run) for run in runs(rows["offset"].to_pylist())]
    return found


def _files(folder: Path) -> Iterator[tuple[str, float]]:
    """Yield the files of the table, and when they were committed."""
    if folder.name != "iceberg":
        actions = pa.table(DeltaTable(folder).get_add_actions(flatten=True))
        times = actions["modification_time"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
        yield from (
            (str(folder / path), ms / 1000) for path, ms in zip(actions["path"].to_pylist(), times, strict=True)
        )
        return
    table = _table_of(folder)
    committed = {snapshot.snapshot_id: snapshot.timestamp_ms / 1000 for snapshot in table.snapshots()}
    for entry in table.inspect.entries().select(["snapshot_id", "data_file"]).to_pylist():
        yield entry["data_file"]["file_path"].removeprefix("file://"), committed[entry["snapshot_id"]]


def _table_of(folder: Path) -> Table:
    return load_catalog("default", **_catalog_of(folder)).load_table(_NAME)


def _catalog_of(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
