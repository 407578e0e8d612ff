"""Facts about logs that count only once they last, because brokers may also report them for a moment.

This module has the clock for all of them, and the table of their limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

K = TypeVar("K", bound=object)

GONE_S = 3.0
"""How long brokers must not know a topic or a partition before it counts as deleted, in seconds.  A new topic may not
have reached all of them.  Without topic ids, a leader epoch that is too old shows a new topic after the same time."""

SHORTER_S = 10.0
"""How long a log must end below a known offset, under the same leader epoch, before records count as lost.  The end
goes back for a moment while a partition changes its leader.  After a truncation it stays below."""

RESTORED_S = 30.0
"""How long leader epochs must be older than known ones before the cluster counts as restored from an older copy.  A
leader that is cut off from the others also reports an old epoch, until it learns of its successor."""

RESTORED_AT_REMEMBERED_LEADERS_S = 60.0
"""The same for answers of leaders that are not looked up for each question: the log ends ask them for a minute."""


class Lasting(Generic[K]):
    """Notes since when a fact holds for partitions, or other keys.  Belongs to one thread.

    Parameters
    ----------
    limit_s : float
        How long the fact must hold, in seconds.
    clock : callable
        Returns the time in seconds; not given except in tests.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] | None = None) -> None:
        self._limit_s = limit_s
        self._clock = clock or time.monotonic
        self._since: dict[K, float] = {}

    @property
    def keys(self) -> Collection[K]:
        """The keys for which the fact holds."""
        return self._since.keys()

    def note(self, holds: Collection[K], asked: Collection[K] | None = None) -> frozenset[K]:
        """Note for which keys the fact holds now; return those for which it has lasted.

        Parameters
        ----------
        holds : collection
            The keys for which it holds.
        asked : collection, optional
            The keys of the question; all if not given.  The fact no longer holds for those that are not in ``holds``.
            Keys that were not asked for keep their time.
        """
        now = self._clock()
        for key in [*self._since] if asked is None else asked:
            if key not in holds:
                self._since.pop(key, None)
        return frozenset(key for key in holds if now - self._since.setdefault(key, now) >= self._limit_s)
