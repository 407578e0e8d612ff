"""A listener in the user's process that tells the source process at once which batch is finished.

Spark speaks to a source only at its triggers: with a trigger of an hour, a batch that took a second looks unfinished
for an hour, and partitions of it that another member waits for do not move.  The progress of the batch, which listeners
see as soon as it is in Spark's commit log, names its end and the control socket of the source process.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_kafka_group.control.client import Ask, tell_finished
from pyspark_kafka_group.control.messages import Source, run_of, sources_of
from pyspark_kafka_group.session.connect import is_remote, through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# The sessions that have the listener, as Spark names them: Python may hold several objects for one session.
_listening: set[str] = set()
# Guards _listening.  Deliberate: held across the call that adds, so that two callers add one.
_lock = threading.Lock()


class ProgressListener(StreamingQueryListener):
    """A listener that needs of each progress only its JSON."""

    @abstractmethod
    def on_progress(self, progress: str) -> None:
        """Take a progress as JSON.  This must be quick: all listeners of a session share one thread of Spark."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take the progress as JSON."""
        self.on_progress(event.progress.json)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no progress yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: there is no new progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the source process has ended."""

    @cached_property
    def _jlistener(self) -> Any:
        """Return what Spark's JVM calls.

        Deliberate: a property of PySpark's own (4.0 to 4.3).  PySpark's listener asks the JVM for each part of a
        progress, which takes 80 ms for each batch.  This one asks for the JSON only, which takes 1.5 ms.  A PySpark
        without this property calls `onQueryProgress`.
        """
        from pyspark import SparkContext
        from pyspark.sql.streaming.listener import JStreamingQueryListener

        heard = self.on_progress

        class JsonCallbacks(JStreamingQueryListener):
            def onQueryProgress(self, jevent: Any) -> None:
                heard(str(jevent.progress().json()))

        jvm: Any = SparkContext._jvm
        return jvm.PythonStreamingQueryListenerWrapper(JsonCallbacks(self))


class FinishedBatchListener(ProgressListener):
    """Tells every ``kafka-group`` source which of its batches is finished; does nothing for other queries."""

    def on_progress(self, progress: str) -> None:
        """Pass on what a progress shows."""
        try:
            for source in sources_of(progress):
                tell_finished(source)
        except Exception as problem:  # Deliberate: it must never harm Spark; a hand-over comes later, that is all
            _log.debug("progress not passed on: %r", problem)


class RelayedFinishedBatchListener(ProgressListener):
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

    def on_progress(self, progress: str) -> None:
        """Begin to wait."""
        try:
            run, sources = run_of(progress), sources_of(progress)
        except Exception as problem:  # Deliberate: as above
            _log.debug("progress not passed on: %r", problem)
            return
        self._forget(run)
        if sources:
            timer = threading.Timer(self._pause_s, self._tell, (sources,))
            timer.daemon = True
            timer.start()
            self._waiting[run] = timer

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
