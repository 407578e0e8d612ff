"""`LakeTable`, which users call in ``foreachBatch`` to write each record once into a Delta or Iceberg table.

Runs in the driver, with Spark's DataFrames and SQL only.  So it also works with Spark Connect.

The table itself shows which records it has, because each row names its record.  One commit adds all rows of a batch.
It fails if another commit has added rows since this one has looked, and the next attempt looks again.  `lake_formats`
has the commits of each format.  The offsets in their metadata only serve to notice a rollback (`lake_history`).
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.session.running_batch import RunningBatch, running_batch
from pyspark_kafka_group.stores.errors import (
    LakeConflictError,
    OtherTopicError,
    RefusedRecordError,
    TableBehindError,
)
from pyspark_kafka_group.stores.lake_formats import (
    FORMATS,
    LakeFormat,
    LakeWrite,
    inside,
    known_rows,
    note_topics,
    topic_property,
)
from pyspark_kafka_group.stores.lake_history import Lost, OffsetSpan, Spans, before, lost
from pyspark_kafka_group.stores.query_run import one_write, run_of
from pyspark_kafka_group.stores.record_columns import RECORD_COLUMNS, check_columns
from pyspark_kafka_group.stores.starting_offsets import starting_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_log = logging.getLogger("pyspark_kafka_group")

# How Delta 4.4 and Iceberg 1.12 name a commit that has lost against another one.  A wrong match does no harm: each
# attempt asks the table anew which records it has.
_CONFLICT = re.compile(
    r"\[DELTA_(CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|iceberg\.exceptions\.CommitFailedException"
    r"|iceberg\.exceptions\.ValidationException: (Found conflicting|Cannot determine history)"
)

# How Spark 4, Delta 4.4 and Iceberg 1.12 name a row that the table does not take.  Spark names the column in the second
# line.  Delta shows data there.
_REFUSED = re.compile(
    r"\[NOT_NULL_ASSERT_VIOLATION\] (.*\n?.*)"
    r"|\[(?:CAST_OVERFLOW_IN_TABLE_INSERT|DELTA_NOT_NULL_CONSTRAINT_VIOLATED|DELTA_VIOLATE_CONSTRAINT_WITH_VALUES)\]"
    r" (.*)"
)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class LakeTable:
    """A Delta or Iceberg table with each record once, filled by any number of applications.

    Each row of the table names its record in the columns ``topic``, ``partition`` and ``offset``.  A write skips rows
    of records that the table has.  If another application commits at the same time, the write tries again.

    Parameters
    ----------
    table : str
        The name of an existing table as SQL writes it, for example ``lake.shop.orders`` or ``delta.`/lake/orders```.
    patience_s : float
        How long to try again if other commits win, in seconds.
    checkpoint : str, optional
        The query's ``checkpointLocation``.  Only for Spark Connect, where a batch does not name its query.

    Examples
    --------
    ::

        orders = LakeTable("lake.shop.orders")
        stream.writeStream.foreachBatch(orders.write).option("checkpointLocation", "...").start()
    """

    def __init__(self, table: str, *, patience_s: float = 300.0, checkpoint: str | None = None) -> None:
        self._table = table
        self._patience_s = patience_s
        self._checkpoint = checkpoint
        self._run: object = None  # the query's run for which the table's history was read
        self._lost: Lost = {}  # the records that a rollback had removed then

    def __getstate__(self) -> dict[str, Any]:
        # Spark Connect sends the user's function with this object to another process.
        return {**self.__dict__, "_run": None, "_lost": {}}

    def __repr__(self) -> str:
        return f"LakeTable({self._table!r})"

    # Deliberate: Any, because type checkers accept only functions without a result for `foreachBatch`.
    def write(self, batch: DataFrame, batch_id: int) -> Any:
        """Write the rows of a batch whose records the table does not have.  Call this in ``foreachBatch``.

        All rows become visible in one commit.  If this method raises, none does, or all do.  The batch can run again.

        Parameters
        ----------
        batch : DataFrame
            The batch after your transformations.  Each row needs the columns ``topic``, ``partition`` and ``offset`` of
            its record.  A record may have several rows, or none.
        batch_id : int
            The id of the batch.

        Returns
        -------
        LakeWrite
            How many rows were written and skipped, in all partitions together.

        Raises
        ------
        ConfigurationError
            If a column is missing in the batch or the table, the format of the table is another one, the ranges of the
            batch are unknown, or this run of the query has already written records of these rows in this batch.
        LakeConflictError
            If other commits win for longer than ``patience_s``.
        RefusedRecordError
            If a constraint of the table, or a column that must not be null, refuses a row.
        TableBehindError
            If the table was rolled back, and the group will not read the lost records again.  The first batch of each
            run of a query checks this.
        OtherTopicError
            If the table has rows of another topic with this name.

        Notes
        -----
        Spark raises an error if a row is not of a record of this batch.  Stateful operators make such rows.
        """
        check_columns("LakeTable", batch)
        spark = batch.sparkSession
        target = self._format(spark, batch.columns)
        running = running_batch(batch, batch_id, self._checkpoint)
        spans = spans_of(batch, running)
        rows = _checked(batch, spans)
        if not spans:  # the batch reads nothing, but a stateful operator may return rows of earlier batches
            rows.write.format("noop").mode("append").save()
            return LakeWrite(0, 0)
        ids, run = topic_ids_of(running), run_of(batch)
        with one_write(self._table, batch, batch_id) as again:

            def attempt() -> LakeWrite:
                self._check_topics(spark, target, ids, {tp.topic for tp in spans})
                self._check_history(spark, target, run, spans)
                if again:
                    self._refuse_known(spark, rows, spans, batch_id)
                return target.write(spark, rows, spans)

            result = self._try(attempt, batch_id)
        if self._lost and not result.written:
            # Delta leaves out a commit without rows, and so the note that lost records were read again.
            self._try(lambda: target.note(spark, spans), batch_id)
        _log.info("Batch %s: %s rows were written to %s.", batch_id, result.written, self._table)
        if result.skipped:
            _log.warning(
                "Batch %s: %s rows of its records are already in %s, so these records were skipped.",
                batch_id,
                result.skipped,
                self._table,
            )
        return result

    def accept_rollback(self, spark: SparkSession) -> None:
        """Continue without the rows that a rollback of the table has removed.

        Until then, a group that does not read their records again gets :class:`TableBehindError`.  This commits a note
        without rows.  Stop all writers first.

        Parameters
        ----------
        spark : SparkSession
            A session that has the table.
        """
        target = self._format(spark, ())
        gone = lost(target.commits(spark))
        for n in range(max(map(len, gone.values()), default=0)):  # a note has one span of each partition
            target.note(spark, {tp: spans[n] for tp, spans in gone.items() if n < len(spans)})

    def starting_offsets(self, spark: SparkSession, *topics: str) -> str:
        """Return where the rows of topics end, for the option ``startingOffsets``, so that a new group starts there.

        The group's committed offsets take precedence.  Partitions without rows start at their beginning.  If your query
        leaves out records, those after the last row of a partition are read again.

        Parameters
        ----------
        spark : SparkSession
            A session that has the table.
        topics : str
            The topics of the stream.

        Returns
        -------
        str
            JSON, or ``earliest`` if there are no rows yet.
        """
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        rows = spark.table(self._table).where(F.col("topic").isin(*topics)).groupBy("topic", "partition")
        ends = rows.agg((F.max("offset") + 1).alias("end")).collect()
        return starting_offsets({TopicPartition(r["topic"], r["partition"]): r["end"] for r in ends}, topics)

    def _format(self, spark: SparkSession, names: Iterable[str]) -> LakeFormat:
        """Return the way to commit rows with these columns to the table."""
        columns = {name.lower() for name in spark.table(self._table).columns}
        missing = [name for name in names if name.lower() not in columns]
        if missing:
            raise ConfigurationError(
                f"LakeTable: {self._table} has no column {', '.join(missing)}, but the batch has. Add it with ALTER "
                f"TABLE ... ADD COLUMNS, or do not select it. The columns {', '.join(RECORD_COLUMNS)} are necessary: "
                f"they show which records the table has."
            )
        # The last row: the columns come first, and one may have this name.
        details = spark.sql(f"DESCRIBE TABLE EXTENDED {self._table}").where("col_name = 'Provider'").collect()
        found = details[-1]["data_type"].lower() if details else "unknown"
        if found not in FORMATS:
            raise ConfigurationError(
                f"LakeTable: {self._table} has the format {found}. Use a table of Delta or Iceberg: their commits are "
                f"atomic and detect conflicts."
            )
        return FORMATS[found](self._table)

    def _check_topics(
        self, spark: SparkSession, target: LakeFormat, ids: Mapping[str, str], topics: Collection[str]
    ) -> None:
        """Raise an error if the table has rows of another topic, or landing fills one.  Note the ids of new ones."""
        for _ in range(2):  # a second time after the note, because another application may have written one, too
            known, landed = target.topics(spark)
            if both := landed.intersection(topics):
                raise ConfigurationError(
                    f"LakeTable: the topic {', '.join(sorted(both))} of {self._table} is filled by landing, which "
                    f"stores offsets and would not see these rows. Nothing of this batch was written. Use another "
                    f"table, or fill this topic by landing only."
                )
            for topic, found in ids.items():
                if known.get(topic, found) != found:
                    raise OtherTopicError.of_lake(self._table, topic, known[topic], found, topic_property(topic))
            new = {topic: found for topic, found in ids.items() if topic not in known}
            if not new:
                return
            note_topics(spark, self._table, new)

    def _refuse_known(self, spark: SparkSession, rows: DataFrame, spans: Spans, batch_id: int) -> None:
        """Raise an error if a second write of a batch has rows of records that the first one has written."""
        known = known_rows(spark.table(self._table), spans).select(*RECORD_COLUMNS)
        if not rows.join(known, list(RECORD_COLUMNS), "left_semi").isEmpty():
            raise ConfigurationError(
                f"LakeTable: batch {batch_id} was already written to {self._table}, and it has records of these rows, "
                f"so they would be skipped. Write all rows of a record in one call. Outside of a stream, give each "
                f"write a batch id of its own, for example time.time_ns()."
            )

    def _check_history(self, spark: SparkSession, target: LakeFormat, run: object, spans: Spans) -> None:
        """Raise an error if the table lacks rows of records before this batch that a rollback has removed.

        Deliberate: another application may have written these records again since this run has read the history.  So an
        error needs a second look.
        """
        if run != self._run or before(self._lost, spans):
            self._run, self._lost = run, lost(target.commits(spark))
        if found := before(self._lost, spans):
            self._run = None
            raise TableBehindError.of_lake(self._table, found)

    def _try(self, attempt: Callable[[], T], batch_id: int) -> T:
        """Run an attempt until it does not lose against another commit."""
        begin, pause_s, attempts = time.monotonic(), _FIRST_PAUSE_S, 0
        while True:
            attempts += 1
            try:
                return attempt()
            except Exception as e:  # Deliberate: classic Spark, Spark Connect and Py4J have no common class
                if not is_conflict(e):
                    if problem := refusal(e):
                        raise RefusedRecordError.of_lake(self._table, problem) from e
                    raise
                if time.monotonic() - begin > self._patience_s:
                    raise LakeConflictError.of(self._table, self._patience_s, attempts) from e
                _log.info("Batch %s: another commit to %s has won. Trying again.", batch_id, self._table)
            # Deliberate: random, so that two writers do not meet again and again.
            time.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def spans_of(batch: DataFrame, running: RunningBatch | None) -> Spans:
    """Return the offsets whose rows a batch may write.

    A ``kafka-group`` source knows what the batch reads.  For other sources, the rows are counted, which runs the query
    once more.
    """
    from pyspark.sql import functions as F  # noqa: N812  # the usual name

    if running is not None and not running.foreign:
        return {tp: OffsetSpan(r.start, r.until) for tp, r in running.ranges.items() if r.start < r.until}
    groups = batch.groupBy("topic", "partition").agg(F.min("offset").alias("start"), F.max("offset").alias("last"))
    rows = groups.where("topic IS NOT NULL AND partition IS NOT NULL AND start IS NOT NULL").collect()
    return {TopicPartition(r["topic"], r["partition"]): OffsetSpan(r["start"], r["last"] + 1) for r in rows}


def topic_ids_of(running: RunningBatch | None) -> dict[str, str]:
    """Return the ids of the topics that a batch reads, as far as the source knows them."""
    ranges = {} if running is None else running.ranges
    return {tp.topic: r.topic_id for tp, r in ranges.items() if r.start < r.until and r.topic_id is not None}


def is_conflict(error: BaseException) -> bool:
    """Tell whether a commit has failed because another one was faster."""
    return any(_CONFLICT.search(str(found)) for found in _causes(error))


def refusal(error: BaseException) -> str | None:
    """Return why the table does not take a row, without data; None if the error does not concern rows."""
    for found in _causes(error):
        if match := _REFUSED.search(str(found)):
            text = " ".join((match[1] or match[2]).split())
            return text.removesuffix("violated by row with values:").rstrip(":. ")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "_cause", None)  # the second one is of PySpark


def _checked(batch: DataFrame, spans: Spans) -> DataFrame:
    """Return the batch with a check that fails for a row of another record."""
    from pyspark.sql import functions as F  # noqa: N812  # the usual name

    record = F.concat_ws(", ", *(F.concat(F.lit(f"{name} "), F.col(name).cast("string")) for name in RECORD_COLUMNS))
    problem = F.concat(
        F.lit("LakeTable: a row names a record that this batch does not read ("),
        record,
        F.lit(
            "). A stateful operator has kept it from an earlier batch, or an outer join has made it. It is unknown "
            "whether the table has such rows, so nothing was written. Write the rows before such an operator."
        ),
    )
    fine = F.coalesce(F.expr(inside(spans)), F.lit(False)) if spans else F.lit(False)
    return batch.where(F.when(fine, F.lit(True)).otherwise(F.raise_error(problem).cast("boolean")))
