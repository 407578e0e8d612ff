"""A group that changes from the classic protocol to KIP-848, one application after the other, while data flows."""

from __future__ import annotations

from collections.abc import Callable

from integration.cluster import lag, produce
from integration.pipelines import Pipeline, assert_exactly_once, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group import stop
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


@either_protocol
def test_a_group_is_upgraded_member_by_member(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Brokers from 4.0 on let members of both protocols share a group (`group.consumer.migration.policy`)."""
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
    assert old.query is not None
    assert stop(old.query)
    new.wait_for_ownership(4)
    # And back from the same checkpoint, as a member of the new protocol.
    back = pipeline(name, name="old", **{"kafka.group.protocol": "consumer"}).start()
    back.wait_for_ownership(2)
    produce(servers, name, dict.fromkeys(range(4), 50), start=100)
    wait_for(lambda: len(old.rows) + len(new.rows) + len(back.rows) == 600, "all is read")
    wait_for(lambda: lag(servers, group, name, range(4)) == 0, "all is committed")
    assert_exactly_once(old.rows + new.rows + back.rows, {(name, number): 150 for number in range(4)})
