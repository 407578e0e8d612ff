"""What one Spark task does: its partitions' new rows and their offsets, in one transaction.  In executors' Python.

All rows of a Kafka partition in a batch must come to one task (`offset_table` sees to that): only then does one offset
tell which of them were written.  They come in the order of partition and offset, so every writer locks in the same
order, no two wait for each other, and nothing has to be collected before it is written.
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
from pyspark_kafka_group.stores.errors import LateRowsError, RefusedRecordError, TransactionEndedError, refusal
from pyspark_kafka_group.stores.offset_rows import OffsetRows

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

REPORT_SCHEMA = "topic STRING, partition INT, stored LONG, next_offset LONG, written LONG, filtered LONG, refused LONG"
"""What a task reports to the driver, as Spark writes schemas; the fields of :class:`PartitionWrite`."""

WriteRows = Callable[["sa.Connection", "pa.RecordBatch"], None]
"""Writes rows through a connection, in the transaction that is open.  Runs in executors; must not commit."""

ERROR_COLUMN = "error"
"""Why the target does not take a row, for the function that sets it aside."""

_SAVEPOINT = "kafka_rows"

# What PostgreSQL and SQLite say of a savepoint that is gone, because the transaction is another one.
_NO_SAVEPOINT = "3B001"
_SQLITE_NO_SAVEPOINT = "no such savepoint"


class PartitionWrite(NamedTuple):
    """What became of one partition's rows of one batch.

    Attributes
    ----------
    topic, partition : str, int
        The Kafka partition.
    stored : int
        Its offset in the table before: rows of records below it were left out.
    next_offset : int
        Its offset in the table afterwards.
    written, filtered, refused : int
        How many rows were written, were left out because they were there, and were set aside because the target does
        not take them.
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
    """What all tasks of a batch have in common; travels to executors.

    Attributes
    ----------
    offset_rows : OffsetRows
        The offset table.
    write_rows : callable
        The user's write.
    refused : callable or None
        The user's write for rows that the target does not take.
    batch : RunningBatch or None
        What the batch reads, if it is of ``kafka-group`` sources.
    seen : mapping of TopicPartition to Offset
        Where the table stood after the last batch, of partitions of other sources.
    """

    offset_rows: OffsetRows
    write_rows: WriteRows
    refused: WriteRows | None = None
    batch: RunningBatch | None = None
    seen: Mapping[TopicPartition, Offset] = field(default_factory=dict)

    def expected(self, tp: TopicPartition) -> ReadRange | None:
        """Return what the table must have of a partition; None if nothing tells."""
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
        In a transaction.
    work : Work
        What to do.
    """

    connection: sa.Connection
    work: Work
    _partitions: dict[TopicPartition, _LockedPartition] = field(default_factory=dict)

    def add(self, rows: pa.RecordBatch) -> None:
        """Write what is new of these rows.

        Raises
        ------
        LateRowsError
            If a row is not of a record that the batch reads.
        RefusedRecordError
            If the target does not take the rows of a record, and there is no function to set them aside.
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
        """Take note of partitions that the batch reads and has no row of."""
        for tp in planned:
            self._locked(tp)

    def finish(self) -> list[PartitionWrite]:
        """Raise the offsets of what was written; call it once, before the commit."""
        for tp, p in self._partitions.items():
            topic_id = None
            if p.planned is not None:
                # Deliberate: the end of the range, not the last row.  Records that the query left out are done, too
                # (`test_a_batch_without_rows_raises_the_table`).
                p.next_offset = max(p.next_offset, p.planned.until)
                topic_id = p.planned.topic_id
            if p.next_offset > p.stored:
                self.work.offset_rows.store(self.connection, tp, p.next_offset, topic_id)
        return [
            PartitionWrite(*tp, p.stored, p.next_offset, p.written, p.filtered, p.refused)
            for tp, p in self._partitions.items()
        ]

    def _locked(self, tp: TopicPartition) -> _LockedPartition:
        planned = None if self.work.batch is None else self.work.batch.ranges.get(tp)
        if planned is None and self.work.batch is not None and not self.work.batch.may_be_of_others(tp):
            return _LockedPartition(None, Offset(0), Offset(0))  # its rows are late, and refused
        stored = self.work.offset_rows.lock(self.connection, tp, self.work.expected(tp))
        self._partitions[tp] = found = _LockedPartition(planned, stored, stored)
        return found

    def _write(self, tp: TopicPartition, rows: pa.RecordBatch) -> int:
        """Write rows of one partition; return how many were set aside.

        If the target does not take them, the half of them is tried, until it is the rows of one record.
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
            raise RefusedRecordError.of(tp, offset, f"{problem}; and refused= cannot write it: {again}") from None
        return int(rows.num_rows)

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        """Undo what the user's function has done if it fails, and notice if it has ended the transaction.

        Raises
        ------
        TransactionEndedError
            If it has committed or rolled back.
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
                "OffsetTable: the function that writes rows has committed or rolled back the transaction, through the "
                "driver's connection perhaps. Rows and offsets would not belong together any more, so the batch ends "
                "here; what the function has committed is written, and is written again with the next attempt. Let it "
                "do neither. To skip rows that the target does not take, give write() refused=..., or use "
                "connection.begin_nested()."
            ) from e


def write_task(database: Database, work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all rows of a Spark task; yield one report, after the commit.

    Raises
    ------
    PartitionsLockedError
        If another writer of the same partitions does not end in time.
    """
    filled = (rows for rows in batches if rows.num_rows)
    first = next(filled, None)
    if first is None:
        return  # no connection for nothing
    with database.transaction() as connection:
        writes = TaskWrites(connection, work)
        writes.add(first)
        for rows in filled:
            writes.add(rows)
        report = writes.finish()
    yield _report(report)


def raise_rest(database: Database, work: Work, written: Iterable[PartitionWrite]) -> list[PartitionWrite]:
    """Raise the offsets of the partitions that the batch reads and has no row of; in the driver, after all tasks."""
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


def partition_runs(rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Cut rows where the partition changes.

    Raises
    ------
    ConfigurationError
        If a row does not say which record it comes from.
    """
    import pyarrow.compute as pc

    topics, partitions, offsets = (rows.column(name) for name in ("topic", "partition", "offset"))
    if topics.null_count or partitions.null_count or offsets.null_count:
        raise ConfigurationError(
            "OffsetTable: rows without topic, partition or offset, so it cannot be told whether they were written. "
            "Each row needs those of the record that it comes from; an outer join, for one, makes rows without."
        )
    before, after = slice(None, -1), slice(1, None)
    changes = pc.or_(pc.not_equal(topics[before], topics[after]), pc.not_equal(partitions[before], partitions[after]))
    cuts = [0, *(i + 1 for i in pc.indices_nonzero(changes).to_pylist()), rows.num_rows]
    for start, until in pairwise(cuts):
        yield TopicPartition(topics[start].as_py(), partitions[start].as_py()), rows.slice(start, until - start)


def from_offset(rows: pa.RecordBatch, stored: Offset) -> pa.RecordBatch:
    """Return the rows of one partition that come from records at ``stored`` or behind it."""
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


def _middle(rows: pa.RecordBatch) -> int | None:
    """Return where to cut rows in two so that each record stays whole; None if there is only one."""
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
