"""Queries with two sources of one group, and two queries of one session that share a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from integration.cluster import lag, members, produce
from integration.pipelines import Pipeline, assert_exactly_once, has_logged_a_batch, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


class Collected:
    """Runs a query over any stream and counts how often it delivers each row."""

    def __init__(self, stream: DataFrame, checkpoint: Path, **trigger: bool) -> None:
        self.rows: Counter[tuple[str, int, int]] = Counter()
        writer = stream.select("topic", "partition", "offset").writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = (writer.trigger(**trigger) if trigger else writer).start()

    def _take(self, batch: DataFrame, _batch_id: int) -> None:
        self.rows.update((row.topic, row.partition, row.offset) for row in batch.collect())

    def run_until(self, rows: int) -> None:
        def enough() -> bool:
            assert self.query.exception() is None
            return self.rows.total() >= rows or not self.query.isActive

        wait_for(enough, f"{rows} rows")


Load = Callable[..., DataFrame]
Collect = Callable[[Callable[[Load], DataFrame]], list[Collected]]

TRIGGERS: dict[str, dict[str, bool]] = {"default": {}, "now": {"availableNow": True}}


@pytest.fixture
def collect(tmp_path: Path, pipeline: Pipelines, group: str) -> Iterator[Collect]:
    """Yield a function that starts the same query twice: with each of two triggers, and in separate groups.

    Its argument is a function that makes the stream with ``load(topics, **options)``.
    """
    made: list[Collected] = []

    def start(make: Callable[[Load], DataFrame]) -> list[Collected]:
        for name, trigger in TRIGGERS.items():

            def load(topics: str, name: str = name, **options: str) -> DataFrame:
                given = {"kafka.group.id": f"{group}-{name}", **options}
                return pipeline(topics, name=f"{name}-{len(made)}", **given).load()

            made.append(Collected(make(load), tmp_path / f"checkpoint-{name}", **trigger))
        return made

    yield start
    for one in made:
        one.query.stop()


def groups(group: str) -> list[str]:
    """Return the groups of :func:`collect`."""
    return [f"{group}-{name}" for name in TRIGGERS]


def all_committed(kafka: Kafka, group: str, topic: str) -> None:
    """Wait until the groups of :func:`collect` have committed everything."""
    wait_for(
        lambda: not any(lag(kafka.bootstrap_servers, one, topic, range(4)) for one in groups(group)),
        "lag 0 in both groups",
    )


def filled(kafka: Kafka, topic: TopicFactory) -> str:
    name = topic(4)
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 10))
    return name


def expected(name: str, times: int) -> dict[tuple[str, int, int], int]:
    return {(name, partition, offset): times for partition in range(4) for offset in range(10)}


@either_protocol
def test_union_of_one_stream_with_itself_has_each_record_twice(
    kafka: Kafka, topic: TopicFactory, group: str, collect: Collect
) -> None:
    """Spark reads such a stream once, so the group has one member."""
    name = filled(kafka, topic)

    def stream(load: Load) -> DataFrame:
        one = load(name)
        return one.union(one.filter("offset >= 0"))

    for found in collect(stream):
        found.run_until(80)
        assert found.rows == expected(name, 2)
    all_committed(kafka, group, name)


def _joined(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.alias("a").join(other.alias("b"), expr("a.value = b.value")).select("a.*")


@either_protocol
@pytest.mark.parametrize("made", ["join", "loads"])
def test_a_second_source_of_one_group_and_topic_is_refused_and_the_way_out_works(
    kafka: Kafka, topic: TopicFactory, group: str, collect: Collect, made: str
) -> None:
    """Regression: each side owned different partitions, so the join had no pairs."""
    name = filled(kafka, topic)

    def stream(load: Load) -> DataFrame:
        if made == "join":
            one = load(name)
            return _joined(one, one)
        return load(name).union(load(name, startingOffsets="latest").filter("offset >= 5"))

    for found in collect(stream):
        with pytest.raises(StreamingQueryException) as failed:
            assert found.query.awaitTermination(60), "it is not refused"
        assert f"two sources of this query read the same topics ({name}) in the group '{group}" in str(failed.value)
        assert "Use two load(), each with a group of its own" in str(failed.value)
        assert not found.rows
    for one in groups(group):
        wait_for(lambda one=one: not members(kafka.bootstrap_servers, one), "the first has left", timeout_s=20)  # type: ignore[misc]


def test_a_second_source_that_comes_with_a_restart_is_refused(
    kafka: Kafka, topic: TopicFactory, group: str, collect: Collect
) -> None:
    """Regression: only new queries were checked.  Each branch then got some of the records, and none got the others."""
    first, second = filled(kafka, topic), filled(kafka, topic)
    former = [*collect(lambda load: load(first).union(load(second)))]
    for found in former:
        found.run_until(80)
    for name in (first, second):
        all_committed(kafka, group, name)
    for found in former:
        found.query.stop()
    produce(kafka.bootstrap_servers, first, dict.fromkeys(range(4), 10), start=10)

    for found in collect(lambda load: load(first).union(load(f"{first},{second}")))[len(former) :]:
        with pytest.raises(StreamingQueryException, match="two sources of this query read the same topics"):
            assert found.query.awaitTermination(60), "it is not refused"
        assert not found.rows


@either_protocol
def test_join_of_two_loads_with_a_group_each_has_all_pairs(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, group: str, protocol: str, tmp_path: Path
) -> None:
    name = filled(kafka, topic)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "startingOffsets": "earliest"}
    reader = spark.readStream.format("kafka-group").options(**options).option("kafka.group.protocol", protocol)
    one = reader.option("kafka.group.id", f"{group}-a").load()
    options.update({"groupIdPrefix": f"{group}-b", "kafka.group.protocol": protocol})
    other = spark.readStream.format("kafka-group").options(**options).load()
    found = Collected(_joined(one, other), tmp_path / "checkpoint", availableNow=True)
    found.run_until(40)
    assert found.rows == expected(name, 1)
    assert found.query.awaitTermination(60)


@either_protocol
def test_two_streams_of_one_group_may_have_different_topics(
    kafka: Kafka, topic: TopicFactory, collect: Collect
) -> None:
    first, second = filled(kafka, topic), filled(kafka, topic)
    for found in collect(lambda load: load(first).union(load(second))):
        found.run_until(80)
        assert found.rows == expected(first, 1) | expected(second, 1)


@either_protocol
def test_two_queries_that_start_at_the_same_time_share_a_group(
    kafka: Kafka, topic: TopicFactory, pipeline: Pipelines, group: str
) -> None:
    """The source never takes them for two sources of one query, even if they restart while former processes leave."""
    name = topic(4)
    pair = [pipeline(name, name=f"query{n}") for n in range(2)]
    for started in range(2):
        produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 10), start=10 * started)
        threads = [Thread(target=one.start) for one in pair]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        def delivered(count: int = 40 * (started + 1)) -> bool:
            for one in pair:
                assert one.started.exception() is None
            return sum(len(one.rows) for one in pair) >= count

        wait_for(delivered, "all records")
        # The next run may repeat records that a stopped query has not committed.
        wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(4)) == 0, "all records are committed")
        for one in pair:
            one.wait_for_ownership(2)
        # A query without records also begins with a batch.  Do not stop it while Spark writes that batch.
        wait_for(lambda: all(has_logged_a_batch(one.checkpoint) for one in pair), "first batches")
        for one in pair:
            one.stop()
    assert_exactly_once([row for one in pair for row in one.rows], {(name, p): 20 for p in range(4)})
