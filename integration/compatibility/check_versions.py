"""Applications on the Spark of this environment and on the newest one share a group, and hand over in both directions.

See `rows`.  ``NEWEST_PYTHON`` is the Python with the newest Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cluster import Stream, lag
from integration.pipelines import Application, assert_exactly_once, assert_orderly, wait_for
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

PARTITIONS = 4


class NewestApplication(Application):
    """An application on the newest Spark."""

    def command(self) -> list[str]:
        return [self._worker_python, *super().command()[1:]]


@pytest.fixture
def applications(
    tmp_path: Path, options: dict[str, str], topic: TopicFactory
) -> Iterator[tuple[str, Application, Application]]:
    """Yield a topic and two applications that read it: on this Spark, and on the newest one."""
    name = topic(PARTITIONS)
    given = {**options, "subscribe": name}
    here = Application(tmp_path, "here", given, trigger="2 seconds")
    newest = NewestApplication(
        tmp_path, "newest", given, trigger="2 seconds", worker_python=os.environ["NEWEST_PYTHON"]
    )
    yield name, here, newest
    for app in (here, newest):
        app.kill()


@pytest.mark.timeout(600)
def test_two_versions_of_spark_hand_over_to_each_other(
    kafka: Kafka, group: str, applications: tuple[str, Application, Application]
) -> None:
    name, here, newest = applications

    def share(*running: Application) -> None:
        def settled() -> bool:
            for app in running:
                app.check()
            return all(len(app.owned()) == PARTITIONS // len(running) for app in running)

        wait_for(settled, f"{[app.name for app in running]} share the partitions")

    with Stream(kafka.bootstrap_servers, {name: PARTITIONS}, per_second=100) as stream:
        here.start()
        share(here)
        newest.start()
        share(here, newest)
        here.stop()
        share(newest)
        here.start()
        share(here, newest)
        stream.close()
        wait_for(lambda: lag(kafka.bootstrap_servers, group, name, range(PARTITIONS)) == 0, "lag 0")
        for app in (here, newest):
            app.begin_stop()
        assert {here.wait(), newest.wait()} == {0}
    assert_exactly_once([*here.rows, *newest.rows], stream.produced)
    for app in (here, newest):
        assert_orderly(app.events())
        assert app.events("draining"), f"{app.name} has handed nothing over in the middle"
        assert not app.events("expired", "lost")
