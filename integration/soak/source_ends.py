"""How source processes have ended, and whether each end is accounted for.  Linux only.

A source process is a child of ``watched_python``, which notes its wait status.  Where that parent is gone, too, because
the JVM or all of the application was killed, Linux gives the source process to the process that runs the test, if that
adopts orphans.  So no wait status is lost, whatever is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from integration.soak import watched_python
from integration.soak.supervisor import Ending

_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.1


@dataclass(kw_only=True)
class SourceEnd:
    """One source process.

    Attributes
    ----------
    began, ended : float
        When; ``ended`` is 0 while nobody has seen it end.
    code : int or None
        Its exit status; below zero: the signal that ended it; None: not known.
    passed_on : list of int
        Signals that Spark has sent it.
    """

    pid: int
    query: str
    began: float
    ended: float = 0.0
    code: int | None = None
    passed_on: list[int] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """How it ended, for a table."""
        if self.code is None:
            return "no end was seen"
        return f"exit {self.code}" if self.code >= 0 else signal.Signals(-self.code).name


def adopt_orphans(wanted: bool) -> None:
    """Become the parent of all descendants whose own parent ends, or no longer (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER is refused")


class SourceWatch:
    """Learns how the source processes of some queries end.  A context manager; adopts orphans while it is entered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes: dict[str, Path] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source-watch", daemon=True)

    def __enter__(self) -> SourceWatch:
        adopt_orphans(True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        adopt_orphans(False)

    def python_of(self, query: str) -> Path:
        """Return the program that Spark has to use as the Python of this query."""
        self._notes[query] = notes = self._folder / f"{query}.sources.jsonl"
        program = self._folder / f"{query}.python"
        watcher = [sys.executable, "-I", "-S", watched_python.__file__, sys.executable, str(notes)]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(watcher)} "$@"\n')
        program.chmod(0o755)
        return program

    def ends(self) -> list[SourceEnd]:
        """Return all source processes so far, also those that run."""
        return [end for query, notes in self._notes.items() for end in read_ends(notes, query)]

    def _run(self) -> None:
        while not self._over.wait(_TICK_S):
            for end in self.ends():
                if end.code is None:
                    self._reap(end)

    def _reap(self, end: SourceEnd) -> None:
        with contextlib.suppress(ChildProcessError):  # it has a parent of its own, which waits
            ended, status = os.waitpid(end.pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                watched_python.note(self._notes[end.query], pid=end.pid, ended=code)


def read_ends(notes: Path, query: str) -> list[SourceEnd]:
    """Return what the notes of one query tell, in the order in which its source processes began."""
    found: list[SourceEnd] = []
    newest: dict[int, SourceEnd] = {}  # a process id may come again
    for line in notes.read_text().splitlines() if notes.exists() else ():
        said = json.loads(line)
        pid = said["pid"]
        if "began" in said:
            newest[pid] = SourceEnd(pid=pid, query=query, began=said["time"])
            found.append(newest[pid])
        elif "passed_on" in said:
            newest[pid].passed_on.append(said["passed_on"])
        else:
            newest[pid].ended, newest[pid].code = said["time"], said["ended"]
    return found


def unaccounted(
    ends: Iterable[SourceEnd], sent: Mapping[str, Sequence[tuple[int, int]]], endings: Sequence[Ending]
) -> list[str]:
    """Return the ends of source processes that nobody asked for.

    A process that ends of a signal must have been sent that, by the run or by Spark.  One that exits does so with 0,
    or as asked, or together with its application, whose own failure is judged elsewhere.  Asked with SIGTERM it exits
    with 255 after a clean end: its call is broken off, and that is what Spark's runner does then.

    Parameters
    ----------
    ends : iterable of SourceEnd
        All source processes of the run.
    sent : mapping of str to sequence of (int, int)
        For each query process id and number of the signals that the run has sent.
    endings : sequence of Ending
        How the applications ended, in order.
    """
    violations = []
    for end in ends:
        signals = {number for pid, number in sent.get(end.query, ()) if pid == end.pid} | {*end.passed_on}
        if end.code is None:
            told = end.kind
        elif end.code < 0:
            told = "" if -end.code in signals else f"ended of {end.kind}, and nobody had sent that"
        elif end.code and signal.SIGTERM not in signals and _alone(end, endings):
            told = f"{end.kind}, nobody had asked it to end, and its application did not fail"
        else:
            told = ""
        if told:
            violations.append(f"source process {end.pid} of {end.query}, begun at {end.began:.3f}: {told}")
    return violations


def _alone(end: SourceEnd, endings: Sequence[Ending]) -> bool:
    """Whether the application that a source process belonged to did not fail; its end is noted after theirs."""
    of_application = (e.code for e in endings if e.application == end.query and e.time > end.ended - _TICK_S)
    return next(of_application, 0) == 0
