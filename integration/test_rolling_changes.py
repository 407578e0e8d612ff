"""What changes under a running group, one thing after the other: brokers, their addresses, and our own version."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from integration.cluster import Stream, lag, produce
from integration.pipelines import Pipeline, assert_exactly_once, wait_for
from integration.spark_fixtures import either_protocol
from integration.test_protocol_upgrade import Pipelines
from pyspark_kafka_group.testing import Kafka, LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.ports import HOST, free_ports

MOVES = ("joined", "assigned", "draining", "released", "expired", "lost")
"""The events of a rebalance."""

OLD_CHECKPOINT = Path(__file__).parents[1] / "tests/connector/query/checkpoints/v1"
"""Of a real Spark and the first version of this source: offsets of format 1, two finished batches and an open one."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """Yield a cluster of one broker, which is restarted, with Kafka's default for the sessions of KIP-848."""
    with LocalKafka(properties={"group.consumer.session.timeout.ms": "45000"}) as made:
        yield made


def test_a_broker_that_bounces_or_moves_causes_no_rebalance(
    cluster: LocalKafka, spark: SparkSession, tmp_path: Path, protocol: str
) -> None:
    """Members keep their partitions and their generation, and go on reading and committing.

    It is the only broker, so all addresses change.  The user has named both, as a name would stand for both.
    """
    port = free_ports(1)[0]
    topic = group = f"orders-{protocol}"
    cluster.create_topic(topic, partitions=4)
    options = {
        "kafka.bootstrap.servers": f"{cluster.bootstrap_servers},{HOST}:{port}",
        "kafka.group.id": group,
        "kafka.group.protocol": protocol,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    queries = [Pipeline(spark, tmp_path, options, name) for name in ("one", "two")]
    try:
        with Stream(options["kafka.bootstrap.servers"], {topic: 4}, per_second=50) as stream:
            for query in queries:
                query.start(processingTime="1 second")  # back to back, two queries take all there is
            for query in queries:
                query.wait_for_ownership(2)
                query.wait_for_rows(1)
            before = [len(query.events(*MOVES)) for query in queries]
            # A progress is that of the last batch, which may have begun before the last rebalance, like the one before.
            for _ in range(3):
                _wait_for_progress(queries)
            generations = [_generation(query) for query in queries]
            cluster.restart(1)
            _wait_for_progress(queries)
            cluster.move(1, port)
            _wait_for_progress(queries)
            assert [query.events(*MOVES)[at:] for query, at in zip(queries, before, strict=True)] == [[], []]
            assert [_generation(query) for query in queries] == generations
            stream.close()
            servers = cluster.bootstrap_servers
            wait_for(lambda: lag(servers, group, topic, range(4)) == 0, "all is committed")
    finally:
        for query in queries:
            query.stop()
    assert_exactly_once([row for query in queries for row in query.rows], stream.produced)


def _generation(query: Pipeline) -> Any:
    return wait_for(lambda: query.progress().get("latestOffset"), "a progress")["generation"]


def _wait_for_progress(queries: list[Pipeline]) -> None:
    """Wait until each query has read and committed something that came after now."""
    since = time.time()
    for query in queries:
        query.wait_for_rows(len(query.rows) + 1)

        def committed(query: Pipeline = query) -> bool:
            return any(event["time"] > since for event in query.events("committed"))

        wait_for(committed, f"{query.name} commits")


@either_protocol
def test_a_checkpoint_of_the_first_version_goes_on_beside_a_new_member(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Its open batch is replayed as it was logged; commits of the first version are taken for what they are."""
    name, servers = topic(2), kafka.bootstrap_servers
    produce(servers, name, {0: 20, 1: 20})
    upgraded = pipeline(name, name="upgraded", onOffsetRewind="fail")
    query_id = _restore_checkpoint(upgraded.checkpoint, name)
    # Batches of 5; the version before committed one after the other.  Here it died before it had committed all.
    _commit_as_version_1(servers, group, query_id, {TopicPartition(name, 0): 10, TopicPartition(name, 1): 5})
    upgraded.start()
    upgraded.wait_for_rows(20)
    replayed = sorted((row.partition, row.offset) for row in upgraded.rows if row.batch == 2)
    assert replayed == [(p, o) for p in range(2) for o in range(10, 15)]
    wait_for(lambda: lag(servers, group, name, range(2)) == 0, "all is committed")
    new = pipeline(name, name="new").start()
    upgraded.wait_for_ownership(1)
    new.wait_for_ownership(1)
    produce(servers, name, {0: 10, 1: 10}, start=20)
    wait_for(lambda: len(upgraded.rows) + len(new.rows) == 40, "both read on")
    assert len(new.rows) == 10
    read_before = [row._replace(partition=p, offset=o) for row in new.rows[:1] for p in range(2) for o in range(10)]
    assert_exactly_once([*read_before, *upgraded.rows, *new.rows], {(name, 0): 30, (name, 1): 30})


def _restore_checkpoint(checkpoint: Path, topic: str) -> str:
    """Make a checkpoint of the stored one, for a query of that source alone; return the name of the query."""
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "5f0f8d2e-3c55-4a43-9d80-6f0a1d1c8c11"}))
    shutil.copytree(OLD_CHECKPOINT / "commits", checkpoint / "commits")
    (checkpoint / "offsets").mkdir()
    offset: dict[str, Any] = {}
    for number in range(3):
        file = OLD_CHECKPOINT / "offsets" / str(number)
        version, conf, text, _of_the_other_source = file.read_text().splitlines()
        offset = json.loads(text)
        assert offset["version"] == 1
        offset["topics"] = {topic: offset["topics"]["orders"]}
        (checkpoint / "offsets" / file.name).write_text("\n".join([version, conf, json.dumps(offset)]))
    return str(offset["query"])


def _commit_as_version_1(servers: str, group: str, query_id: str, offsets: dict[TopicPartition, int]) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    note = json.dumps({"v": 1, "q": query_id, "n": len(offsets)})
    try:
        parts = [TopicPartition(tp.topic, tp.partition, offset, note) for tp, offset in offsets.items()]
        consumer.commit(offsets=parts, asynchronous=False)
    finally:
        consumer.close()
