"""Batch reads and the sink on Sail, an engine with the interface of PySpark and without a JVM.  No Kafka is needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from pyspark_kafka_group import DefaultSource
from pyspark_kafka_group.testing.mock import MockKafka

RECORDS = 1000


@pytest.fixture(scope="module")
def sail() -> Iterator[SparkSession]:
    """Yield a session.  Sail has no automatic registration."""
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    session.dataSource.register(DefaultSource)
    yield session
    session.stop()
    server.stop()


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    with MockKafka() as kafka:
        kafka.create_topic("t", 3)
        yield kafka


def write(sail: SparkSession, mock: MockKafka, **options: str) -> None:
    frame = sail.range(RECORDS).selectExpr(
        "CAST(id AS STRING) AS key", "concat('{\"id\": ', CAST(id AS STRING), '}') AS value"
    )
    given = {"kafka.bootstrap.servers": mock.bootstrap_servers, "topic": "t", **options}
    frame.write.format("kafka-group").options(**given).mode("append").save()


def read(sail: SparkSession, mock: MockKafka, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": mock.bootstrap_servers, "subscribe": "t", **options}
    return sail.read.format("kafka-group").options(**given).load()


def test_rows_that_were_written_are_read(sail: SparkSession, mock: MockKafka) -> None:
    """Regression: Sail passes an Arrow schema, and both failed."""
    write(sail, mock)
    found = read(sail, mock).selectExpr("CAST(key AS STRING) k", "partition", "offset").collect()
    assert {row.k for row in found} == {str(number) for number in range(RECORDS)}
    assert len({(row.partition, row.offset) for row in found}) == RECORDS
    assert {row.partition for row in found} == {0, 1, 2}


def test_values_with_types_and_bounds(sail: SparkSession, mock: MockKafka) -> None:
    write(sail, mock)
    typed = read(sail, mock, valueFormat="json", valueSchema="id BIGINT", columns="value,partition,offset")
    assert sum(row.value["id"] for row in typed.collect()) == sum(range(RECORDS))
    ends = json.dumps({"t": {"0": 5, "1": 0, "2": 7}})
    assert read(sail, mock, endingOffsets=ends).count() == 12


@pytest.mark.parametrize(
    ("attempt", "problem"),
    [
        (lambda sail, mock: write(sail, mock, delivery="exactly-once"), "Write at-least-once"),
        (lambda sail, mock: read(sail, mock, colums="key").count(), "Did you mean 'columns'"),
        (lambda sail, mock: read(sail, mock, **{"kafka.plugin.library.paths": "/x"}).count(), "load a library"),
    ],
    ids=["exactly once", "option", "library"],
)
def test_what_does_not_work_is_an_error_of_ours(
    sail: SparkSession, mock: MockKafka, attempt: Callable[[SparkSession, MockKafka], None], problem: str
) -> None:
    with pytest.raises(Exception, match=problem):
        attempt(sail, mock)
