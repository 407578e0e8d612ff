"""Several runs with `availableNow` share a group: each reads its share, and together they read everything."""

from __future__ import annotations

import time
from collections.abc import Callable

from integration.cluster import lag, produce
from integration.pipelines import PATIENCE_S, Pipeline, wait_for
from integration.spark_fixtures import classic_protocol, either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]


def ended(query: Pipeline) -> None:
    """Wait until a run has read everything and ended."""
    assert query.started.awaitTermination(int(PATIENCE_S)), f"{query.name} does not end"


@either_protocol
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


@classic_protocol
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
