"""Topics are deleted or created again, and logs are truncated, while a query reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration.cluster import committed, delete, lag, log_ends, produce, recreate
from integration.pipelines import PATIENCE_S, Pipeline, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group import bookmark
from pyspark_kafka_group.offsets.errors import DataLossError
from pyspark_kafka_group.testing import Kafka, LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


class Held:
    """Blocks one batch until the test sets ``let_go``."""

    def __init__(self, batch: int) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self._batch = batch

    def __call__(self, batch: int) -> None:
        if batch == self._batch:
            self.begun.set()
            assert self.let_go.wait(PATIENCE_S)


def in_the_middle_of_a_batch(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines, **options: str
) -> tuple[Pipeline, Held, str]:
    """Return a query that has committed 100 records and is blocked in the batch of the next 100."""
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 100})
    held = Held(1)
    query = pipeline(name, before_batch=held, **options).start()
    query.wait_for_rows(100)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, [0]) == 0, "lag 0")
    produce(kafka.bootstrap_servers, name, {0: 100}, start=100)
    assert held.begun.wait(PATIENCE_S)
    return query, held, name


@either_protocol
def test_topic_created_again_while_a_batch_of_it_runs_is_read_from_its_beginning(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: the batch committed its offset to the new topic.  No query read the records below that offset."""
    new = 300  # the new log is longer than the old one
    query, held, name = in_the_middle_of_a_batch(kafka, topic, group, pipeline, failOnDataLoss="false")
    recreate(kafka.bootstrap_servers, name, 1)
    produce(kafka.bootstrap_servers, name, {0: new})
    held.let_go.set()
    wait_for(lambda: {row.offset for row in query.rows if row.batch > 1} >= set(range(new)), "the new topic is read")
    wait_for(lambda: committed(kafka.bootstrap_servers, group, name, [0]) == {0: new}, "it is committed")
    assert query.events("recreated")[0]["position"] == 0
    query.stop()
    again = pipeline(name, failOnDataLoss="false").run_available()
    assert [row for row in again.rows if row.offset < new] == []


@pytest.mark.parametrize(
    ("protocol", "pattern"),
    [("classic", False), ("consumer", True)],
    indirect=["protocol"],
    ids=["by name", "by pattern"],
)
def test_deleted_topic_ends_the_query_and_is_named(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines, *, pattern: bool
) -> None:
    names = [topic(1), topic(1)]
    for name in names:
        produce(kafka.bootstrap_servers, name, {0: 10})
    options = {"subscribePattern": "|".join(names), "kafka.topic.metadata.refresh.interval.ms": "500"}
    query = pipeline(None, **options) if pattern else pipeline(",".join(names))
    query.start().wait_for_rows(20)
    delete(kafka.bootstrap_servers, names[1])
    text = query.failure()
    assert f"Topic deleted: {names[1]}" in text
    assert "failOnDataLoss=false" in text


@pytest.fixture(scope="module")
def alone() -> Iterator[LocalKafka]:
    """Yield a cluster of one broker that the tests kill."""
    with LocalKafka() as cluster:
        yield cluster


@pytest.fixture
def orders(alone: LocalKafka, group: str) -> str:
    """Return a topic of 1000 records.  They are in many batches, so that some survive a truncation."""
    name = f"orders-of-{group}"
    alone.create_topic(name, partitions=1)
    produce(alone.bootstrap_servers, name, {0: 1000}, per_batch=10)
    return name


def truncate(cluster: LocalKafka, topic: str) -> int:
    """Kill the broker, remove the newest part of a log, and start the broker again.  Return where the log ends."""
    cluster.kill(1)
    folder = cluster.partition_folder(1, topic, 0)
    (segment,) = folder.glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(int(segment.stat().st_size * 0.8))
    cluster.restart(1)
    end = wait_for(lambda: log_ends(cluster.bootstrap_servers, [(topic, 0)])[topic, 0], "the log has an end")
    assert 0 < end < 1000
    return int(end)


@either_protocol
def test_truncated_log_is_noticed_also_when_it_has_grown_again(
    alone: LocalKafka, orders: str, group: str, pipeline: Pipelines
) -> None:
    """Regression: the query took a log end below its position for "no new records", and never read those below."""
    servers = alone.bootstrap_servers
    options: dict[str, Any] = {"kafka.bootstrap.servers": servers, "failOnDataLoss": "false"}
    query = pipeline(orders, **options).start()
    query.wait_for_rows(1000)
    wait_for(lambda: lag(servers, group, orders, [0]) == 0, "lag 0")
    query.stop()
    end = truncate(alone, orders)
    produce(servers, orders, {0: 400}, start=5000)
    query.rows.clear()
    query.start()
    query.wait_for_rows(400)
    wait_for(lambda: committed(servers, group, orders, [0]) == {0: end + 400}, "everything is committed")
    assert [row.offset for row in query.rows] == list(range(end, end + 400))
    assert query.events("recordsLost")[0]["gone"] == [end, 1000]


def test_bookmark_notices_a_truncated_log_that_has_grown_again(
    alone: LocalKafka, orders: str, group: str, spark: SparkSession
) -> None:
    """Regression: the next run began at the committed offset, and skipped the new records below it."""
    servers = alone.bootstrap_servers
    options = {"kafka.bootstrap.servers": servers, "kafka.group.id": group, "subscribe": orders}
    with bookmark(spark, options) as new:
        assert new.records.count() == 1000
    end = truncate(alone, orders)
    produce(servers, orders, {0: 400}, start=5000)
    with pytest.raises(DataLossError, match=rf"{orders}-0: offsets \[{end}, 1000\) were truncated"):
        bookmark(spark, options)
    with bookmark(spark, {**options, "failOnDataLoss": "false"}) as new:
        assert new.ranges == {(orders, 0): (end, end + 400)}
        assert new.records.count() == 400
    with bookmark(spark, options) as new:
        assert new.ranges == {(orders, 0): (end + 400, end + 400)}
