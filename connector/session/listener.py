"""A listener in the user's process that tells the source process at once which batch is finished.

Spark speaks to a source only at its triggers: with a trigger of an hour, a batch that took a second looks unfinished
for an hour, and partitions of it that another member waits for do not move.  The progress of the batch, which listeners
see as soon as it is in Spark's commit log, names its end and the control socket of the source process.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_kafka_group.control.client import tell_finished
from pyspark_kafka_group.control.messages import sources_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# The sessions that have the listener, as the JVM names them: Python may hold several objects for one session.
_listening: set[str] = set()
# Guards _listening.  Deliberate: held across the call that adds, so that two callers add one.
_lock = threading.Lock()


class FinishedBatchListener(StreamingQueryListener):
    """Tells every ``kafka-group`` source which of its batches is finished; does nothing for other queries."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Pass on what a progress shows.  Quick, because all listeners of a session share one thread of Spark."""
        try:
            for source in sources_of(event.progress.json):
                tell_finished(source)
        except Exception as problem:  # Deliberate: it must never harm Spark; a hand-over comes later, that is all
            _log.debug("progress not passed on: %r", problem)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: a query that starts has finished nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: what was finished was said before."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the source process has ended."""


def listen(spark: SparkSession) -> None:
    """Add the listener to a session, once however often it is called.

    Nothing happens with Spark Connect, where the source process runs on another machine.
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return
    with _lock:
        name = session.sessionUUID()
        if name not in _listening:
            spark.streams.addListener(FinishedBatchListener())
            _listening.add(name)
