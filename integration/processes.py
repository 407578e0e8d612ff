"""The processes of a Spark application, to which faults send signals."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import psutil

_SOURCE = "python_streaming_source_runner"


class Part(Enum):
    """The role of a process in an application."""

    DRIVER = "driver"  # the user's Python
    JVM = "jvm"
    SOURCE = "source"  # where the group's member lives
    WORKER = "worker"  # executors' Python, planning, and everything else
    WATCHER = "watcher"  # waits for a source process, if a run records how each one ends


class Process(NamedTuple):
    """A living process."""

    pid: int
    part: Part


def session(leader: int) -> list[Process]:
    """Return the living processes of the session that ``leader`` began.

    Deliberate: the session and not the process group, because Spark's Python workers are in a group of their own.
    """
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # it has ended meanwhile
            # psutil has no sessions, and no command line for a zombie.  So a zombie counts as ended.
            if os.getsid(pid) == leader:
                found.append(Process(pid, _part(pid, leader, " ".join(psutil.Process(pid).cmdline()))))
    return found


def sources() -> list[int]:
    """Return the source processes of queries in this process's own Spark session."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if _SOURCE in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


def _part(pid: int, leader: int, command: str) -> Part:
    if pid == leader:
        return Part.DRIVER
    if "org.apache.spark.deploy.SparkSubmit" in command:
        return Part.JVM
    if "watched_python.py" in command:
        return Part.WATCHER
    if _SOURCE in command:
        return Part.SOURCE
    return Part.WORKER


def send(number: signal.Signals, processes: list[Process]) -> None:
    """Send a signal to processes, and ignore those that have ended meanwhile."""
    kill(number, [process.pid for process in processes])


def kill(number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to processes by their ids, and ignore those that have ended meanwhile."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def alive(pids: Iterable[int]) -> list[int]:
    """Return the ids of the processes that still run.  A zombie does not run."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found
