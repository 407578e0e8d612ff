"""Kafka's own tools show the members and the lag of queries, and the partitions that move when a query stops."""

from __future__ import annotations

import time
from collections.abc import Callable

from integration.cluster import committed, lag, members, produce
from integration.pipelines import Pipeline, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


@either_protocol
def test_kafkas_tools_show_a_query_without_lag_and_its_partition_moves_within_seconds_of_its_stop(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Spark commits a batch only with the next one, and an idle topic has no next batch."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 100, 1: 50})
    query = pipeline(name, name="orders-etl").start()
    query.wait_for_rows(150)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0", timeout_s=10)
    (client_id,) = members(kafka.bootstrap_servers, group)
    assert client_id.startswith("orders-etl-")
    assert members(kafka.bootstrap_servers, group)[client_id] == {f"{name}-0", f"{name}-1"}
    shown = wait_for(lambda: query.progress().get("latestOffset"), "a progress of the source")
    assert shown["group"] == group
    assert shown["clientId"] == client_id
    assert shown["assigned"][name].keys() == {"0", "1"}
    assert shown["logEnd"][name] == {"0": 100, "1": 50}
    assert shown["totalLag"] >= 0
    staying = pipeline(name, name="staying").start()
    staying.wait_for_ownership(1)
    query.wait_for_ownership(1)
    # Spark stops the source process with a signal.  The process leaves the group before it ends.  Otherwise its
    # partition would move only after the session timeout of 45 s.
    query.stop()
    stopped = time.monotonic()
    staying.wait_for_ownership(2)
    assert time.monotonic() - stopped < 10
    assert len(members(kafka.bootstrap_servers, group)) == 1
    assert query.started.exception() is None, "a stopped query has not failed"
    assert committed(kafka.bootstrap_servers, group, name, [0, 1]) == {0: 100, 1: 50}
