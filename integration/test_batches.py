"""Batches of one query: where it starts, and which records it reads.  For the rows, see `test_parity_stream`."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from integration.cluster import committed, lag, produce
from integration.pipelines import Pipeline, assert_exactly_once, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


@either_protocol
def test_latest_reads_only_what_comes_and_a_later_owner_skips_nothing(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """The query commits the offset that `latest` meant.  A later owner starts there, not at its own `latest`."""
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    first = pipeline(name, name="first", startingOffsets="latest").start()
    first.wait_for_ownership(1)
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 10}
    first.stop()
    wait_for(lambda: first.events("left"), "the first has left")
    produce(kafka.bootstrap_servers, name, {0: 5}, start=10)
    second = pipeline(name, name="second", startingOffsets="latest").start()
    second.wait_for_rows(5)
    assert [row.offset for row in second.rows] == [10, 11, 12, 13, 14]


@either_protocol
def test_available_now_ends_at_the_ends_it_found(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """The next run reads the records that were produced during this run.  Each has committed when it ends."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 100})
    more = [True]

    def produce_more(_batch: int) -> None:
        if more:
            more.clear()
            produce(kafka.bootstrap_servers, name, {0: 50}, start=100)

    query = pipeline(name, maxOffsetsPerTrigger=40, before_batch=produce_more).run_available()
    assert len(query.rows) == 100
    assert lag(kafka.bootstrap_servers, group, name, range(2)) == 50
    query.run_available()
    assert lag(kafka.bootstrap_servers, group, name, range(2)) == 0
    assert_exactly_once(query.rows, {(name, 0): 150})


@either_protocol
def test_records_of_open_and_aborted_transactions_are_not_read(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{name}-producer"})
    producer.init_transactions(30)
    for value, commit in ((b"kept", True), (b"dropped", False), (b"kept", True)):
        producer.begin_transaction()
        producer.produce(name, value=value)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(name, value=b"open")
    producer.flush(30)
    query = pipeline(name).run_available()
    # Each transaction has a record and a marker: 0 and 1, 2 and 3 (aborted), 4 and 5.  The open one begins at 6.
    assert [row.offset for row in query.rows] == [0, 4]
    assert committed(kafka.bootstrap_servers, group, name, [0]) == {0: 6}
    producer.commit_transaction(30)
    query.run_available()
    assert [row.offset for row in query.rows] == [0, 4, 6]
