"""Partitions, topics and subscriptions change while a query runs or is stopped."""

from __future__ import annotations

from collections.abc import Callable

from integration.cluster import Stream, committed, lag, produce, recreate
from integration.pipelines import Pipeline, assert_exactly_once, assert_orderly, wait_for
from integration.spark_fixtures import classic_protocol, either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


@classic_protocol  # its members compute the assignment
def test_added_partitions_are_read_from_their_beginning(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """This also holds with `startingOffsets` latest: records may arrive before the group knows the partition."""
    name = topic(1)
    options = {"startingOffsets": "latest", "kafka.topic.metadata.refresh.interval.ms": "1000"}
    queries = [pipeline(name, name=f"etl-{n}", **options).start() for n in range(2)]
    wait_for(lambda: sum(len(query.owned()) for query in queries) == 1, "the group knows the partition")
    kafka.add_partitions(name, 3)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10, 2: 10})
    wait_for(lambda: sum(len(query.owned()) for query in queries) == 3, "the group knows the added partitions")
    wait_for(lambda: sum(len(query.rows) for query in queries) >= 30, "everything is delivered")
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(3)) == 0, "lag 0")
    wait_for(lambda: all(query.owned() for query in queries), "both have a share")  # the second may have started late
    assert_exactly_once(queries[0].rows + queries[1].rows, {(name, p): 10 for p in range(3)})
    for query in queries:
        assert_orderly(query.events())


@either_protocol
def test_a_topic_that_matches_later_is_shared_and_read_from_its_beginning(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """This also holds with `startingOffsets` latest, and if no query ran when the topic was created."""
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


@classic_protocol
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
    moved = {tp for event in both.events("draining", "released") for tp in event["partitions"]}
    assert moved <= {f"{shared}-{n}" for n in range(2)}, "a partition moved that the second one does not want"


@either_protocol
def test_topic_that_was_created_again_while_the_query_was_stopped(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """The query fails by default.  With `failOnDataLoss` false, it reads the new topic from its beginning."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    query = pipeline(name).run_available()
    recreate(kafka.bootstrap_servers, name, 2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5})
    assert "the topic was deleted and created again" in query.start().failure()
    again = pipeline(name, failOnDataLoss="false").run_available()
    assert sorted(row.offset for row in again.rows) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert committed(kafka.bootstrap_servers, group, name, range(2)) == {0: 5, 1: 5}
