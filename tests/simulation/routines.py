"""Threads that take turns: each runs only when the schedule resumes it, until it waits.

The code under test blocks in the middle of callbacks and calls.  Therefore it needs its own stacks.  One thread runs at
a time, and stops where it waits.  So the schedule alone decides the order.  A turn costs about 7 us.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any


class Abandoned(BaseException):
    """Raised where a routine waits and will never continue, because its process has died."""


class _Thread:
    """A thread that runs one routine after another."""

    def __init__(self) -> None:
        self.go = threading.Lock()
        self.go.acquire()
        self.routine: Routine | None = None
        threading.Thread(target=self._run, name="simulated", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            routine = self.routine
            if routine is None:
                return
            routine.run_to_its_end()
            self.routine = None
            _idle.append(self)
            routine.back.release()


_idle: list[_Thread] = []
_running: list[Routine] = []  # each has resumed the next one

os.register_at_fork(after_in_child=_idle.clear)  # a fork does not copy the threads


def end_threads() -> None:
    """End the threads that wait for a routine."""
    while _idle:
        _idle.pop().go.release()


class Routine:
    """A call that can wait in the middle.

    Parameters
    ----------
    call : callable
        The function to run.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._thread = _idle.pop() if _idle else _Thread()
        self._thread.routine = self
        self._problem: BaseException | None = None
        self.abandoned = False
        self.over = False
        self.back = threading.Lock()
        self.back.acquire()

    def resume(self) -> None:
        """Let the routine continue until it waits or ends.  Raise its error, if it has one."""
        assert not self.over
        _running.append(self)
        self._thread.go.release()
        self.back.acquire()
        _running.pop()
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem

    def abandon(self) -> None:
        """End the routine where it waits."""
        if not self.over:
            self.abandoned = True
            self.resume()

    def wait(self) -> None:
        """Wait for the next turn.  The routine's own thread calls this."""
        self.back.release()
        self._thread.go.acquire()
        if self.abandoned:
            raise Abandoned

    def run_to_its_end(self) -> None:
        """Run the call.  The routine's own thread calls this."""
        try:
            if not self.abandoned:
                self._call()
        except Abandoned:
            pass
        except BaseException as problem:  # `resume` raises it
            self._problem = problem
        self.over = True


def wait() -> None:
    """Wait for the next turn, if the caller is a routine."""
    if _running:
        _running[-1].wait()
