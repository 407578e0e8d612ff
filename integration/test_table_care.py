"""The offset table with a query of Kafka: the database was restored, rows come late, or a topic is created again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from integration.cluster import produce, recreate, reset
from integration.pipelines import PATIENCE_S, Pipeline
from integration.postgres import execute, new_schema
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.stores import OffsetTable, into
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

_COLUMNS = ("topic", "partition", "offset")


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    with new_schema(postgres) as found:
        execute(found, 'CREATE TABLE seen (topic text, "partition" int, "offset" bigint)')
        yield found


def run(
    source: Pipeline, url: str, transform: Callable[[DataFrame], DataFrame] = lambda rows: rows, name: str = "etl"
) -> None:
    """Read everything into the database.  Raise the error of the query, if it fails."""
    offsets = OffsetTable(url, name)

    def write(batch: DataFrame, batch_id: int) -> None:
        offsets.write(batch, batch_id, into("seen", columns=_COLUMNS))

    writer = transform(source.load()).select(*_COLUMNS).writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", str(source.checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(int(PATIENCE_S)), "the run with availableNow does not end"


def counts(url: str) -> tuple[int, int]:
    row = execute(url, 'SELECT count(*), count(DISTINCT ("partition", "offset")) FROM seen')[0]
    return int(row[0]), int(row[1])


@either_protocol
def test_a_database_that_was_restored_is_noticed_and_repaired(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Callable[..., Pipeline], url: str
) -> None:
    """In the restored table, partitions 0 and 2 are behind, and 1 has no row.  The query drops all rows of 2."""
    name = topic(3)
    source = pipeline(name)

    def all_but_the_last(rows: DataFrame) -> DataFrame:
        return rows.where("partition < 2")

    produce(kafka.bootstrap_servers, name, {0: 100, 2: 100})
    run(source, url, all_but_the_last)
    for table in ("seen", "kafka_offsets"):
        execute(url, f"CREATE TABLE {table}_saved AS SELECT * FROM {table}")
    produce(kafka.bootstrap_servers, name, {0: 50, 1: 100, 2: 50}, start=100)
    run(source, url, all_but_the_last)
    for table in ("seen", "kafka_offsets"):
        execute(url, f"TRUNCATE {table}")
        execute(url, f"INSERT INTO {table} SELECT * FROM {table}_saved")

    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(3), 50), start=200)
    with pytest.raises(Exception, match="onOffsetRewind=group") as noticed:
        run(source, url, all_but_the_last)
    text = str(noticed.value)
    assert f"{name}-0 is finished up to 150, but the table has 100" in text
    assert f"{name}-1 is finished up to 100, but the table has no row" in text
    assert f"{name}-2 is finished up to 150, but the table has 100" in text
    assert counts(url) == (100, 100)

    found = {tp.partition: int(o) for tp, o in OffsetTable(url, "etl").offsets().items()}
    reset(kafka.bootstrap_servers, group, name, {1: 0, **found})
    run(pipeline(name, onOffsetRewind="group"), url, all_but_the_last)
    assert counts(url) == (350, 350)


@either_protocol
def test_a_batch_without_rows_raises_the_table(
    kafka: Kafka, topic: TopicFactory, pipeline: Callable[..., Pipeline], url: str
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 20, 1: 10})
    run(pipeline(name), url, lambda rows: rows.where("offset < 5 AND partition = 0"))
    assert {tp.partition: o for tp, o in OffsetTable(url, "etl").offsets().items()} == {0: 20, 1: 10}
    assert counts(url) == (5, 5)


@either_protocol
def test_rows_that_a_join_emits_late_are_refused(
    kafka: Kafka, topic: TopicFactory, pipeline: Callable[..., Pipeline], url: str
) -> None:
    """The left row waits in Spark's state until its partner arrives in a later batch."""
    name = topic(2)
    source = pipeline(name)

    def joined(rows: DataFrame) -> DataFrame:
        left = rows.where("partition = 0").select(*_COLUMNS, F.col("key").alias("left_key"), "timestamp")
        right = rows.where("partition = 1").select(F.col("key").alias("right_key"), F.col("timestamp").alias("at"))
        return left.withWatermark("timestamp", "1 hour").join(
            right.withWatermark("at", "1 hour"),
            F.expr("left_key = right_key AND at BETWEEN timestamp - INTERVAL 1 HOUR AND timestamp + INTERVAL 1 HOUR"),
        )

    produce(kafka.bootstrap_servers, name, {0: 4})
    run(source, url, joined)
    assert counts(url) == (0, 0)
    produce(kafka.bootstrap_servers, name, {1: 4})
    with pytest.raises(Exception, match=rf"a row of {name}-0, offset \d is not of a record of this batch"):
        run(source, url, joined)


@either_protocol
def test_a_topic_that_was_created_again_is_noticed_by_a_new_checkpoint(
    kafka: Kafka, topic: TopicFactory, pipeline: Callable[..., Pipeline], url: str
) -> None:
    name, new = topic(1), 80
    produce(kafka.bootstrap_servers, name, {0: 50})
    run(pipeline(name), url)
    recreate(kafka.bootstrap_servers, name, 1)
    produce(kafka.bootstrap_servers, name, {0: new})
    with pytest.raises(Exception, match=rf"forget\('{name}'\)"):
        run(pipeline(name, name="new"), url)
    execute(url, "TRUNCATE seen")
    OffsetTable(url, "etl").forget(name)
    run(pipeline(name, name="newer"), url)
    assert counts(url) == (new, new)


@either_protocol
def test_through_spark_connect_the_source_says_what_a_batch_reads(
    kafka: Kafka, topic: TopicFactory, options: dict[str, str], url: str, tmp_path: Path
) -> None:
    """The query drops all rows of partition 2.  The second run detects that the database has gone back."""
    name = topic(3)
    execute(url, 'CREATE TABLE orders (topic text, "partition" int, "offset" bigint)')
    given = json.dumps({**options, "subscribe": name})

    def run_there(wanted: int) -> subprocess.CompletedProcess[str]:
        produce(kafka.bootstrap_servers, name, dict.fromkeys(range(3), 20), start=wanted - 20)
        command = [sys.executable, "-m", "integration.connect_application", str(tmp_path / "checkpoint"), url]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        return subprocess.run(
            [*command, str(wanted), given],
            cwd=Path(__file__).parents[1],
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    first = run_there(20)
    assert first.returncode == 0, first.stdout[-2000:] + first.stderr[-4000:]
    assert execute(url, "SELECT count(*), sum(next_offset) FROM kafka_offsets") == [(3, 60)]
    assert execute(url, "SELECT count(*) FROM orders") == [(40,)]
    execute(url, 'UPDATE kafka_offsets SET next_offset = 10 WHERE "partition" = 2')
    second = run_there(40)
    assert second.returncode != 0
    assert f"{name}-2 is finished up to 20, but the table has 10" in second.stdout + second.stderr
