"""The work of one Spark task: writes the new rows of its partitions and their offsets, in one transaction.

Runs in executors' Python.  All rows of a Kafka partition in a batch come to one task (`offset_table` does this).  So
one offset is enough to know which of them were written.  They come in the order of partition and offset.  So all
writers lock in the same order, without deadlocks, and a task needs no buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.session.running_batch import RunningBatch
from pyspark_kafka_group.stores.database import Database
from pyspark_kafka_group.stores.errors import (
    LateRowsError,
    RefusedRecordError,
    TaskEndedError,
    TransactionEndedError,
    refusal,
)
from pyspark_kafka_group.stores.offset_rows import OffsetRows
from pyspark_kafka_group.worker.jvm_connection import jvm_is_gone

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

REPORT_SCHEMA = "topic STRING, partition INT, stored LONG, next_offset LONG, written LONG, filtered LONG, refused LONG"
"""The schema of a task's report to the driver, with the fields of :class:`PartitionWrite`."""

WriteRows = Callable[["sa.Connection", "pa.RecordBatch"], None]
"""Writes rows through a connection, in its open transaction.  Runs in executors.  Must not commit."""

ERROR_COLUMN = "error"
"""The column with the reason why the target refuses a row, for the function that sets it aside."""

_SAVEPOINT = "kafka_rows"

# The errors of PostgreSQL and SQLite for a missing savepoint, because the transaction is another one.
_NO_SAVEPOINT = "3B001"
_SQLITE_NO_SAVEPOINT = "no such savepoint"


class PartitionWrite(NamedTuple):
    """The result of one partition's rows of one batch.

    Attributes
    ----------
    topic, partition : str, int
        The Kafka partition.
    stored : int
        The stored offset before the write.  Rows of records below it were skipped.
    next_offset : int
        The stored offset after the write.
    written : int
        The number of written rows.
    filtered : int
        The number of skipped rows, which were already in the database.
    refused : int
        The number of rows that the target refused, and that were set aside.
    """

    topic: str
    partition: int
    stored: int
    next_offset: int
    written: int
    filtered: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The common input of all tasks of a batch.  Sent to executors.

    Attributes
    ----------
    offset_rows : OffsetRows
        The offset table.
    write_rows : callable
        The user's function.
    refused : callable or None
        The user's function for rows that the target refuses.
    batch : RunningBatch or None
        The ranges of the batch, for ``kafka-group`` sources.
    seen : mapping of TopicPartition to Offset
        The stored offsets after the last batch, for partitions of other sources.
    """

    offset_rows: OffsetRows
    write_rows: WriteRows
    refused: WriteRows | None = None
    batch: RunningBatch | None = None
    seen: Mapping[TopicPartition, Offset] = field(default_factory=dict)

    def expected(self, tp: TopicPartition) -> ReadRange | None:
        """Return the range with which to compare the stored offset of a partition; None if unknown."""
        planned = None if self.batch is None else self.batch.ranges.get(tp)
        if planned is None and tp in self.seen:
            return ReadRange(Offset(0), Offset(0), finished=self.seen[tp], begun=True)
        return planned


@dataclass(slots=True)
class _LockedPartition:
    planned: ReadRange | None
    stored: Offset
    next_offset: Offset
    written: int = 0
    filtered: int = 0
    refused: int = 0


@dataclass(slots=True)
class TaskWrites:
    """The writes of one task in one transaction, which the caller has begun and commits.

    Parameters
    ----------
    connection : sqlalchemy.Connection
        A connection in a transaction.
    work : Work
        The input of the task.
    """

    connection: sa.Connection
    work: Work
    _partitions: dict[TopicPartition, _LockedPartition] = field(default_factory=dict)

    def add(self, rows: pa.RecordBatch) -> None:
        """Write the new ones of these rows.

        Raises
        ------
        LateRowsError
            If the record of a row is not in the ranges of the batch.
        RefusedRecordError
            If the target refuses the rows of a record, and there is no function to set them aside.
        """
        for tp, run in partition_runs(rows):
            partition = self._partitions.get(tp) or self._locked(tp)
            if self.work.batch is not None:
                _check_late(tp, run, partition.planned, self.work.batch)
            new = from_offset(run, partition.stored)
            partition.filtered += run.num_rows - new.num_rows
            if new.num_rows:
                refused = self._write(tp, new)
                partition.refused += refused
                partition.written += new.num_rows - refused
                partition.next_offset = max(partition.next_offset, _end(new))

    def raise_rest(self, planned: Iterable[TopicPartition]) -> None:
        """Lock the partitions of the batch without rows, all at once: there may be thousands."""
        expected = {tp: self.work.expected(tp) for tp in planned}
        for tp, stored in self.work.offset_rows.lock_all(self.connection, expected).items():
            self._partitions[tp] = _LockedPartition(expected[tp], stored, stored)

    def finish(self) -> list[PartitionWrite]:
        """Raise the stored offsets.  Call this once, before the commit."""
        raised = {}
        for tp, p in self._partitions.items():
            if p.planned is not None:
                # Deliberate: the end of the range, not the last row.  Records that the query filters out are also done
                # (`test_a_batch_without_rows_raises_the_table`).
                p.next_offset = max(p.next_offset, p.planned.until)
            if p.next_offset > p.stored:
                raised[tp] = p.next_offset, p.planned
        self.work.offset_rows.store_all(self.connection, raised)
        return [
            PartitionWrite(*tp, p.stored, p.next_offset, p.written, p.filtered, p.refused)
            for tp, p in self._partitions.items()
        ]

    def _locked(self, tp: TopicPartition) -> _LockedPartition:
        planned = None if self.work.batch is None else self.work.batch.ranges.get(tp)
        if planned is None and self.work.batch is not None and not self.work.batch.may_be_of_others(tp):
            return _LockedPartition(None, Offset(0), Offset(0))  # its rows are late, which is an error
        stored = self.work.offset_rows.lock(self.connection, tp, self.work.expected(tp))
        self._partitions[tp] = found = _LockedPartition(planned, stored, stored)
        return found

    def _write(self, tp: TopicPartition, rows: pa.RecordBatch) -> int:
        """Write rows of one partition; return how many were set aside.

        If the target refuses them, try each half, down to the rows of one record.
        """
        try:
            with self._savepoint():
                self.work.write_rows(self.connection, rows)
        except Exception as e:
            problem = refusal(e)
            if problem is None:
                raise
        else:
            return 0
        middle = _middle(rows)
        if middle is not None:
            return self._write(tp, rows.slice(0, middle)) + self._write(tp, rows.slice(middle))
        offset = rows.column("offset")[0].as_py()
        if self.work.refused is None:
            raise RefusedRecordError.of(tp, offset, problem)
        try:
            with self._savepoint():
                self.work.refused(self.connection, _with_error(rows, problem))
        except Exception as e:
            again = refusal(e)
            if again is None:
                raise
            raise RefusedRecordError.of(tp, offset, f"{problem}; the function refused= also fails: {again}") from None
        return int(rows.num_rows)

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        """Undo the writes of the user's function if it fails, and detect if it has ended the transaction.

        Raises
        ------
        TransactionEndedError
            If the function has committed or rolled back.
        """
        self.connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
        try:
            yield
        except Exception as e:
            if refusal(e) is not None:
                self._end_savepoint(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
                self._end_savepoint(f"RELEASE SAVEPOINT {_SAVEPOINT}")
            raise
        self._end_savepoint(f"RELEASE SAVEPOINT {_SAVEPOINT}")

    def _end_savepoint(self, statement: str) -> None:
        import sqlalchemy as sa

        try:
            self.connection.exec_driver_sql(statement)
        except sa.exc.DBAPIError as e:
            if getattr(e.orig, "sqlstate", None) != _NO_SAVEPOINT and _SQLITE_NO_SAVEPOINT not in str(e.orig):
                raise
            raise TransactionEndedError(
                "OffsetTable: the function that writes rows has committed or rolled back the transaction, perhaps "
                "through the driver's connection. Rows and offsets would no longer match, so the batch ends here. Rows "
                "that the function has committed will be written again in the next attempt. The function must do "
                "neither. To skip rows that the target refuses, pass refused=... to write(), or use "
                "connection.begin_nested()."
            ) from e


def write_task(database: Database, work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all rows of a Spark task, and yield one report after the commit.

    Raises
    ------
    PartitionsLockedError
        If another writer of the same partitions does not end in time.
    TaskEndedError
        If Spark has killed the task.
    """
    pieces = whole_records(rows for rows in to_the_end(batches) if rows.num_rows)
    first = next(pieces, None)
    if first is None:
        return  # an empty task opens no connection
    with database.transaction() as connection:
        writes = TaskWrites(connection, work)
        writes.add(first)
        for rows in pieces:
            writes.add(rows)
        report = writes.finish()
    yield _report(report)


def warm_up_task(database: Database, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Prepare this worker for `write_task`: import the modules, and open a transaction that writes nothing."""
    for _ in batches:  # Spark may take a worker for dead that leaves out rows
        pass
    with database.transaction():
        yield from ()


def raise_rest(database: Database, work: Work, written: Iterable[PartitionWrite]) -> list[PartitionWrite]:
    """Raise the offsets of the batch's partitions without rows.  Runs in the driver after all tasks."""
    if work.batch is None:
        return []
    done = {TopicPartition(write.topic, write.partition) for write in written}
    rest = sorted(work.batch.ranges.keys() - done)
    if not rest:
        return []
    with database.transaction() as connection:
        writes = TaskWrites(connection, work)
        writes.raise_rest(rest)
        return writes.finish()


def to_the_end(
    batches: Iterable[pa.RecordBatch], jvm_is_gone: Callable[[], bool] = jvm_is_gone
) -> Iterator[pa.RecordBatch]:
    """Yield all batches of a task; raise if they only seem to end, because Spark has killed the task.

    Otherwise the task would commit the end of each range, and no attempt would write the rows that are missing.
    """
    yield from batches
    if jvm_is_gone():
        raise TaskEndedError(
            "OffsetTable: Spark has ended this task, perhaps before its last row. Nothing was written."
        )


def whole_records(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Move rows to the piece before, so that all rows of a record are in one piece."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for rows in pieces:
        same = 0
        if held:
            last = _record(held[0], -1)
            same = next((row for row in range(rows.num_rows) if _record(rows, row) != last), rows.num_rows)
            if same:
                held.append(rows.slice(0, same))
            if same == rows.num_rows:
                continue
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
        held = [rows.slice(same)]
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def partition_runs(rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Split rows by partition.

    Raises
    ------
    ConfigurationError
        If a row does not name its record.
    """
    import pyarrow.compute as pc

    topics, partitions, offsets = (rows.column(name) for name in ("topic", "partition", "offset"))
    if topics.null_count or partitions.null_count or offsets.null_count:
        raise ConfigurationError(
            "OffsetTable: some rows have no topic, partition or offset, so it is unknown whether they were written. "
            "Each row needs those of its record. For example, an outer join makes rows without them."
        )
    before, after = slice(None, -1), slice(1, None)
    changes = pc.or_(pc.not_equal(topics[before], topics[after]), pc.not_equal(partitions[before], partitions[after]))
    cuts = [0, *(i + 1 for i in pc.indices_nonzero(changes).to_pylist()), rows.num_rows]
    for start, until in pairwise(cuts):
        yield TopicPartition(topics[start].as_py(), partitions[start].as_py()), rows.slice(start, until - start)


def from_offset(rows: pa.RecordBatch, stored: Offset) -> pa.RecordBatch:
    """Return the rows of one partition whose records are at ``stored`` or later."""
    import pyarrow.compute as pc

    return rows.filter(pc.greater_equal(rows.column("offset"), stored))


def _check_late(tp: TopicPartition, rows: pa.RecordBatch, planned: ReadRange | None, batch: RunningBatch) -> None:
    import pyarrow.compute as pc

    if planned is None:
        if not batch.may_be_of_others(tp):
            raise LateRowsError.of(tp, rows.column("offset")[0].as_py(), None)
        return
    found = pc.min_max(rows.column("offset")).as_py()
    for offset in (found["min"], found["max"]):
        if not planned.start <= offset < planned.until:
            raise LateRowsError.of(tp, offset, planned)


def _record(rows: pa.RecordBatch, row: int) -> tuple[object, ...]:
    return tuple(rows.column(name)[row].as_py() for name in ("topic", "partition", "offset"))


def _middle(rows: pa.RecordBatch) -> int | None:
    """Return where to split rows so that the rows of each record stay together; None if there is only one record."""
    import pyarrow.compute as pc

    offsets = rows.column("offset")
    cuts = [i + 1 for i in pc.indices_nonzero(pc.not_equal(offsets[:-1], offsets[1:])).to_pylist()]
    return cuts[len(cuts) // 2] if cuts else None


def _with_error(rows: pa.RecordBatch, problem: str) -> pa.RecordBatch:
    import pyarrow as pa

    kept = [name for name in rows.schema.names if name != ERROR_COLUMN]
    return rows.select(kept).append_column(ERROR_COLUMN, pa.array([problem] * rows.num_rows, pa.string()))


def _end(rows: pa.RecordBatch) -> Offset:
    import pyarrow.compute as pc

    return Offset(pc.max(rows.column("offset")).as_py() + 1)


def _report(writes: list[PartitionWrite]) -> pa.RecordBatch:
    import pyarrow as pa

    types = {"topic": pa.string(), "partition": pa.int32()}
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in PartitionWrite._fields])
    return pa.RecordBatch.from_pylist([write._asdict() for write in writes], schema)
