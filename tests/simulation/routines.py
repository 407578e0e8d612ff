"""Calls that take turns: each runs only when the schedule resumes it, until it waits.

The code under test blocks in the middle of callbacks and calls.  Therefore each call has its own stack, a greenlet.
One runs at a time, and stops where it waits.  So the schedule alone decides the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet


class Routine:
    """A call that can wait in the middle.

    Parameters
    ----------
    call : callable
        The function to run.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self._stack = greenlet(call)

    @property
    def over(self) -> bool:
        """Whether the call has ended."""
        return self._stack.dead

    def resume(self) -> None:
        """Let the routine continue until it waits or ends.  Raise its error, if it has one."""
        assert not self.over
        self._stack.parent = getcurrent()
        self._stack.switch()

    def abandon(self) -> None:
        """End the routine where it waits: its process has died."""
        if not self.over:
            self._stack.parent = getcurrent()
            self._stack.throw()


def wait() -> None:
    """Wait for the next turn, if the caller is a routine."""
    resumed_by = getcurrent().parent
    if resumed_by is not None:
        resumed_by.switch()
