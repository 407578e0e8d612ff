"""By when something must be over: an answer, a login, a whole conversation of several requests."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A moment of the monotonic clock; whoever is handed one shares the time that is left with its caller.

    Make one with :meth:`after`.  The earlier of two is the smaller one.
    """

    _at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the moment that many seconds from now; ``math.inf`` gives one that never comes."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """How many seconds are left; 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._at

    @property
    def is_set(self) -> bool:
        """Whether it comes at all."""
        return self._at < math.inf

    def within(self, seconds: float) -> Deadline:
        """Return this one, or the moment that many seconds from now if that is earlier."""
        return min(self, Deadline.after(seconds))

    def share(self, sharers: int) -> Deadline:
        """Return the moment when the first of that many has used up its equal share of what is left."""
        return Deadline.after(self.left_s / sharers)
