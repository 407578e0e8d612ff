"""What one Spark task does: its partitions' new rows and their offsets, in one transaction.  In executors' Python.

All rows of a Kafka partition in a batch must come to one task (`offset_table` sees to that): only then does one offset
tell which of them were written.  They come in the order of partition and offset, so every writer locks in the same
order, no two wait for each other, and nothing has to be collected before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.stores.database import Database
from pyspark_kafka_group.stores.offset_rows import OffsetRows

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa

REPORT_SCHEMA = "topic STRING, partition INT, stored LONG, next_offset LONG, written LONG, filtered LONG"
"""What a task reports to the driver, as Spark writes schemas; the fields of :class:`PartitionWrite`."""

WriteRows = Callable[["sa.Connection", "pa.RecordBatch"], None]
"""Writes rows through a connection, in the transaction that is open.  Runs in executors; must not commit."""


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
    written, filtered : int
        How many rows were written, and left out because they were there.
    """

    topic: str
    partition: int
    stored: int
    next_offset: int
    written: int
    filtered: int


@dataclass(slots=True)
class _Partition:
    stored: Offset
    next_offset: Offset
    written: int = 0
    filtered: int = 0


@dataclass(slots=True)
class TaskWrites:
    """The writes of one task in one transaction, which the caller has begun and commits.

    Parameters
    ----------
    connection : sqlalchemy.Connection
        In a transaction.
    offset_rows : OffsetRows
        The offset table.
    write_rows : callable
        The user's write.
    """

    connection: sa.Connection
    offset_rows: OffsetRows
    write_rows: WriteRows
    _partitions: dict[TopicPartition, _Partition] = field(default_factory=dict)

    def add(self, rows: pa.RecordBatch) -> None:
        """Write what is new of these rows."""
        for tp, run in partition_runs(rows):
            partition = self._partitions.get(tp)
            if partition is None:
                stored = self.offset_rows.lock(self.connection, tp)
                partition = self._partitions[tp] = _Partition(stored, stored)
            new = from_offset(run, partition.stored)
            partition.filtered += run.num_rows - new.num_rows
            if new.num_rows:
                self.write_rows(self.connection, new)
                partition.written += new.num_rows
                partition.next_offset = max(partition.next_offset, _end(new))

    def finish(self) -> list[PartitionWrite]:
        """Raise the offsets of what was written; call it once, before the commit."""
        for tp, partition in self._partitions.items():
            if partition.next_offset > partition.stored:
                self.offset_rows.store(self.connection, tp, partition.next_offset)
        return [
            PartitionWrite(*tp, p.stored, p.next_offset, p.written, p.filtered) for tp, p in self._partitions.items()
        ]


def write_task(
    database: Database, offset_rows: OffsetRows, write_rows: WriteRows, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
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
        writes = TaskWrites(connection, offset_rows, write_rows)
        writes.add(first)
        for rows in filled:
            writes.add(rows)
        report = writes.finish()
    yield _report(report)


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


def _end(rows: pa.RecordBatch) -> Offset:
    import pyarrow.compute as pc

    return Offset(pc.max(rows.column("offset")).as_py() + 1)


def _report(writes: list[PartitionWrite]) -> pa.RecordBatch:
    import pyarrow as pa

    types = {"topic": pa.string(), "partition": pa.int32()}
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in PartitionWrite._fields])
    return pa.RecordBatch.from_pylist([write._asdict() for write in writes], schema)
