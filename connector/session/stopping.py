"""Ends a query between two batches, so that nobody repeats what it has done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_kafka_group.control.client import TELL_PATIENCE_S, ask_to_stop, tell_finished
from pyspark_kafka_group.control.messages import Source, sources_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

# Longer waits are as good as for ever, and more than a lock can take would be an error.
_LONGEST_S = 7 * 24 * 3600.0

# How often stop() looks at the query's progress.
_PROGRESS_PAUSE_S = 0.1


def stop(query: StreamingQuery, timeout_s: float = 60.0) -> bool:
    """Stop a query between two batches, so that nobody repeats what it has done.

    The query plans nothing more, finishes and commits the running batch, leaves the group, and is stopped.  Call it
    where the query was started, in the driver's Python.

    Parameters
    ----------
    query : StreamingQuery
        A query with at least one ``kafka-group`` source.
    timeout_s : float
        How long the running batch may take, in seconds.  After that the query is stopped all the same.

    Returns
    -------
    bool
        Whether the batch was finished in time.  If not, the next owners of the partitions repeat it.
    """
    deadline = time.monotonic() + min(timeout_s, _LONGEST_S)
    try:
        sources = _sources(query)
        while not sources and query.isActive and time.monotonic() < deadline:
            time.sleep(_PROGRESS_PAUSE_S)  # the first progress comes with the end of the first batch
            sources = _sources(query)
        with _telling_what_finishes(query):
            stopped = [ask_to_stop(source.address, deadline) for source in sources]
    finally:
        query.stop()  # also on Ctrl-C: a query whose member has left would idle for ever
    return bool(stopped) and all(stopped)


def _sources(query: StreamingQuery) -> list[Source]:
    """Return the ``kafka-group`` sources that the last progress shows."""
    progress = query.lastProgress
    return [] if progress is None else sources_of(progress.json)


@contextmanager
def _telling_what_finishes(query: StreamingQuery) -> Iterator[None]:
    """Meanwhile, tell the sources what the query's progress shows as finished.

    Without this a stop would wait for Spark's next trigger, unless a listener is registered.
    """
    done = threading.Event()

    def tell() -> None:
        while True:
            try:
                for source in _sources(query):
                    tell_finished(source)
            except Exception as problem:  # the driver's JVM has ended, say: then so has the source
                _log.debug("no progress: %r", problem)
            if done.wait(_PROGRESS_PAUSE_S):
                return

    teller = threading.Thread(target=tell, name="kafka-group-stop", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join(TELL_PATIENCE_S)
