"""Applications that land records without Spark and without Kafka, each with a `Landing` of its own.

``python -m tests.connector.landing.applications TABLE`` starts some that land batches without end, and kills each.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate
from pyspark.sql.types import StructType

from pyspark_kafka_group.columns.schema import arrow_schema, spark_schema
from pyspark_kafka_group.landing import DeltaLanding, IcebergLanding, Landed, landing, source
from pyspark_kafka_group.landing.delta import DeltaState
from pyspark_kafka_group.landing.iceberg import IcebergState
from pyspark_kafka_group.landing.landing import Landing
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.session.running_batch import RunningBatch

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
DAY_US = 86_400_000_000


def records(tp: TopicPartition, r: OffsetRange, *, size: int = 7) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in batches.  Offset n has the value n, and is of day n // 10."""
    for start in range(r.start, r.until, size):
        offsets = range(start, min(start + size, r.until))
        rows = {
            "key": [None for _ in offsets],
            "value": [str(n).encode() for n in offsets],
            "topic": [tp.topic for _ in offsets],
            "partition": [tp.partition for _ in offsets],
            "offset": [*offsets],
            "timestamp": [n // 10 * DAY_US for n in offsets],
            "timestampType": [0 for _ in offsets],
        }
        schema = arrow_schema(COLUMNS)
        columns = [pa.array(rows[name], schema.field(name).type) for name in COLUMNS]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class Ready:
    """A batch whose tasks have ended, in place of Spark's DataFrame."""

    run: Callable[[], list[dict[str, Any]]]
    running: RunningBatch

    def __post_init__(self) -> None:
        self.rows = self.run()
        self.collected = 0

    def collect(self) -> list[dict[str, Any]]:
        self.collected += 1
        if self.collected > 1:
            self.rows = self.run()
        return self.rows


landing.running_batch = lambda batch, *_: batch.running  # type: ignore[attr-defined]


class Delta:
    """A Delta table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "table"
        self.look = DeltaState

    def __str__(self) -> str:
        return f"delta:{self.folder}"

    def landing(self, **more: Any) -> Landing:
        return DeltaLanding(str(self.data), **more)

    def table(self) -> DeltaTable:
        return DeltaTable(self.data)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table().to_pyarrow_table().to_pylist()
        return found

    def committed(self) -> int:
        return len(self.table().file_uris())

    def newest(self) -> int:
        return int(self.table().version())

    def roll_back(self, to: int) -> None:
        self.table().restore(to)

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.data, rows, mode="append")

    def rename_topic(self) -> None:
        self.table().update(updates={"topic": "'orders-old'"}, predicate="topic = 'orders'")

    def create(self, schema: pa.Schema) -> None:
        DeltaTable.create(self.data, schema)

    def create_again(self) -> None:
        DeltaTable.create(self.data, self.table().schema(), mode="overwrite")

    def replace(self) -> None:
        """Begin the table anew, as an overwrite or ``CREATE OR REPLACE TABLE`` in Spark does."""
        self.create_again()


class Iceberg:
    """An Iceberg table of a catalog in SQLite."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "shop" / "orders"
        self.look = IcebergState
        folder.mkdir(exist_ok=True)
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}

    def __str__(self) -> str:
        return f"iceberg:{self.folder}"

    def landing(self, **more: Any) -> Landing:
        return IcebergLanding("shop.orders", self.catalog, **more)

    def table(self) -> Table:
        return load_catalog("default", **self.catalog).load_table("shop.orders")

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table().scan().to_arrow().to_pylist()
        return found

    def committed(self) -> int:
        return int(self.table().inspect.data_files().num_rows)

    def newest(self) -> int:
        snapshot = self.table().current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def roll_back(self, to: int) -> None:
        self.table().manage_snapshots().rollback_to_snapshot(to).commit()

    def append(self, rows: pa.Table) -> None:
        self.table().append(rows)

    def rename_topic(self) -> None:
        table = self.table()
        rows = table.scan(row_filter="topic = 'orders'").to_arrow()
        old = pa.array(["orders-old"] * rows.num_rows, pa.large_string())
        table.overwrite(rows.set_column(rows.schema.get_field_index("topic"), "topic", old), "topic = 'orders'")

    def create(self, schema: pa.Schema) -> None:
        catalog = load_catalog("default", **self.catalog)
        catalog.create_namespace("shop")
        catalog.create_table("shop.orders", schema)

    def create_again(self) -> None:
        catalog, schema = load_catalog("default", **self.catalog), self.table().schema()
        catalog.drop_table("shop.orders")
        catalog.create_table("shop.orders", schema)

    def replace(self) -> None:
        """Begin the table anew, as ``CREATE OR REPLACE TABLE`` in Spark does: with the same id and properties."""
        table = self.table()
        asserted = (AssertTableUUID(uuid=table.metadata.table_uuid),)
        table.catalog.commit_table(table, asserted, (RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}),))


Place = Delta | Iceberg


def place(name: str) -> Place:
    """Return the table of a text such as ``delta:/tmp/x``."""
    kind, _, folder = name.partition(":")
    return Delta(Path(folder)) if kind == "delta" else Iceberg(Path(folder))


@dataclass
class Application:
    """One run of a query that lands in a table."""

    place: Place
    more: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = COLUMNS
    target: Landing = field(init=False)

    def __post_init__(self) -> None:
        self.target = self.place.landing(**self.more)
        self.target._prepare(self.schema)

    @property
    def schema(self) -> StructType:
        return spark_schema(self.columns)

    def read(self, tp: TopicPartition, r: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range in batches, with the columns of this application."""
        for batch in records(tp, r):
            yield batch.select(self.columns)

    def ready(
        self,
        spans: Mapping[TopicPartition, tuple[int, int]],
        *,
        finished: int | None = None,
        begun: bool = False,
        topic_id: str | None = "id",
        tasks: int = 1,
    ) -> Ready:
        """Run the tasks of a batch."""
        target = json.loads(json.dumps(self.target._target()))

        def run() -> list[dict[str, Any]]:
            rows = []
            for tp, (start, until) in spans.items():
                at = [start + (until - start) * n // tasks for n in range(tasks + 1)]
                for first, last in pairwise(at):
                    r = OffsetRange(Offset(first), Offset(last))
                    found = source.write_task(target, self.read(tp, r), {tp: r})
                    row = {"topic": tp.topic, "partition": tp.partition, "start": first, "until": last}
                    rows.append({**row, "files": pickle.dumps(found[tp])})
            return rows

        ranges = {
            tp: ReadRange(
                Offset(start), Offset(until), Offset(start if finished is None else finished), begun, topic_id
            )
            for tp, (start, until) in spans.items()
        }
        return Ready(run, RunningBatch(ranges))

    def land(self, spans: Mapping[TopicPartition, tuple[int, int]], **more: Any) -> Landed:
        """Run the tasks of a batch, and commit it."""
        return self.commit(self.ready(spans, **more))

    def commit(self, batch: Ready) -> Landed:
        result: Landed = self.target.commit(batch, 0)  # type: ignore[arg-type]
        return result

    def next_offset(self, tp: TopicPartition) -> int | None:
        return self.target._look().next_offset(tp)


def judge(at: Place) -> Counter[tuple[str, int, int]]:
    """Return how often the table has each record.  Reads all rows, without a key."""
    rows = at.rows()
    assert all(row["value"] == str(row["offset"]).encode() for row in rows)
    return Counter((row["topic"], row["partition"], row["offset"]) for row in rows)


def once(spans: Mapping[TopicPartition, tuple[int, int]]) -> Counter[tuple[str, int, int]]:
    """Return what `judge` returns if each record of these offsets is there once."""
    return Counter((*tp, offset) for tp, span in spans.items() for offset in range(*span))


def files_of(at: Place) -> list[str]:
    """Return all Parquet files of a table's folder that landing has written, committed or not."""
    return [str(path) for path in at.data.rglob("topic-*/**/*.parquet")]


def before_the_next_commit(monkeypatch: pytest.MonkeyPatch, at: Place, act: Callable[[], object]) -> None:
    """Let something happen between the look and the commit of the next attempt: what a paused driver sleeps through."""
    real = at.look.commit

    def commit(look: Any, *arguments: Any, **more: Any) -> None:
        monkeypatch.setattr(at.look, "commit", real)
        act()
        real(look, *arguments, **more)

    monkeypatch.setattr(at.look, "commit", commit)


def lose_answers(monkeypatch: pytest.MonkeyPatch, at: Place, act: Callable[[], object] = lambda: None) -> None:
    """Let something happen behind each commit, and its answer get lost."""
    real = at.look.commit

    def commit(look: Any, *arguments: Any, **more: Any) -> None:
        real(look, *arguments, **more)
        act()
        raise OSError("connection reset")

    monkeypatch.setattr(at.look, "commit", commit)


def land_without_end(at: Place, landed: int) -> None:
    """Land batches of five records, and write a byte for each."""
    one = Application(at)
    while True:
        start = one.next_offset(ZERO) or 0
        one.land({ZERO: (start, start + 5)}, tasks=2)
        os.write(landed, b".")


def main(at: Place) -> None:
    """Kill six applications, each at another moment after its third batch.  They are forks, to import once."""
    for name in ("pandas", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"):
        import_module(name)
    for n in range(6):
        landed, writes = os.pipe()
        child = os.fork()
        if not child:
            os.close(landed)  # so that it ends with its reader
            land_without_end(at, writes)
        os.close(writes)
        for _ in range(3):
            assert os.read(landed, 1), "the application has failed"
        time.sleep(0.011 * n)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(landed)


if __name__ == "__main__":
    main(place(sys.argv[1]))
