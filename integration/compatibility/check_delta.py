"""With Delta Lake's own identifier of a batch, a replayed batch is written once.

See docs/sinks.md, and `rows`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pyspark_kafka_group
from integration.cluster import produce
from integration.compatibility import lake_writer
from integration.pipelines import PATIENCE_S, Pipeline
from integration.spark_fixtures import either_protocol
from integration.test_exactly_once import forget_newest_commit
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from tests.docs.blocks import run_by

RECORDS = 40


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session with Delta Lake."""
    found = lake_writer.session(tmp_path_factory.mktemp("lake"))
    yield found
    found.stop()


@either_protocol
@pytest.mark.parametrize("identified", [True, False], ids=["identified", "only appended"])
def test_a_replayed_batch(
    kafka: Kafka,
    topic: TopicFactory,
    spark: SparkSession,
    pipeline: Callable[..., Pipeline],
    tmp_path: Path,
    identified: bool,
) -> None:
    records = topic(1)
    produce(kafka.bootstrap_servers, records, {0: RECORDS})
    source = pipeline(records)
    table = str(tmp_path / "table")

    def write(batch: DataFrame, batch_id: int) -> None:
        writer = batch.write.format("delta").mode("append")
        if identified:
            writer = writer.option("txnAppId", "orders-etl-1").option("txnVersion", batch_id)
        writer.save(table)

    def run() -> int:
        writer = source.load().writeStream.foreachBatch(write).option("checkpointLocation", str(source.checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(int(PATIENCE_S))
        return spark.read.format("delta").load(table).count()

    assert run() == RECORDS
    forget_newest_commit(source.checkpoint)
    assert run() == (RECORDS if identified else 2 * RECORDS)


def test_the_recipe(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the program of docs/recipes.md with other servers, topics and paths, until it has read everything."""
    records = topic(1)
    produce(kafka.bootstrap_servers, records, {0: RECORDS})
    [program] = run_by("integration/compatibility/check_delta.py")
    for written, instead in {
        "localhost:9092": kafka.bootstrap_servers,
        '"subscribe", "orders"': f'"subscribe", "{records}"',
        "'delta-orders'": f"'{tmp_path}/delta-orders'",
        "checkpoint-delta": f"{tmp_path}/checkpoint",
    }.items():
        assert written in program
        program = program.replace(written, instead)
    monkeypatch.setattr(sys, "argv", ["program.py", "one"])
    monkeypatch.setattr(pyspark_kafka_group, "run_until_signal", lambda query: query.processAllAvailable())
    exec(program, {})
    for query in spark.streams.active:
        pyspark_kafka_group.stop(query)
    assert spark.read.format("delta").load(f"{tmp_path}/delta-orders").count() == RECORDS


@either_protocol
def test_the_streaming_sink_of_delta(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    records = topic(1)
    produce(kafka.bootstrap_servers, records, {0: RECORDS})
    source = pipeline(records)
    table = str(tmp_path / "table")

    def run() -> int:
        writer = source.load().writeStream.format("delta").option("checkpointLocation", str(source.checkpoint))
        assert writer.trigger(availableNow=True).start(table).awaitTermination(int(PATIENCE_S))
        return spark.read.format("delta").load(table).count()

    assert run() == RECORDS
    forget_newest_commit(source.checkpoint)
    assert run() == RECORDS
