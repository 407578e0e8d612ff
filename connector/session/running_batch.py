"""Finds the ranges of the batch that runs in the user's ``foreachBatch``.

Spark gives the function a DataFrame and a batch id.  Neither says what the batch reads: rows may have been left out on
the way, and of a partition no row may be left.  So this finds the end offset of the batch in Spark, and asks the source
process that the offset names.  Spark's log alone would not do: a batch that runs again may read less than was logged,
because another member has taken partitions over.

Runs in the driver's Python; with Spark Connect in the Python that its server starts for the function.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_group.control.client import ask_for_batch
from pyspark_kafka_group.control.messages import json_object, ranges_from_json
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.spark_commit_log import offsets_in
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.session.connect import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark notes the query that a thread of the driver works for."""


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """The ranges of a batch.  Travels to executors.

    Attributes
    ----------
    ranges : mapping of TopicPartition to ReadRange
        What the ``kafka-group`` sources of the query read in this batch.
    foreign : bool
        Whether the query has other sources.
    topics : frozenset of str
        The topics that the ``kafka-group`` sources know.
    """

    ranges: Mapping[TopicPartition, ReadRange]
    foreign: bool = False
    topics: frozenset[str] = frozenset()

    def may_be_of_others(self, tp: TopicPartition) -> bool:
        """Tell whether rows of a partition may come from another kind of source."""
        return self.foreign and tp.topic not in self.topics


class _End(NamedTuple):
    """Up to where the batch reads one source, and whether it reads anything of it."""

    document: Any
    new: bool


def running_batch(batch: DataFrame, batch_id: int, checkpoint: str | None) -> RunningBatch | None:
    """Return what the batch reads that ``foreachBatch`` was called with.

    Parameters
    ----------
    batch : DataFrame
        The batch, transformed or not.
    batch_id : int
        Its id.
    checkpoint : str or None
        The query's ``checkpointLocation``.  Only needed with Spark Connect.

    Returns
    -------
    RunningBatch or None
        None if no ``kafka-group`` source is behind the DataFrame.

    Raises
    ------
    ConfigurationError
        If the source process cannot be found, or two sources read one partition.
    """
    ends = list(_logged_ends(batch, batch_id, checkpoint) if is_remote(batch.sparkSession) else _ends(batch))
    ours = [end for end in ends if _is_ours(end.document)]
    if not ours:
        return None
    by_query = {end.document["query"]: end for end in ours}  # a union of one stream scans its source twice
    ranges: dict[TopicPartition, ReadRange] = {}
    for query, end in by_query.items():
        if not end.new:
            continue  # Spark runs such a batch for its watermarks, or for another source
        found = ask_for_batch(query, end.document)
        if found is None:
            raise ConfigurationError(
                f"Batch {batch_id}: the source process of this query does not say what the batch reads, so nothing was "
                f"written. If it has ended, start the query again. Else give the source process and the driver's "
                f"Python the same TMPDIR, a short and writable path; with Spark Connect check the checkpoint."
            )
        for tp, r in ranges_from_json(found).items():
            if tp in ranges:
                raise ConfigurationError(
                    f"Two sources of this query read {tp}, from two groups or two clusters, so an offset does not "
                    f"name one record. Write them by two queries, each with a consumer name of its own."
                )
            ranges[tp] = r
    topics = frozenset(topic for end in ours for topic in end.document["topics"])
    return RunningBatch(ranges, foreign=len(ours) < len(ends), topics=topics)


def _is_ours(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("query"), str) and "topics" in document


def _ends(batch: DataFrame) -> Iterator[_End]:
    """Return the ends that Spark has planned; nothing if the DataFrame is not of a running query.

    Spark has no public name for them (4.3.0), and its log can be anywhere.
    """
    execution = _execution(batch)
    if execution is not None:
        yield from _ends_of(execution)


def run_id(batch: DataFrame) -> str | None:
    """Return the id of the run of the query that a DataFrame is of; None if it is not known.  Not with Connect."""
    try:
        execution = _execution(batch)
        return None if execution is None else str(execution.runId().toString())
    except Exception as problem:  # Deliberate: no public name leads there (4.3.0)
        _log.debug("the run of the query is not known: %r", problem)
        return None


def is_in_batch_of(query: StreamingQuery) -> bool:
    """Return whether this thread runs the ``foreachBatch`` of a query.  Without Spark Connect."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    # Deliberate: not the local property, which other threads may inherit.  Spark names its thread after the query.
    return jvm is not None and str(query.id) in jvm.java.lang.Thread.currentThread().getName()


def _execution(batch: DataFrame) -> Any:
    """Return the running query that a DataFrame is of, in the JVM; None if there is none."""
    frame: Any = batch
    session = frame._jdf.sparkSession()
    name = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    for query in session.sharedState().activeStreamingQueries().values():
        # The property is missing in a thread of the user's own, and the session is another one if the rows were
        # made into a new DataFrame.
        if query.id().toString() == name or query.sparkSessionForStream().equals(session):
            return query
    return None


def _ends_of(execution: Any) -> Iterator[_End]:
    before, entries = execution.committedOffsets(), execution.availableOffsets().iterator()
    while entries.hasNext():
        entry = entries.next()
        known, end = before.get(entry._1()), entry._2().json()
        yield _End(json_object(end), new=not (known.isDefined() and known.get().json() == end))


def planned_ends(query: StreamingQuery) -> list[Any]:
    """Return the ends of the newest planned batch, one for each source; empty before the first.  Not with Connect."""
    started: Any = query
    try:
        return [end.document for end in _ends_of(started._jsq.streamingQuery())]
    except Exception as problem:  # Deliberate: no public name leads there (4.3.0), and the query may have ended
        _log.debug("the planned batch is not known: %r", problem)
        return []


def _logged_ends(batch: DataFrame, batch_id: int, checkpoint: str | None) -> Iterator[_End]:
    """Return the ends that Spark has logged."""
    if checkpoint is None:
        raise ConfigurationError(
            "With Spark Connect a function of foreachBatch cannot find its query. Give the table checkpoint=..., the "
            "same path that writeStream has as checkpointLocation."
        )
    read, folder = batch.sparkSession.read, f"{checkpoint.rstrip('/')}/offsets"
    before: list[Any] = []
    try:
        (row,) = read.text(f"{folder}/{batch_id}", wholetext=True).collect()
    except Exception as e:  # Deliberate: of gRPC, of Spark, of the file system
        raise ConfigurationError(
            f"Batch {batch_id} is not in Spark's log at {folder}. Give the table as checkpoint=... the same path "
            f"that writeStream has as checkpointLocation."
        ) from e
    if batch_id > 0:
        try:
            (earlier,) = read.text(f"{folder}/{batch_id - 1}", wholetext=True).collect()
            before = offsets_in(earlier["value"])
        except Exception:  # Deliberate: as above; Spark removes old ones
            before = []
    for document in offsets_in(row["value"]):
        yield _End(document, new=document not in before)
