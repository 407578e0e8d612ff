"""The only broker of a running group restarts, and then moves to another address."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration.cluster import Stream, lag
from integration.pipelines import Pipeline, assert_exactly_once, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.testing.ports import HOST, free_ports

MOVES = ("joined", "assigned", "draining", "released", "expired", "lost")
"""The events of a rebalance."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """Yield a cluster of one broker for restarts, with Kafka's default session timeout for KIP-848."""
    with LocalKafka(properties={"group.consumer.session.timeout.ms": "45000"}) as made:
        yield made


@either_protocol
def test_a_broker_that_bounces_or_moves_causes_no_rebalance(
    cluster: LocalKafka, spark: SparkSession, tmp_path: Path, protocol: str
) -> None:
    """Members keep their partitions and their generation, and continue to read and commit.

    It is the only broker, so all addresses change.  The option contains both addresses.  One host name that resolves to
    both would have the same effect.
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
                query.start(processingTime="1 second")  # without a pause, two queries occupy all cores
            for query in queries:
                query.wait_for_ownership(2)
                query.wait_for_rows(1)
            before = [len(query.events(*MOVES)) for query in queries]
            # A progress belongs to the last batch.  It and the batch before may have begun before the last rebalance.
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
    """Wait until each query has read and committed new records."""
    since = time.time()
    for query in queries:
        query.wait_for_rows(len(query.rows) + 1)

        def committed(query: Pipeline = query) -> bool:
            return any(event["time"] > since for event in query.events("committed"))

        wait_for(committed, f"{query.name} commits")
