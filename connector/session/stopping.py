"""Stops a query between two batches, so that no other member repeats its work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyspark_kafka_group.control.client import TELL_PATIENCE_S, Ask, ask_to_stop, tell_finished
from pyspark_kafka_group.control.messages import Source, has_only_others, query_of, sources_of
from pyspark_kafka_group.session.connect import is_remote, way_to
from pyspark_kafka_group.session.running_batch import is_in_batch_of, planned_ends
from pyspark_kafka_group.wire.deadline import Deadline

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

_log = logging.getLogger(__name__)

# Longer waits are as good as for ever, and more than a lock can take would be an error.
_LONGEST_S = 7 * 24 * 3600.0

# How often stop() looks at the query's progress.
_PROGRESS_PAUSE_S = 0.1

# The same through Spark Connect, where a look is a request over the network.
_REMOTE_PROGRESS_PAUSE_S = 0.5

# How much longer than the batch the answer of a source may take.
_ANSWER_S = 2.0

# How long the end of the query may take after that.
_END_S = 10.0


def stop(query: StreamingQuery, timeout_s: float) -> bool:
    """Stop a query between two batches, so that no other member repeats its work.

    The query stops planning, finishes and commits the running batch, and leaves the group.  Then it is stopped.  Call
    this where the query was started: in the driver's Python, or in a client of Spark Connect.

    Parameters
    ----------
    query : StreamingQuery
        A query with at least one ``kafka-group`` source.
    timeout_s : float
        How long the running batch may take, in seconds.  After that the query is stopped in any case.

    Returns
    -------
    bool
        Whether the batch was finished in time.  If not, the next owners of the partitions repeat it.

    Raises
    ------
    RuntimeError
        If it is called in the query's own ``foreachBatch``.
    """
    if not is_remote(query) and is_in_batch_of(query):
        raise RuntimeError(
            "stop(query) was called in the query's own foreachBatch, and would wait for the batch that calls it. Let "
            "the function set a flag, and call stop(query) where the query was started."
        )
    deadline, has_ended = Deadline.after(min(timeout_s, _LONGEST_S)), not query.isActive
    try:
        sources = _sources(query)
        while not sources and query.isActive and not deadline.passed and not _reads_others(query):
            time.sleep(_PROGRESS_PAUSE_S)  # no batch is planned, or it is the first one, through Spark Connect
            sources = _sources(query)
        reads_others = not sources and _reads_others(query)
        ask = way_to(query)
        # All at once: a source that has stopped planning must not wait while another one plans one more batch.
        with _telling_what_finishes(query, ask):
            asked = [begin(partial(ask_to_stop, source.address, deadline, ask)) for source in sources]
            stopped = [_answer(one, deadline) for one in asked]
        clean = reads_others or (bool(stopped) and all(stopped)) or (has_ended and _has_finished(query))
    finally:
        ended = _end(query)  # also on Ctrl-C: a query whose member has left reads nothing, and fails later
    return clean and ended


def _end(query: StreamingQuery) -> bool:
    """End a query, and return whether it ends soon.

    Deliberate: on another thread.  Spark waits for a Python function of foreachBatch, which it cannot interrupt.
    """
    try:
        begin(query.stop).result(_END_S)
    except TimeoutError:
        _log.warning(
            "The query %s has not ended within %g s, mostly because its function of foreachBatch still runs. It ends "
            "with that function, or with the program.",
            query.id,
            _END_S,
        )
        return False
    return True


def _answer(asked: Future[bool], deadline: Deadline) -> bool:
    """Return whether a source has stopped; not after the deadline, if its answer waits for a free task slot."""
    try:
        return asked.result(deadline.left_s + _ANSWER_S)
    except TimeoutError:
        return False


def begin(call: Callable[[], T]) -> Future[T]:
    """Run a call on its own thread, and return its future.

    Deliberate: no ThreadPoolExecutor.  The interpreter waits for its threads, and Ctrl-C must end a program at once.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as problem:  # for the caller, who waits
            result.set_exception(problem)

    threading.Thread(target=run, name="kafka-group-stop", daemon=True).start()
    return result


def _sources(query: StreamingQuery) -> list[Source]:
    """Return the ``kafka-group`` sources that the last progress shows, or the first batch of a run."""
    progress = query.lastProgress
    if progress is not None:
        return sources_of(progress.json)
    named = [] if is_remote(query) else [query_of(end) for end in planned_ends(query)]
    return [Source(address=name, end=None) for name in dict.fromkeys(named) if name is not None]


def _has_finished(query: StreamingQuery) -> bool:
    """Return whether a query has ended by itself after its last batch, as with ``availableNow``.

    Spark shows no error either of a query that was stopped in the middle of a batch.
    """
    progress = query.lastProgress
    if progress is None or is_remote(query) or query.exception() is not None:
        return False
    planned = {name: end for end in planned_ends(query) if (name := query_of(end)) is not None}
    return bool(planned) and planned == {query_of(source.end): source.end for source in sources_of(progress.json)}


def _reads_others(query: StreamingQuery) -> bool:
    """Return whether the last progress, or the first batch of a run, shows only sources of other kinds."""
    progress = query.lastProgress
    if progress is not None:
        return has_only_others(progress.json)
    ends = [] if is_remote(query) else planned_ends(query)
    return bool(ends) and not any(map(query_of, ends))


@contextmanager
def _telling_what_finishes(query: StreamingQuery, ask: Ask) -> Iterator[None]:
    """Meanwhile, tell the sources what the query's progress shows as finished.

    Without this a stop would wait for Spark's next trigger, unless a listener is registered.
    """
    done = threading.Event()
    told: dict[str, object] = {}
    pause_s = _REMOTE_PROGRESS_PAUSE_S if is_remote(query) else _PROGRESS_PAUSE_S

    def tell() -> None:
        while True:
            try:
                for source in _sources(query):
                    if told.get(source.address) != source.end and tell_finished(source, ask):
                        told[source.address] = source.end
            except Exception as problem:  # the driver's JVM has ended, say: then so has the source
                _log.debug("no progress: %r", problem)
            if done.wait(pause_s):
                return

    teller = threading.Thread(target=tell, name="kafka-group-stop", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join(TELL_PATIENCE_S)
