"""`OffsetTable`, which users call in ``foreachBatch``.  Runs in the driver.  `task_writes` writes in executors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.session.running_batch import running_batch
from pyspark_kafka_group.stores.database import Database, check_server
from pyspark_kafka_group.stores.errors import TableBehindError
from pyspark_kafka_group.stores.offset_rows import OffsetRows
from pyspark_kafka_group.stores.query_run import one_write
from pyspark_kafka_group.stores.record_columns import check_columns
from pyspark_kafka_group.stores.starting_offsets import starting_offsets
from pyspark_kafka_group.stores.task_writes import (
    REPORT_SCHEMA,
    PartitionWrite,
    Work,
    WriteRows,
    raise_rest,
    warm_up_task,
    write_task,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("pyspark_kafka_group")

# PostgreSQL accepts milliseconds in 32 bits.
_LONGEST_S = 2_000_000

# Hashes of topic names have a range so small that the number of a partition can be added.
_TOPIC_HASHES = 65_521


class OffsetTable:
    """A table of offsets in the database of the rows, updated in the transaction that writes the rows.

    The rows of each record are written once, even if a batch is repeated, or runs twice at the same time.  A write
    skips rows of records below the stored offset.  A second writer waits for the lock on the partition's offset.

    Parameters
    ----------
    url : str
        SQLAlchemy's URL of a PostgreSQL or SQLite database that driver and executors reach.  For example
        ``postgresql://user:password@host/database``.
    consumer : str
        One name for all queries that do the same work, mostly the ``group.id``.  Another group, or another ``write`` to
        other tables, needs another name.
    table : str
        The name of the offset table.  The first write creates it if it does not exist.
    schema : str, optional
        The schema of the table.  By default the first one in the database's search path.
    connections : int
        The number of tasks that write at the same time, each with one connection and one transaction.  Always one with
        SQLite, which locks the whole database.
    lock_timeout_s : float
        The longest time that a writer waits for another writer of the same partition, in seconds.
    idle_timeout_s : float
        PostgreSQL ends a transaction that is idle for this long, in seconds.  So a suspended writer does not hold its
        locks for ever.  Your function must take less time between two statements.
    checkpoint : str, optional
        The query's ``checkpointLocation``.  Only for Spark Connect, where a batch does not name its query.

    Raises
    ------
    ConfigurationError
        If the extra ``sql`` is not installed, or the URL names an unsupported database.

    Examples
    --------
    ::

        offsets = OffsetTable("postgresql://etl@db/shop", "orders-etl")

        def take(batch, batch_id):
            offsets.write(batch, batch_id, into("orders"))

        orders.writeStream.foreachBatch(take).option("checkpointLocation", "...").start()
    """

    def __init__(
        self,
        url: str,
        consumer: str,
        *,
        table: str = "kafka_offsets",
        schema: str | None = None,
        connections: int = 4,
        lock_timeout_s: float = 60.0,
        idle_timeout_s: float = 60.0,
        checkpoint: str | None = None,
    ) -> None:
        if connections < 1:
            raise ConfigurationError(f"OffsetTable: connections={connections}: at least one is needed.")
        for name, seconds in (("lock_timeout_s", lock_timeout_s), ("idle_timeout_s", idle_timeout_s)):
            if not 0 < seconds <= _LONGEST_S:
                raise ConfigurationError(
                    f"OffsetTable: {name}={seconds}: write seconds above 0, {_LONGEST_S} at most. Without a limit, a "
                    f"suspended writer would hold its locks, and the others would wait, for ever."
                )
        self._database = Database.checked(url, lock_timeout_s=lock_timeout_s, idle_timeout_s=idle_timeout_s)
        self._rows = OffsetRows(consumer=consumer, table=table, schema=schema)
        # SQLite has one lock for the whole database: more tasks would only wait for it.
        self._connections = 1 if self._database.url.startswith("sqlite") else connections
        self._checkpoint = checkpoint
        self._created = False
        self._seen: dict[TopicPartition, Offset] = {}  # the offset of each partition after this object's last write
        self._begun = False  # whether this object has written a batch

    def __repr__(self) -> str:
        return f"OffsetTable({self._rows.consumer!r}, table={self._rows.table!r})"

    def __getstate__(self) -> dict[str, Any]:
        # Spark Connect sends the user's function with this object to another process.
        return {**self.__dict__, "_begun": False, "_seen": {}}

    def write(
        self, batch: DataFrame, batch_id: int, write_rows: WriteRows, *, refused: WriteRows | None = None
    ) -> list[PartitionWrite]:
        """Write the new rows of a batch.  Call this once per batch, in ``foreachBatch``.

        Spark brings the rows of each Kafka partition together, and executors write them.  Each task has one
        transaction: it locks the offsets of its partitions, writes the rows at or after them, and raises the offsets.
        When this method returns, all transactions are committed.  If it raises, some may be committed, and the batch
        can run again.

        Parameters
        ----------
        batch : DataFrame
            The batch after your transformations.  Each row needs the columns ``topic``, ``partition`` and ``offset`` of
            its record.  A record may have several rows, or none.  Call this even for an empty batch: the table then
            notes the ranges that the batch has read.
        batch_id : int
            The id of the batch.
        write_rows : callable
            ``write_rows(connection, rows)`` writes a ``pyarrow.RecordBatch`` through a ``sqlalchemy.Connection``.  It
            must not commit.  It runs in executors, several times per partition, with rows in the order of their
            offsets.  See :func:`~pyspark_kafka_group.stores.into`.
        refused : callable, optional
            Like ``write_rows``, for the rows of a record that the database refuses.  They have one more column,
            ``error``.  Without this function such a record ends the query.

        Returns
        -------
        list of PartitionWrite
            The result of each partition.

        Raises
        ------
        ConfigurationError
            If a column is missing, this run of the query has already written the batch under this consumer name, or the
            ranges of the batch are unknown.
        TableBehindError
            If the table has lower offsets than the group has finished, for example because the database was restored.

        Notes
        -----
        Spark raises the error of a task, with its text.  Examples are a record that the database refuses, late rows, a
        topic that was created again, or a consumer name that belongs to another group.
        """
        check_columns("OffsetTable", batch, " By default into() does not write them.")
        self.create()
        rows = self._rows
        with one_write((self._database.url, rows.schema, rows.table, rows.consumer), batch, batch_id) as again:
            if again:
                raise ConfigurationError(
                    f"OffsetTable: batch {batch_id} was already written for {rows.consumer!r}, so none of its rows is "
                    f"new. Write all tables in one function, which is one transaction, or give each an OffsetTable "
                    f"with its own consumer name. Outside of a stream, give each write a batch id of its own, for "
                    f"example time.time_ns()."
                )
            return self._write(batch, batch_id, write_rows, refused)

    def _write(
        self, batch: DataFrame, batch_id: int, write_rows: WriteRows, refused: WriteRows | None
    ) -> list[PartitionWrite]:
        work = Work(
            offset_rows=self._rows,
            write_rows=write_rows,
            refused=refused,
            batch=running_batch(batch, batch_id, self._checkpoint),
            seen=dict(self._seen),  # another thread may write at the same time
        )
        if not self._begun and work.batch is not None and not work.batch.ranges:
            self._warm_up(batch.sparkSession)
        try:
            reports = self._by_partition(batch).mapInArrow(self._task(work), REPORT_SCHEMA).collect()
            writes = [PartitionWrite(*report) for report in reports]
            writes += raise_rest(self._database, work, writes)
        except Exception as e:
            behind = self._behind(work)  # a task names only the first partition
            if behind:
                raise TableBehindError.of(self._rows.table, behind) from e
            raise
        self._begun = True
        for write in writes:
            self._seen[TopicPartition(write.topic, write.partition)] = Offset(write.next_offset)
            if write.refused:
                _log.warning(
                    "Batch %s: the target refused %s rows of %s-%s. They were set aside.",
                    batch_id,
                    write.refused,
                    write.topic,
                    write.partition,
                )
            if write.filtered:
                _log.warning(
                    "Batch %s: %s rows of %s-%s are of records below the stored offset %s, and were skipped.",
                    batch_id,
                    write.filtered,
                    write.topic,
                    write.partition,
                    write.stored,
                )
        return writes

    def create(self) -> None:
        """Create the offset table if it does not exist.  The first ``write`` also does it."""
        if self._created:
            return
        import sqlalchemy as sa

        try:
            with self._database.transaction() as connection:
                check_server(connection)
                self._rows.create(connection)
        except sa.exc.DBAPIError:
            # If two writers create a table at once, PostgreSQL refuses one of them, even with "if not exists".
            with self._database.transaction() as connection:
                if not sa.inspect(connection).has_table(self._rows.table, schema=self._rows.schema):
                    raise
                self._rows.create(connection)
        with self._database.transaction() as connection:
            # Deliberate: with its schema from now on.  An executor may have another search path
            # (`test_the_offset_table_is_that_of_the_driver_wherever_executors_look_first`).
            self._rows = replace(self._rows, schema=self._rows.found_in(connection))
        self._created = True

    def offsets(self) -> Mapping[TopicPartition, Offset]:
        """Return the next offset to write of each partition."""
        self.create()
        with self._database.transaction() as connection:
            return self._rows.read(connection)

    def starting_offsets(self, *topics: str) -> str:
        """Return the offsets of these topics for the option ``startingOffsets``, so that a new group starts there.

        The group's committed offsets take precedence.  So only partitions that the group has never committed start at
        these offsets.  Partitions without a row start at their beginning, because none of their records was written.
        If a topic was created again, call `forget` first: these are the offsets of the old one.  After a restore of the
        database, this reads again all their records that the database has lost.

        Parameters
        ----------
        topics : str
            The topics of the stream.

        Returns
        -------
        str
            JSON, or ``earliest`` if there are no rows yet.
        """
        return starting_offsets(self.offsets(), topics)

    def set_offsets(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the offsets from which records are written, perhaps again.  Stop all writers first.

        Parameters
        ----------
        topic : str
            The topic.
        offsets : mapping of int to int
            The next offset to write, by partition.
        """
        if wrong := {partition: offset for partition, offset in offsets.items() if partition < 0 or offset < 0}:
            raise ConfigurationError(f"OffsetTable: {wrong} has negative numbers. Give partitions and their offsets.")
        self.create()
        with self._database.transaction() as connection:
            for partition, offset in sorted(offsets.items()):
                tp = TopicPartition(topic, partition)
                self._seen.pop(tp, None)
                self._rows.lock(connection, tp)
                self._rows.store(connection, tp, Offset(offset))

    def take_over(self, topic: str, group: str) -> None:
        """Let another consumer group continue at the offsets of a topic.  Stop all writers first.

        Until then, a write of that group fails, because two groups under one name would skip each other's records.

        Parameters
        ----------
        topic : str
            The topic.
        group : str
            The ``kafka.group.id`` of the queries that write from now on.

        Raises
        ------
        ConfigurationError
            If the table has no offsets of the topic.
        """
        self.create()
        with self._database.transaction() as connection:
            self._check_known(connection, topic)
            self._rows.give(connection, topic, group)

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted and perhaps created again.  Stop all writers first.

        Until then, a write of records of the new topic fails.

        Raises
        ------
        ConfigurationError
            If the table has no offsets of the topic.
        """
        self.create()
        self._seen = {tp: offset for tp, offset in self._seen.items() if tp.topic != topic}
        with self._database.transaction() as connection:
            self._check_known(connection, topic)
            self._rows.forget(connection, topic)

    def _check_known(self, connection: sa.Connection, topic: str) -> None:
        """Refuse a topic without offsets, which is mistyped: the call would change nothing, and say nothing."""
        known = sorted({tp.topic for tp in self._rows.read(connection)})
        if topic not in known:
            raise ConfigurationError(
                f"OffsetTable: {self._rows.table} has no offsets of the topic {topic!r} for {self._rows.consumer!r}, "
                f"so nothing was changed. It has those of: {', '.join(known) or 'no topic'}. Correct the topic, or the "
                f"consumer name."
            )

    def _by_partition(self, batch: DataFrame) -> DataFrame:
        """Bring all rows of a Kafka partition to one task, in the order of their records.

        Deliberate, although the source gives each task whole partitions: the query may have spread them.  If two tasks
        have rows of a partition, the first commit hides the rows of the other task
        (`test_with_a_partition_in_two_tasks_rows_are_lost`).
        """
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        task = F.pmod(F.hash("topic"), F.lit(_TOPIC_HASHES)) + F.col("partition")
        # Spark 4.0 only spreads by the hash of the number, which is less even.
        spread = getattr(batch, "repartitionById", batch.repartition)
        return spread(self._connections, task).sortWithinPartitions("topic", "partition", "offset")

    def _warm_up(self, spark: SparkSession) -> None:
        """Run the plan of a write, with rows that nobody writes.

        A query that joins others begins with an empty batch, before it has partitions.  Spark leaves out the tasks that
        would write nothing.  Without this, the first write with rows would start Python workers and compile, while the
        partitions stand still.
        """
        rows = spark.range(self._connections).selectExpr("'' AS topic", "INT(id) AS partition", "id AS offset")
        database = self._database

        def connect(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return warm_up_task(database, batches)

        self._by_partition(rows).mapInArrow(connect, REPORT_SCHEMA).collect()

    def _task(self, work: Work) -> Any:
        database = self._database  # only this and the work are sent to executors

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return write_task(database, work, batches)

        return write

    def _behind(self, work: Work) -> dict[TopicPartition, tuple[Offset | None, Offset]]:
        """Return the partitions whose stored offset is too low, with the stored and the required offset."""
        try:
            stored = self.offsets()
        except Exception as e:  # Deliberate: the user must see the error of the task instead
            _log.debug("no offsets: %r", e)
            return {}
        found: dict[TopicPartition, tuple[Offset | None, Offset]] = {}
        for tp in work.seen if work.batch is None else work.batch.ranges:
            expected, offset = work.expected(tp), stored.get(tp)
            assert expected is not None
            if expected.begun if offset is None else offset < expected.finished:
                found[tp] = (offset, expected.finished)
        return found
