"""Delays batches until there is enough to read: ``minOffsetsPerTrigger`` and ``maxTriggerDelay``."""

from __future__ import annotations

import time
from collections.abc import Callable


class BatchDelay:
    """Decides like Spark's own source: the delay begins with the last batch, or when there was nothing to read.

    Parameters
    ----------
    min_offsets : int or None
        ``minOffsetsPerTrigger``.  None delays no batch.
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
        self._begun_at: float | None = None  # None: the first batch does not wait

    def delays(self, backlog: Callable[[], int]) -> bool:
        """Return whether to wait for more records.

        Parameters
        ----------
        backlog : callable
            Returns how many offsets there are to read.
        """
        if self._min_offsets is None:
            return False
        waits = self._begun_at is not None and self._clock() - self._begun_at < self._max_delay_s
        return waits and backlog() < self._min_offsets

    def begin(self) -> None:
        """Begin the delay anew: a batch was planned, or there was nothing to read."""
        self._begun_at = self._clock()
