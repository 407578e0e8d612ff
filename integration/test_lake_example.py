"""The example writes each record once to Parquet files, although a copy joins late and the first one is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from examples.lake.lake import read
from integration.copies import copies
from integration.pipelines import SMALL
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

EXAMPLE = Path(__file__).parents[1] / "examples" / "lake" / "lake.py"
PARTITIONS = 4
EXPECTED = sorted(f"order-{n}" for n in range(1500))


def orders(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in range(first, first + count):
        value = json.dumps({"order_id": f"order-{n}", "placed_at": "2026-01-01T12:00:00Z", "total": "1.25"})
        producer.produce(topic, value=value, key=str(n))
    assert producer.flush(30) == 0


@pytest.mark.timeout(300)  # starts Spark twice
def test_a_copy_joins_late_and_the_first_is_killed(
    kafka: Kafka, topic: TopicFactory, group: str, tmp_path: Path, spark: SparkSession
) -> None:
    name, lake = topic(PARTITIONS), tmp_path / "lake"
    servers = kafka.bootstrap_servers
    options = {"bootstrap-servers": servers, "topic": name, "group": group, "lake": str(lake)}
    with copies(EXAMPLE, tmp_path, options, partitions=PARTITIONS, submit_args=SMALL) as started:
        started.run(lambda phase: orders(servers, name, 500 * phase, 500))
    folders = sorted(lake.glob("copy=*"))
    assert [folder.name for folder in folders] == ["copy=copy-1", "copy=copy-2"]
    assert all(spark.read.parquet(str(folder)).count() > 0 for folder in folders)
    assert sorted(row.order_id for row in read(spark, lake).collect()) == EXPECTED
    # Write some rows of a copy once more, as the next owner of its partitions may do.
    spark.read.parquet(str(folders[0])).limit(7).write.parquet(str(lake / "copy=copy-3"))
    assert sorted(row.order_id for row in read(spark, lake).collect()) == EXPECTED
