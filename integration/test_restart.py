"""A query starts again from its checkpoint."""

from __future__ import annotations

from collections.abc import Callable

from integration.cluster import committed, lag, produce
from integration.pipelines import Pipeline, assert_exactly_once, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


def test_a_restart_goes_on_where_the_query_was_stopped(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 20, 1: 20})
    query = pipeline(name).start()
    query.wait_for_rows(40)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    query.stop()
    produce(kafka.bootstrap_servers, name, {0: 10}, start=20)
    query.start()
    query.wait_for_rows(50)
    assert_exactly_once(query.rows, {(name, 0): 30, (name, 1): 20})


def test_a_batch_that_failed_is_replayed_with_its_id_and_its_range(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """A query alone in its group replays exactly what Spark has logged, although more has come meanwhile."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    broken = [True]

    def fail_once(batch: int) -> None:
        if batch == 1 and broken:
            raise RuntimeError("the sink is down")

    query = pipeline(name, before_batch=fail_once).start()
    query.wait_for_rows(20)
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    assert query.query is not None
    wait_for(lambda: query.query is not None and query.query.exception(), "the query has failed")
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 10}, "what failed is not committed"
    produce(kafka.bootstrap_servers, name, {0: 7, 1: 7}, start=15)
    broken.clear()
    query.start()
    query.wait_for_rows(39)
    replayed = [row.offset for row in query.rows if row.batch == 1]
    assert replayed == [10, 11, 12, 13, 14]
    assert_exactly_once(query.rows, {(name, 0): 22, (name, 1): 17})
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")


@either_protocol
def test_the_first_batch_is_replayed_as_it_was(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Spark does not store where batch 0 began; its end tells."""
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    broken = [True]

    def fail_once(_batch: int) -> None:
        if broken:
            raise RuntimeError("the sink is down")

    query = pipeline(name, before_batch=fail_once).start()
    wait_for(lambda: query.query is not None and query.query.exception(), "the query has failed")
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    broken.clear()
    query.start()
    query.wait_for_rows(15)
    assert [row.offset for row in query.rows if row.batch == 0] == list(range(10))
    assert_exactly_once(query.rows, {(name, 0): 15})


@either_protocol
def test_another_checkpoint_goes_on_at_the_groups_offset(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    pipeline(name, name="old").run_available()
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    query = pipeline(name, name="new").run_available()
    assert [row.offset for row in query.rows] == list(range(10, 15))
