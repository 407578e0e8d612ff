"""Triggers are an hour apart: the query commits a finished batch and releases partitions before the next trigger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent

import pyspark_kafka_group
from integration.cluster import committed, lag, produce
from integration.pipelines import Pipeline, assert_exactly_once, assert_orderly, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]

# Far below the hour until the next trigger, and below the 120 s after which a partition leaves in any case.
SOON_S = 20.0


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    """Return a session without the listener, which programs of the docs register in the session of all tests."""
    return spark.newSession()


@pytest.fixture
def listened(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> Iterator[Pipelines]:
    """Yield a function that makes pipelines in a separate session with the listener.  Other sessions have none."""
    session = spark.newSession()
    pyspark_kafka_group.register(session)
    pyspark_kafka_group.register(session)
    made: list[Pipeline] = []

    def make(topics: str, *, name: str) -> Pipeline:
        made.append(Pipeline(session, tmp_path, {**options, "subscribe": topics}, name))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def soon(begin: float, what: str) -> None:
    """Print how long a step took, which `pytest -rP` shows, and check that it was soon."""
    took_s = time.time() - begin
    print(f"{what}: {took_s:.2f} s")
    assert took_s < SOON_S, what


@either_protocol
def test_the_listener_commits_a_batch_when_it_is_finished(
    kafka: Kafka,
    topic: TopicFactory,
    group: str,
    listened: Pipelines,
    pipeline: Pipelines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Regression: PySpark asked the JVM for each part of a progress, in 80 ms for each batch.
    monkeypatch.delattr(QueryProgressEvent, "fromJObject")
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    holding = listened(name, name="holding").start(processingTime="1 hour")
    holding.wait_for_rows(20)
    written = holding.rows[-1].time
    wait_for(lambda: holding.events("finished"), "the source knows", timeout_s=SOON_S)
    finished = holding.events("finished")[0]
    print(f"sink -> finished: {finished['time'] - written:.2f} s")
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0", timeout_s=SOON_S)
    joining = time.time()
    taking = pipeline(name, name="taking").start()
    taking.wait_for_ownership(1)
    soon(joining, "start of the second query -> it owns a partition")
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=10)
    taking.wait_for_rows(10)
    assert len(holding.events("released")) == 1
    assert not holding.events("draining"), "nothing was left to wait for"
    assert [row.offset for row in taking.rows] == list(range(10, 20))
    assert_orderly(holding.events())


@either_protocol
def test_the_commit_log_releases_a_partition_of_a_finished_batch(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines, tmp_path: Path
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    holding = pipeline(name, name="holding", checkpointLocation=tmp_path / "holding.checkpoint")
    holding.start(processingTime="1 hour")
    holding.wait_for_rows(20)
    wait_for((holding.checkpoint / "commits" / "0").exists, "Spark has finished the batch")
    assert not holding.events("finished"), "nobody has told the source"
    joining = time.time()
    taking = pipeline(name, name="taking").start()
    taking.wait_for_ownership(1)
    soon(joining, "start of the second query -> it owns a partition")
    times = {event["event"]: event["time"] for event in holding.events("draining", "finished", "released")}
    assert list(times) == ["draining", "finished", "released"]
    print(f"draining -> finished: {times['finished'] - times['draining']:.2f} s")
    print(f"finished -> released: {times['released'] - times['finished']:.2f} s")
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=10)
    taking.wait_for_rows(10)
    assert [row.offset for row in taking.rows] == list(range(10, 20))
    assert_orderly(holding.events())


@either_protocol
def test_a_hard_stop_between_two_triggers_commits_what_the_commit_log_has(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines, tmp_path: Path
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    query = pipeline(name, checkpointLocation=tmp_path / "query.checkpoint").start(processingTime="1 hour")
    wait_for((query.checkpoint / "commits" / "0").exists, "Spark has finished the batch")
    query.stop()
    wait_for(lambda: query.events("left"), "the member has left", timeout_s=SOON_S)
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 10}
    assert query.events("left")[0]["clean"]
    assert_exactly_once(query.rows, {(name, 0): 10})
