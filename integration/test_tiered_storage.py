"""Reads from tiered storage (KIP-405), with Kafka's own implementation for tests, which is a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from integration.cluster import lag
from integration.pipelines import Pipeline, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.testing.jars import JarSet, resolve
from pyspark_kafka_group.testing.pinned_jars import KAFKA_VERSION
from tests.connector.reading.clients import any_client

__all__ = ["any_client"]

STORAGE = f"org.apache.kafka:kafka-storage:{KAFKA_VERSION}:test"
STORAGE_SHA256 = "f3236936854c13815ffaa7f35a3f2d6861c125616cba5395b538b8680dded886"
RECORDS, RECORD_BYTES = 250, 20_000
SEGMENT_BYTES = 1024 * 1024


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Yield a broker whose own disk contains only the last records of the topic ``orders``."""
    label = "Kafka's tiered storage for tests"
    modules = {STORAGE: STORAGE_SHA256}
    [jar] = resolve(JarSet(name=f"tiered-{KAFKA_VERSION}", label=label, modules=(STORAGE,), sha256=modules))
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "rsm.config.dir": str(tmp_path_factory.mktemp("tier")),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "200",
        "log.initial.task.delay.ms": "500",  # the delay before Kafka first deletes segments: 30 s by default
    }
    with LocalKafka(properties=properties) as kafka:
        moved = {"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.bytes": str(SEGMENT_BYTES)}
        kafka.create_topic("orders", 1, config=moved)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "batch.size": 2 * RECORD_BYTES})
        for number in range(RECORDS):
            producer.produce("orders", b"%d " % number + bytes(RECORD_BYTES), partition=0)
        assert producer.flush(30) == 0
        folder = kafka.partition_folder(1, "orders", 0)

        def only_the_end() -> bool:
            return min(int(segment.stem) for segment in folder.glob("*.log")) > RECORDS / 2

        wait_for(only_the_end, "the older segments are in tiered storage alone")
        yield kafka


@either_protocol
def test_a_stream_and_a_batch_read_begin_in_tiered_storage(
    tiered: LocalKafka, group: str, pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    options = {"kafka.bootstrap.servers": tiered.bootstrap_servers}
    query = pipeline("orders", **options, maxOffsetsPerTrigger=100).run_available()
    assert sorted(row.offset for row in query.rows) == list(range(RECORDS))
    assert lag(tiered.bootstrap_servers, group, "orders", [0]) == 0
    assert spark.read.format("kafka-group").options(**options).option("subscribe", "orders").load().count() == RECORDS
