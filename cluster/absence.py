"""When something that the brokers do not know counts as deleted: one clock for topics and partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

K = TypeVar("K", bound=object)

GONE_S = 3.0
"""How long the brokers must not know a topic, in seconds.  A new topic may not have reached all of them."""


class Absence(Generic[K]):
    """Notes since when topics or partitions are missing.  Belongs to one thread.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[K, float] = {}

    def __bool__(self) -> bool:
        """Return whether anything is missing."""
        return bool(self._since)

    def gone(self, asked: Collection[K], missing: Collection[K]) -> frozenset[K]:
        """Note which are missing now; return those that have been missing for :data:`GONE_S`.

        Parameters
        ----------
        asked : collection
            The topics or partitions of the question.  Those that are not missing exist again.
        missing : collection
            Those that the brokers do not know.
        """
        now = self._clock()
        for key in asked:
            if key not in missing:
                self._since.pop(key, None)
        return frozenset(key for key in missing if now - self._since.setdefault(key, now) >= GONE_S)
