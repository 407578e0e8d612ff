"""Partitions move between queries at batch boundaries, and other queries do not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

from integration.cluster import Stream, lag, produce
from integration.pipelines import PATIENCE_S, Pipeline, assert_exactly_once, assert_orderly, wait_for
from integration.spark_fixtures import classic_protocol, either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]

# For tests with a stream of records: without a pause, the batches of two queries occupy both cores.
APART = {"processingTime": "500 milliseconds"}


@classic_protocol  # test_main_paths has both
def test_a_revoked_partition_leaves_after_its_batch_is_committed(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """The new owner starts where the old one stopped, although the group revoked the partition during a batch."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    go_on = threading.Event()
    holding = pipeline(name, name="holding", before_batch=lambda _: go_on.wait(60)).start()
    wait_for(lambda: holding.events("planned"), "a batch is in flight")
    taking = pipeline(name, name="taking").start()
    wait_for(lambda: holding.events("draining"), "the group asks for a partition")
    assert not taking.events("assigned")
    go_on.set()
    taking.wait_for_ownership(1)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=10)
    wait_for(lambda: len(holding.rows) + len(taking.rows) >= 40, "everything is delivered")
    assert_exactly_once(holding.rows + taking.rows, {(name, 0): 20, (name, 1): 20})
    assert len(taking.rows) == 10
    for query in (holding, taking):
        assert_orderly(query.events())


def test_partitions_that_stay_go_on_while_another_one_drains(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """A third member finishes batches while the first one delays a hand-over."""
    name = topic(3)
    hold, held, go_on = threading.Event(), threading.Event(), threading.Event()

    def wait_if_told(_batch: int) -> None:
        if hold.is_set() and not held.is_set():
            held.set()
            go_on.wait(PATIENCE_S)

    with Stream(kafka.bootstrap_servers, {name: 3}, per_second=100) as stream:
        slow = pipeline(name, name="slow", before_batch=wait_if_told).start(**APART)
        slow.wait_for_ownership(3)
        lively = pipeline(name, name="lively").start(**APART)
        lively.wait_for_ownership(1)
        slow.wait_for_ownership(2)
        hand_overs = len(slow.events("draining", "released"))
        hold.set()
        wait_for(held.is_set, "the slow one is in a batch")
        joining = pipeline(name, name="joining").start(**APART)
        wait_for(lambda: len(slow.events("draining", "released")) > hand_overs, "the slow one drains")
        before = len(lively.events("finished"))
        wait_for(lambda: len(lively.events("finished")) > before + 3, "the lively one goes on")
        assert not joining.owned()
        go_on.set()
        joining.wait_for_ownership(1)
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(3)) == 0, "lag 0")
    assert_exactly_once(slow.rows + lively.rows + joining.rows, stream.produced)
    assert not lively.events("draining", "expired", "lost"), "nothing of the lively one had to move"


@either_protocol
def test_a_drain_that_takes_too_long_is_ended_and_declared(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """After `drainTimeoutMs`, the next owner repeats exactly the range that the event `expired` names."""
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    go_on = threading.Event()
    late = pipeline(name, name="late", drainTimeoutMs=1000, before_batch=lambda _: go_on.wait(60)).start()
    wait_for(lambda: late.events("planned"), "a batch is in flight")
    taking = pipeline(name, name="taking").start()
    taking.wait_for_rows(10)
    go_on.set()
    late.wait_for_rows(20)
    (expired,) = late.events("expired")
    twice = {row[2:] for row in late.rows} & {row[2:] for row in taking.rows}
    declared = set()
    for partition, (start, until) in expired["ranges"].items():
        topic_name, _, number = partition.rpartition("-")
        declared |= {(topic_name, int(number), offset) for offset in range(start, until)}
    assert twice == declared
    assert len(declared) == 10
    wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(2)) == 0, "lag 0")
