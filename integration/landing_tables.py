"""The tables that landings of tests fill: a folder, of Iceberg if its name says so, else of Delta."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

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
        found = load_catalog("default", **_catalog_of(folder)).load_table(_NAME)
        table = found.scan(selected_fields=("topic", "partition", "offset")).to_arrow()
    return Counter(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def deliveries(folder: Path) -> list[Delivery]:
    """Return the rows of the table.  A record with two rows is in two deliveries."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for (topic, partition, offset), count in rows_of(folder).items():
        offsets.setdefault((topic, partition), []).extend([offset] * count)
    return [Delivery("the table", 0.0, 0, *tp, *run) for tp, found in offsets.items() for run in runs(found)]


def _catalog_of(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
