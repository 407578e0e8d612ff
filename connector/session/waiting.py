"""Waits for queries until SIGTERM or Ctrl-C, and then stops them between two batches.

A signal handler may not call Spark: the call would collide with the call that the signal has interrupted.  Nor may it
set an event that the main thread waits for, because both need the lock of the event.  So the handler notes the signal,
and the main thread polls the note.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from pyspark_kafka_group.session.connect import is_remote
from pyspark_kafka_group.session.stopping import begin, stop

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

# How often the queries and the note are polled.  It delays the stop.
_PAUSE_S = 0.2

# The same through Spark Connect, where a poll of a query is a request over the network.
_REMOTE_PAUSE_S = 1.0

# How long the error of a query may take that is active no more.
_END_S = 5

_OF_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"
"""The variable that ``spark-submit`` sets for the Python that it starts."""

_STOPPING = "Finishing the running batch, then leaving the group. Press Ctrl-C again to end at once.\n"


def run_until_signal(queries: Sequence[StreamingQuery], timeout_s: float) -> bool:
    """Wait for queries as :func:`pyspark_kafka_group.run_until_signal` does."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "run_until_signal() was called outside of the main thread, and Python handles signals only there. Call it "
            "in the main thread. In another thread call query.awaitTermination(), and pyspark_kafka_group.stop(query)."
        )
    if _OF_SPARK_SUBMIT in os.environ:
        _log.warning(
            "spark-submit has started this program, so SIGTERM and Ctrl-C do not reach it: they end Spark at once, in "
            "the middle of a batch. Start it with 'python', or let it call pyspark_kafka_group.stop(query): see "
            "docs/stopping.md."
        )
    pause_s = max(_REMOTE_PAUSE_S if is_remote(query) else _PAUSE_S for query in queries)
    with _noted_signals() as signals:
        try:
            while not signals and _any_is_active(queries):
                time.sleep(pause_s)
            if signal.SIGINT in signals and sys.stderr.isatty():
                sys.stderr.write(_STOPPING)
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait
            clean = _stop_all(queries, timeout_s)
        _raise_error_of(queries)
    if not clean:
        _log.warning("A batch was not finished within %g s. The next owners of its partitions repeat it.", timeout_s)
    return clean


@contextmanager
def _noted_signals() -> Iterator[Sequence[int]]:
    """Yield the numbers of the signals that have come meanwhile; at the end the former handlers come back."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)

    # Deliberate: also in place of Spark's own handler of SIGINT, which cancels the jobs of the running batch.
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: no handler of Python's


def _any_is_active(queries: Sequence[StreamingQuery]) -> bool:
    """Tell whether a query runs; raises the error of a query that has failed."""
    active = [query.isActive for query in queries]
    _raise_error_of([query for query, is_active in zip(queries, active, strict=True) if not is_active])
    return any(active)


def _raise_error_of(ended: Sequence[StreamingQuery]) -> None:
    for query in ended:
        # Not longer: a function of foreachBatch may still run.
        if not query.awaitTermination(_END_S) and (error := query.exception()) is not None:
            raise error


def _stop_all(queries: Sequence[StreamingQuery], timeout_s: float) -> bool:
    """Stop those queries that run, all at the same time; tell whether each has finished its batch.

    Each has a thread that ends with the program.  So a second Ctrl-C ends the program at once.
    """
    begun = [begin(partial(_stop_if_active, query, timeout_s)) for query in queries]
    wait(begun)  # also for the others if one raises: they end with the program
    clean = [result.result() for result in begun]
    return all(clean)


def _stop_if_active(query: StreamingQuery, timeout_s: float) -> bool:
    return not query.isActive or stop(query, timeout_s)
