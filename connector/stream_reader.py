"""The stream reader: translates Spark's calls.

Spark unpickles the reader in three kinds of processes.  The source process calls everything but ``read``, on its main
thread, one call at a time.  The planning process only pickles the reader again.  Executors call ``read``.  So the
reader contains only its settings.  In the source process, the first call creates the running query.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_kafka_group.loopback import AcknowledgedOnArrival
from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.task_ranges import Task, pack
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.process import prepare_source_process
from pyspark_kafka_group.reading.range_reader import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.formats.batches import TypedReading
    from pyspark_kafka_group.query.query import Query

Json = dict[str, Any]

# Deliberate: not ReadAllAvailable.  Spark passes that one if a trigger runs once, whatever the limit here is.  So it
# shows that the trigger runs once.
_NO_LIMIT = 2**63 - 1


@dataclass
class TaskPartition(InputPartition):
    """The ranges of one task."""

    ranges: Task

    # Deliberate: plain tuples.  Every task is pickled for each batch, and an object for each range takes eight times as
    # long.

    def __getstate__(self) -> list[tuple[str, int, Offset, Offset]]:
        return [(*tp, *r) for tp, r in self.ranges.items()]

    def __setstate__(self, state: list[tuple[str, int, Offset, Offset]]) -> None:
        self.ranges = {TopicPartition(topic, n): OffsetRange(start, until) for topic, n, start, until in state}


class KafkaGroupStreamReader(AcknowledgedOnArrival, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of one query.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    typed : TypedReading or None
        How keys and values are decoded; None if they stay bytes.
    load : str
        The id of the ``load()``.  All sources that Spark makes of one ``load()`` have the same id.
    """

    def __init__(self, settings: Settings, typed: TypedReading | None = None, *, load: str = "") -> None:
        self._settings = settings
        self._typed = typed
        self._load = load
        self._created_at = time.monotonic()  # before Spark calls any source of the query
        self._query: Query | None = None
        self._in_call = False
        self._stopping = False

    def __getstate__(self) -> Json:
        return {**self.__dict__, "_query": None, "_in_call": False, "_stopping": False}

    # -- in the source process

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix how far a run with ``availableNow`` reads.  Spark calls this first, even before a replay."""
        with self._called() as query:
            query.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ``maxOffsetsPerTrigger``, or ``minOffsetsPerTrigger``, as a limit of Spark.

        Spark has no limit for Python that is both.  The query itself applies ``minOffsetsPerTrigger`` in any case.
        """
        with self._called():  # Spark asks all sources of a query for their limit before it asks one for a batch
            pass
        limit, least = self._settings.max_offsets_per_trigger, self._settings.min_offsets_per_trigger
        if limit is None and least is not None:
            return ReadMinRows(least)
        return ReadMaxRows(_NO_LIMIT if limit is None else limit)

    def initialOffset(self) -> Json:
        """Return the offset before batch 0.  It is always the same, because Spark does not store it."""
        with self._called():
            pass
        return INITIAL.to_json()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the end of the next batch, or ``start`` itself if there is nothing to read.

        If Spark passes the end of a batch as ``start``, that batch is durably finished.
        """
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) and limit.max_rows < _NO_LIMIT else None
        with self._called() as query:
            if isinstance(limit, ReadAllAvailable):
                query.read_all()  # a trigger that runs once
            return query.latest_offset(start, rows)

    def reportLatestOffset(self) -> Json | None:
        """Return the report that the query's progress shows as ``latestOffset``: lag, assignment, counters."""
        return None if self._query is None else self._query.report()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return the tasks of the batch ``(start, end]``.  After a restart, Spark may call this first."""
        with self._called() as query:
            ranges = query.running_ranges(start, end)
            if not ranges and query.warming_tasks:
                return [TaskPartition({}) for _ in range(query.warming_tasks)]
        return [TaskPartition(task) for task in pack(ranges, self._settings.sizes, query.leaders)]

    def commit(self, end: Json) -> None:
        """Note that the batch that ends at ``end`` is durably finished.  Mostly the query knows this already."""
        with self._called() as query:
            query.finish(end)

    def stop(self) -> None:
        """Leave the group, in bounded time.  May be called more than once."""
        self._stopping = True  # from now on SIGTERM changes nothing.  It may come after the end of Spark's requests.
        if self._query is not None:
            self._query.stop()

    @contextmanager
    def _called(self) -> Iterator[Query]:
        """Yield the query, which the first call creates, and note that a call is running."""
        if self._query is None:
            # Deliberate: not at the top.  Executors do not need it, and each worker would take 50 ms to import it.
            from pyspark_kafka_group.query.query import Query
            from pyspark_kafka_group.query.secondary import Sources

            prepare_source_process(self._interrupt, self.stop)
            self._query = Query(self._settings, Sources(self._settings, self._load, self._created_at))
        self._query.check_running()
        self._in_call = True
        try:
            yield self._query
        finally:
            self._in_call = False

    def _interrupt(self) -> bool:
        if self._stopping:
            return True
        return self._in_call and self._query is not None and self._query.interrupt()

    # -- in the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task.  A task without ranges only prepares the worker.

        The result depends only on the ranges: Spark repeats the call for retries, and for every scan of a batch.
        """
        assert isinstance(partition, TaskPartition)
        # Deliberate: not at the top.  Only executors need it.
        from pyspark_kafka_group.read_task import read_task

        settings, group = self._settings, self._settings.group
        options = ReadOptions(
            columns=settings.columns,
            fail_on_data_loss=group.start.fail_on_data_loss,
            timeout_s=settings.poll_timeout_s,
        )
        return read_task(partition.ranges, options, self._typed, group.properties, group.group_id)
