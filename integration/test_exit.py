"""A query leaves no process behind, and leaves its group within bounded time, however it ends.

For signals to a whole program, see `test_run_until_signal`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from integration.cluster import Stream, committed, members, produce
from integration.pipelines import Application, Pipeline, wait_for
from integration.processes import Part, alive, sources
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Applications = Callable[..., Application]

# The longest clean end: the source has 5 s for a commit and 3 s to leave.  A killed member leaves when its session has
# ended: 10 s on the test brokers.
SOON_S = 20.0


@pytest.fixture
def started(
    kafka: Kafka, topic: TopicFactory, group: str, application: Applications
) -> Callable[..., tuple[Application, str]]:
    """Return a function that starts an application and returns it with its topic.

    The application then owns two partitions and has committed all their records.
    """

    def start(**switches: object) -> tuple[Application, str]:
        name = topic(2)
        produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
        app = application(name, "etl").configure(**switches).start()
        app.wait_for_ownership(2)
        wait_for(lambda: committed(kafka.bootstrap_servers, group, name, [0, 1]) == {0: 10, 1: 10}, "all is committed")
        return app, name

    return start


def assert_gone(app: Application, bootstrap: str, group: str, begin: float) -> None:
    """Wait until no source process and no member is left.  Print the times, which `pytest -rP` shows."""
    wait_for(lambda: not app.processes(Part.SOURCE), "the source process has ended", timeout_s=SOON_S)
    ended_s = time.monotonic() - begin
    wait_for(lambda: not members(bootstrap, group), "the group is empty", timeout_s=SOON_S)
    print(f"source process ended after {ended_s:.1f} s, group empty after {time.monotonic() - begin:.1f} s")


@pytest.fixture
def owning(topic: TopicFactory, pipeline: Callable[..., Pipeline]) -> tuple[Pipeline, int]:
    """Return a query of the test's own session that owns two partitions, and its source process."""
    wait_for(lambda: not sources(), "the source processes of earlier tests have ended")
    query = pipeline(topic(2), name="etl").start()
    query.wait_for_ownership(2)
    (source,) = sources()
    return query, source


@either_protocol
def test_sigterm_twice_to_the_source_process(kafka: Kafka, group: str, owning: tuple[Pipeline, int]) -> None:
    """Spark also ends the source process with SIGTERM.  A query that still runs must fail, not seem idle."""
    query, source = owning
    os.kill(source, signal.SIGTERM)
    os.kill(source, signal.SIGTERM)
    wait_for(lambda: not alive([source]), "the source process has ended", timeout_s=SOON_S)
    wait_for(lambda: not members(kafka.bootstrap_servers, group), "the group is empty", timeout_s=SOON_S)
    assert query.events("left")[0]["clean"]
    assert "A signal, such as SIGTERM, has ended the source process" in query.failure()


@either_protocol
def test_sigkill_of_the_source_process(kafka: Kafka, group: str, owning: tuple[Pipeline, int]) -> None:
    """The killed process cannot leave the group.  It keeps its partitions until the session timeout."""
    query, source = owning
    begin = time.monotonic()
    os.kill(source, signal.SIGKILL)
    assert query.failure()
    wait_for(lambda: not members(kafka.bootstrap_servers, group), "the group is empty", timeout_s=SOON_S)
    assert time.monotonic() - begin > 3, "a session timeout has passed"


@either_protocol
def test_the_drivers_python_is_killed(
    kafka: Kafka, group: str, started: Callable[..., tuple[Application, str]]
) -> None:
    app, _ = started()
    begin = time.monotonic()
    os.kill(app.pid, signal.SIGKILL)
    assert_gone(app, kafka.bootstrap_servers, group, begin)
    assert app.events("left")[0]["clean"]
    wait_for(lambda: not app.processes(Part.JVM), "the JVM has ended", timeout_s=SOON_S)


@either_protocol
def test_spark_is_stopped_and_the_query_is_not(
    kafka: Kafka, group: str, started: Callable[..., tuple[Application, str]]
) -> None:
    """The driver stops Spark and exits without stopping the query."""
    app, _ = started(spark_stop="exit")
    begin = time.monotonic()
    app.begin_stop()
    assert_gone(app, kafka.bootstrap_servers, group, begin)
    assert app.events("left")[0]["clean"]
    assert app.wait() == 0


@either_protocol
def test_spark_is_stopped_and_the_driver_lives_on(
    kafka: Kafka, group: str, started: Callable[..., tuple[Application, str]]
) -> None:
    """As in a notebook: Spark still polls the source, which stays in the group until the first record arrives."""
    app, name = started(spark_stop="live")
    app.begin_stop()
    begin = time.monotonic()
    with Stream(kafka.bootstrap_servers, {name: 2}, per_second=20):
        assert_gone(app, kafka.bootstrap_servers, group, begin)
    assert app.events("left")
    app.check()
