"""The running queries of a session and their progress, for the exporters.

Spark's listener bus writes.  The exporter's thread reads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark_kafka_group.control.messages import run_of
from pyspark_kafka_group.metrics.metric import Metric, Sample
from pyspark_kafka_group.metrics.reports import Json, SourceReport, answer_of, sources_of
from pyspark_kafka_group.metrics.table import samples
from pyspark_kafka_group.session.listener import ProgressListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryTerminatedEvent

_log = logging.getLogger(__name__)


class RunningQueries:
    """The last progress of each running query."""

    def __init__(self) -> None:
        self._progress: dict[str, str] = {}
        self._looked_at = float("-inf")
        self._sources: tuple[SourceReport, ...] = ()
        self._reports: dict[tuple[str, str], Json] = {}  # the newest report of each source, by run and address
        # Guards the fields above.  Never held during a request to a source.
        self._lock = threading.Lock()

    def note(self, run_id: str, progress: str) -> None:
        """Store a progress, which is JSON text."""
        with self._lock:
            self._progress[run_id] = progress

    def end(self, run_id: str) -> None:
        """Forget a run that has ended."""
        with self._lock:
            self._progress.pop(run_id, None)
            self._reports = {key: report for key, report in self._reports.items() if key[0] != run_id}
            self._sources = tuple(source for source in self._sources if source.run_id != run_id)

    def clear(self) -> None:
        """Forget all runs."""
        with self._lock:
            self._progress.clear()
            self._reports.clear()
            self._sources = ()

    def samples(self, metrics: Collection[Metric], *, max_age_s: float = 0.0) -> Iterator[Sample]:
        """Yield the values of some metrics of all sources.

        Parameters
        ----------
        metrics : collection of Metric
            The metrics to read.
        max_age_s : float
            How old the last answers of the sources may be, in seconds.  Older ones are requested again.
        """
        now = time.time()
        for source in self._looked(max_age_s):
            yield from samples(source, now, metrics)

    def _looked(self, max_age_s: float) -> tuple[SourceReport, ...]:
        with self._lock:
            if time.monotonic() - self._looked_at < max_age_s:
                return self._sources
            known = dict(self._progress)
        found = tuple(
            source
            for run_id, progress in known.items()
            for source in sources_of(progress, partial(self._newest, run_id))
        )
        with self._lock:
            # A query may have ended meanwhile.  Its metrics must not return.
            self._sources = tuple(source for source in found if source.run_id in self._progress)
            self._looked_at = time.monotonic()
            return self._sources

    def _newest(self, run_id: str, report: Json) -> Json:
        """Return the current report of a source, or its newest known one: counters must not go back within a run."""
        address = report.get("control")
        if not isinstance(address, str):
            return report
        answer, key = answer_of(report), (run_id, address)
        with self._lock:
            found = max((one for one in (answer, self._reports.get(key), report) if one), key=_events)
            if run_id in self._progress:
                self._reports[key] = found
        return found


def _events(report: Json) -> int:
    """Return how many events a report counts.  The newer of two reports never has fewer."""
    counts = report.get("events")
    return sum(count for count in counts.values() if isinstance(count, int)) if isinstance(counts, dict) else -1


class MetricsListener(ProgressListener):
    """Stores the progress of the running queries, and notes their end.

    Parameters
    ----------
    queries : RunningQueries
        The running queries.
    """

    def __init__(self, queries: RunningQueries) -> None:
        self._queries = queries

    def on_progress(self, progress: str) -> None:
        """Store the progress."""
        self._queries.note(run_of(progress), progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query, so that its metrics disappear."""
        self._queries.end(str(event.runId))


class Listening:
    """Listens to a session until it is closed.

    Parameters
    ----------
    spark : SparkSession
        The session whose queries count.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.queries = RunningQueries()
        self._spark = spark
        self._listener = MetricsListener(self.queries)
        spark.streams.addListener(self._listener)
        self._note_running()

    def _note_running(self) -> None:
        """Store the progress of queries that run already: an idle query may report no other progress for hours."""
        for query in self._spark.streams.active:
            progress = query.lastProgress
            if progress is not None:
                self.queries.note(str(query.runId), progress.json)
                if not query.isActive:  # its end may have been reported before
                    self.queries.end(str(query.runId))

    def close(self) -> None:
        """Stop listening, and forget everything.  May be called after the session has ended."""
        try:
            self._spark.streams.removeListener(self._listener)
        except Exception as problem:  # the session has ended, and its listeners with it
            _log.debug("the listener was not removed: %r", problem)
        self.queries.clear()
