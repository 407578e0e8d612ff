"""How many records may wait in a producer at a time; pure.

What librdkafka holds is spread over memory: an allocation for a record, and more for its headers.  While few records
wait, these stay in the processor's caches and are soon used again; with 200,000 of them a record with two headers took
twice as much CPU time.  But where brokers are far away, or one has many partitions, more have to be on their way.  So
the window begins small, and is doubled for as long as more records leave in the same time.

Measured again on 2026-11-25, with librdkafka's mock cluster and 400,000 records: a fixed window of 50,000 takes 35 to
40 % more CPU time near the brokers.  With a round trip of 100 ms a fixed one of 10,000 sends a fourth as many records
without headers.
"""

from __future__ import annotations

_FEWEST = 10_000
"""Fewer than that would be many small requests, which cost the brokers more than is won here."""
_PERIOD_S = 0.1
"""How long to count before judging."""
_WORTH = 1.25
"""How much more must leave with twice the window."""
_PAUSE = 50
"""For how many periods not to try again what was not worth it."""


class SendWindow:
    """The window of one producer.

    Parameters
    ----------
    most : int
        The largest it may be.

    Attributes
    ----------
    size : int
        How many records may wait, at least 1.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self.size = self._fewest = min(_FEWEST, self._most)
        self._pause = 0
        self._rate_before: float | None = None  # with half the window
        self.begin_task()

    @property
    def step(self) -> int:
        """How many to add at a time, so that there is always something left to send."""
        return max(1, self.size // 2)

    def begin_task(self) -> None:
        """Begin to count anew: nobody wrote meanwhile."""
        self._handed = 0
        self._begin: tuple[float, int] | None = None
        self._was_full = False

    def add(self, records: int, *, waiting: int, was_full: bool, now: float) -> None:
        """Count records that are handed over, and judge the window when a period is over.

        Parameters
        ----------
        records : int
            How many.
        waiting : int
            How many wait without these.
        was_full : bool
            Whether they had to wait for room.
        now : float
            The time, in seconds.
        """
        left = self._handed - waiting
        self._handed += records
        if self._begin is None:
            self._begin = now, left
        self._was_full |= was_full
        begin, left_before = self._begin
        if now - begin < _PERIOD_S:
            return
        # If none has left, the cluster was being looked for, or has paused: that tells nothing of the window.
        if self._was_full and left > left_before:
            self._judge((left - left_before) / (now - begin))
        self._begin, self._was_full = (now, left), False

    def _judge(self, rate: float) -> None:
        if self._pause:
            self._pause -= 1
        elif self._rate_before is not None and rate < _WORTH * self._rate_before:
            self.size = max(self._fewest, self.size // 2)
            self._rate_before, self._pause = None, _PAUSE
        elif self.size < self._most:
            self.size = min(2 * self.size, self._most)
            self._rate_before = rate
