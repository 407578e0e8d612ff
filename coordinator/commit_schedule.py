"""When a commit is sent: not while a caller waits for an answer, not before the pause after a failure is over."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark_kafka_group.coordinator.handover.outputs import Commit

# Pause after a failed commit: short first, because most failures are a rebalance that is just ending.
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 1.0

# A commit of more partitions than this is sent when the next batch is planned, or after this pause: to put it together
# takes Python time that the plan would have to wait for.
_LARGE_COMMIT = 1000
_LARGE_COMMIT_PAUSE_S = 0.2


class CommitSchedule:
    """What is to be committed and when to try again.  Belongs to the group thread.

    Parameters
    ----------
    clock : callable
        Tells the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: Commit | None = None  # at most one is outstanding
        self._held_until = 0.0
        self._retry_at: float | None = None
        self._retry_pause_s = _FIRST_RETRY_S

    def hold(self, commit: Commit, *, in_command: bool) -> None:
        """Take a commit; one that a command decides whose caller waits is sent later, a large one a good deal later."""
        self._held = commit
        large = in_command and len(commit.entries) > _LARGE_COMMIT
        self._held_until = self._clock() + _LARGE_COMMIT_PAUSE_S if large else 0.0

    def hurry(self) -> None:
        """Hold nothing back any more."""
        self._held_until = 0.0

    @property
    def held_for_s(self) -> float:
        """For how long a commit is still held back; 0 or less if none is."""
        return 0.0 if self._held is None else self._held_until - self._clock()

    def take(self) -> Commit | None:
        """Return what is to be sent now; None if nothing is."""
        held, self._held = self._held, None
        return held

    def retry_later(self) -> None:
        """Begin a pause; each is longer than the one before."""
        self._retry_at = self._clock() + self._retry_pause_s
        self._retry_pause_s = min(2 * self._retry_pause_s, _LAST_RETRY_S)

    def succeeded(self) -> None:
        """Note that a commit has succeeded: the next pause is short again."""
        self._retry_pause_s = _FIRST_RETRY_S

    def until_retry_s(self, at_most_s: float) -> float:
        """Return how long to wait for the end of the pause, and no longer than ``at_most_s``."""
        return at_most_s if self._retry_at is None else max(0.0, min(at_most_s, self._retry_at - self._clock()))

    def take_retry(self) -> bool:
        """Tell, once, whether the pause is over."""
        over = self._retry_at is not None and self._clock() >= self._retry_at
        if over:
            self._retry_at = None
        return over
