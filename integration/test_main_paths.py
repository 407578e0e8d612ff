"""The main paths on the version ``KAFKA_VERSION`` of Kafka, by default the oldest supported one.

The other tests run on the newest version.  ``make compatibility`` runs this file for each row of
docs/compatibility.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import pyspark_kafka_group
from integration.cluster import committed, has_open_transactions, produce
from integration.pipelines import Pipeline, assert_exactly_once, assert_orderly, wait_for
from pyspark_kafka_group.testing import Kafka, LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.local import VERSION_VARIABLE
from pyspark_kafka_group.tools.commands import kafka_group

OLDEST = "3.9.1"
VERSION = os.environ.get(VERSION_VARIABLE, OLDEST)
HAS_CONSUMER_PROTOCOL = not VERSION.startswith("3.")
PROTOCOLS = ["classic", "consumer"] if HAS_CONSUMER_PROTOCOL else ["classic"]

Pipelines = Callable[..., Pipeline]
either = pytest.mark.parametrize("protocol", PROTOCOLS[:1], indirect=True)
each = pytest.mark.parametrize("protocol", PROTOCOLS, indirect=True)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Yield a broker of that version.  If the variable is set, all other brokers have that version as well."""
    with LocalKafka(version=VERSION) as cluster:
        yield cluster


def told(kafka: Kafka, command: str, group: str, code: int = 0) -> list[dict[str, Any]]:
    found = CliRunner().invoke(kafka_group, [command, "-b", kafka.bootstrap_servers, "--json", group])
    assert found.exit_code == code, found.output
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_the_format_can_be_registered_in_each_session(spark: SparkSession) -> None:
    """Regression: Spark 4.0 and 4.1 refuse a format that they have found by the name of its package."""
    for session in (spark, spark, spark.newSession()):
        pyspark_kafka_group.register(session)
        found = session.read.format("kafka-group").options(subscribe="t", **{"kafka.bootstrap.servers": "127.0.0.1:1"})
        assert "offset" in found.load().columns


@each
def test_a_stream_is_committed_and_goes_on_where_it_stopped(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    query = pipeline(name).run_available()
    assert committed(kafka.bootstrap_servers, group, name, [0, 1]) == {0: 10, 1: 10}
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    query.run_available()
    assert_exactly_once(query.rows, {(name, 0): 15, (name, 1): 10})
    (described,) = told(kafka, "describe", group)
    assert (described["lag"], described["partitions"][0]["query_id"] is None) == (0, False)
    moves = [(e["partition"], e["committed_offset"]) for e in told(kafka, "history", group) if e["partition"] == 0]
    assert moves[-2:] == [(0, 10), (0, 15)]
    assert told(kafka, "rewinds", group) == []


@each
def test_a_partition_is_handed_over_behind_a_committed_batch(
    kafka: Kafka, topic: TopicFactory, pipeline: Pipelines
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    first = pipeline(name, name="first").start()
    first.wait_for_rows(20)
    second = pipeline(name, name="second").start()
    second.wait_for_ownership(1)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=10)
    wait_for(lambda: len(first.rows) + len(second.rows) >= 40, "everything is delivered")
    second.stop_cleanly()
    first.wait_for_ownership(2)
    assert_exactly_once(first.rows + second.rows, {(name, 0): 20, (name, 1): 20})
    for query in (first, second):
        assert_orderly(query.events())


@either
@pytest.mark.skipif(HAS_CONSUMER_PROTOCOL, reason="this Kafka serves members of KIP-848")
def test_a_protocol_that_the_cluster_does_not_serve_is_an_error_at_once(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 1})
    pipeline(name).run_available()
    with pytest.raises(StreamingQueryException, match=r"kafka\.group\.protocol=consumer needs Apache Kafka 4\.0"):
        pipeline(name, name="modern", **{"kafka.group.protocol": "consumer"}).run_available()
    found = CliRunner().invoke(kafka_group, ["doctor", "-b", kafka.bootstrap_servers, "--json", group])
    assert "NO_CONSUMER_PROTOCOL" in found.stdout, found.output


@either
def test_plain_commits(kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    assert len(pipeline(name, commitMode="plain").run_available().rows) == 10
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 10}


@either
def test_rewound_offsets_are_an_error(kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    query = pipeline(name).run_available()
    arguments = ["reset", "-b", kafka.bootstrap_servers, group, "--to", "start", "--execute"]
    # The command refuses the reset until the member of the run above has left.
    wait_for(lambda: CliRunner().invoke(kafka_group, arguments).exit_code == 0, "the group is reset", timeout_s=30)
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 0}
    with pytest.raises(StreamingQueryException, match="onOffsetRewind"):
        query.run_available()


@either
def test_batch_reads_and_a_bookmark(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, group: str, options: dict[str, str]
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 5})
    reader = spark.read.format("kafka-group").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    assert reader.option("subscribe", name).load().count() == 15
    del options["startingOffsets"], options["kafka.group.protocol"]
    with pyspark_kafka_group.bookmark(spark, {**options, "subscribe": name}) as new:
        assert new.records.count() == 15
    assert committed(kafka.bootstrap_servers, group, name, [0, 1]) == {0: 10, 1: 5}
    lag = spark.read.format("kafka-group").options(**options, show="lag").load()
    assert {(row.partition, row.lag) for row in lag.collect()} == {(0, 0), (1, 0)}


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_rows_are_written(kafka: Kafka, topic: TopicFactory, spark: SparkSession, delivery: str) -> None:
    name = topic(2)
    rows = spark.range(100).selectExpr("cast(id AS STRING) AS value").repartition(2)
    writer = rows.write.format("kafka-group").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.option("topic", name).option("delivery", delivery).mode("append").save()
    wait_for(lambda: not has_open_transactions(kafka.bootstrap_servers, name), "no transaction is open")
    found = [int(record.value or b"") for record in kafka.read(name)]
    assert sorted(found) == [*range(100)]
