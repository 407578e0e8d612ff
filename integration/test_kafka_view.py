"""What Kafka's own tools see: members, lag, and partitions that move when a query stops."""

from __future__ import annotations

import time
from collections.abc import Callable

from integration.cluster import committed, lag, members, produce
from integration.pipelines import Pipeline, wait_for
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


def test_members_have_readable_client_ids(kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines) -> None:
    name = topic(2)
    query = pipeline(name, name="orders-etl").start()
    query.wait_for_ownership(2)
    (client_id,) = members(kafka.bootstrap_servers, group)
    assert client_id.startswith("orders-etl-")
    assert members(kafka.bootstrap_servers, group)[client_id] == {f"{name}-0", f"{name}-1"}


def test_lag_is_zero_within_one_trigger_on_an_idle_topic(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Spark's commit of a batch comes with the next one; on an idle topic there is none."""
    name = topic(2)
    query = pipeline(name).start()
    query.wait_for_ownership(2)
    produce(kafka.bootstrap_servers, name, {0: 100, 1: 100})
    query.wait_for_rows(200)
    rows = time.monotonic()
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0", timeout_s=10)
    assert time.monotonic() - rows < 10


def test_lag_is_zero_when_a_run_with_available_now_has_ended(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(3)
    produce(kafka.bootstrap_servers, name, {0: 50, 1: 70})
    query = pipeline(name).run_available()
    assert lag(kafka.bootstrap_servers, group, name, range(3)) == 0
    assert len(query.rows) == 120


def test_lag_is_zero_after_a_clean_stop(kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 100})
    query = pipeline(name).start()
    query.wait_for_rows(100)
    wait_for(lambda: query.events("finished"), "the batch is finished")
    query.stop()
    wait_for(lambda: query.events("left"), "the member has left")
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 100}


def test_partitions_of_a_stopped_query_move_within_seconds(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Not after the session timeout of 45 s: Spark ends the source process with a signal, which must not be the end."""
    name = topic(4)
    leaving = pipeline(name, name="leaving").start()
    staying = pipeline(name, name="staying").start()
    leaving.wait_for_ownership(2)
    staying.wait_for_ownership(2)
    leaving.stop()
    stopped = time.monotonic()
    staying.wait_for_ownership(4)
    assert time.monotonic() - stopped < 10
    assert len(members(kafka.bootstrap_servers, group)) == 1
    assert leaving.query is not None
    assert leaving.query.exception() is None, "a stopped query has not failed"


def test_the_progress_of_a_query_shows_its_share_and_its_lag(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 20})
    query = pipeline(name, name="shown").start()
    query.wait_for_rows(30)
    shown = wait_for(lambda: query.progress().get("latestOffset"), "a progress of the source")
    assert shown["group"] == group
    assert shown["clientId"].startswith("shown-")
    assert shown["assigned"][name].keys() == {"0", "1"}
    assert shown["logEnd"][name] == {"0": 10, "1": 20}
    assert shown["totalLag"] >= 0
