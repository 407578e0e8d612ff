"""The task of the sink: writes its rows and returns when Kafka has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from pyspark_kafka_group.offsets.errors import OptionError, SinkTransactionError
from pyspark_kafka_group.worker.jvm_connection import jvm_is_gone
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions
from pyspark_kafka_group.writing.commit_decision import MOST_TOPICS, TaskMessage, Transaction
from pyspark_kafka_group.writing.options import WriterSettings
from pyspark_kafka_group.writing.producer import SinkProducer
from pyspark_kafka_group.writing.producer_cache import lease, open_producer
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import RecordColumns, Rows, record_rows
from pyspark_kafka_group.writing.row_digest import NO_ROWS, digest_of, total

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

# Names of local properties of a Spark task (StreamExecution, MicroBatchExecution).
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


def write_rows(
    batches: Iterator[pa.RecordBatch], settings: WriterSettings, columns: RecordColumns, *, job: str | None
) -> TaskMessage:
    """Write the rows of a task.

    Parameters
    ----------
    batches : iterator of pa.RecordBatch
        The rows.
    settings : WriterSettings
        The parsed options.
    columns : RecordColumns
        The positions of the columns.
    job : str or None
        The id of a batch job; None for a stream.

    Raises
    ------
    KafkaGroupError
        If a row could not be written.
    """
    if settings.exactly_once:
        return _write_in_transaction(batches, settings, columns, _task(), job)
    rows = _Rows(batches, settings, columns, digested=False)
    first = next(rows, None)
    if first is None:  # an empty task opens no connection
        return TaskMessage(rows=0)
    with lease(producer_config(settings.properties)) as producer:
        _send(first, rows, producer)
        return TaskMessage(rows.count)


def _write_in_transaction(
    batches: Iterator[pa.RecordBatch],
    settings: WriterSettings,
    columns: RecordColumns,
    task: TaskContext,
    job: str | None,
) -> TaskMessage:
    name, batch = (job, None) if job is not None else _batch_of(task)
    number = task.partitionId()
    with BatchTransactions(settings, name) as transactions:
        # Deliberate: also without rows.  If one task finds the batch decided, all tasks must.
        decided = batch is not None and transactions.was_decided(batch)
        rows = _Rows(batches, settings, columns, digested=batch is not None)
        if decided:
            # Deliberate: read all rows.  The driver compares their digest.  And Spark continues to send them: it may
            # believe that a worker has crashed if it ends before them (PythonRunner's ReaderInputStream).
            for _ in rows:
                pass
            return TaskMessage(rows=0, name=name, decided=True, digest=rows.digest)
        first = next(rows, None)
        if first is None:
            return TaskMessage(rows=0, name=name)
        slot, epoch = transactions.free_slot(number, task.attemptNumber())
        config = producer_config(settings.properties)
        producer = open_producer({**config, "transactional.id": transactions.transactional_id(number, slot)})
        transaction = None
        try:
            try:
                begun = producer.begin_transaction()
                transaction = Transaction(number, slot, *begun) if begun else transactions.opened(number, slot)
                _send(first, rows, producer)
            finally:
                producer.close()  # the transaction stays open
            _check_jvm()
        except BaseException:
            # Deliberate: after the close.  On brokers that do not check this (before Kafka 3.6 and KIP-890), records
            # that arrive after the abort would stay in an open transaction for ever.
            # Deliberate: only the next epoch.  With another one, this may be the transaction of another attempt, which
            # has taken over the id and would lose rows.
            if transaction is not None and transaction.epoch == epoch + 1:
                transactions.abort([transaction])
            raise
        topics = tuple(sorted(rows.topics)[:MOST_TOPICS])
        return TaskMessage(rows.count, name, topics, transaction, digest=rows.digest)


class _Rows:
    """The rows of a task, batch by batch, with the count, the topics and the digest of those already returned.

    Parameters
    ----------
    batches : iterator of pa.RecordBatch
        The batches from Spark.
    settings : WriterSettings
        The parsed options.
    columns : RecordColumns
        The positions of the columns.
    digested : bool
        Whether to compute a digest.
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], settings: WriterSettings, columns: RecordColumns, *, digested: bool
    ) -> None:
        self._batches = (batch for batch in batches if batch.num_rows)
        self._settings, self._columns, self._digested = settings, columns, digested
        self.count, self.topics, self.digest = 0, set[str](), NO_ROWS

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Rows:
        found = record_rows(next(self._batches), self._columns, self._settings.topic)
        self.count += found.count
        self.topics.update(found.topics)
        if self._digested:
            self.digest = total((self.digest, digest_of(found)))
        return found


def _send(first: Rows, others: Iterator[Rows], producer: SinkProducer) -> None:
    """Write rows, and wait until Kafka has all of them."""
    rows: Rows | None = first
    while rows is not None:
        producer.send(rows)
        rows = next(others, None)
    producer.flush()


def _check_jvm() -> None:
    if jvm_is_gone():  # the driver would not learn of the transaction
        raise SinkTransactionError("Spark has ended this task, perhaps before its last row.")


def _batch_of(task: TaskContext) -> tuple[str, int]:
    """Return the id of the query, which survives a restart, and the number of the batch."""
    query_id, batch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
    if not query_id or not batch_id:
        raise SinkTransactionError(
            f"This Spark does not pass the ids of query and batch to tasks ({_QUERY_ID}, {_BATCH_ID}), but "
            f"delivery=exactly-once needs them. Use delivery=at-least-once."
        )
    return query_id, int(batch_id)


def _task() -> TaskContext:
    from pyspark import TaskContext

    found = TaskContext.get()
    if found is None:
        raise OptionError(
            "delivery",
            "it is exactly-once, and this engine (Sail is one) gives tasks no numbers. By them the sink knows a task "
            "that runs again.",
            "Write at-least-once.",
        )
    return found
