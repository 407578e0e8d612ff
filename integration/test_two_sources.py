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


@either_protocol
def test_join_of_one_stream_with_itself_has_all_pairs_if_one_side_is_renamed(
    kafka: Kafka, topic: TopicFactory, collect: Collect
) -> None:
    name = filled(kafka, topic)

    def stream(load: Load) -> DataFrame:
        one = load(name)
        renamed = one.toDF(*(f"{column}2" for column in one.columns))
        return one.join(renamed, expr("value = value2"))

    for found in collect(stream):
        found.run_until(40)
        assert found.rows == expected(name, 1)


@either_protocol
def test_join_of_one_stream_with_itself_has_all_pairs(kafka: Kafka, topic: TopicFactory, collect: Collect) -> None:
    """Regression: each side owned different partitions, so the join had no pairs."""
    name = filled(kafka, topic)

    def stream(load: Load) -> DataFrame:
        one = load(name)
        return one.alias("a").join(one.alias("b"), expr("a.value = b.value")).select("a.*")

    for found in collect(stream):
        found.run_until(40)
        assert found.rows == expected(name, 1)


@pytest.mark.parametrize("named", ["kafka.group.id", "groupIdPrefix"])
def test_the_sides_of_a_join_with_itself_are_one_source_with_each_trigger_and_group(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, group: str, tmp_path: Path, named: str
) -> None:
    """Regression: with `groupIdPrefix` each side had a group of its own."""
    name = filled(kafka, topic)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "startingOffsets": "earliest"}
    one = spark.readStream.format("kafka-group").options(**options, **{named: group}).load()
    pairs = one.alias("a").join(one.alias("b"), expr("a.value = b.value")).select("a.*")
    found = Collected(pairs, tmp_path / "checkpoint", availableNow=True)
    found.run_until(40)
    assert found.rows == expected(name, 1)
    assert found.query.awaitTermination(60)
    progress = found.query.lastProgress
    assert progress is not None
    assert len({source.endOffset for source in progress.sources}) == 1, "one offset for both sides"


@either_protocol
def test_one_stream_may_be_joined_with_itself_twice(
    kafka: Kafka, topic: TopicFactory, pipeline: Pipelines, tmp_path: Path
) -> None:
    """This test uses only `availableNow`.  The tests of a single join use both triggers."""
    name = filled(kafka, topic)
    stream = pipeline(name).load()
    pairs = stream.alias("a").join(stream.alias("b"), expr("a.value = b.value")).select("a.*")
    thrice = pairs.alias("c").join(stream.alias("d"), expr("c.value = d.value")).select("c.*")
    found = Collected(thrice, tmp_path / "checkpoint", availableNow=True)
    try:
        found.run_until(40)
    finally:
        found.query.stop()
    assert found.rows == expected(name, 1)


@either_protocol
def test_join_with_itself_goes_on_after_a_failure_and_beside_another_member(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines, spark: SparkSession, tmp_path: Path
) -> None:
    """Both sides replay the same batch, and read the same partitions after some have moved."""
    name = filled(kafka, topic)
    fail_in: set[int] = {1}
    rows: dict[int, Counter[tuple[str, int, int]]] = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        rows[batch_id] = Counter((row.topic, row.partition, row.offset) for row in batch.collect())
        if batch_id in fail_in:
            fail_in.clear()
            raise RuntimeError("the sink fails")

    def start() -> StreamingQuery:
        stream = pipeline(name).load()
        joined = stream.alias("a").join(stream.alias("b"), expr("a.value = b.value"))
        writer = joined.selectExpr("a.topic", "a.partition", "a.offset").writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def delivered() -> Counter[tuple[str, int, int]]:
        return sum(rows.values(), Counter())

    query = start()
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.awaitTermination(120)
    failed = rows.pop(1)
    query = start()
    wait_for(lambda: delivered().total() >= 40, "all records")
    assert rows[1] == failed
    other = pipeline(name, name="other").start()
    try:
        other.wait_for_ownership(2)
        produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 10), start=10)
        wait_for(lambda: delivered().total() + len(other.rows) >= 80, "all records")
        assert query.exception() is None
        wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(4)) == 0, "lag 0")
        found = delivered() + Counter((row.topic, row.partition, row.offset) for row in other.rows)
        assert found == {(name, partition, offset): 1 for partition in range(4) for offset in range(20)}
        assert len(other.rows) == 20
    finally:
        query.stop()
        other.stop()


@either_protocol
def test_union_of_two_equal_streams_has_each_record_twice(
    kafka: Kafka, topic: TopicFactory, group: str, collect: Collect
) -> None:
    """Spark Connect makes two equal streams of one, so two `load()` with the same options are one."""
    name = filled(kafka, topic)
    for found in collect(lambda load: load(name).union(load(name).filter("offset >= 0"))):
        found.run_until(80)
        assert found.rows == expected(name, 2)
    all_committed(kafka, group, name)


@either_protocol
def test_two_streams_of_one_group_and_topic_with_other_options_are_refused(
    kafka: Kafka, topic: TopicFactory, group: str, collect: Collect
) -> None:
    name, other = filled(kafka, topic), {"startingOffsets": "latest"}
    for found in collect(lambda load: load(name).union(load(name, **other).filter("offset >= 5"))):
        with pytest.raises(StreamingQueryException) as failed:
            assert found.query.awaitTermination(60), "it is not refused"
        assert f"two load() of this query read the same topics ({name}) in the group '{group}" in str(failed.value)
        assert "Give both the same options, or give each load() a group of its own." in str(failed.value)
        assert not found.rows
    for one in groups(group):
        wait_for(lambda one=one: not members(kafka.bootstrap_servers, one), "the first has left", timeout_s=20)  # type: ignore[misc]


@either_protocol
def test_two_streams_of_one_group_may_have_different_topics(
    kafka: Kafka, topic: TopicFactory, collect: Collect
) -> None:
    first, second = filled(kafka, topic), filled(kafka, topic)
    for found in collect(lambda load: load(first).union(load(second))):
        found.run_until(80)
        assert found.rows == expected(first, 1) | expected(second, 1)


@pytest.mark.timeout(600)
def test_two_queries_that_start_at_the_same_time_share_a_group(
    kafka: Kafka, topic: TopicFactory, pipeline: Pipelines, group: str, protocol: str
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
