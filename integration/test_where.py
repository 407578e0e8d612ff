"""The option where gives the rows of ``df.where``: random conditions beside Spark's, and reads of a real Kafka."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from integration.cluster import committed
from integration.pipelines import Pipeline
from integration.spark_fixtures import either_protocol
from integration.where_conditions import CUT, FAILING, SAVED, SCHEMA, Conditions, rows
from pyspark_kafka_group import bookmark
from pyspark_kafka_group.columns.schema import to_arrow
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.where.expressions import Result
from pyspark_kafka_group.where.parsing import parse_condition

TYPES = {field.name: field.type for field in to_arrow(SCHEMA)}
AT_ONCE = 40
"""How many conditions one query of Spark tests."""


@pytest.fixture(scope="module")
def seed() -> int:
    return random.randrange(1 << 32)


@pytest.fixture(scope="module")
def table(seed: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows(random.Random(seed), 400), schema=to_arrow(SCHEMA))


@pytest.fixture(scope="module")
def frame(spark: SparkSession, table: pa.RecordBatch) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([table]), schema=SCHEMA).cache()


def ours(condition: str, table: pa.RecordBatch) -> Result:
    columns = {name: table.column(name) for name in table.schema.names}
    return parse_condition(condition, TYPES).evaluate(columns, table.num_rows)


def sparks(frame: DataFrame, conditions: list[str]) -> list[list[bool | None]]:
    found = frame.selectExpr("offset", *(f"({text}) AS c{n}" for n, text in enumerate(conditions))).collect()
    found.sort(key=lambda row: row[0])
    return [[row[n + 1] for row in found] for n in range(len(conditions))]


def test_random_conditions_mean_the_same_as_in_spark(frame: DataFrame, table: pa.RecordBatch, seed: int) -> None:
    conditions = Conditions(random.Random(seed))
    texts = [conditions.next() for _ in range(200)]
    keys = table.column("key").to_pylist()
    for begin in range(0, len(texts), AT_ONCE):
        chunk = texts[begin : begin + AT_ONCE]
        for text, expected in zip(chunk, sparks(frame, chunk), strict=True):
            found = ours(text, table)
            assert found.failed is None or not any(found.failed.to_pylist()), f"seed {seed}: {text} fails"
            got = found.values.to_pylist()
            cut = {n for n, key in enumerate(keys) if key == CUT and "substring(CAST(key" in text}
            pairs = enumerate(zip(got, expected, strict=True))
            different = [n for n, (a, b) in pairs if a is not b and n not in cut]
            assert not different, (
                f"seed {seed}: {text} is {got[different[0]]} for {table.slice(different[0], 1).to_pylist()}"
            )


@pytest.mark.parametrize("condition", FAILING)
def test_what_fails_in_spark_fails_here(frame: DataFrame, table: pa.RecordBatch, condition: str) -> None:
    with pytest.raises(PySparkException):
        sparks(frame, [condition])
    failed = ours(condition, table).failed
    assert failed is not None
    assert any(failed.to_pylist())


@pytest.mark.parametrize("condition", SAVED)
def test_a_part_that_is_not_reached_does_not_fail(frame: DataFrame, table: pa.RecordBatch, condition: str) -> None:
    (expected,) = sparks(frame, [condition])
    found = ours(condition, table)
    assert found.failed is None or not any(found.failed.to_pylist())
    assert found.values.to_pylist() == expected


def produce(kafka: Kafka, topic: str, count: int = 100) -> None:
    """Produce records whose values are JSON, except each tenth one."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(count):
        value = b"{" if n % 10 == 9 else b'{"id": %d}' % n
        producer.produce(topic, value=value, key=b"eu" if n % 4 == 0 else b"us", partition=n % 2, headers={"n": str(n)})
    assert producer.flush(30) == 0


TYPED = {"valueFormat": "json", "valueSchema": "id INT"}


@pytest.mark.parametrize(
    ("options", "where", "kept"),
    [
        ({"columns": "offset,partition"}, "key = 'eu' AND partition = 0", range(0, 100, 4)),
        ({}, "exists(headers, h -> h.key = 'n' AND h.value = '7')", [7]),
        (TYPED, "key = 'eu' AND value.id BETWEEN 10 AND 50", range(12, 51, 4)),
        ({**TYPED, "malformedRecords": "null"}, "value.id IS NULL", range(9, 100, 10)),
    ],
)
@either_protocol
def test_batch_reads_have_the_rows_that_spark_would_keep(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, protocol: str, options: Any, where: str, kept: Any
) -> None:
    name = topic(partitions=2)
    produce(kafka, name)
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, **options}
    found = spark.read.format("kafka-group").options(**base, where=where).load().collect()
    assert sorted(row["offset"] * 2 + row["partition"] for row in found) == [*kept]
    if not options:
        assert (
            len(found)
            == spark.read.format("kafka-group").options(**base, includeHeaders="true").load().where(where).count()
        )


def test_a_stream_commits_the_records_that_it_drops(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, tmp_path: Path, options: dict[str, str], group: str
) -> None:
    name = topic(partitions=2)
    produce(kafka, name)
    given = {**options, "subscribe": name, "startingOffsets": "earliest", "where": "key = 'eu'"}
    run = Pipeline(spark, tmp_path, given).run_available()
    assert sorted(row.offset * 2 + row.partition for row in run.rows) == [*range(0, 100, 4)]
    assert committed(kafka.bootstrap_servers, group, name, range(2)) == {0: 50, 1: 50}


def test_a_bookmark_commits_the_records_that_it_drops(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, group: str
) -> None:
    name = topic(partitions=2)
    produce(kafka, name)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group, "subscribe": name}
    with bookmark(spark, {**given, "where": "partition = 1 AND offset < 3"}) as new:
        assert new.records.count() == 3
    assert committed(kafka.bootstrap_servers, group, name, range(2)) == {0: 50, 1: 50}


@pytest.mark.parametrize("read", ["read", "readStream"])
def test_a_wrong_condition_is_an_error_at_load(spark: SparkSession, read: str) -> None:
    base = {"kafka.bootstrap.servers": "localhost:1", "kafka.group.id": "g", "subscribe": "t", "where": "nosuch = 1"}
    with pytest.raises(PySparkException, match="Option 'where': nosuch does not exist"):
        getattr(spark, read).format("kafka-group").options(**base).load()
