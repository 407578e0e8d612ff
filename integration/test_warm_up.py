"""A query that would take partitions from others first runs an empty batch, and joins after it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from integration.cluster import members, produce
from integration.pipelines import PATIENCE_S, Pipeline, assert_exactly_once, assert_orderly, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.stores import OffsetTable, into
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


class FirstBatch:
    """Blocks the first batch of a query until the test releases it."""

    def __init__(self) -> None:
        self.runs, self.released = threading.Event(), threading.Event()

    def __call__(self, _: int) -> None:
        self.runs.set()
        assert self.released.wait(PATIENCE_S)


@either_protocol
def test_a_query_takes_partitions_when_it_is_warm_also_when_it_starts_again(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(4)
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 5))
    first = pipeline(name, name="first").start()
    first.wait_for_rows(20)
    warming = FirstBatch()
    second = pipeline(name, name="second", before_batch=warming).start()
    for again in (False, True):
        wait_for(warming.runs.is_set, "the empty batch of the second runs")
        assert len(first.owned()) == 4, "as long as the second is not warm nothing moves"
        assert [client_id.split("-")[0] for client_id in members(kafka.bootstrap_servers, group)] == ["first"]
        warming.released.set()
        second.wait_for_ownership(2)
        if not again:
            second.stop()
            wait_for(lambda: second.events("left"), "the second has left")
            first.wait_for_ownership(4)
            second.before_batch = warming = FirstBatch()
            second.start()
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 5), start=5)
    wait_for(lambda: len(first.rows) + len(second.rows) == 40, "all is read")
    assert_exactly_once([*first.rows, *second.rows], {(name, n): 10 for n in range(4)})
    said = [event["event"] for event in second.events("warming", "joined", "left")]
    assert said == ["warming", "joined", "left", "warming", "joined"]
    assert not first.events("warming"), "who is alone loses no time"
    assert_orderly(second.events())


@either_protocol
def test_a_topic_that_is_added_to_subscribe_is_read_from_its_beginning(
    kafka: Kafka, topic: TopicFactory, pipeline: Pipelines
) -> None:
    """Regression: `latest` moved while the query warmed up, by hours if its triggers were hours apart."""
    known, added = topic(2), topic(1)
    produce(kafka.bootstrap_servers, known, {0: 5, 1: 5})
    produce(kafka.bootstrap_servers, added, {0: 5})
    first = pipeline(known, name="first").start()
    first.wait_for_rows(10)
    second = pipeline(known, name="second").start()
    second.wait_for_ownership(1)
    produce(kafka.bootstrap_servers, known, {0: 5, 1: 5}, start=5)
    wait_for(lambda: len(first.rows) + len(second.rows) == 20, "all is read")
    second.stop()
    second.options = {**second.options, "subscribe": f"{known},{added}", "startingOffsets": "latest"}
    second.start(processingTime="8 seconds")
    time.sleep(4)  # the empty batch is finished, and the next trigger has not fired
    produce(kafka.bootstrap_servers, added, {0: 10}, start=5)
    second.wait_for_rows(len([row for row in second.rows if row.topic == known]) + 15)
    assert [row.offset for row in second.rows if row.topic == added] == list(range(15))


@either_protocol
def test_the_first_write_into_a_database_is_warm_too(
    kafka: Kafka, topic: TopicFactory, pipeline: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5})
    warm_ups: list[OffsetTable] = []
    warm_up = OffsetTable._warm_up

    def noted(offsets: OffsetTable, spark: SparkSession) -> None:
        warm_up(offsets, spark)
        warm_ups.append(offsets)

    monkeypatch.setattr(OffsetTable, "_warm_up", noted)
    write = into("rows", columns=["topic", "partition", "offset"])

    def start(one: Pipeline) -> OffsetTable:
        offsets = OffsetTable(f"sqlite:///{tmp_path}/rows.db", "etl")

        def take(batch: DataFrame, batch_id: int) -> None:
            offsets.write(batch.select("topic", "partition", "offset"), batch_id, write)

        writer = one.load().writeStream.foreachBatch(take).option("checkpointLocation", str(one.checkpoint))
        one.query = writer.start()
        return offsets

    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute('CREATE TABLE rows (topic TEXT, "partition" INTEGER, "offset" INTEGER)')

        def written() -> tuple[int, int]:
            statement = 'SELECT count(*), count(DISTINCT 1000 * "partition" + "offset") FROM rows'
            found: tuple[int, int] = database.execute(statement).fetchone()
            return found

        start(pipeline(name, name="first"))
        wait_for(lambda: written() == (10, 10), "the first has written")
        second = pipeline(name, name="second")
        joins = start(second)
        second.wait_for_ownership(1)
        produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=5)
        wait_for(lambda: written() == (20, 20), "both have written")
    assert warm_ups == [joins]
