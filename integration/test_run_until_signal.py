"""``run_until_signal`` in real programs: signals during a batch, a query that fails, and a second Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import committed, members
from integration.pipelines import PATIENCE_S, SMALL, read_events, wait_for
from integration.processes import Part, send, session
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from tests.docs.blocks import run_by


class Program:
    """``integration/until_signal.py`` in a separate session, as in a separate terminal."""

    def __init__(self, folder: Path, servers: str, group: str, topics: tuple[str, ...]) -> None:
        self._folder = folder
        self._log = folder / "log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "integration.until_signal", servers, group, str(folder), *topics],
                cwd=Path(__file__).parents[1],
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SMALL},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def hold(self, topic: str) -> None:
        """Block the next batch of a topic."""
        (self._folder / f"{topic}.nap").touch()

    def release(self, topic: str) -> None:
        """Let the blocked batch continue."""
        (self._folder / f"{topic}.nap").unlink()

    def wait_for_batch(self, topic: str) -> None:
        """Wait until a batch of a topic runs, or has run."""
        begun = self._folder / f"{topic}.begun"

        def running() -> bool:
            assert self._process.poll() is None, self.log
            return begun.exists()

        wait_for(running, f"a batch of {topic} begins")

    def press_ctrl_c(self) -> None:
        """Send SIGINT to all processes, as a terminal does."""
        os.killpg(self._process.pid, signal.SIGINT)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end of the program and return its exit code."""
        return self._process.wait(timeout_s)

    @property
    def log(self) -> str:
        """The end of the program's output."""
        return self._log.read_text(errors="replace")[-6000:]

    def rows(self, topic: str) -> list[tuple[int, int]]:
        """Return the rows that the sink of a topic has written, sorted."""
        files = self._folder.glob(f"{topic}.*.json")
        return sorted((partition, offset) for file in files for partition, offset in json.loads(file.read_text()))

    def events(self, topic: str, name: str) -> list[dict[str, Any]]:
        """Return the events with a name from the event log of a topic's source."""
        return [event for event in read_events(self._folder / f"{topic}.events.jsonl") if event["event"] == name]

    def sources(self) -> list[int]:
        """Return the source processes that still run."""
        return [process.pid for process in session(self._process.pid) if process.part is Part.SOURCE]

    def close(self) -> None:
        """Kill all processes that still run."""
        send(signal.SIGKILL, session(self._process.pid))
        self._process.wait()


@pytest.fixture
def program(kafka: Kafka, group: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Yield a function that starts the program, ``program(topic, ...)``, and blocks the first batch of each topic."""
    started: list[Program] = []

    def start(*topics: str) -> Program:
        for topic in topics:
            (tmp_path / f"{topic}.nap").touch()
        started.append(Program(tmp_path, kafka.bootstrap_servers, group, topics))
        for topic in topics:
            started[-1].wait_for_batch(topic)
        return started[-1]

    yield start
    for one in started:
        one.close()


def filled(kafka: Kafka, topic: TopicFactory) -> str:
    """Return a topic with two partitions of 10 records."""
    name = topic(2)
    for partition in range(2):
        kafka.produce(name, map(str, range(10)), partition=partition)
    return name


ALL_ROWS = [(partition, offset) for partition in range(2) for offset in range(10)]


def test_ctrl_c_in_the_middle_of_batches_lets_them_finish(
    kafka: Kafka, topic: TopicFactory, group: str, program: Callable[..., Program]
) -> None:
    """SIGTERM ends the programs of the pages in `test_docs_blocks`."""
    names = [filled(kafka, topic) for _ in range(2)]
    running = program(*names)
    running.press_ctrl_c()
    time.sleep(2)
    assert [running.rows(name) for name in names] == [[], []], "the batches wait"
    for name in names:
        kafka.produce(name, ["for the next run"], partition=0)
        running.release(name)
    assert running.wait() == 0, running.log
    assert "clean" in running.log.splitlines()
    assert "KeyboardInterrupt" not in running.log
    for name in names:
        assert running.rows(name) == ALL_ROWS
        assert committed(kafka.bootstrap_servers, group, name, [0, 1]) == {0: 10, 1: 10}
        assert [event["clean"] for event in running.events(name, "left")] == [True]
    assert not members(kafka.bootstrap_servers, group)
    wait_for(lambda: not running.sources(), "the source processes have ended", timeout_s=20)


def test_a_second_ctrl_c_does_not_wait_for_the_batch(
    kafka: Kafka, topic: TopicFactory, program: Callable[..., Program]
) -> None:
    name = filled(kafka, topic)
    running = program(name)
    running.press_ctrl_c()
    time.sleep(2)
    running.press_ctrl_c()
    begin = time.monotonic()
    assert running.wait(20) != 0, running.log
    print(f"ended after {time.monotonic() - begin:.1f} s")
    assert "KeyboardInterrupt" in running.log
    assert running.rows(name) == []
    wait_for(lambda: not running.sources(), "the source process has ended", timeout_s=20)


def test_the_program_for_managed_platforms_ends_when_its_file_appears(
    kafka: Kafka, topic: TopicFactory, group: str, tmp_path: Path
) -> None:
    """The program of docs/platforms.md, with the paths of this test."""
    name = filled(kafka, topic)
    [text] = run_by("integration/test_run_until_signal.py")
    program = text.replace(
        '"orders-etl")\n    .option("subscribe", "orders")', f'"{group}").option("subscribe", "{name}")'
    )
    assert group in program
    (tmp_path / "etl.py").write_text(program)
    lake, log = tmp_path / "lake", tmp_path / "log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            [sys.executable, "etl.py", kafka.bootstrap_servers, str(lake)],
            cwd=tmp_path,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SMALL},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_for(lambda: running.poll() is not None or [*lake.glob("orders/*.parquet")], "the first batch is written")
        assert running.poll() is None, log.read_text()[-6000:]
        (lake / "stop").touch()
        assert running.wait(PATIENCE_S) == 0, log.read_text()[-6000:]
    finally:
        send(signal.SIGKILL, session(running.pid))
        running.wait()
    assert committed(kafka.bootstrap_servers, group, name, [0, 1]) == {0: 10, 1: 10}
