"""Applications run on a standalone cluster that loses processes and machines.  Users submit and ship them this way.

Spark retries a task after it loses an executor, a Python worker or a machine.  It also runs a copy of a slow task.
The source gives every attempt the same records, so the query must deliver each record once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from integration.cluster import Stream, committed, lag, members, produce
from integration.pipelines import assert_exactly_once, assert_orderly, wait_for
from integration.processes import alive, kill
from integration.shipping import bare_environment, packed_environment, zipped_package
from integration.spark_cluster import SPARK_HOME, Executor, SparkCluster, SubmittedApplication, spark_environment
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka

PARTITIONS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """Yield a cluster with a master and no workers."""
    with closing(SparkCluster(tmp_path)) as cluster:
        yield cluster


@pytest.fixture
def submitted(cluster: SparkCluster, tmp_path: Path) -> Iterator[Callable[..., SubmittedApplication]]:
    """Yield a function that makes applications, and kill them after the test."""
    made: list[SubmittedApplication] = []

    def make(options: dict[str, str], **shipped: Any) -> SubmittedApplication:
        made.append(SubmittedApplication(cluster, tmp_path, "etl", options, **shipped))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def conf(**settings: object) -> list[str]:
    """Return settings as arguments, with ``_`` for a dot."""
    return [word for key, value in settings.items() for word in ("--conf", f"spark.{key.replace('_', '.')}={value}")]


def connections(pids: list[int], kafka: Kafka) -> int:
    """Return the number of connections from these processes to the broker."""
    ports = {int(server.rpartition(":")[2]) for server in kafka.bootstrap_servers.split(",")}
    found = 0
    for pid in pids:
        try:
            held = psutil.Process(pid).net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        found += sum(bool(one.raddr) and one.raddr.port in ports for one in held)
    return found


@either_protocol
def test_executors_and_workers_die_and_a_slow_task_is_copied(
    cluster: SparkCluster,
    submitted: Callable[..., SubmittedApplication],
    kafka: Kafka,
    topic: Callable[..., str],
    options: dict[str, str],
    tmp_path: Path,
) -> None:
    """Spark copies slow tasks, and loses an executor, Python workers and a machine.

    The query still delivers each record once, and no process or connection remains.
    """
    name = topic(PARTITIONS)
    lost_worker, kept_worker = cluster.add_worker(cores=2), cluster.add_worker(cores=2)
    archive = packed_environment(tmp_path)
    # Deliberate: also unpack it here.  In client mode, the source process runs beside spark-submit with the same path
    # to Python, and Spark unpacks the archive only for executors.
    shutil.unpack_archive(archive, tmp_path / "environment")
    app = submitted(
        {**options, "subscribe": name, "minRecordsPerTask": "1"},
        submit=[
            *("--archives", f"{archive}#environment"),
            *conf(executor_cores=2, task_maxFailures=4),
            *conf(speculation="true", speculation_interval="100ms", speculation_quantile=0.3),
        ],
        python="./environment/bin/python",
    )

    def rows() -> int:
        app.check()
        return len(app.rows)

    def more_rows(what: str) -> None:
        """Wait for 200 more rows."""
        seen = rows()
        wait_for(lambda: rows() > seen + 200, f"rows {what}")

    def executors(count: int) -> list[Executor]:
        def ready() -> list[Executor]:
            app.check()
            found = cluster.executors()
            return found if len(found) == count and all(one.workers for one in found) else []

        return list(wait_for(ready, f"{count} executors that have read"))

    with Stream(kafka.bootstrap_servers, {name: PARTITIONS}, per_second=200) as stream:
        try:
            app.start()
            slow, _healthy = executors(2)
            more_rows("at first")

            # A slow machine: its tasks hang.  Only their copies on the other machine can finish.
            kill(signal.SIGSTOP, slow.workers)
            more_rows("while one executor hangs")
            wait_for(
                lambda: not alive(slow.workers), "Spark ends the workers whose tasks it has given up", timeout_s=60
            )

            # A batch hangs in both executors.  Kill one of them, and the Python workers of the other.
            dead, hurt = executors(2)
            kill(signal.SIGSTOP, [*dead.workers, *hurt.workers])
            kill(signal.SIGKILL, [dead.jvm])
            kill(signal.SIGKILL, hurt.workers)
            more_rows("after an executor and Python workers were killed")
            kill(signal.SIGCONT, alive(dead.workers))
            wait_for(lambda: not alive([*dead.workers, *dead.daemons]), "the Python of the dead executor ends")

            # A machine disappears with its executor, and another one joins.
            gone = [pid for pid, _ in lost_worker.processes()]
            lost_worker.kill()
            # Deliberate: kill the whole machine.  If only its Spark worker died, the executor might continue its tasks.
            kill(signal.SIGKILL, alive(gone))
            wait_for(lambda: not alive(gone), "what the lost worker has started ends")
            more_rows("with one worker")
            cluster.add_worker(cores=2)
            executors(2)
            more_rows("with a new worker")
        finally:
            kill(signal.SIGCONT, [pid for worker in cluster.workers for pid, _ in worker.processes()])
        held = [pid for worker in cluster.workers for pid, _ in worker.processes()]
        assert connections(held, kafka), "the executors read over connections of their own"
        stream.close()
        total = sum(stream.produced.values())
        wait_for(lambda: rows() >= total, f"all {total} rows")
        wait_for(lambda: not lag(kafka.bootstrap_servers, options["kafka.group.id"], name, range(PARTITIONS)), "lag 0")
    app.stop()

    assert_exactly_once(app.rows, stream.produced)
    assert_orderly(app.events())
    assert not app.events("lost", "expired", "replayed")
    wait_for(lambda: not cluster.executors(), "the executors end with their application")
    left = [pid for worker in cluster.workers for pid, _ in worker.processes()]
    assert len(left) == len([kept_worker, cluster.workers[-1]]), "nothing but the workers themselves"
    assert not connections(left, kafka)
    # The executors read with the C library of the archive, not with this machine's own installation.
    assert "without the C library" not in app.log_since(0)


@either_protocol
def test_executors_come_and_go_with_the_work(
    cluster: SparkCluster,
    submitted: Callable[..., SubmittedApplication],
    kafka: Kafka,
    topic: Callable[..., str],
    options: dict[str, str],
    tmp_path: Path,
) -> None:
    """With dynamic allocation and a zipped package, the query delivers each record once.

    A removed executor leaves no process behind.
    """
    name = topic(PARTITIONS)
    cluster.add_worker()
    cluster.add_worker()
    package = zipped_package(tmp_path)
    app = submitted(
        {**options, "subscribe": name, "minRecordsPerTask": "1"},
        submit=[
            *("--py-files", str(package)),
            *conf(dynamicAllocation_enabled="true", dynamicAllocation_minExecutors=1, dynamicAllocation_maxExecutors=2),
            *conf(dynamicAllocation_executorIdleTimeout="3s", dynamicAllocation_schedulerBacklogTimeout="1s"),
        ],
        python=str(bare_environment(tmp_path / "bare")),
        # Deliberate: Spark passes --py-files to executors and to the planning process, but not to the source process.
        path=[package],
    ).configure(register=True)

    def rows() -> int:
        app.check()
        return len(app.rows)

    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(PARTITIONS), 50))
    app.start()
    wait_for(lambda: rows() == 4 * 50, "the first rows")
    # Deliberate: there may be two executors.  While the first one starts, tasks wait longer than the backlog timeout.
    first, *_ = wait_for(lambda: [e for e in cluster.executors() if e.workers], "an executor that has read")

    # The tasks of the first executor hang, so other tasks wait for a core.
    kill(signal.SIGSTOP, first.workers)
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(PARTITIONS), 50), start=50)
    second = wait_for(lambda: [e for e in cluster.executors() if e.workers and e.jvm != first.jvm], "a second one")[0]
    kill(signal.SIGCONT, alive(first.workers))
    wait_for(lambda: rows() == 4 * 100, "all rows")

    # Spark removes the idle executor.
    wait_for(lambda: len(cluster.executors()) == 1, "one executor leaves")
    (kept,) = cluster.executors()
    left = second if kept.jvm == first.jvm else first
    wait_for(lambda: not alive([left.jvm, *left.daemons, *left.workers]), "all of it is gone")
    produce(kafka.bootstrap_servers, name, dict.fromkeys(range(PARTITIONS), 50), start=100)
    wait_for(lambda: rows() == 4 * 150, "the rows after that")
    wait_for(lambda: not lag(kafka.bootstrap_servers, options["kafka.group.id"], name, range(PARTITIONS)), "lag 0")
    # Service managers and Kubernetes do this: the signal reaches only the JVM of spark-submit, not Python.
    os.kill(app.pid, signal.SIGTERM)
    app.wait()
    wait_for(lambda: not app.processes(), "driver and source process end with spark-submit")
    wait_for(
        lambda: not members(kafka.bootstrap_servers, options["kafka.group.id"]), "the member has left", timeout_s=20
    )
    assert_exactly_once(app.rows, {(name, partition): 150 for partition in range(PARTITIONS)})
    assert committed(kafka.bootstrap_servers, options["kafka.group.id"], name, range(PARTITIONS)) == dict.fromkeys(
        range(PARTITIONS), 150
    )
    wait_for(lambda: not cluster.executors(), "the executors end with their application")


def test_a_standalone_cluster_runs_no_python_driver(tmp_path: Path) -> None:
    """Spark refuses ``--deploy-mode cluster`` for Python there, before it connects.  docs/deployment.md quotes this."""
    said = subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", "--master", "spark://127.0.0.1:1", "--deploy-mode", "cluster", "app.py"],
        env=spark_environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 1
    assert "Cluster deploy mode is currently not supported for python applications on standalone clusters." in (
        said.stdout + said.stderr
    )
