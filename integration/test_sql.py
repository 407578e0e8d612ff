"""SQL with this source and sink: some statements work, and Spark or the source refuses others, as in docs/sql.md."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from integration.cluster import lag, produce
from integration.pipelines import PATIENCE_S
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

RECORDS = 20


@pytest.fixture
def orders(kafka: Kafka, topic: TopicFactory) -> str:
    """Return a topic with two partitions and some records."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: RECORDS, 1: RECORDS})
    return name


@pytest.fixture
def view(spark: SparkSession) -> Iterator[Callable[..., str]]:
    """Yield a function that runs `CREATE TEMPORARY VIEW ... USING`, and drop the views after the test."""
    made: list[str] = []

    def make(options: dict[str, str], columns: str = "") -> str:
        made.append(f"v_{uuid.uuid4().hex}")
        named = f"({columns})" if columns else ""
        spark.sql(f"CREATE TEMPORARY VIEW {made[-1]} {named} USING `kafka-group` OPTIONS ({listed(options)})")
        return made[-1]

    yield make
    for name in made:
        spark.catalog.dropTempView(name)


def listed(options: dict[str, str], between: str = " ") -> str:
    """Return options in SQL syntax."""
    return ", ".join(f"'{name}'{between}'{value}'" for name, value in options.items())


def run(frame: DataFrame, checkpoint: Path) -> list[Row]:
    """Run a stream until it has read everything, and return its rows."""
    found: list[Row] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(int(PATIENCE_S))
    return found


def of_topic(kafka: Kafka, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}


COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"


# ------------------------------------------------------------------------------------ views


def test_a_temporary_view_is_a_batch_read(
    kafka: Kafka, orders: str, spark: SparkSession, view: Callable[..., str]
) -> None:
    """The view reads the records that exist at its first query, not at its creation.  Spark refuses to stream it."""
    name = view(of_topic(kafka, orders))
    counted = spark.sql(f"SELECT partition, count(*), max(offset) FROM {name} GROUP BY partition ORDER BY partition")
    assert [tuple(row) for row in counted.collect()] == [(0, RECORDS, RECORDS - 1), (1, RECORDS, RECORDS - 1)]
    produce(kafka.bootstrap_servers, orders, {0: 1}, start=RECORDS)
    assert spark.table(name).count() == 2 * RECORDS
    options = listed(of_topic(kafka, orders))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING `kafka-group` OPTIONS ({options})")
    assert spark.table(name).count() == 2 * RECORDS + 1
    refused = "not a temp view of streaming logical plan"
    with pytest.raises(AnalysisException, match=refused):
        spark.readStream.table(name)
    with pytest.raises(AnalysisException, match=refused):
        spark.sql(f"SELECT * FROM STREAM {name}")


@either_protocol
def test_a_view_shows_the_lag_of_a_stream_in_sql(
    kafka: Kafka,
    orders: str,
    group: str,
    spark: SparkSession,
    options: dict[str, str],
    view: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Two views: one shows the lag, and the other is a `load()` that SQL reads as a stream."""
    shown = view({"show": "lag", "kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group})
    stream = f"s_{uuid.uuid4().hex}"
    spark.readStream.format("kafka-group").options(**options, subscribe=orders).load().createOrReplaceTempView(stream)
    text = "CAST(value AS STRING) AS text"
    rows = run(spark.sql(f"SELECT {text} FROM {stream} WHERE partition = 1"), tmp_path / "one")
    assert sorted(row.text for row in rows) == sorted(f"1:{n}" for n in range(RECORDS))
    lags = spark.sql(f"SELECT partition, lag FROM {shown} WHERE topic = '{orders}' ORDER BY partition").collect()
    assert [tuple(row) for row in lags] == [(0, 0), (1, 0)]
    produce(kafka.bootstrap_servers, orders, {0: 3}, start=RECORDS)
    assert spark.sql(f"SELECT sum(lag) FROM {shown}").collect() == [(3,)]
    assert len(run(spark.readStream.table(stream), tmp_path / "two")) == 3
    spark.catalog.dropTempView(stream)


def test_a_temporary_view_with_columns_is_a_sink(
    kafka: Kafka, orders: str, topic: TopicFactory, spark: SparkSession, view: Callable[..., str]
) -> None:
    """Spark does not ask for the schema of a view with named columns.  So the source does not refuse sink options."""
    out = topic(1)
    sink = view(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": out, "delivery": "exactly-once"},
        columns="key STRING, value STRING",
    )
    source = view(of_topic(kafka, orders))
    spark.sql(f"INSERT INTO {sink} SELECT CAST(key AS STRING), CAST(value AS STRING) FROM {source} WHERE partition = 0")
    spark.sql(f"INSERT INTO {sink} (value) VALUES ('last')")
    written = [record.value.decode() for record in kafka.read(out) if record.value is not None]
    assert written == [*(f"0:{n}" for n in range(RECORDS)), "last"]
    with pytest.raises(PySparkException, match="can only be appended to"):
        spark.sql(f"INSERT OVERWRITE {sink} VALUES ('a', 'b')")


# ------------------------------------------------------------------------------------ tables


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Create a table with the columns of the source in Spark's catalog, yield its name, and drop it."""
    name = f"t_{uuid.uuid4().hex}"
    spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING `kafka-group` LOCATION '{tmp_path / 'table'}'")
    yield name
    spark.sql(f"DROP TABLE {name}")


@either_protocol
def test_a_table_is_read_with_options_of_the_query(
    kafka: Kafka,
    orders: str,
    spark: SparkSession,
    options: dict[str, str],
    table: str,
    tmp_path: Path,
) -> None:
    """SQL alone can read it as a batch and as a stream.  Spark passes no options of the table to a Python source."""
    count = f"SELECT count(*) FROM {table} WITH ({listed(of_topic(kafka, orders), '=')})"
    assert spark.sql(count).collect() == [(2 * RECORDS,)]
    stream = spark.sql(f"SELECT offset FROM STREAM {table} WITH ({listed({**options, 'subscribe': orders}, '=')})")
    assert len(run(stream, tmp_path / "checkpoint")) == 2 * RECORDS
    assert lag(kafka.bootstrap_servers, options["kafka.group.id"], orders, (0, 1)) == 0
    produce(kafka.bootstrap_servers, orders, {0: 1}, start=RECORDS)
    assert spark.sql(count).collect() == [(2 * RECORDS + 1,)], "each query is planned anew"
    with pytest.raises(PySparkException, match=r"Option '[\w.]+': it is missing"):
        spark.table(table).count()


def test_rows_are_inserted_into_a_table_with_options_of_the_query(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, tmp_path: Path
) -> None:
    out, name = topic(1), f"t_{uuid.uuid4().hex}"
    spark.sql(f"CREATE TABLE {name} (value STRING) USING `kafka-group` LOCATION '{tmp_path / 'table'}'")
    given = listed({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": out}, "=")
    spark.sql(f"INSERT INTO {name} WITH ({given}) VALUES ('one')")
    spark.sql(f"DROP TABLE {name}")
    assert [record.value for record in kafka.read(out)] == [b"one"]


def test_a_table_without_columns_is_refused_and_told_what_to_do(kafka: Kafka, orders: str, spark: SparkSession) -> None:
    """Spark would lose the options of such a table.  It would refuse only the first read, as if they were missing."""
    for given in (f"OPTIONS ({listed(of_topic(kafka, orders))})", ""):
        with pytest.raises(AnalysisException, match=r"Use CREATE TEMPORARY VIEW \.\.\. USING\. Or name the columns"):
            spark.sql(f"CREATE TABLE never USING `kafka-group` {given}")
    assert not spark.catalog.tableExists("never")


def test_there_are_no_queries_of_a_topic_by_its_name(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
        spark.sql("SELECT * FROM `kafka-group`.`orders`")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            {"kafka.sasl.oauthbearer.provider": "os:system", "kafka.sasl.oauthbearer.config": "touch {mark}"},
            "add function:os:system to the variable KAFKA_GROUP_ALLOW",
        ),
        (
            {"kafka.sasl.password": "${{file:/etc/passwd}}", "kafka.sasl.mechanism": "PLAIN"},
            "add file:/etc/passwd to the variable KAFKA_GROUP_ALLOW",
        ),
        ({"kafka.plugin.library.paths": "{mark}.so"}, "load a library"),
        ({"controlRequest": "{{}}"}, "is not an option of this source"),
    ],
    ids=["function", "file", "library", "control socket"],
)
def test_a_view_runs_no_code_and_reads_no_file(
    spark: SparkSession, tmp_path: Path, more: dict[str, str], problem: str
) -> None:
    """Whoever writes SQL writes options.  Regression: a view ran a command as the user of the driver."""
    mark = tmp_path / "mark"
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    options |= {name: value.format(mark=mark) for name, value in more.items()}
    with pytest.raises(PySparkException, match=re.escape(problem)):
        spark.sql(f"CREATE TEMPORARY VIEW attack USING `kafka-group` OPTIONS ({listed(options)})").collect()
        spark.sql("SELECT count(*) FROM attack").collect()
    assert not mark.exists()
