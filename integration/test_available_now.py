"""Several runs with `availableNow` share a group: each reads its share, and together they read everything."""

from __future__ import annotations

import time
from collections.abc import Callable

from integration.cluster import lag, produce
from integration.pipelines import PATIENCE_S, Pipeline, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


def ended(query: Pipeline) -> None:
    """Wait until a run has read everything and ended."""
    assert query.started.awaitTermination(int(PATIENCE_S)), f"{query.name} does not end"


def test_two_runs_that_begin_together_read_everything(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: a cooperative join begins with an empty assignment.  A run then ended as if there was no data."""
    name = topic(4)
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 50))
    for _ in range(2):
        runs = [pipeline(name, name=f"run-{n}", maxOffsetsPerTrigger=40).start(availableNow=True) for n in range(2)]
        for run in runs:
            ended(run)
        assert lag(kafka.bootstrap_servers, group, name, range(4)) == 0
        produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 50), start=50)
    pipeline(name, name="run-0").run_available()
    pipeline(name, name="run-1").run_available()
    assert lag(kafka.bootstrap_servers, group, name, range(4)) == 0


def test_run_beside_a_busy_member_reads_its_share(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """Regression: the run ended at once and read nothing, at its first start and after a restart."""
    name = topic(4)
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 15))
    busy = pipeline(name, name="busy", maxOffsetsPerTrigger=4, before_batch=lambda _: time.sleep(2.0)).start()
    busy.wait_for_ownership(4)
    run = pipeline(name, name="run")
    for _ in range(2):
        before = len(run.rows)
        run.run_available()
        assert len(run.rows) > before, "its share"
        assert {row.partition for row in run.rows[before:]}
        produce(kafka.bootstrap_servers, name, dict.fromkeys(range(4), 15))
        wait_for(lambda: len(busy.owned()) == 4, "the busy one has everything again")


@either_protocol
def test_run_without_a_partition_says_so_in_time(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 10})
    owner = pipeline(name, name="owner").start()
    owner.wait_for_rows(10)
    begun = time.monotonic()
    query = pipeline(name, name="run").start(availableNow=True).query
    assert query is not None
    wait_for(lambda: query.exception() is not None or not query.isActive, "the run ends")
    assert f"The group '{group}' has assigned no partition to this run with availableNow" in str(query.exception())
    assert time.monotonic() - begun < 60
