"""How long readers wait for an answer of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_kafka_group.wire.types import UnreachableError

FIRST_S = 1.0
"""How long to wait at first.  A broker that has stopped must not keep readers from its successor for long."""


class AnswerTime:
    """How long to wait for an answer: twice as long after each timeout, until an answer comes in time.

    A busy broker answers late, and each request that a client abandons adds to its load.

    Parameters
    ----------
    longest_s
        How long to wait at most.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._next_s = min(FIRST_S, longest_s)

    @contextmanager
    def wait(self) -> Iterator[float]:
        """Yield the time to wait in the block, in seconds.  A ``TimeoutError`` of the block prolongs the next wait."""
        try:
            yield self._next_s
        except UnreachableError:
            raise  # the broker's load has no part in this
        except TimeoutError:
            self._next_s = min(2 * self._next_s, self._longest_s)
            raise
        self._next_s = min(FIRST_S, self._longest_s)
