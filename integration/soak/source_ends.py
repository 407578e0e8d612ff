"""Record how source processes have ended, and find ends without a cause.  Linux only.

A source process is a child of ``watched_python``, which records its wait status.  If a fault kills the JVM or the whole
application, this parent also ends.  Linux then gives the source process to the process that runs the test, if that
process adopts orphans.  So the run gets every wait status, whatever a fault kills.
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
        The times of its start and its end.  ``ended`` is 0 until the run notices the end.
    code : int or None
        The exit status.  A negative one is the signal that ended the process.  None means unknown.
    passed_on : list of int
        The signals that Spark has sent to the process.
    """

    pid: int
    query: str
    began: float
    ended: float = 0.0
    code: int | None = None
    passed_on: list[int] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The kind of its end, for a table."""
        if self.code is None:
            return "no end was seen"
        return f"exit {self.code}" if self.code >= 0 else signal.Signals(-self.code).name


def adopt_orphans(wanted: bool) -> None:
    """Start or stop adopting descendants whose own parent ends (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER is refused")


class SourceWatch:
    """A context manager that records how the source processes of some queries end.  It adopts orphans meanwhile."""

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
        """Write the program that Spark must use as the Python of this query, and return its path."""
        self._notes[query] = notes = self._folder / f"{query}.sources.jsonl"
        program = self._folder / f"{query}.python"
        watcher = [sys.executable, "-I", "-S", watched_python.__file__, sys.executable, str(notes)]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(watcher)} "$@"\n')
        program.chmod(0o755)
        return program

    def ends(self) -> list[SourceEnd]:
        """Return all source processes so far, including those that still run."""
        return [end for query, notes in self._notes.items() for end in read_ends(notes, query)]

    def _run(self) -> None:
        while not self._over.wait(_TICK_S):
            for end in self.ends():
                if end.code is None:
                    self._reap(end)

    def _reap(self, end: SourceEnd) -> None:
        with contextlib.suppress(ChildProcessError):  # its own parent still lives and waits for it
            ended, status = os.waitpid(end.pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                watched_python.note(self._notes[end.query], pid=end.pid, ended=code)


def read_ends(notes: Path, query: str) -> list[SourceEnd]:
    """Return the source processes in the notes of one query, in the order in which they began."""
    found: list[SourceEnd] = []
    newest: dict[int, SourceEnd] = {}  # a process id may repeat
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
    """Return a violation for each end of a source process that has no cause.

    These ends have a cause:

    * The process ended of a signal that the run or Spark had sent.
    * The process exited with 0.
    * The process exited after a SIGTERM.  The status is 255 after a clean end, because Spark's runner exits with it
      when its call is interrupted.
    * The process exited, and its application failed.  Another check judges the failure of the application.

    Parameters
    ----------
    ends : iterable of SourceEnd
        All source processes of the run.
    sent : mapping of str to sequence of (int, int)
        The process id and number of each signal that the run has sent, by query.
    endings : sequence of Ending
        The ends of the applications, in order.
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
    """Return whether the application of a source process did not fail.

    Its end is the first one after the begin of the source process.  On a busy machine, the run may notice the end of
    the source process after that.
    """
    of_application = (e.code for e in endings if e.application == end.query and e.time > end.began)
    return next(of_application, 0) == 0
