"""Watch whether source processes grow: a query that runs for months must not collect threads, files or memory."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import psutil

from integration.soak.source_ends import SourceEnd

_EVERY_S = 5.0

_WARM_S = 60.0
"""A process has its usual size after this time: it has joined, committed, and met its first faults."""

_SHORTEST_S = 60.0
"""How long a process must be watched after that before anything is said of it."""

ALLOWED = {"threads": 20, "files": 40, "megabytes": 100}
"""How much more a process may have at the end of its life than when it was warm."""


class Size(NamedTuple):
    """The size of a process at one time."""

    time: float
    threads: int
    files: int
    megabytes: int


Sizes = Mapping[tuple[str, int], Sequence[Size]]


class GrowthWatch:
    """A context manager that notes the sizes of source processes.

    Attributes
    ----------
    sizes : dict
        What was noted of each process, by query and process id.
    """

    def __init__(self, living: Callable[[], Iterable[SourceEnd]]) -> None:
        self.sizes: defaultdict[tuple[str, int], list[Size]] = defaultdict(list)
        self._living = living
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="growth-watch", daemon=True)

    def __enter__(self) -> GrowthWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            for one in self._living():
                if one.code is None:
                    with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                        self.sizes[one.query, one.pid].append(_size(psutil.Process(one.pid)))


def _size(process: psutil.Process) -> Size:
    with process.oneshot():
        megabytes = process.memory_info().rss // 2**20
        return Size(time.time(), process.num_threads(), process.num_fds(), megabytes)


def judge_growth(sizes: Sizes) -> list[str]:
    """Return a violation for each process that has ended its life with more than it had when it was warm.

    The smallest of the last three sizes counts, because requests that run have threads and files for a moment.
    """
    violations = []
    for (query, pid), noted in sizes.items():
        warm = [one for one in noted if one.time <= noted[0].time + _WARM_S]
        later = noted[len(warm) :]
        if not later or later[-1].time - later[0].time < _SHORTEST_S:
            continue
        for what, allowed in ALLOWED.items():
            before = max(getattr(one, what) for one in warm)
            after = min(getattr(one, what) for one in later[-3:])
            if after > before + allowed:
                minutes = (noted[-1].time - noted[0].time) / 60
                told = f"{query} (process {pid}) had {before} {what} at first and {after} after {minutes:.0f} min"
                violations.append(told)
    return violations


def summary(sizes: Sizes) -> str:
    """Return one line about the largest sizes, for a table."""
    longest = max((noted[-1].time - noted[0].time for noted in sizes.values()), default=0.0)
    most = [max((getattr(one, what) for noted in sizes.values() for one in noted), default=0) for what in ALLOWED]
    most_text = ", ".join(f"{number} {what}" for number, what in zip(most, ALLOWED, strict=True))
    return f"at most {most_text} in one of {len(sizes)}; the longest ran for {longest / 60:.0f} min"
