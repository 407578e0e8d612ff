"""When a batch waits for more to read: ``minOffsetsPerTrigger`` and ``maxTriggerDelay``."""

from __future__ import annotations

import time
from collections.abc import Callable


class BatchDelay:
    """Decides as Spark's own source: the delay counts from the last time that nothing was held back.

    Parameters
    ----------
    min_offsets : int or None
        ``minOffsetsPerTrigger``; None lets no batch wait.
    max_delay_s : float
        ``maxTriggerDelay``.
    clock : callable
        Tells the time in seconds.
    """

    def __init__(
        self, min_offsets: int | None, max_delay_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_s
        self._clock = clock
        self._last: float | None = None  # None: the first batch does not wait

    def switch_off(self) -> None:
        """Let no batch wait."""
        self._min_offsets = None

    def holds_back(self, backlog: Callable[[], int]) -> bool:
        """Tell whether to wait for more.

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
