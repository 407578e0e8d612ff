"""The batch reader: translates Spark's calls for ``spark.read``.

The planning process creates it, asks for ``partitions`` and pickles it.  Executors call ``read`` for every action.

Spark 4.3 plans a ``load()`` once, at the first action, and keeps the plan for every later query of it
(``PythonDataSourceV2.getOrCreateReadInfo``).  So the plan decides what a task reads, and a repeated task reads the same
ranges.  Spark may ask for the plan twice at the same time.  :mod:`.batch.shared_plan` gives both the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_kafka_group.offsets.task_ranges import Task
from pyspark_kafka_group.options.batch_settings import BatchSettings
from pyspark_kafka_group.query.process import log_to_stderr, require_confluent_kafka
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.worker.costs import SentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.formats.batches import TypedReading
    from pyspark_kafka_group.where.filtering import RowFilter


@dataclass
class BatchPartition(InputPartition):
    """The ranges of one task."""

    ranges: Task


# Deliberate: no pushFilters.  Spark 4.3 uses the plan that a reader made under one filter for every other query of the
# same DataFrame.  A reader that left out the filtered rows would lose rows of the other queries: see the scenario
# `filters` of integration/test_parity_batch.py.
class KafkaGroupBatchReader(SentToWorkers, DataSourceReader):
    """The batch reader of one DataFrame.

    Parameters
    ----------
    settings : BatchSettings
        The parsed options.
    typed : TypedReading or None
        How keys and values are decoded; None if they stay bytes.
    where : RowFilter or None
        Which records become rows; None for all.
    load : str
        The id of the ``load()``.
    """

    def __init__(
        self, settings: BatchSettings, typed: TypedReading | None, where: RowFilter | None = None, *, load: str
    ) -> None:
        self._settings = settings
        self._typed = typed
        self._where = where
        self._load = load

    def partitions(self) -> list[InputPartition]:
        """Find the ranges to read and return the tasks.

        Raises
        ------
        KafkaGroupError
            If the ranges cannot be found or read.
        """
        # Deliberate: not at the top.  Executors do not need all of it.
        from pyspark_kafka_group.batch.planning import open_lookup, plan
        from pyspark_kafka_group.batch.shared_plan import shared_plan

        require_confluent_kafka()
        log_to_stderr()
        self._settings.warn_of_ignored_options()

        def tasks() -> list[Task]:
            with closing(open_lookup(self._settings)) as lookup:
                return plan(self._settings, lookup)

        return [BatchPartition(ranges) for ranges in shared_plan(self._load, tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task."""
        assert isinstance(partition, BatchPartition)
        # Deliberate: not at the top.  Only executors need it.
        from pyspark_kafka_group.read_task import read_task

        settings = self._settings
        options = ReadOptions(
            columns=settings.columns, fail_on_data_loss=settings.fail_on_data_loss, timeout_s=settings.poll_timeout_s
        )
        return read_task(
            partition.ranges,
            options,
            self._typed,
            self._where,
            properties=settings.properties,
            reader_name=settings.reader_name,
        )
