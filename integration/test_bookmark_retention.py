"""Bookmarks keep their place on a broker that deletes offsets after a minute."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

import pyspark_kafka_group
from integration import cluster
from integration.cluster import produce
from integration.pipelines import wait_for
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.local import LocalKafka

RETENTION = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}

# Longer than the retention of a minute plus the broker's check interval.
LONGER_S = 66

OPENS = "pyspark_kafka_group.batch.bookmark.open_lookup"


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Kafka]:
    """Yield a broker that keeps offsets for a minute."""
    with LocalKafka(properties=RETENTION) as kafka:
        yield kafka


def options_of(kafka: Kafka, group: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group, "subscribe": topic}


def read(spark: SparkSession, options: dict[str, str]) -> tuple[tuple[int, int], ...]:
    """Run a job once, and return the ranges of its partitions."""
    with pyspark_kafka_group.bookmark(spark, options) as new:
        return tuple(range_ for _, range_ in sorted(new.ranges.items()))


def had_members(kafka: Kafka, group: str, topic: str, protocol: str) -> None:
    """Let a member join a group, commit and leave.  Without the commit the broker would delete the empty group."""
    properties = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "group.protocol": protocol}
    member = Consumer({**properties, "enable.auto.commit": False})
    try:
        member.subscribe([topic])
        wait_for(lambda: member.poll(0.1) or member.assignment(), "a member")
        starts = [TopicPartition(part.topic, part.partition, 0) for part in member.assignment()]
        member.commit(offsets=starts, asynchronous=False)
    finally:
        member.close()
    wait_for(lambda: not cluster.members(kafka.bootstrap_servers, group), "the group is empty")


@pytest.mark.timeout(240)
def test_a_quiet_partition_never_loses_its_place(forgetful: Kafka, spark: SparkSession) -> None:
    """Partition 1 gets no records.  Some jobs run often; one pauses for longer than the broker keeps offsets."""
    topic = f"quiet-{uuid.uuid4().hex[:8]}"
    forgetful.create_topic(topic, 2)
    produce(forgetful.bootstrap_servers, topic, {0: 1, 1: 5})
    groups = {name: f"{name}-{uuid.uuid4().hex[:8]}" for name in ("simple", "paused", "classic", "consumer")}
    for protocol in ("classic", "consumer"):
        had_members(forgetful, groups[protocol], topic, protocol)

    def run(name: str) -> tuple[tuple[int, int], ...]:
        return read(spark, options_of(forgetful, groups[name], topic))

    for name in groups:
        assert run(name) == ((0, 1), (0, 5)), name
    begun, read_until, seen = time.monotonic(), 1, dict.fromkeys(groups, 1)
    while time.monotonic() - begun < LONGER_S:
        time.sleep(6)
        produce(forgetful.bootstrap_servers, topic, {0: 1}, start=read_until)
        read_until += 1
        for name in groups:
            if name != "paused":
                assert run(name) == ((seen[name], read_until), (5, 5)), f"{name}, {time.monotonic() - begun:.0f} s"
                seen[name] = read_until
    assert run("paused") == ((1, read_until), (5, 5))
