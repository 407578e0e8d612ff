"""CPU time and memory of the processes of a benchmark.

A :class:`Watch` samples them in the background and computes the figures of a window afterwards.  The benchmark learns
the begin and the end of a window only from a query's progress, which arrives later.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from benchmarks.samples import interpolate

APPLICATIONS = ("benchmarks.application", "benchmarks.landing_application")
"""The modules that are applications."""


class Part(Enum):
    """The role of a process in a benchmark."""

    JVM = "jvm"  # Spark's driver and executor
    SOURCE = "source"  # with the member of the group
    WORKER = "worker"  # executors' Python, with the daemon that forks it
    DRIVER = "driver"  # the Python of an application that a benchmark starts
    BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process at one moment.

    Attributes
    ----------
    pid : int
        The id of the process.
    part : Part
        The role of the process.
    cpu_s : float
        The CPU seconds of the process.  For a worker or broker they include ended children.
    """

    pid: int
    part: Part
    cpu_s: float


def part_of(command: Sequence[str]) -> Part | None:
    """Return the role of a process with this command line; None for others, such as the benchmark's own Python."""
    line = " ".join(command)
    if "org.apache.spark.deploy.SparkSubmit" in line:
        return Part.JVM
    if "python_streaming_source_runner" in line:
        return Part.SOURCE
    if "pyspark.daemon" in line or "pyspark/daemon" in line:
        return Part.WORKER
    if any(name in command for name in APPLICATIONS):
        return Part.DRIVER
    if "kafka.Kafka" in line and "-cp" in command:
        # The broker's guard process also matches, because its arguments contain this command line.  It uses no CPU.
        return Part.BROKER
    return None


def processes(root: int | None = None) -> list[Process]:
    """Return the living descendants that have a role, of ``root`` or by default of this process."""
    found = []
    for process in psutil.Process(root).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # the process has ended meanwhile
            part = part_of(process.cmdline())
            if part is not None:
                times = process.cpu_times()
                cpu_s = times.user + times.system
                # Not for the JVM: its ended children are Python processes of earlier queries.
                if part in (Part.WORKER, Part.BROKER):
                    cpu_s += times.children_user + times.children_system
                found.append(Process(pid=process.pid, part=part, cpu_s=cpu_s))
    return found


def pids_of(part: Part) -> list[int]:
    """Return the ids of all processes with a role."""
    return [process.pid for process in processes() if process.part is part]


# psutil cannot read or reset the peaks, so these functions use Linux's files.
def forget_peaks(pids: Iterable[int]) -> None:
    """Reset the peak of resident memory of these processes."""
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mb(pid: int) -> float:
    """Return the peak of a process's resident memory; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def resident_mb(pid: int) -> float:
    """Return a process's resident memory; 0 if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).memory_info().rss / 1e6
    return 0.0


class Memory(NamedTuple):
    """Resident memory of all processes of a role, in MB.

    Attributes
    ----------
    all_mb : float
        The sum.  Pages that processes share count for each of them.
    largest_mb : float
        The memory of the largest process.
    """

    all_mb: float
    largest_mb: float


@dataclass(slots=True)
class _History:
    samples: list[tuple[float, float]] = field(default_factory=list)
    ended_cpu_s: float = 0.0
    alive: dict[int, float] = field(default_factory=dict)

    def note(self, now: float, alive: dict[int, float]) -> None:
        # Keep the last CPU time of an ended process, so that the total does not fall.
        for pid, cpu_s in self.alive.items():
            if pid not in alive:
                self.ended_cpu_s += cpu_s
        self.alive = alive
        self.samples.append((now, self.ended_cpu_s + sum(alive.values())))


class Watch:
    """Samples CPU times and memory while its ``with`` block runs.

    Parameters
    ----------
    pause_s : float
        Time between two samples.  One costs about 3 ms.
    """

    def __init__(self, pause_s: float = 0.25) -> None:
        self._pause_s = pause_s
        self._histories = {part: _History() for part in Part}
        self._memory: list[tuple[float, dict[Part, Memory]]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def cpu_s(self, part: Part, begin: float, end: float) -> float:
        """Return the CPU seconds of a role between two times (``time.time()``)."""
        samples = self._histories[part].samples
        first, last = interpolate(samples, begin), interpolate(samples, end)
        return 0.0 if first is None or last is None else last - first

    def largest_worker_mb(self, begin: float, end: float) -> float:
        """Return the resident memory of the largest Python worker between two times."""
        return self.peak(Part.WORKER, begin, end).largest_mb

    def peak(self, part: Part, begin: float, end: float) -> Memory:
        """Return the largest sum, and the largest process, of a role between two times."""
        found = [memory[part] for at, memory in self._memory if begin <= at <= end]
        return Memory(
            max((one.all_mb for one in found), default=0.0), max((one.largest_mb for one in found), default=0.0)
        )

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
        sizes: dict[Part, list[float]] = {part: [] for part in Part}
        for process in found:
            sizes[process.part].append(resident_mb(process.pid))
        memory = {part: Memory(sum(each), max(each, default=0.0)) for part, each in sizes.items()}
        self._memory.append((now, memory))
