"""Signals reach a guarded process, and it ends whenever the process that started it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pyspark_kafka_group.testing.process import GuardedProcess

SLEEP = ["/bin/sleep", "600"]
# Prints its process id, then sleeps.  `exec` keeps the id.
TELL_AND_SLEEP = ["/bin/sh", "-c", "echo $$; exec sleep 600"]
LINUX = sys.platform == "linux"


def wait_until(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def told_pid(log: Path) -> int:
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"))
    return int(log.read_text())


def is_running(pid: int) -> bool:
    try:
        # The process that adopts orphans on this machine may never collect them.
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        (["/bin/sh", "-c", "echo out; echo err >&2"], 0, "out\nerr\n"),
        (["/bin/sh", "-c", "exit 7"], 7, ""),
        (["/no/such/program"], 127, "cannot run /no/such/program"),
    ],
    ids=["ends", "fails", "does not exist"],
)
def test_output_and_exit_status_are_passed_on_and_later_signals_ignored(
    command: list[str], status: int, output: str, tmp_path: Path
) -> None:
    process = GuardedProcess(command, tmp_path / "log")
    wait_until(lambda: process.exit_status() is not None)
    process.send(signal.SIGTERM)
    process.kill()
    assert process.exit_status() == status
    assert (tmp_path / "log").read_text().startswith(output)


def test_end_is_clean_where_the_process_obeys(tmp_path: Path) -> None:
    process = GuardedProcess(SLEEP, tmp_path / "log")
    assert process.end(15.0)
    assert process.exit_status() == 128 + signal.SIGTERM


def test_end_kills_what_does_not_obey(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = GuardedProcess(["/bin/sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"], log)
    pid = told_pid(log)
    assert not process.end(0.1)
    assert not is_running(pid)


def test_a_stopped_process_goes_on_when_told_to_and_can_be_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = GuardedProcess(TELL_AND_SLEEP, log)
    pid = told_pid(log)
    told = psutil.Process(pid)
    process.send(signal.SIGSTOP)
    wait_until(lambda: told.status() == psutil.STATUS_STOPPED)
    process.send(signal.SIGCONT)
    wait_until(lambda: told.status() != psutil.STATUS_STOPPED)
    process.send(signal.SIGSTOP)
    process.kill()
    assert not is_running(pid)


OWNER = """
import os, signal, sys, threading, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if a shell started the tests in the background
from pyspark_kafka_group.testing.process import GuardedProcess
def start():
    global process
    process = GuardedProcess({command!r}, Path({log!r}))
{body}
"""


@contextlib.contextmanager
def owner(tmp_path: Path, body: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield a Python process that has started a guarded process, and the id of the guarded process."""
    log = tmp_path / "log"
    script = OWNER.format(command=TELL_AND_SLEEP, log=str(log), body=body)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, told_pid(log)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_its_owner_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    with owner(tmp_path, "start(); time.sleep(600)") as (process, pid):
        process.send_signal(number)
        process.wait(15)
        wait_until(lambda: not is_running(pid))


def test_it_ends_when_its_owner_exits_without_ending_it(tmp_path: Path) -> None:
    with owner(tmp_path, "start(); sys.stdin.read()") as (process, pid):
        process.communicate(timeout=15)  # closes its input
        assert process.returncode == 0
        wait_until(lambda: not is_running(pid))


def test_it_ends_when_its_owner_is_killed_and_a_fork_of_the_owner_lives_on(tmp_path: Path) -> None:
    body = "start()\nif os.fork() == 0:\n    print(os.getpid(), flush=True)\ntime.sleep(600)"
    with owner(tmp_path, body) as (process, pid):
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        process.kill()
        process.wait(15)
        try:
            wait_until(lambda: not is_running(pid))
            assert is_running(fork)
        finally:
            os.kill(fork, signal.SIGKILL)


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    body = "t = threading.Thread(target=start); t.start(); t.join(); print('joined', flush=True); time.sleep(600)"
    with owner(tmp_path, body) as (process, pid):
        assert process.stdout is not None
        process.stdout.readline()
        assert is_running(pid)
        process.kill()
        process.wait(15)
        wait_until(lambda: not is_running(pid))


@pytest.mark.skipif(not LINUX, reason="only Linux can tie a process to its parent")
def test_it_ends_when_its_guard_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = GuardedProcess(TELL_AND_SLEEP, log)
    pid = told_pid(log)
    process._guard.kill()
    wait_until(lambda: not is_running(pid))
    process.kill()
