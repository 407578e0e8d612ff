"""With `kafka.group.instance.id`, a query that restarts in time keeps its partitions, without a rebalance."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from integration.cluster import Stream, lag, produce
from integration.pipelines import Pipeline, assert_exactly_once, assert_orderly, wait_for
from integration.spark_fixtures import classic_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]

# For tests with a stream of records: without a pause, the batches of two queries occupy both cores.
APART = {"processingTime": "500 milliseconds"}

# The events that a rebalance adds to a member's log.
REBALANCE = ("assigned", "draining", "released", "expired", "lost")


def static(pipeline: Pipelines, topic: str, name: str, *, instance: str | None = None, **options: str) -> Pipeline:
    return pipeline(topic, name=name, **{"kafka.group.instance.id": instance or name, **options})


def allow_a_slow_restart(kafka: Kafka, group: str, protocol: str) -> None:
    """Set the group's session timeout to the default of the classic protocol.  The test brokers' own one is short."""
    if protocol == "consumer":
        entry = ConfigEntry("consumer.session.timeout.ms", "45000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.incremental_alter_configs([resource])[resource].result(30)


def committed_by(query: Pipeline) -> dict[str, int]:
    """Return the last offset that the query has committed in each partition."""
    return {tp: offset for event in query.events("committed") for tp, offset in event["offsets"].items()}


def test_a_restart_within_the_session_timeout_moves_nothing(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines, protocol: str
) -> None:
    allow_a_slow_restart(kafka, group, protocol)
    name = topic(4)
    with Stream(kafka.bootstrap_servers, {name: 4}, per_second=100) as stream:
        staying = static(pipeline, name, "staying").start(**APART)
        staying.wait_for_ownership(4)
        restarting = static(pipeline, name, "restarting").start(**APART)
        restarting.wait_for_ownership(2)
        staying.wait_for_ownership(2)
        had, rebalances = restarting.owned(), len(staying.events(*REBALANCE))
        wait_for(lambda: committed_by(restarting).keys() >= had, "it has committed something of each")

        restarting.stop_cleanly()
        stopped, meanwhile = time.time(), len(staying.events("finished"))
        before = committed_by(restarting)
        wait_for(lambda: len(staying.events("finished")) > meanwhile + 2, "the other one goes on meanwhile")
        restarting.start(**APART)
        wait_for(lambda: restarting.owned() == had, "it has its partitions again")
        print(f"stopped -> started again: {time.time() - stopped:.1f} s")
        again = {tp: o for event in restarting.events("started")[-2:] for tp, o in event["positions"].items()}
        assert again == {tp: before[tp] for tp in had}, "it goes on where it was"

        rows = len(restarting.rows)
        wait_for(lambda: len(restarting.rows) > rows + 50, "it delivers again")
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(4)) == 0, "lag 0")
    assert len(staying.events(*REBALANCE)) == rebalances, "the other one has seen no rebalance"
    assert_exactly_once(staying.rows + restarting.rows, stream.produced)
    for query in (staying, restarting):
        assert_orderly(query.events())


@classic_protocol
def test_two_queries_with_one_instance_id_are_told_so(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """The classic protocol fences the old query.  The consumer protocol refuses the new one: `test_static_crash`."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    first = static(pipeline, name, "first", instance="etl-0").start()
    first.wait_for_rows(20)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    second = static(pipeline, name, "second", instance="etl-0").start()
    told = first.failure()
    assert "MemberFencedError" in told
    assert "kafka.group.instance.id" in told
    assert "its own instance id" in told
    second.wait_for_ownership(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=10)
    wait_for(lambda: len(first.rows) + len(second.rows) >= 40, "the other one delivers")
    assert_exactly_once(first.rows + second.rows, {(name, 0): 20, (name, 1): 20})
