"""Holds batches back until there is enough to read: ``minOffsetsPerTrigger`` and ``maxTriggerDelay``."""

from __future__ import annotations

import time
from collections.abc import Callable


class BatchDelay:
    """Decides like Spark's own source: the delay begins with the last poll that was not held back.

    Parameters
    ----------
    min_offsets : int or None
        ``minOffsetsPerTrigger``.  None holds no batch back.
    max_delay_s : float
        ``maxTriggerDelay``, in seconds.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self, min_offsets: int | None, max_delay_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_s
        self._clock = clock
        self._last: float | None = None  # None: the first poll does not wait

    def switch_off(self) -> None:
        """Hold no batch back."""
        self._min_offsets = None

    def holds_back(self, backlog: Callable[[], int]) -> bool:
        """Return whether to wait for more records.

        Parameters
        ----------
        backlog : callable
            Returns how many offsets there are to read.
        """
        if self._min_offsets is None:
            return False
        now = self._clock()
        if self._last is not None and now - self._last < self._max_delay_s and backlog() < self._min_offsets:
            return True
        self._last = now
        return False
