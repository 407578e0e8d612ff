"""The two writers of the sink: for a batch job and for a stream.  They translate Spark's calls.

Spark creates a writer for each batch in a planning process and pickles it for the tasks.  Then it calls ``commit`` or
``abort`` in a planning process; for a stream, on a new writer.  So writers contain only options.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.worker.costs import SentToWorkers, spare_modules
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions
from pyspark_kafka_group.writing.commit_decision import TaskMessage
from pyspark_kafka_group.writing.options import WriterSettings, parse_write_options
from pyspark_kafka_group.writing.record_rows import record_columns
from pyspark_kafka_group.writing.task import write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        from pyspark.sql.datasource import DataSourceStreamWriter

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """What Spark 4.0 lacks.  Its worker gives Arrow batches to each writer that is a DataSourceArrowWriter."""


class _Writer(SentToWorkers):
    """The common part of both writers."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._settings: WriterSettings = parse_write_options(options)
        self._columns = record_columns(schema, topic=self._settings.topic)
        if self._settings.exactly_once:
            BatchTransactions(self._settings, "")  # raises if our own connections do not support these properties
        spare_modules()  # Spark creates a writer in a worker, twice for each batch of a stream

    def _commit(self, messages: list[WriterCommitMessage | None], batch: int | None) -> None:
        mine = _of_sink(messages)
        if len(mine) < len(messages):
            # In continuous processing, rows never reach `write`, and Spark would ignore this.  It only logs this error,
            # but then it commits no epoch either (4.3.0).
            raise ConfigurationError(
                "The kafka-group sink does not support continuous processing, because Spark then gives a Python sink "
                "no rows. Use another trigger, such as .trigger(processingTime='1 second')."
            )
        if self._settings.exactly_once and mine:
            with BatchTransactions(self._settings, mine[0].name) as transactions:
                transactions.commit(mine, batch)

    def _abort(self, messages: list[WriterCommitMessage | None], job: str = "") -> None:
        mine = _of_sink(messages)
        name = job or (mine[0].name if mine else "")  # a stream's name is unknown here until a task has ended
        # Deliberate: not after all tasks have ended.  Then a commit has failed and has already aborted what it could.
        # Or another run of the query has taken over, whose transactions must stay.
        if self._settings.exactly_once and name and len(mine) < len(messages):
            with BatchTransactions(self._settings, name) as transactions:
                transactions.abort_all(stream=not job)


class KafkaGroupWriter(_Writer, DataSourceArrowWriter):
    """``df.write.format("kafka-group")``.

    Parameters
    ----------
    options : mapping of str to str
        The options of the write.
    schema : StructType
        The schema of the DataFrame.
    overwrite : bool
        Whether the save mode is overwrite, which Kafka does not support.

    Raises
    ------
    ConfigurationError
        If the options, the columns or the save mode are not supported.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "Save mode Overwrite not allowed for Kafka: a topic can only be appended to. Use .mode('append'). To "
                "delete old records, use kafka-delete-records.sh."
            )
        super().__init__(options, schema)
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; in an executor."""
        return write_rows(iterator, self._settings, self._columns, job=self._job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible, if they were written in transactions."""
        self._commit(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what was written in transactions."""
        self._abort(messages, self._job)


class KafkaGroupStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """``df.writeStream.format("kafka-group")``.

    Parameters
    ----------
    options : mapping of str to str
        The options of the write.
    schema : StructType
        The schema of the DataFrame.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; in an executor."""
        return write_rows(iterator, self._settings, self._columns, job=None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make all rows of a batch visible, if they were written in transactions."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort what was written in transactions."""
        del batchId
        self._abort(messages)


def _of_sink(messages: list[WriterCommitMessage | None]) -> list[TaskMessage]:
    """Return the messages of the tasks that have succeeded."""
    return [message for message in messages if isinstance(message, TaskMessage)]
