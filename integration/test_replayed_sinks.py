"""Sinks and a replay: Spark's commit log loses its newest entry, so the newest batch runs again.

Each case is a row of the table in docs/sinks.md.  The last test compares the cases with the table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from integration.cluster import produce
from integration.pipelines import PATIENCE_S, Pipeline
from integration.spark_fixtures import either_protocol
from integration.test_exactly_once import forget_newest_commit
from pyspark_kafka_group.stores import OffsetTable, into
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Writer = DataStreamWriter
Count = Callable[[], int]

_RECORDS = 40

# The page's mark for the rows of integration/compatibility/check_delta.py: Delta Lake has no runtime for PySpark 4.3.
_BY_OTHER_CHECKS = "(*)"


def offset_table(rows: DataFrame, folder: Path) -> tuple[Writer, Count]:
    import sqlite3

    database = sqlite3.connect(folder / "rows.db")
    database.execute("CREATE TABLE rows (key BLOB)")
    offsets = OffsetTable(f"sqlite:///{folder}/rows.db", "etl")

    def write(batch: DataFrame, batch_id: int) -> None:
        offsets.write(batch.select("topic", "partition", "offset", "key"), batch_id, into("rows"))

    return rows.writeStream.foreachBatch(write), lambda: database.execute("SELECT count(*) FROM rows").fetchone()[0]


def appended(rows: DataFrame, folder: Path) -> tuple[Writer, Count]:
    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.write.mode("append").parquet(f"{folder}/rows")

    return rows.writeStream.foreachBatch(write), lambda: rows.sparkSession.read.parquet(f"{folder}/rows").count()


def one_folder_per_batch(rows: DataFrame, folder: Path) -> tuple[Writer, Count]:
    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/rows/batch={batch_id}")

    return rows.writeStream.foreachBatch(write), lambda: rows.sparkSession.read.parquet(f"{folder}/rows").count()


def parquet_sink(rows: DataFrame, folder: Path) -> tuple[Writer, Count]:
    writer = rows.writeStream.format("parquet").option("path", f"{folder}/rows")
    return writer, lambda: rows.sparkSession.read.parquet(f"{folder}/rows").count()


SURVIVE = {
    "`foreachBatch` with `OffsetTable`": (offset_table, True),
    "`foreachBatch` that appends, to Parquet for one": (appended, False),
    "`foreachBatch` that overwrites a folder named by the batch id": (one_folder_per_batch, True),
    '`writeStream.format("parquet")`': (parquet_sink, True),
}
"""Each sink by its name on the page, and whether it has each record once after a replay."""


@either_protocol
@pytest.mark.parametrize("name", SURVIVE, ids=lambda name: SURVIVE[name][0].__name__)
def test_what_a_sink_has_after_a_replay(
    kafka: Kafka, topic: TopicFactory, pipeline: Callable[..., Pipeline], tmp_path: Path, name: str
) -> None:
    make, survives = SURVIVE[name]
    records = topic(1)
    produce(kafka.bootstrap_servers, records, {0: _RECORDS})
    source = pipeline(records)
    writer, count = make(source.load(), tmp_path)

    def run() -> int:
        query = writer.option("checkpointLocation", str(source.checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(int(PATIENCE_S)), "the run with availableNow does not end"
        return count()

    assert run() == _RECORDS
    forget_newest_commit(source.checkpoint)
    assert run() == (_RECORDS if survives else 2 * _RECORDS)


def test_the_page_has_these_rows() -> None:
    page = (Path(__file__).parents[1] / "docs" / "sinks.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    here = [row for row in rows if not row[0].endswith(_BY_OTHER_CHECKS)]
    assert {row[0].removeprefix("| "): row[1] == "yes" for row in here} == {n: s for n, (_, s) in SURVIVE.items()}
