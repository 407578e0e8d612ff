"""Asks the cluster again until it can answer, or until a deadline.  All such loops are here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.wire.deadline import NO_TIME, Deadline

T = TypeVar("T")


def patiently(
    ask: Callable[[], T],
    deadline: Deadline,
    pauses_s: Iterable[float],
    *,
    is_enough: Callable[[T], bool] = lambda _: True,
    attempts: int = 1,
) -> T:
    """Return the first answer that is enough; the last answer if there is none before the deadline.

    Blocks.  The caller raises the error that fits, with the remedy for its user.

    Parameters
    ----------
    ask : callable
        Asks once.
    deadline : Deadline
        When to stop: no attempt begins later.
    pauses_s : iterable of float
        The pauses between two attempts, in seconds.  Must not end.
    is_enough : callable
        Whether an answer is complete.
    attempts : int
        The least number of attempts, even after the deadline.

    Raises
    ------
    TryAgainError
        If the last attempt has failed.  If it had no time, this is the problem of the one before.
    """
    asked, pauses = 0, iter(pauses_s)
    said: TryAgainError | None = None
    while True:
        asked, pause_s = asked + 1, next(pauses)
        try:
            answer = ask()
            if is_enough(answer) or (asked >= attempts and deadline.left_s <= pause_s):
                return answer
        except TryAgainError as problem:
            if said is None or NO_TIME not in str(problem):
                said = problem
            if asked >= attempts and deadline.left_s <= pause_s:
                raise said from None
        time.sleep(pause_s)


def growing(first_s: float, longest_s: float) -> Iterator[float]:
    """Yield pauses without end, in seconds, each twice as long as the one before."""
    while True:
        yield first_s
        first_s = min(2 * first_s, longest_s)
