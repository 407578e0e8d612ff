"""The soak's faults of a Spark cluster, and the faults that excuse the end of an application."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from integration.pipelines import Application, finished_in, wait_for
from integration.soak.chaos import FAULTS, LETHAL, SPARK_FAULTS
from integration.soak.faults import Done, Scene, has_committed_beyond
from integration.soak.run import unexpected
from integration.soak.spark_faults import wait_for_the_end_of
from integration.soak.supervisor import Ending, Supervised, Supervisor
from integration.spark_cluster import Executor, Running, SparkCluster, executors_of
from pyspark_kafka_group.offsets.batch_offset import BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.testing import LocalKafka
from tests.tools.analysis.spark_checkpoints import write_checkpoint

_JVM = "java -Xmx512m org.apache.spark.executor.CoarseGrainedExecutorBackend --executor-id 0 --app-id app-7 --cores 1"
_DAEMON = "python -m pyspark.daemon pyspark.worker"


def test_an_executor_is_its_jvm_and_the_python_below_it_and_no_other() -> None:
    processes = [
        Running(1, 0, "java org.apache.spark.deploy.worker.Worker spark://127.0.0.1:7077"),
        Running(9, 1, _JVM.replace("app-7", "app-8")),
        Running(2, 1, _JVM),
        Running(3, 2, _DAEMON),
        Running(4, 3, _DAEMON),  # the daemon forks its workers, so they show its command
        Running(5, 3, _DAEMON),
        Running(10, 9, _DAEMON),
        Running(11, 99, _DAEMON),  # its executor has died
    ]
    assert executors_of(processes) == [Executor(2, [3], [4, 5], "app-7"), Executor(9, [10], [], "app-8")]


def test_a_copy_of_a_checkpoint_is_old_only_if_a_commit_shows_that(tmp_path: Path) -> None:
    """Regression: a sink skipped batches whose numbers a copy used again, and the soak told it as a loss."""
    offsets = {TopicPartition("soak", 0): PartitionEntry(OffsetRange(Offset(3), Offset(7)), None, None, "")}
    document = json.dumps(BatchOffset("q", offsets).to_json())
    write_checkpoint(tmp_path, document, finished=(0,), begun=(0, 1))
    assert finished_in(tmp_path) == {"soak-0": 7}
    assert finished_in(tmp_path / "empty") == {}
    assert has_committed_beyond([{"offsets": {"soak-0": 7}}, {"offsets": {"soak-0": 8}}], {"soak-0": 7})
    assert not has_committed_beyond([{"offsets": {"soak-0": 7, "soak-1": 9}}], {"soak-0": 7})


@pytest.mark.parametrize("kind", SPARK_FAULTS)
def test_a_fault_of_the_spark_cluster_excuses_no_end_of_a_query(kind: str) -> None:
    assert kind in FAULTS
    assert kind not in LETHAL
    assert "app0 ended with 1" in unexpected([Ending(1.0, "app0", 1, [kind], "Job aborted")])[0]


@pytest.mark.parametrize("kind", ["kill application", "kill driver", "kill jvm", "kill source", "kill worker"])
def test_what_kills_an_application_excuses_its_end(kind: str) -> None:
    assert not unexpected([Ending(1.0, "app0", 1, [kind], "Job aborted")])


@pytest.mark.parametrize("kind", SPARK_FAULTS)
def test_in_local_mode_there_is_no_spark_cluster_to_be_hurt(kind: str) -> None:
    scene = Scene(LocalKafka(), brokers=1, proxied=False, supervisor=Supervisor([]))
    assert not FAULTS[kind][1](scene, random.Random(1), Done(0, kind, "", "", time.time()))


@pytest.mark.parametrize("up", [0, 1, 2])
def test_on_a_spark_cluster_one_application_that_is_up_stays(up: int, tmp_path: Path) -> None:
    applications = [Supervised(Application(tmp_path, f"app{n}", {}), random.Random(n)) for n in range(3)]
    for one in applications[:up]:
        one.running = one.joined = True
    scene = Scene(LocalKafka(), brokers=1, proxied=False, supervisor=Supervisor(applications))
    assert scene.may_lose_one()
    scene.spark = object.__new__(SparkCluster)
    assert scene.may_lose_one() is (up > 1)
    for kind in (kind for kind in LETHAL | {"stop cleanly", "terminate driver"} if up < 2):
        assert not FAULTS[kind][1](scene, random.Random(1), Done(0, kind, "", "", time.time())), kind
    assert all(one.faults == [] and not one.stopping for one in applications)


def test_the_supervisor_notes_the_times_without_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Supervised(Application(tmp_path, f"app{n}", {}), random.Random(n)) for n in range(2))
    monkeypatch.setattr(Supervised, "tick", lambda _self, *, restart: (None, []))
    with closing(Supervisor([first, second])) as supervisor:
        supervisor.start()
        for one in (first, second):
            one.running = one.joined = True
            wait_for(lambda: len(supervisor.away) == 1, "the first one ends the time without a reader")
            time.sleep(0.5)
        first.running = second.running = False
        time.sleep(0.5)
        second.running = True
        wait_for(lambda: len(supervisor.away) == 2, "a second time without a reader is over")
    assert supervisor.away[1].begin < supervisor.away[1].end


# Prints the lines of Spark's master and worker, starts a child and stays alive.  Tests of start and end need no more.
_PROGRAM = """#!/bin/sh
echo 'Starting Spark master at spark://127.0.0.1:1'
echo 'Successfully registered with master'
sleep 60 &
wait
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    """Yield a cluster of processes that do nothing."""
    program = tmp_path / "bin" / "spark-class"
    program.parent.mkdir()
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr("integration.spark_cluster.SPARK_HOME", tmp_path)
    with closing(SparkCluster(tmp_path)) as cluster:
        yield cluster


def test_a_worker_comes_back_in_its_place_with_a_log_of_its_own(cluster: SparkCluster) -> None:
    lost, kept = cluster.add_worker(), cluster.add_worker()
    lost.destroy()
    assert lost.processes() == []
    again = cluster.restart(lost)
    assert cluster.workers == [again, kept]
    assert again.processes()
    assert [log.name for log in (lost.log, again.log, kept.log)] == ["worker-1.log", "worker-1.2.log", "worker-2.log"]
    assert len(cluster.worker_logs()) == 3


def test_what_a_dead_worker_leaves_behind_is_a_violation_unless_it_is_an_executor(
    cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = cluster.add_worker()
    wait_for(lambda: len(worker.processes()) > 1, "it has a child")
    worker.kill()
    with pytest.raises(AssertionError, match="executors end"):
        wait_for_the_end_of([worker], timeout_s=0.1)
    with monkeypatch.context() as patched:
        patched.setattr(type(worker), "executors", lambda _: [Executor(2, [], [], "app-7")])
        assert wait_for_the_end_of([worker], timeout_s=0.1) == ", with 1 executors that did not notice"
    assert worker.processes() == []
    assert wait_for_the_end_of([worker], timeout_s=0.1) == ""


def test_no_worker_is_started_when_the_cluster_has_been_closed(cluster: SparkCluster) -> None:
    """If a run ends during a fault, the fault repairs the cluster.  The repair used to leave a worker behind."""
    lost = cluster.add_worker()
    lost.destroy()
    cluster.close()
    assert cluster.restart(lost) is lost
    assert len(cluster.worker_logs()) == 1
