"""What a task does: it writes its rows, and returns when Kafka has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.errors import SinkTransactionError
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions, TaskMessage
from pyspark_kafka_group.writing.columns import RecordColumns
from pyspark_kafka_group.writing.decisions import sink_transactional_id
from pyspark_kafka_group.writing.native_producer import open_producer
from pyspark_kafka_group.writing.options import WriterSettings
from pyspark_kafka_group.writing.producer import SinkProducer
from pyspark_kafka_group.writing.producer_cache import lease
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import record_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

# What Spark's local properties of a task are called (StreamExecution, MicroBatchExecution).
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_SPECULATION = "spark.speculation"


def write_rows(
    batches: Iterator[pa.RecordBatch], settings: WriterSettings, columns: RecordColumns, *, job: str | None
) -> TaskMessage:
    """Write the rows of a task.

    Parameters
    ----------
    batches : iterator of pa.RecordBatch
        The rows.
    settings : WriterSettings
        The options.
    columns : RecordColumns
        Which columns are which.
    job : str or None
        Names a batch job; None for a stream.

    Raises
    ------
    KafkaGroupError
        A row could not be written.
    """
    if settings.exactly_once:
        return _write_in_transaction(batches, settings, columns, _task(), job)
    batches = (batch for batch in batches if batch.num_rows)
    first = next(batches, None)
    if first is None:  # of an empty task no connection is made
        return TaskMessage(rows=0)
    with lease(producer_config(settings.properties)) as producer:
        rows, _ = _send(first, batches, settings, columns, producer)
        return TaskMessage(rows=rows)


def _write_in_transaction(
    batches: Iterator[pa.RecordBatch],
    settings: WriterSettings,
    columns: RecordColumns,
    task: TaskContext,
    job: str | None,
) -> TaskMessage:
    name, batch = (job, None) if job is not None else _batch_of(task)
    number, attempt = task.partitionId(), task.attemptNumber()
    with BatchTransactions(settings, name) as transactions:
        # Deliberate: also with no rows.  Where one task finds the batch decided, all do.
        if batch is not None and transactions.was_decided(batch):
            # Deliberate: read.  Spark goes on sending rows, and may take a worker that has ended before them for one
            # that has crashed (PythonRunner's ReaderInputStream).
            for _ in batches:
                pass
            return TaskMessage(rows=0, name=name, decided=True)
        batches = (one for one in batches if one.num_rows)
        first = next(batches, None)
        if first is None:
            return TaskMessage(rows=0, name=name)
        config = producer_config(settings.properties)
        producer = open_producer({**config, "transactional.id": sink_transactional_id(name, number, attempt)})
        transaction = None
        try:
            try:
                producer.begin_transaction()
                transaction = transactions.opened(number, attempt)
                rows, topic = _send(first, batches, settings, columns, producer)
            finally:
                producer.close()  # the transaction stays open
        except BaseException:
            # Deliberate: behind the close.  Records that come after the abort would stay open for ever, on brokers
            # that do not check them (before Kafka 3.6 and KIP-890).
            if transaction is not None:
                transactions.abort([transaction])
            raise
        speculative = task.getLocalProperty(_SPECULATION) == "true"
        return TaskMessage(rows, name, topic, transaction, speculative=speculative)


def _send(
    first: pa.RecordBatch,
    others: Iterator[pa.RecordBatch],
    settings: WriterSettings,
    columns: RecordColumns,
    producer: SinkProducer,
) -> tuple[int, str]:
    """Write rows; returns how many, and one of their topics, when Kafka has them all."""
    count, topic = 0, ""
    batch: pa.RecordBatch | None = first
    while batch is not None:
        rows = record_rows(batch, columns, settings.topic)
        producer.send(rows)
        count, topic = count + rows.count, rows.topics[0]
        batch = next(others, None)
    producer.flush()
    return count, topic


def _batch_of(task: TaskContext) -> tuple[str, int]:
    """Return the id of the query, which survives a restart, and the number of the batch."""
    query_id, batch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
    if not query_id or not batch_id:
        raise SinkTransactionError(
            f"This Spark does not tell tasks which query and batch they belong to ({_QUERY_ID}, {_BATCH_ID}), and "
            f"delivery=exactly-once needs that. Use delivery=at-least-once."
        )
    return query_id, int(batch_id)


def _task() -> TaskContext:
    from pyspark import TaskContext

    found = TaskContext.get()
    assert found is not None, "outside of a task"
    return found
