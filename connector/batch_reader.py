"""The batch reader: what Spark calls for ``spark.read``, translated and nothing more.

The planning process makes it, asks for ``partitions`` once, at the first action of a DataFrame, and pickles it;
executors call ``read`` at every action.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_kafka_group.batch.tasks import BatchTask
from pyspark_kafka_group.options.batch_settings import BatchSettings
from pyspark_kafka_group.query.process import log_to_stderr, require_confluent_kafka
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.wire.loopback import AcknowledgedOnArrival

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.formats.typed_reading import TypedReading


@dataclass
class BatchPartition(InputPartition):
    """What one task reads."""

    task: BatchTask


# Deliberate: no pushFilters.  Spark 4.3 keeps what a reader plans under one filter for every other query of the same
# DataFrame, so one that left out what the filter does not want would lose rows of the others: see the
# scenario `filters` of integration/batch_parity.py.
class KafkaGroupBatchReader(AcknowledgedOnArrival, DataSourceReader):
    """One DataFrame.

    Parameters
    ----------
    settings : BatchSettings
        The parsed options.
    typed : TypedReading or None
        How keys and values are decoded; None if they stay bytes.
    """

    def __init__(self, settings: BatchSettings, typed: TypedReading | None = None) -> None:
        self._settings = settings
        self._typed = typed

    def partitions(self) -> list[InputPartition]:
        """Find out what there is to read, and which task reads what.

        Raises
        ------
        KafkaGroupError
            If it cannot be read.
        """
        # Deliberate: not at the top.  Executors have no use for some of it.
        from pyspark_kafka_group.batch.planning import open_lookup, plan

        require_confluent_kafka()
        log_to_stderr()
        self._settings.warn_of_ignored_options()
        with closing(open_lookup(self._settings)) as lookup:
            return [BatchPartition(task) for task in plan(self._settings, lookup)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what the task is to read, up to where logs end now."""
        assert isinstance(partition, BatchPartition)
        # Deliberate: not at the top.  Only executors have a use for it.
        from pyspark_kafka_group.batch.planning import ranges_now
        from pyspark_kafka_group.reading.read_ranges import read_ranges

        require_confluent_kafka()
        settings, typed = self._settings, self._typed
        options = ReadOptions(
            columns=settings.columns if typed is None else typed.columns,
            fail_on_data_loss=settings.fail_on_data_loss,
            timeout_s=settings.poll_timeout_s,
        )
        config = reader_config(settings.properties, settings.reader_name)
        batches = read_ranges(config, ranges_now(settings, partition.task), options)
        if typed is None:
            return batches
        from pyspark_kafka_group.formats.typed_reading import decoded

        return decoded(batches, typed, settings.properties, settings.reader_name)
