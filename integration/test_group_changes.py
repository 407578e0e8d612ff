"""What changes around a running query: partitions, subscriptions, protocols."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.cluster import Stream, committed, delete_group, lag, produce, recreate
from integration.pipelines import Pipeline, assert_exactly_once, assert_orderly, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


def failed(query: Pipeline) -> str:
    """Wait until the query has failed, and return why."""
    return str(wait_for(lambda: query.query is not None and query.query.exception(), f"{query.name} fails"))


def test_added_partitions_are_read_from_their_beginning(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Also with `startingOffsets` latest: records may be there before the group knows of the partition."""
    name = topic(1)
    options = {"startingOffsets": "latest", "kafka.topic.metadata.refresh.interval.ms": "1000"}
    queries = [pipeline(name, name=f"etl-{n}", **options).start() for n in range(2)]
    wait_for(lambda: sum(len(query.owned()) for query in queries) == 1, "the group knows the partition")
    kafka.add_partitions(name, 3)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10, 2: 10})
    wait_for(lambda: sum(len(query.owned()) for query in queries) == 3, "the group knows the added partitions")
    wait_for(lambda: sum(len(query.rows) for query in queries) >= 30, "everything is delivered")
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(3)) == 0, "lag 0")
    wait_for(lambda: all(query.owned() for query in queries), "both have a share")  # the second may have come late
    assert_exactly_once(queries[0].rows + queries[1].rows, {(name, p): 10 for p in range(3)})
    for query in queries:
        assert_orderly(query.events())


def test_a_topic_that_matches_later_is_shared_and_read_from_its_beginning(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Also with `startingOffsets` latest, and by a query that was not running when the topic was created."""
    first = topic(2)
    options = {
        "subscribePattern": f"{first.rpartition('-')[0]}-.*",
        "startingOffsets": "latest",
        "kafka.topic.metadata.refresh.interval.ms": "500",
    }
    queries = [pipeline(None, name=f"etl-{n}", **options).start() for n in range(2)]
    wait_for(lambda: all(len(query.owned()) == 1 for query in queries), "both have a partition")
    later = topic(2)
    produce(kafka.bootstrap_servers, later, {0: 10, 1: 10})
    wait_for(lambda: sum(len(query.rows) for query in queries) >= 20, "the later topic is delivered")
    wait_for(lambda: lag(kafka.bootstrap_servers, group, later, range(2)) == 0, "lag 0")
    for query in queries:
        query.stop()
    last = topic(1)
    produce(kafka.bootstrap_servers, last, {0: 5})
    queries[0].start().wait_for_ownership(5)
    wait_for(lambda: sum(len(query.rows) for query in queries) >= 25, "the last topic is delivered")
    wait_for(lambda: lag(kafka.bootstrap_servers, group, last, range(1)) == 0, "lag 0")
    assert_exactly_once(queries[0].rows + queries[1].rows, {(later, 0): 10, (later, 1): 10, (last, 0): 5})


def test_a_pattern_that_nothing_matches_waits_for_a_first_topic(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Through Spark: also with `availableNow`, and after a restart."""
    names = [topic(1) for _ in range(2)]
    for name in names:
        kafka.delete_topic(name)
    options = {
        "subscribePattern": "|".join(names),
        "startingOffsets": "latest",
        "kafka.topic.metadata.refresh.interval.ms": "500",
    }
    query = pipeline(None, name="etl", **options)
    assert query.run_available().rows == []
    query.start()
    wait_for(query.progress, "a progress")
    kafka.create_topic(names[0], 1)
    produce(kafka.bootstrap_servers, names[0], {0: 10})
    query.wait_for_rows(10)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, names[0], range(1)) == 0, "lag 0")
    query.stop()
    kafka.create_topic(names[1], 1)
    produce(kafka.bootstrap_servers, names[1], {0: 5})
    query.run_available()
    assert_exactly_once(query.rows, {(names[0], 0): 10, (names[1], 0): 5})


@either_protocol
def test_a_topic_that_matched_and_was_deleted_while_no_query_ran_is_told(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: its records were lost and nobody said so.  The checkpoint knows what there was to read."""
    gone, stays = topic(1), topic(1)
    options = {"subscribePattern": f"{gone}|{stays}"}
    for name in (gone, stays):
        produce(kafka.bootstrap_servers, name, {0: 10})
    query = pipeline(None, name="etl", **options).run_available()
    assert len(query.rows) == 20
    kafka.delete_topic(gone)

    for trigger in ({}, {"availableNow": True}):
        problem = failed(pipeline(None, name="etl", **options).start(**trigger))
        assert f"Topic deleted: {gone}." in problem
        assert "failOnDataLoss=false" in problem

    produce(kafka.bootstrap_servers, stays, {0: 5})
    query = pipeline(None, name="etl", **options, failOnDataLoss="false").run_available()
    assert [(row.topic, row.offset) for row in query.rows] == [(stays, offset) for offset in range(10, 15)]
    assert [e["partitions"] for e in query.events("logChanged")] == [[f"{gone}-0"]]
    produce(kafka.bootstrap_servers, stays, {0: 5})
    query.run_available()
    again = pipeline(None, name="etl", **options).run_available()  # the checkpoint has forgotten it
    assert (len(query.rows), again.rows) == (10, [])


@either_protocol
def test_a_batch_that_runs_again_and_whose_topics_are_all_gone(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(1)
    options = {"subscribePattern": name, "kafka.topic.metadata.refresh.interval.ms": "500"}
    produce(kafka.bootstrap_servers, name, {0: 10})

    def fail(batch: int) -> None:
        raise ValueError("the sink is full")

    assert "the sink is full" in failed(pipeline(None, name="etl", before_batch=fail, **options).start())
    kafka.delete_topic(name)
    assert f"Topic deleted: {name}." in failed(pipeline(None, name="etl", **options).start())
    query = pipeline(None, name="etl", **options, failOnDataLoss="false").start()
    wait_for(lambda: query.events("logChanged"), "the loss is told")
    wait_for(query.progress, "a progress")
    kafka.create_topic(name, 1)
    produce(kafka.bootstrap_servers, name, {0: 7})
    query.wait_for_rows(7)
    assert_exactly_once(query.rows, {(name, 0): 7})


@either_protocol
def test_a_topic_that_came_after_a_first_batch_that_failed_is_read_from_its_beginning(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: with `latest` it started at its end, as if it had been there when the query was started first."""
    name = topic(1)
    options = {"subscribePattern": f"{name}.*", "startingOffsets": "latest"}

    def fail(batch: int) -> None:
        raise ValueError("there is no table yet")

    assert "there is no table yet" in failed(pipeline(None, name="etl", before_batch=fail, **options).start())
    kafka.create_topic(f"{name}-later", 1)
    produce(kafka.bootstrap_servers, f"{name}-later", {0: 5})
    assert_exactly_once(pipeline(None, name="etl", **options).run_available().rows, {(f"{name}-later", 0): 5})


@pytest.mark.parametrize("protocol", ["classic"], indirect=True)  # where the added partition is told of last
def test_topic_that_is_created_again_with_more_partitions_is_read_from_its_beginning(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: with `latest` the added ones started at their ends."""
    name = topic(1)
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    query = pipeline(name, **options, **{"kafka.topic.metadata.refresh.interval.ms": "5000"}).start()
    wait_for(lambda: query.events("started"), "it has started")
    produce(kafka.bootstrap_servers, name, {0: 10})
    query.wait_for_rows(10)
    recreate(kafka.bootstrap_servers, name, 2)
    produce(kafka.bootstrap_servers, name, {0: 6, 1: 6})
    query.wait_for_rows(22)
    assert sorted((row.partition, row.offset) for row in query.rows[10:]) == [(p, n) for p in (0, 1) for n in range(6)]


@either_protocol
def test_a_partition_that_was_added_before_the_group_lost_its_offsets_is_read_from_its_beginning(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: with `latest` it started at its end.  As after a week in which no application ran."""
    name = topic(1)
    options = {"startingOffsets": "latest", "onOffsetRewind": "checkpoint"}
    assert pipeline(name, **options).run_available().rows == []
    produce(kafka.bootstrap_servers, name, {0: 10})
    pipeline(name, **options).run_available()
    kafka.add_partitions(name, 2)
    wait_for(lambda: delete_group(kafka.bootstrap_servers, group), "the group is deleted")
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    produce(kafka.bootstrap_servers, name, {1: 7})
    again = pipeline(name, **options).run_available()
    assert sorted((row.partition, row.offset) for row in again.rows) == [
        *((0, offset) for offset in range(10, 15)),
        *((1, offset) for offset in range(7)),
    ]
    assert committed(kafka.bootstrap_servers, group, name, range(2)) == {0: 15, 1: 7}


def test_members_with_different_subscriptions_share_what_both_want(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    shared, own = topic(2), topic(2)
    with Stream(kafka.bootstrap_servers, {shared: 2, own: 2}, per_second=100) as stream:
        both = pipeline(f"{shared},{own}", name="both").start()
        both.wait_for_ownership(4)
        one = pipeline(shared, name="one").start()
        wait_for(one.owned, "the second one has a part")
        rows = len(one.rows)
        wait_for(lambda: len(one.rows) > rows + 50, "the second one delivers")
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, shared, range(2)) == 0, "lag 0")
        wait_for(lambda: lag(kafka.bootstrap_servers, group, own, range(2)) == 0, "lag 0")
    assert_exactly_once(both.rows + one.rows, stream.produced)
    assert {row.topic for row in one.rows} == {shared}
    assert {row.topic for row in both.rows} == {shared, own}


@pytest.mark.parametrize("protocol", ["classic"], indirect=True)
def test_members_of_both_protocols_share_one_group(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """The group is upgraded by the first member of the consumer protocol, and old members stay."""
    name = topic(4)
    with Stream(kafka.bootstrap_servers, {name: 4}, per_second=100) as stream:
        old = pipeline(name, name="old", **{"kafka.group.protocol": "classic"}).start()
        old.wait_for_ownership(4)
        new = pipeline(name, name="new", **{"kafka.group.protocol": "consumer"}).start()
        new.wait_for_ownership(2)
        old.wait_for_ownership(2)
        older = pipeline(name, name="older", **{"kafka.group.protocol": "classic"}).start()
        older.wait_for_ownership(1)
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(4)) == 0, "lag 0")
    assert_exactly_once(old.rows + new.rows + older.rows, stream.produced)
    for query in (old, new, older):
        assert query.query is not None
        assert query.query.exception() is None
        assert_orderly(query.events())


def running_on_a_topic(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines, **options: str
) -> tuple[Pipeline, str]:
    """A query that has read and committed 10 records of each of two partitions."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    query = pipeline(name, **options).start()
    query.wait_for_rows(20)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    return query, name


def test_topic_that_is_created_again_under_a_running_query_ends_it_by_default(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: on the classic protocol nobody noticed, and the beginning of the new topic was never read."""
    query, name = running_on_a_topic(kafka, topic, group, pipeline)
    recreate(kafka.bootstrap_servers, name, 2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5})
    text = str(wait_for(lambda: query.query is not None and query.query.exception(), "the query fails"))
    assert "the topic was deleted and created again" in text


def test_topic_that_is_created_again_is_read_from_its_beginning_where_loss_is_allowed(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    query, name = running_on_a_topic(kafka, topic, group, pipeline, failOnDataLoss="false")
    recreate(kafka.bootstrap_servers, name, 2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5})
    query.wait_for_rows(30)
    assert sorted(row.offset for row in query.rows[20:]) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    wait_for(lambda: committed(kafka.bootstrap_servers, group, name, range(2)) == {0: 5, 1: 5}, "it is committed")


@either_protocol
def test_topic_that_was_created_again_while_the_query_was_stopped(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    query, name = running_on_a_topic(kafka, topic, group, pipeline)
    query.stop()
    recreate(kafka.bootstrap_servers, name, 2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5})
    query.start()
    text = str(wait_for(lambda: query.query is not None and query.query.exception(), "the query fails"))
    assert "the topic was deleted and created again" in text
    again = pipeline(name, failOnDataLoss="false").start()
    again.wait_for_rows(10)
    assert sorted(row.offset for row in again.rows) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
