"""Features of Spark's streams with this source: some work, and Spark or the source refuses the others.

``docs/differences.md`` describes the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from integration.cluster import committed, lag, produce
from integration.pipelines import PATIENCE_S, SPARK_PASSES_START, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

pytestmark = either_protocol

ASYNC = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "600000"}


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Yield a function that sets a configuration of the session for this test."""
    before: dict[str, str | None] = {}

    def set_one(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield set_one
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def stream(spark: SparkSession, options: dict[str, str], topic: str, *, name: str | None = None) -> DataFrame:
    reader = spark.readStream.format("kafka-group").options(**options).option("subscribe", topic)
    return (reader if name is None else reader.name(name)).load()


def log_of(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())


# ------------------------------------------------------------------------------------ triggers


@pytest.mark.parametrize(
    ("trigger", "refusal"),
    [
        ({"continuous": "1 second"}, "does not support continuous processing"),
        ({"realTime": "5 seconds"}, "STREAMING_REAL_TIME_MODE"),
    ],
    ids=["continuous", "real-time"],
)
def test_spark_refuses_its_triggers_without_batches(
    topic: TopicFactory,
    spark: SparkSession,
    options: dict[str, str],
    tmp_path: Path,
    trigger: dict[str, str],
    refusal: str,
) -> None:
    """Spark refuses them before the source joins its group."""
    writer = stream(spark, options, topic(1)).writeStream.format("noop").outputMode("update")
    with pytest.raises(PySparkException, match=refusal):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger).start().awaitTermination()


@pytest.mark.skipif(not SPARK_PASSES_START, reason="Spark before 4.2 does not tell a source its trigger")
def test_the_trigger_once_is_an_error_that_names_the_other_one(
    kafka: Kafka, topic: TopicFactory, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    name, rows = topic(1), list[Row]()
    produce(kafka.bootstrap_servers, name, {0: 5})
    writer = stream(spark, options, name).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    with pytest.raises(PySparkException, match=r"Use trigger\(availableNow=True\)"):
        writer.trigger(once=True).start().awaitTermination()
    assert not rows
    writer.trigger(availableNow=True).start().awaitTermination()
    assert len(rows) == 5


# ------------------------------------------------------------------------------------ the offset log


def test_a_named_source_is_found_again_although_another_one_came_before_it(
    kafka: Kafka,
    topic: TopicFactory,
    group: str,
    spark: SparkSession,
    options: dict[str, str],
    tmp_path: Path,
    conf: Callable[[str, str], None],
) -> None:
    """With ``readStream.name(...)``, offsets in the checkpoint belong to the name, not to the position in the query."""
    conf("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    orders, returns = topic(1), topic(1)
    produce(kafka.bootstrap_servers, orders, {0: 20})
    found: list[tuple[str, int]] = []

    def run(frame: DataFrame) -> None:
        writer = frame.select("topic", "offset").writeStream.foreachBatch(
            lambda batch, _: found.extend((row.topic, row.offset) for row in batch.collect())
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(int(PATIENCE_S))

    run(stream(spark, options, orders, name="orders"))
    produce(kafka.bootstrap_servers, orders, {0: 20}, start=20)
    produce(kafka.bootstrap_servers, returns, {0: 10})
    beside = {**options, "kafka.group.id": f"{group}-returns"}
    run(stream(spark, beside, returns, name="returns").union(stream(spark, options, orders, name="orders")))
    expected = Counter((orders, offset) for offset in range(40)) + Counter((returns, offset) for offset in range(10))
    assert Counter(found) == expected
    assert lag(kafka.bootstrap_servers, group, orders, [0]) == 0
    assert lag(kafka.bootstrap_servers, f"{group}-returns", returns, [0]) == 0


# ------------------------------------------------------------------------------------ state


def test_a_query_goes_on_after_its_state_was_repartitioned(
    kafka: Kafka,
    topic: TopicFactory,
    group: str,
    spark: SparkSession,
    options: dict[str, str],
    tmp_path: Path,
    conf: Callable[[str, str], None],
) -> None:
    """Spark repartitions the state between two runs, with a batch that reads no input."""
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    conf("spark.sql.streaming.stateStore.providerClass", provider)
    conf("spark.sql.streaming.offsetLog.formatVersion", "2")
    name = topic(2)
    checkpoint = tmp_path / "checkpoint"
    counts: dict[int, int] = {}

    def run(first: int) -> None:
        produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=first)
        frame = stream(spark, options, name).groupBy("partition").count()
        writer = frame.writeStream.outputMode("update").foreachBatch(
            lambda batch, _: counts.update({row.partition: row["count"] for row in batch.collect()})
        )
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(int(PATIENCE_S))

    run(0)
    batches = log_of(checkpoint / "commits")
    spark._streamingCheckpointManager.repartition(str(checkpoint), 3)
    assert log_of(checkpoint / "commits") == [*batches, batches[-1] + 1]
    run(10)
    assert counts == {0: 20, 1: 20}
    assert lag(kafka.bootstrap_servers, group, name, (0, 1)) == 0


# ------------------------------------------------------------------------------------ asynchronous progress


def test_asynchronous_progress_reads_and_a_restart_from_what_it_left_out_is_an_error(
    kafka: Kafka, topic: TopicFactory, group: str, spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """Spark omits batches from the checkpoint that the group has committed.  The query does not skip them silently."""
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 100})
    checkpoint = tmp_path / "checkpoint"

    def start() -> StreamingQuery:
        writer = stream(spark, {**options, "maxOffsetsPerTrigger": "10"}, name).select(col("value")).writeStream
        return writer.format("noop").options(**ASYNC).option("checkpointLocation", str(checkpoint)).start()

    query = start()
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, [0]) == 0, "everything is committed")
    query.stop()
    batches = sum(progress.numInputRows > 0 for progress in query.recentProgress)
    assert batches == 10
    assert len(log_of(checkpoint / "offsets")) < batches, "else there is nothing to see here"
    produce(kafka.bootstrap_servers, name, {0: 10}, start=100)
    with pytest.raises(StreamingQueryException, match=r"asyncProgressTrackingEnabled has left out batches"):
        start().awaitTermination(int(PATIENCE_S))
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 100}
    # Do what the error advises.
    checkpoint = tmp_path / "another checkpoint"
    query = start()
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, [0]) == 0, "everything is committed")
    query.stop()
    assert sum(progress.numInputRows for progress in query.recentProgress) == 10
