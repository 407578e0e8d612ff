"""CPU time and memory of the processes of a benchmark, out of /proc.

A :class:`Watch` samples them in the background, so that the figures of any window can be had afterwards: where a
window begins and ends is known only from a query's progress, and that comes later.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Self

from benchmarks.samples import interpolate

_PROC = Path("/proc")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


class Part(Enum):
    """What a process is."""

    JVM = "jvm"  # Spark's driver and executor
    SOURCE = "source"  # where the group's member lives
    WORKER = "worker"  # executors' Python, with the daemon that forks it
    BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process at one moment.

    Attributes
    ----------
    pid : int
        Its id.
    part : Part
        What it is.
    cpu_s : float
        CPU seconds it has used, in a worker or broker with those of its ended children.
    """

    pid: int
    part: Part
    cpu_s: float


def part_of(command: str) -> Part | None:
    """Return what a process with this command line is; None if it is none of ours, as a benchmark's own Python."""
    if "org.apache.spark.deploy.SparkSubmit" in command:
        return Part.JVM
    if "python_streaming_source_runner" in command:
        return Part.SOURCE
    if "pyspark.daemon" in command or "pyspark/daemon" in command:
        return Part.WORKER
    if "kafka.Kafka" in command and "-cp" in command.split("\0"):
        # The guard that started it has the same words behind its own, and uses nothing.
        return Part.BROKER
    return None


def cpu_seconds(stat: str, *, with_children: bool) -> float:
    """Return the CPU seconds that a line of ``/proc/<pid>/stat`` tells."""
    # The name, in parentheses, may hold anything; the times are fields 14 to 17 of proc(5).
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_children else 13])) * _TICK_S


def parent_of(stat: str) -> int:
    """Return the parent's id in a line of ``/proc/<pid>/stat``."""
    return int(stat.rpartition(")")[2].split()[1])


def processes(root: int | None = None) -> list[Process]:
    """Return the living descendants of a process, by default of this one, that are of interest."""
    stats: dict[int, str] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                stats[int(folder.name)] = (folder / "stat").read_text()
    parents = {pid: parent_of(stat) for pid, stat in stats.items()}
    found = []
    for pid in descendants(parents, root or os.getpid()):
        with contextlib.suppress(OSError):
            part = part_of((_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace"))
            if part is not None:
                # The JVM's ended children are Python processes of earlier queries.
                children = part in (Part.WORKER, Part.BROKER)
                found.append(Process(pid=pid, part=part, cpu_s=cpu_seconds(stats[pid], with_children=children)))
    return found


def descendants(parents: Mapping[int, int], root: int) -> list[int]:
    """Return all processes below one, given the parent of each."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, left = [], [root]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def pids_of(part: Part) -> list[int]:
    """Return the ids of all processes of a kind."""
    return [process.pid for process in processes() if process.part is part]


def forget_peaks(pids: Iterable[int]) -> None:
    """Let the peak of resident memory begin anew."""
    for pid in pids:
        with contextlib.suppress(OSError):
            (_PROC / str(pid) / "clear_refs").write_text("5")


def peak_mb(pid: int) -> float:
    """Return the peak of a process's resident memory; 0 if it has ended."""
    return _status_mb(pid, "VmHWM")


def resident_mb(pid: int) -> float:
    """Return a process's resident memory; 0 if it has ended."""
    return _status_mb(pid, "VmRSS")


def _status_mb(pid: int, name: str) -> float:
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


@dataclass(slots=True)
class _History:
    samples: list[tuple[float, float]] = field(default_factory=list)
    ended_cpu_s: float = 0.0
    alive: dict[int, float] = field(default_factory=dict)

    def note(self, now: float, alive: dict[int, float]) -> None:
        # A process that is gone keeps what it had used when it was last seen: the total must not fall.
        for pid, cpu_s in self.alive.items():
            if pid not in alive:
                self.ended_cpu_s += cpu_s
        self.alive = alive
        self.samples.append((now, self.ended_cpu_s + sum(alive.values())))


class Watch:
    """Samples CPU times and the memory of Python workers from ``with`` on.

    Parameters
    ----------
    pause_s : float
        Time between two samples.  One costs about 3 ms.
    """

    def __init__(self, pause_s: float = 0.25) -> None:
        self._pause_s = pause_s
        self._histories = {part: _History() for part in Part}
        self._peaks: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def cpu_s(self, part: Part, begin: float, end: float) -> float:
        """Return the CPU seconds used between two times (``time.time()``)."""
        samples = self._histories[part].samples
        first, last = interpolate(samples, begin), interpolate(samples, end)
        return 0.0 if first is None or last is None else last - first

    def largest_worker_mb(self, begin: float, end: float) -> float:
        """Return the resident memory of the largest Python worker that was seen between two times."""
        return max((mb for at, mb in self._peaks if begin <= at <= end), default=0.0)

    def _run(self) -> None:
        while True:
            self._sample()
            if self._done.wait(self._pause_s):
                self._sample()
                return

    def _sample(self) -> None:
        found = processes()
        now = time.time()
        for part, history in self._histories.items():
            history.note(now, {process.pid: process.cpu_s for process in found if process.part is part})
        self._peaks.append((now, max((resident_mb(p.pid) for p in found if p.part is Part.WORKER), default=0.0)))
