"""A group changes from the classic protocol to KIP-848, one application after the other, while data flows."""

from __future__ import annotations

from collections.abc import Callable

from integration.cluster import Stream, lag, produce
from integration.oracles import Member
from integration.pipelines import Pipeline, assert_exactly_once, wait_for
from integration.poll_oracles import judge_polls
from integration.sink import Delivery
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


@either_protocol
def test_a_group_is_upgraded_member_by_member(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Since 4.0, brokers let members of both protocols share a group (`group.consumer.migration.policy`)."""
    name, servers = topic(4), kafka.bootstrap_servers
    old = pipeline(name, name="old", **{"kafka.group.protocol": "classic"}).start()
    old.wait_for_ownership(4)
    produce(servers, name, dict.fromkeys(range(4), 50))
    old.wait_for_rows(200)
    new = pipeline(name, name="new", **{"kafka.group.protocol": "consumer"}).start()
    new.wait_for_ownership(2)
    old.wait_for_ownership(2)
    produce(servers, name, dict.fromkeys(range(4), 50), start=50)
    wait_for(lambda: len(old.rows) + len(new.rows) == 400, "both read their part")
    old.stop_cleanly()
    new.wait_for_ownership(4)
    # An application with the old protocol can still join.
    late = pipeline(name, name="late", **{"kafka.group.protocol": "classic"}).start()
    late.wait_for_ownership(2)
    late.stop_cleanly()
    new.wait_for_ownership(4)
    # The first query starts again from its checkpoint, as a member of the new protocol.
    back = pipeline(name, name="old", **{"kafka.group.protocol": "consumer"}).start()
    back.wait_for_ownership(2)
    produce(servers, name, dict.fromkeys(range(4), 50), start=100)
    wait_for(lambda: len(old.rows) + len(new.rows) + len(back.rows) == 600, "all is read")
    wait_for(lambda: lag(servers, group, name, range(4)) == 0, "all is committed")
    assert_exactly_once(old.rows + new.rows + back.rows, {(name, number): 150 for number in range(4)})


@either_protocol
def test_a_group_whose_partitions_have_moved_is_upgraded_as_a_whole_under_load(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """After partitions have moved, brokers cannot keep librdkafka's data in assignments, and admit no new member.

    See KAFKA-18134.  Regression: the new member waited for partitions for ever.  Now it fails with the remedy, and the
    others continue.  The test applies the remedy.
    """
    name = topic(4)
    made: list[Pipeline] = []

    def start(query: str, protocol: str) -> Pipeline:
        made.append(pipeline(name, name=query, **{"kafka.group.protocol": protocol}).start())
        return made[-1]

    with Stream(kafka.bootstrap_servers, {name: 4}, per_second=100) as stream:
        one = start("one", "classic")
        one.wait_for_ownership(4)
        two = start("two", "classic")
        two.wait_for_ownership(2)
        refused = start("refused", "consumer")
        assert "Stop all members" in refused.failure()
        for query in (one, two):
            query.wait_for_rows(len(query.rows) + 1)
        for query in (one, two):
            query.stop_cleanly()
        for query in (start("one", "consumer"), start("two", "consumer")):
            query.wait_for_ownership(2)
            query.wait_for_rows(1)
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(4)) == 0, "all is committed")
    assert_exactly_once([row for query in made for row in query.rows], stream.produced)
    assert judge_polls([_recorded(query) for query in made], {}) == []


def _recorded(query: Pipeline) -> Member:
    """Return the rows of a query as deliveries, one for each row, without declared duplicates."""
    rows = [Delivery(query.name, r.time, r.batch, r.topic, r.partition, r.offset, r.offset + 1) for r in query.rows]
    return Member(query.name, [], rows)
