"""Deadlines for answers, logins, and conversations of several requests."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

NO_TIME = "no time is left"
"""The text of the error of an attempt that began too late.  An earlier attempt says more."""


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A moment of the monotonic clock.  Functions that get one share the time that is left with their caller.

    Create one with :meth:`after`.  The earlier of two is the smaller one.
    """

    _at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return a deadline in ``seconds`` from now; with ``math.inf`` it never comes."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """The time left, in seconds; 0 if it has passed."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._at

    @property
    def is_set(self) -> bool:
        """Whether this deadline ever comes."""
        return self._at < math.inf

    def within(self, seconds: float) -> Deadline:
        """Return the earlier one of this deadline and one in ``seconds`` from now."""
        return min(self, Deadline.after(seconds))

    def later(self, seconds: float) -> Deadline:
        """Return the deadline that is ``seconds`` after this one."""
        return Deadline(self._at + seconds)

    def share(self, sharers: int) -> Deadline:
        """Return the deadline of the first of several sharers, which each get an equal part of the time left."""
        return Deadline.after(self.left_s / sharers)
