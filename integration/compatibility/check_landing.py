"""The formats' own runtimes in Spark read, compact and roll back what landing has written, and `LakeTable` adds to it.

Iceberg's table is in a REST catalog, which pyiceberg and Spark share.  See docs/landing.md and `rows`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyspark_kafka_group
from integration.cluster import produce
from integration.compatibility.lake_writer import CATALOG, FORMAT, session, table
from integration.compatibility.rest_catalog import address, rest_catalog
from pyspark_kafka_group import read_arrow
from pyspark_kafka_group.landing import DeltaLanding, IcebergLanding
from pyspark_kafka_group.landing.landing import Landing
from pyspark_kafka_group.stores import LakeTable
from pyspark_kafka_group.stores.errors import TableBehindError
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Land = Callable[..., None]


@pytest.fixture
def protocol() -> str:
    """Return one protocol: it does not matter to the formats, and both would land into one table."""
    return "consumer"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("lake")
    with rest_catalog(folder) if CATALOG == "rest" else nullcontext():
        yield folder


@pytest.fixture(scope="module")
def spark(lake: Path) -> Iterator[SparkSession]:
    found = session(lake)
    pyspark_kafka_group.register(found)
    yield found
    found.stop()


@pytest.fixture
def land(spark: SparkSession, lake: Path, options: dict[str, str], tmp_path: Path) -> Land:
    """Return a function that lands all records of a topic that are there, with a new checkpoint if ``name`` is new."""

    def run(topic: str, name: str = "query", **more: str) -> None:
        given = {**options, "kafka.group.id": name, "subscribe": topic, **more}
        stream = _landing(lake).stream(spark, given).option("checkpointLocation", str(tmp_path / name))
        query = stream.start()
        try:
            query.processAllAvailable()  # PySpark 4.1 has no availableNow for Python sources
        finally:
            query.stop()

    return run


def test_spark_reads_compacts_and_rolls_back_what_was_landed(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, lake: Path, land: Land
) -> None:
    records, others = topic(2), topic(1)
    servers = kafka.bootstrap_servers
    produce(servers, records, {0: 40, 1: 20})
    land(records)
    name = table(lake, "landed")
    assert _rows(spark, name) == _each_once(records, {0: 40, 1: 20})
    assert _values(spark, name) == _read(servers, records)
    # Spark finds rows by the statistics that landing has written.
    rows = spark.table(name)
    first, last = rows.selectExpr("min(timestamp)", "max(timestamp)").collect()[0]
    assert rows.where("partition = 1 AND offset >= 15").count() == 5
    assert rows.where(rows.timestamp.between(first, last) & (rows.topic == records)).count() == 60

    before = _version(spark, name)
    _compact(spark, name)
    produce(servers, records, {0: 10})
    land(records)
    land(records, "again, from the beginning")
    assert _rows(spark, name) == _each_once(records, {0: 50, 1: 20})
    assert _values(spark, name) == _read(servers, records)

    produce(servers, others, {0: 30})
    read = spark.read.format("kafka-group").option("kafka.bootstrap.servers", servers).option("subscribe", others)
    LakeTable(name).write(read.load(), 0)
    produce(servers, records, {1: 5})
    land(records)
    assert _rows(spark, name) == _each_once(records, {0: 50, 1: 25}) + _each_once(others, {0: 30})

    _roll_back(spark, name, before)
    produce(servers, records, {1: 5})
    with pytest.raises(Exception, match=TableBehindError.__name__):
        land(records)
    assert _rows(spark, name) == _each_once(records, {0: 40, 1: 20})


def _landing(lake: Path) -> Landing:
    if FORMAT == "delta":
        return DeltaLanding(str(lake / "landed"))
    return IcebergLanding("db.landed", {"type": "rest", "uri": address(lake)})


def _rows(spark: SparkSession, name: str) -> Counter[tuple[str, int, int]]:
    if FORMAT == "iceberg":
        spark.catalog.refreshTable(name)  # others have committed
    return Counter(map(tuple, spark.table(name).select("topic", "partition", "offset").collect()))


def _each_once(topic: str, ends: dict[int, int]) -> Counter[tuple[str, int, int]]:
    return Counter((topic, partition, offset) for partition, end in ends.items() for offset in range(end))


def _values(spark: SparkSession, name: str) -> list[tuple[object, ...]]:
    rows = spark.table(name).selectExpr("partition", "offset", "key", "value", "unix_millis(timestamp)").collect()
    return sorted(tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in rows)


def _read(servers: str, topic: str) -> list[tuple[object, ...]]:
    """Return the records as the reader gives them outside of Spark."""
    found = []
    for batch in read_arrow({"kafka.bootstrap.servers": servers, "subscribe": topic}):
        names = ("partition", "offset", "key", "value", "timestamp")
        for *row, time in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            found.append((*row, round(time.timestamp() * 1000)))
    return sorted(found)


def _version(spark: SparkSession, name: str) -> int:
    if FORMAT == "delta":
        return int(spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"])
    spark.catalog.refreshTable(name)
    return int(
        spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at DESC LIMIT 1").collect()[0][0]
    )


def _compact(spark: SparkSession, name: str) -> None:
    before = _version(spark, name)
    if FORMAT == "delta":
        spark.sql(f"OPTIMIZE {name}")
    else:
        spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    assert _version(spark, name) != before


def _roll_back(spark: SparkSession, name: str, version: int) -> None:
    if FORMAT == "delta":
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {version}")
    else:
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {version})")
