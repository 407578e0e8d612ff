"""A listener in the user's process that tells the source process at once which batch is finished.

Spark speaks to a source only at its triggers: with a trigger of an hour, a batch that took a second looks unfinished
for an hour, and partitions of it that another member waits for do not move.  The progress of the batch, which listeners
see as soon as it is in Spark's commit log, names its end and the control socket of the source process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_kafka_group.control.client import Ask, tell_finished
from pyspark_kafka_group.control.messages import Source, sources_of
from pyspark_kafka_group.session.connect import is_remote, through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# The sessions that have the listener, as Spark names them: Python may hold several objects for one session.
_listening: set[str] = set()
# Guards _listening.  Deliberate: held across the call that adds, so that two callers add one.
_lock = threading.Lock()


def _pass_on(progress: Callable[[], str]) -> None:
    """Pass on what a progress shows, as JSON.  Quick, because all listeners of a session share one thread of Spark."""
    try:
        for source in sources_of(progress()):
            tell_finished(source)
    except Exception as problem:  # Deliberate: it must never harm Spark; a hand-over comes later, that is all
        _log.debug("progress not passed on: %r", problem)


class FinishedBatchListener(StreamingQueryListener):
    """Tells every ``kafka-group`` source which of its batches is finished; does nothing for other queries."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Pass on what a progress shows."""
        _pass_on(lambda: event.progress.json)

    @property
    def _jlistener(self) -> Any:
        """Return what Spark's JVM calls.

        Deliberate: a property of PySpark's own (4.0 to 4.3).  PySpark's listener asks the JVM for each part of an
        event, which takes 80 ms for each batch.  This one asks for the JSON only, which takes 1.5 ms.  A PySpark
        without this property calls `onQueryProgress`.
        """
        from pyspark import SparkContext
        from pyspark.sql.streaming.listener import JStreamingQueryListener

        class Callbacks(JStreamingQueryListener):
            def onQueryProgress(self, jevent: Any) -> None:
                _pass_on(lambda: str(jevent.progress().json()))

            def onQueryStarted(self, jevent: Any) -> None: ...

            def onQueryIdle(self, jevent: Any) -> None: ...

            def onQueryTerminated(self, jevent: Any) -> None: ...

        jvm: Any = SparkContext._jvm
        return jvm.PythonStreamingQueryListenerWrapper(Callbacks(self))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a query that starts has finished nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the progress has told it before."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the source process has ended."""


class RelayedFinishedBatchListener(StreamingQueryListener):
    """The same for a client of Spark Connect, where a word takes a small Spark job.

    So it tells them only if triggers are far apart: when a batch is finished, and no other one for a while.

    Parameters
    ----------
    ask : callable
        The way to the sources.
    pause_s : float
        How long that is.
    """

    def __init__(self, ask: Ask, pause_s: float = 2.0) -> None:
        self._ask = ask
        self._pause_s = pause_s
        self._waiting: dict[str, threading.Timer] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Begin to wait."""
        try:
            run, sources = str(event.progress.runId), sources_of(event.progress.json)
        except Exception as problem:  # Deliberate: as above
            _log.debug("progress not passed on: %r", problem)
            return
        self._forget(run)
        if sources:
            timer = threading.Timer(self._pause_s, self._tell, (sources,))
            timer.daemon = True
            timer.start()
            self._waiting[run] = timer

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a query that starts has finished nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: what was finished is said in any case."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Cancel the timer: the source process has ended."""
        self._forget(str(event.runId))

    def _forget(self, run: str) -> None:
        timer = self._waiting.pop(run, None)
        if timer is not None:
            timer.cancel()

    def _tell(self, sources: list[Source]) -> None:
        for source in sources:
            tell_finished(source, self._ask)


def listen(spark: SparkSession) -> None:
    """Add the listener to a session, once however often it is called."""
    session: Any = spark
    remote = is_remote(spark)
    with _lock:
        name = session.session_id if remote else session._jsparkSession.sessionUUID()
        if name not in _listening:
            spark.streams.addListener(
                RelayedFinishedBatchListener(through(spark)) if remote else FinishedBatchListener()
            )
            _listening.add(name)
