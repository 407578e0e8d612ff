"""The stream reader: translates Spark's calls.

Each version of Spark has a reader of its own, because the calls differ: :mod:`.stream_reader_42` has that of Spark 4.2
and newer, :mod:`.stream_reader_40` that of Spark 4.0 and 4.1.  This module has their common part.

Spark unpickles the reader in three kinds of processes.  The source process calls everything but ``read``, on its main
thread, one call at a time.  The planning process only pickles the reader again.  Executors call ``read``.  So the
reader contains only its settings.  In the source process, the first call creates the running query.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.task_ranges import Task, pack
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.process import prepare_source_process
from pyspark_kafka_group.worker.costs import SentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.formats.batches import TypedReading
    from pyspark_kafka_group.query.query import Query
    from pyspark_kafka_group.where.filtering import RowFilter

Json = dict[str, Any]

# Deliberate: the default is 700.  A plan for thousands of partitions makes tens of thousands of small objects, none of
# them in a cycle.  With 10,000 partitions, half of the planning time was spent in the search for cycles.  At a start,
# it delayed the imports.
_OBJECTS_BEFORE_GC = 100_000


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


class RefusedStreamReader(DataSourceStreamReader):
    """A reader of a stream with wrong options.  Its first call raises the error, whichever call that is.

    Deliberate: `KafkaGroupDataSource.streamReader` does not raise it.  Spark (4.0 to 4.3) would then fail once more,
    below the error, with an UnboundLocalError of its own.
    """

    def __init__(self, problem: KafkaGroupError) -> None:
        self._problem = problem

    def initialOffset(self) -> NoReturn:
        """Raise the error."""
        raise self._problem from None

    def latestOffset(self, *_: Any) -> NoReturn:
        """Raise the error.  Spark passes no arguments before 4.2."""
        raise self._problem from None

    def getDefaultReadLimit(self) -> NoReturn:
        """Raise the error."""
        raise self._problem from None

    def partitions(self, start: Json, end: Json) -> NoReturn:
        """Raise the error."""
        raise self._problem from None

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error."""
        raise self._problem from None


class StreamReader(SentToWorkers, DataSourceStreamReader):
    """The common part of the stream readers.

    Attributes
    ----------
    patient : bool
        Whether the first batch also waits for partitions that other members may still give to this query.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    typed : TypedReading or None
        How keys and values are decoded; None if they stay bytes.
    where : RowFilter or None
        Which records become rows; None for all.
    """

    patient = False

    def __init__(
        self,
        settings: Settings,
        typed: TypedReading | None = None,
        where: RowFilter | None = None,
    ) -> None:
        self._settings = settings
        self._typed = typed
        self._where = where
        self._created_at = time.monotonic()  # before Spark calls any source of the query
        self._query: Query | None = None
        self._in_call = False
        self._stopping = False

    def __getstate__(self) -> Json:
        return {**self.__dict__, "_query": None, "_in_call": False, "_stopping": False}

    # -- in the source process

    def initialOffset(self) -> Json:
        """Return the offset before batch 0.  It is always the same, because Spark does not store it."""
        with self._called():
            pass
        return INITIAL.to_json()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return the tasks of the batch ``(start, end]``.  After a restart, Spark may call this first."""
        with self._called() as query:
            ranges = query.running_ranges(start, end)
            if not ranges and query.warming_tasks:
                return [TaskPartition({}) for _ in range(query.warming_tasks)]
            tasks = pack(ranges, self._settings.sizes, query.leaders)
        return [TaskPartition(task) for task in tasks]

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
            gc.set_threshold(_OBJECTS_BEFORE_GC, *gc.get_threshold()[1:])
            # Deliberate: not at the top.  Executors do not need it, and each worker would take 50 ms to import it.
            from pyspark_kafka_group.query.query import Query
            from pyspark_kafka_group.query.second_source import SourceCheck

            prepare_source_process(self._interrupt, self.stop)
            check = SourceCheck(self._settings, self._created_at)
            self._query = Query(self._settings, check, patient=self.patient)
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
        from pyspark_kafka_group.reading.range_reader import ReadOptions

        settings, group = self._settings, self._settings.group
        options = ReadOptions(
            columns=settings.columns,
            fail_on_data_loss=group.start.fail_on_data_loss,
            timeout_s=settings.poll_timeout_s,
        )
        return read_task(
            partition.ranges, options, self._typed, self._where, properties=group.properties, reader_name=group.group_id
        )
