"""Records as Arrow batches in the user's own process, which has neither Spark nor Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from integration.cluster import committed
from pyspark_kafka_group import bookmark, read_arrow
from pyspark_kafka_group.columns.schema import COLUMNS, arrow_schema, spark_schema, to_arrow
from pyspark_kafka_group.errors import ConfigurationError, OptionError, UnknownTopicError
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

WITHOUT_SPARK = """
import json, sys
sys.modules["pyspark"] = None
from pyspark_kafka_group import bookmark, read_arrow
options = json.loads(sys.argv[1])
if "kafka.group.id" in options:
    with bookmark(None, options) as new:
        table = read_arrow(new).read_all()
else:
    table = read_arrow(options).read_all()
print(json.dumps([[row["partition"], row["offset"], row["value"].decode()] for row in table.to_pylist()]))
"""


@pytest.fixture
def filled(kafka: Kafka, topic: TopicFactory) -> dict[str, str]:
    """Return the options of a topic with 1,000 records in two partitions."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(1000):
        producer.produce(name, value=json.dumps({"id": n}), partition=n % 2, headers={"n": str(n)})
    assert producer.flush(30) == 0
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}


def run_without_spark(options: dict[str, str]) -> Any:
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    command = [sys.executable, "-c", WITHOUT_SPARK, json.dumps(options)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_rows_are_those_of_spark(spark: SparkSession, filled: dict[str, str]) -> None:
    options = {**filled, "includeHeaders": "true"}
    expected = spark.read.format("kafka-group").options(**options).load().toArrow()
    by = [("partition", "ascending"), ("offset", "ascending")]
    found = read_arrow(options).read_all()
    assert found.schema == arrow_schema(COLUMNS) == to_arrow(spark_schema(COLUMNS))
    assert found.sort_by(by).to_pylist() == expected.sort_by(by).to_pylist()


def test_neither_spark_nor_java_is_needed(filled: dict[str, str]) -> None:
    found = run_without_spark({**filled, "where": "partition = 1 AND offset < 3"})
    assert sorted(found) == [[1, n, json.dumps({"id": 2 * n + 1})] for n in range(3)]


def test_a_bookmark_commits_what_was_read(kafka: Kafka, filled: dict[str, str], group: str) -> None:
    options = {**filled, "kafka.group.id": group}
    assert len(run_without_spark(options)) == 1000
    assert committed(kafka.bootstrap_servers, group, filled["subscribe"], range(2)) == {0: 500, 1: 500}
    assert run_without_spark(options) == []


def test_a_bookmark_whose_records_are_not_read_to_their_end_commits_nothing(
    kafka: Kafka, filled: dict[str, str], group: str
) -> None:
    options = {**filled, "kafka.group.id": group}
    with pytest.raises(ConfigurationError, match="were not read to their end"), bookmark(None, options) as new:
        assert next(read_arrow(new)).num_rows
    assert committed(kafka.bootstrap_servers, group, filled["subscribe"], range(2)) == {0: -1001, 1: -1001}
    assert len(run_without_spark(options)) == 1000


def test_a_bookmark_whose_block_fails_commits_nothing(kafka: Kafka, filled: dict[str, str], group: str) -> None:
    with pytest.raises(ZeroDivisionError), bookmark(None, {**filled, "kafka.group.id": group}) as new:
        assert read_arrow(new).read_all().num_rows == 1000
        raise ZeroDivisionError
    assert committed(kafka.bootstrap_servers, group, filled["subscribe"], range(2)) == {0: -1001, 1: -1001}


def test_values_have_types(filled: dict[str, str]) -> None:
    options = {**filled, "valueFormat": "json", "valueSchema": "id INT", "columns": "value", "where": "value.id >= 990"}
    found = read_arrow(options)
    assert found.schema.field("value").type == pa.struct([("id", pa.int32())])
    assert sorted(row["value"]["id"] for row in found.read_all().to_pylist()) == [*range(990, 1000)]


def test_an_empty_read_has_the_columns(filled: dict[str, str]) -> None:
    late = {"startingTimestamp": "4102444800000", "startingOffsetsByTimestampStrategy": "latest"}
    found = read_arrow({**filled, **late, "columns": "key"})
    assert (found.schema, found.read_all().num_rows) == (arrow_schema(("key",)), 0)


def test_wrong_options_are_errors_at_once(filled: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="Did you mean 'startingOffsets'"):
        read_arrow({**filled, "startingOfsets": "earliest"})
    with pytest.raises(OptionError, match="'show': read_arrow reads records"):
        read_arrow({**filled, "kafka.group.id": "g", "Show": "lag"})
    with pytest.raises(UnknownTopicError, match="nosuch"):
        read_arrow({**filled, "subscribe": "nosuch"})
