"""A query leaves no process behind, and leaves its group within bounded time, however it ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pyspark
import pytest

from integration.cluster import Stream, committed, members, produce
from integration.pipelines import Application, assert_exactly_once, wait_for
from integration.processes import Part
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Applications = Callable[..., Application]

OLD_SPARK = tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2)

# The longest clean end: the source has 5 s for a commit and 3 s to leave.  This is shorter than the session timeout of
# the queries here (classic).  So a member that disappears within this time has left, and has not expired.
SOON_S = 20.0

# The session timeout of a killed member: kafka.session.timeout.ms below, or that of the test brokers (consumer).
SESSION_S = 10.0


@pytest.fixture
def started(
    kafka: Kafka, topic: TopicFactory, group: str, application: Applications, protocol: str
) -> Callable[..., tuple[Application, str]]:
    """Return a function that starts an application and returns it with its topic.

    The application then owns two partitions and has committed all their records.
    """

    def start(*, session_ms: int = 45_000, **switches: object) -> tuple[Application, str]:
        name = topic(2)
        produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
        session = {"kafka.session.timeout.ms": str(session_ms)} if protocol == "classic" else {}
        app = application(name, "etl", **session).configure(**switches).start()
        app.wait_for_ownership(2)
        wait_for(lambda: committed(kafka.bootstrap_servers, group, name, [0, 1]) == {0: 10, 1: 10}, "all is committed")
        return app, name

    return start


def source_of(app: Application) -> int:
    (process,) = app.processes(Part.SOURCE)
    return process.pid


def assert_gone(app: Application, bootstrap: str, group: str, begin: float) -> None:
    """Wait until no source process and no member is left.  Print the times, which `pytest -rP` shows."""
    wait_for(lambda: not app.processes(Part.SOURCE), "the source process has ended", timeout_s=SOON_S)
    ended_s = time.monotonic() - begin
    wait_for(lambda: not members(bootstrap, group), "the group is empty", timeout_s=SOON_S)
    print(f"source process ended after {ended_s:.1f} s, group empty after {time.monotonic() - begin:.1f} s")


@either_protocol
def test_sigterm_twice_to_the_source_process(
    kafka: Kafka, group: str, started: Callable[..., tuple[Application, str]]
) -> None:
    """Spark also ends the source process with SIGTERM.  A query that still runs must fail, not seem idle."""
    app, _ = started()
    source, begin = source_of(app), time.monotonic()
    os.kill(source, signal.SIGTERM)
    os.kill(source, signal.SIGTERM)
    assert_gone(app, kafka.bootstrap_servers, group, begin)
    assert app.events("left")[0]["clean"]
    assert app.wait() != 0, "the query has failed"
    assert "A signal, such as SIGTERM, has ended the source process" in app.log_tail(200)


@either_protocol
def test_sigkill_of_the_source_process(
    kafka: Kafka, group: str, started: Callable[..., tuple[Application, str]]
) -> None:
    """The killed process cannot leave the group.  It keeps its partitions until the session timeout."""
    app, _ = started(session_ms=6_000)
    begin = time.monotonic()
    os.kill(source_of(app), signal.SIGKILL)
    assert app.wait() != 0, "the query has failed"
    assert "kafka-group: the query ended: " in app.log_tail(200)
    assert_gone(app, kafka.bootstrap_servers, group, begin)
    assert time.monotonic() - begin > 3, "a session timeout has passed"


@either_protocol
def test_the_jvm_is_killed(kafka: Kafka, group: str, started: Callable[..., tuple[Application, str]]) -> None:
    app, _ = started()
    (jvm,) = app.processes(Part.JVM)
    begin = time.monotonic()
    os.kill(jvm.pid, signal.SIGKILL)
    assert_gone(app, kafka.bootstrap_servers, group, begin)
    assert app.events("left")[0]["clean"]


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


@pytest.mark.skipif(OLD_SPARK, reason="PySpark 4.0 and 4.1 handle Ctrl-C themselves, and lose their JVM by it")
@either_protocol
def test_ctrl_c_in_a_terminal_while_a_batch_runs(
    kafka: Kafka, group: str, started: Callable[..., tuple[Application, str]]
) -> None:
    """The terminal sends SIGINT to all processes.  Only the driver's Python handles it, and finishes the batch."""
    app, name = started()
    app.slow_down(before_s=3)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=10)
    wait_for(lambda: any(e["ranges"].get(f"{name}-0", [0])[0] == 10 for e in app.events("planned")), "the batch runs")
    begin = time.monotonic()
    os.killpg(app.pid, signal.SIGINT)
    assert app.wait() == 0
    assert "clean" in app.log_tail(200).splitlines()  # Spark may log its last warnings later
    assert_gone(app, kafka.bootstrap_servers, group, begin)
    assert_exactly_once(app.rows, {(name, 0): 20, (name, 1): 20})
    assert committed(kafka.bootstrap_servers, group, name, [0, 1]) == {0: 20, 1: 20}


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
