"""The demo's child processes end with all processes that they have started, and their logs show why one failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apps
import psutil
import pytest
from apps import SIGNALS, Program, readable, signals_held

# Starts a grandchild in its own process group, like Spark's Python daemon, and prints its process id.
FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import os, signal, time; os.setpgid(0, 0); "
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"])
time.sleep(600)
"""


def wait_until(condition: Callable[[], bool], deadline_s: float = 30) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def await_log(log: Path) -> str:
    wait_until(lambda: log.read_text().endswith("\n"))
    return log.read_text()


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Program]:
    program = Program("family", [sys.executable, "-c", FAMILY], tmp_path, {})
    yield program
    program.end(0)


def test_end_kills_what_the_child_started_even_in_another_process_group(family: Program) -> None:
    grandchild = int(await_log(family.log))
    family.end(grace_s=2.0)  # the child must have time to end by itself, and the grandchild does not
    wait_until(lambda: not runs(grandchild))
    assert family.returncode == 128 + signal.SIGTERM


def test_a_child_ends_with_the_program_that_started_it_even_if_that_is_killed(tmp_path: Path) -> None:
    """Regression: after `kill -9` of the demo, its applications and its producer continued."""
    code = (
        "import sys, time; from pathlib import Path; from apps import Program; "
        "child = Program('child', [sys.executable, '-c', 'import os, time; print(os.getpid(), flush=True); "
        "time.sleep(600)'], Path(sys.argv[1]), {}); print('up', flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.fspath(Path(apps.__file__).parent)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"
        child = int(await_log(tmp_path / "child.log"))
        assert runs(child)
        program.kill()
    wait_until(lambda: not runs(child))


def test_a_child_that_stops_when_asked_is_not_killed(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); time.sleep(600)"
    )
    program = Program("polite", [sys.executable, "-c", code], tmp_path, {})
    await_log(program.log)
    program.end(grace_s=30)
    assert program.returncode == 7


def test_a_signal_that_comes_while_held_interrupts_at_the_end() -> None:
    done = []

    def work() -> None:
        with signals_held():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the rest of the block")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest of the block"]


def test_a_dropped_signal_interrupts_nothing_and_handlers_come_back() -> None:
    before = [signal.getsignal(signum) for signum in SIGNALS]
    with signals_held(drop=True):
        os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(signum) for signum in SIGNALS] == before


def test_the_log_tail_shows_the_reason_without_frames_and_plans() -> None:
    log = (
        "26/11/20 18:21:17 ERROR MicroBatchExecution: terminated with error\n"
        "\tat org.apache.spark.Foo.bar(Foo.scala:1)\n"
        "\t... 43 more\n"
        "Caused by: java.lang.RuntimeException: no broker\n"
        "=== Streaming Query ===\n"
        "Identifier: [id = 1]\n"
        "Logical Plan:\n"
        "+- ~Project [key]\n"
        "Traceback (most recent call last):\n"
        "ValueError: no broker\n"
    )
    assert readable(log) == [
        "26/11/20 18:21:17 ERROR MicroBatchExecution: terminated with error",
        "Caused by: java.lang.RuntimeException: no broker",
        "Traceback (most recent call last):",
        "ValueError: no broker",
    ]
