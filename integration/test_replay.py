"""A query starts again with an unfinished batch, and meanwhile the group has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

import pyspark_kafka_group
from integration.cluster import Stream, committed, lag, produce
from integration.pipelines import (
    PATIENCE_S,
    Application,
    Pipeline,
    Row,
    assert_exactly_once,
    assert_orderly,
    wait_for,
)
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


class FailingOnce:
    """Fails the sink of one batch, before it has written anything."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._failed = False

    def __call__(self, batch: int) -> None:
        if batch == self._batch and not self._failed:
            self._failed = True
            raise RuntimeError("the sink is down")


def failed(query: Pipeline) -> str:
    """Wait until the query has failed, and return why."""
    return str(wait_for(lambda: query.query is not None and query.query.exception(), f"{query.name} has failed"))


def once_per_batch(rows: Iterable[Row]) -> set[Row]:
    """Return what a sink holds that replaces a batch which it is given again, as Spark's contract says."""
    return {row._replace(time=0.0) for row in rows}


def reset(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Set the group's committed offsets, as an operator does when the last member has left."""
    parts = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def accepted() -> bool:
        (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, parts)]).values()
        return all(part.error is None for part in future.result().topic_partitions)

    wait_for(accepted, "the group is empty and its offsets are reset")


def test_ranges_that_another_query_has_taken_over_are_left_to_it(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    first = pipeline(name, name="first", before_batch=FailingOnce(1)).start()
    first.wait_for_rows(20)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=10)
    failed(first)
    second = pipeline(name, name="second").start()
    second.wait_for_rows(10)
    first.start()
    replayed = wait_for(lambda: first.events("replayed"), "the batch runs again")[0]
    assert replayed["skipped"], "the second query owned what the batch had read"
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=15)
    wait_for(lambda: len(first.rows) + len(second.rows) >= 40, "everything is read")
    assert first.query is not None
    assert pyspark_kafka_group.stop(first.query)
    first.start()
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=20)
    wait_for(lambda: len(first.rows) + len(second.rows) >= 50, "everything is read")
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    assert_exactly_once([*first.rows, *second.rows], {(name, 0): 25, (name, 1): 25})
    assert_orderly(second.events())


def test_skipped_range_is_read_when_its_new_owner_gives_it_back_unread(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Spark's log says that the first query has finished the range, and only the skip marker knows better."""
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    first = pipeline(name, name="first", before_batch=FailingOnce(1)).start()
    first.wait_for_rows(10)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, [0]) == 0, "lag 0")
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    failed(first)
    skipped = threading.Event()

    def wait_and_fail(_batch: int) -> None:
        assert skipped.wait(PATIENCE_S)
        raise RuntimeError("the sink is down")

    second = pipeline(name, name="second", before_batch=wait_and_fail).start()
    second.wait_for_ownership(1)
    first.start()
    wait_for((first.checkpoint / "commits" / "1").exists, "Spark has finished the batch that was skipped")
    assert first.events("replayed")[0]["skipped"] == {f"{name}-0": [10, 15]}
    first.stop()
    skipped.set()
    failed(second)
    first.start()
    first.wait_for_rows(15)
    assert [row.offset for row in first.rows] == list(range(15))


def test_killed_query_waits_for_the_session_of_its_former_process_and_replays_what_spark_logged(
    kafka: Kafka, topic: TopicFactory, group: str, application: Callable[..., Application], protocol: str
) -> None:
    """Nobody owns the partitions until then; to skip them would repeat what the sink already holds."""
    name = topic(2)
    session = {"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}  # KIP-848: the broker's
    app = application(name, "app", **session).start()
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    wait_for(lambda: len(app.rows) >= 20, "20 rows")
    with Stream(kafka.bootstrap_servers, {name: 2}, per_second=100) as stream:
        seen = len(app.rows)
        wait_for(lambda: len(app.rows) > seen + 100, "batches run")
        app.kill()
        app.start()
        seen = len(app.rows)
        wait_for(lambda: len(app.rows) > seen + 100, "batches run again")
    produced = {key: 10 + count for key, count in stream.produced.items()}
    wait_for(lambda: len(app.rows) >= sum(produced.values()), "everything is read")
    assert {replayed["skipped"] == {} for replayed in app.events("replayed")} <= {True}
    assert_exactly_once(once_per_batch(app.rows), produced)


@either_protocol
def test_rewound_offset_ends_the_query_with_the_range_and_the_remedies(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    pipeline(name).run_available()
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    query = pipeline(name).run_available()
    reset(kafka.bootstrap_servers, group, name, {0: 4})
    query.start()
    text = failed(query)
    assert f"{name}-0: the committed offset of group '{group}' is back at 4" in text
    assert "would process [4, 15) again" in text
    assert "onOffsetRewind=checkpoint" in text


@either_protocol
def test_rewound_offset_is_put_back_with_checkpoint(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    pipeline(name).run_available()
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    pipeline(name).run_available()
    reset(kafka.bootstrap_servers, group, name, {0: 4})
    query = pipeline(name, onOffsetRewind="checkpoint").run_available()
    assert query.rows == []
    assert query.events("rewound")[0]["position"] == 15
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 15}


@either_protocol
def test_rewound_offset_is_followed_with_group(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    pipeline(name).run_available()
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    pipeline(name).run_available()
    reset(kafka.bootstrap_servers, group, name, {0: 4})
    query = pipeline(name, onOffsetRewind="group").run_available()
    assert [row.offset for row in query.rows] == list(range(4, 15))
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 15}
    assert pipeline(name, onOffsetRewind="group").run_available().rows == []
