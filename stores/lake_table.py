"""`LakeTable`, which users call in ``foreachBatch`` to write each record once into a Delta or Iceberg table.

Runs in the driver, with Spark's DataFrames and SQL only.  So it also works with Spark Connect.

The table itself shows which records it has, because each row names its record.  So no offsets are stored beside the
rows.  One commit adds all rows of a batch.  It fails if another commit has added rows since this one has looked, and
the next attempt looks again.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.session.running_batch import RunningBatch, running_batch
from pyspark_kafka_group.stores.errors import LakeConflictError
from pyspark_kafka_group.stores.record_columns import RECORD_COLUMNS, check_columns
from pyspark_kafka_group.stores.starting_offsets import starting_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("pyspark_kafka_group")

# How Delta 4.4 and Iceberg 1.12 name a commit that has lost against another one.  A wrong match does no harm: each
# attempt asks the table anew which records it has.
_CONFLICT = re.compile(
    r"\[DELTA_(CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|iceberg\.exceptions\.CommitFailedException"
    r"|iceberg\.exceptions\.ValidationException: (Found conflicting|Cannot determine history)"
)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class Span(NamedTuple):
    """Offsets of a partition that a batch may write: ``[start, until)``."""

    start: int
    until: int


Spans = Mapping[TopicPartition, Span]
"""The offsets that a batch may write, by partition."""


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

    def __repr__(self) -> str:
        return f"LakeTable({self._table!r})"

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write the rows of a batch whose records the table does not have.  Call this in ``foreachBatch``.

        All rows become visible in one commit.  If this method raises, none does, or all do.  The batch can run again.

        Parameters
        ----------
        batch : DataFrame
            The batch after your transformations.  Each row needs the columns ``topic``, ``partition`` and ``offset`` of
            its record.  A record may have several rows, or none.
        batch_id : int
            The id of the batch.

        Raises
        ------
        ConfigurationError
            If a column is missing in the batch or the table, the format of the table is another one, or the ranges of
            the batch are unknown.
        LakeConflictError
            If other commits win for longer than ``patience_s``.

        Notes
        -----
        Spark raises an error if a row is not of a record of this batch.  Stateful operators make such rows.
        """
        check_columns("LakeTable", batch)
        spark = batch.sparkSession
        commit = self._commit_of(spark, batch)
        spans = spans_of(batch, running_batch(batch, batch_id, self._checkpoint))
        rows = _checked(batch, spans)
        if spans:
            self._try(lambda: commit(spark, rows, spans), batch_id)
        else:  # the batch reads nothing, but a stateful operator may return rows of earlier batches
            rows.write.format("noop").mode("append").save()

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

    def _commit_of(self, spark: SparkSession, batch: DataFrame) -> Callable[[SparkSession, DataFrame, Spans], None]:
        """Return the way to commit rows to a table of this format."""
        columns = {name.lower() for name in spark.table(self._table).columns}
        missing = [name for name in batch.columns if name.lower() not in columns]
        if missing:
            raise ConfigurationError(
                f"LakeTable: {self._table} has no column {', '.join(missing)}, but the batch has. Add it with ALTER "
                f"TABLE ... ADD COLUMNS, or do not select it. The columns {', '.join(RECORD_COLUMNS)} are necessary: "
                f"they show which records the table has."
            )
        details = spark.sql(f"DESCRIBE TABLE EXTENDED {self._table}").where("col_name = 'Provider'").collect()
        found = details[0]["data_type"].lower() if details else "unknown"
        ways = {"delta": self._merge, "iceberg": self._append}
        if found not in ways:
            raise ConfigurationError(
                f"LakeTable: {self._table} has the format {found}. Use a table of Delta or Iceberg: their commits are "
                f"atomic and detect conflicts."
            )
        return ways[found]

    def _merge(self, spark: SparkSession, rows: DataFrame, spans: Spans) -> None:
        """Commit to a Delta table.

        Delta reads the table and commits in one transaction.  The commit fails if another one has added files that the
        MERGE would have read.  The literal offsets let Delta skip files by their statistics.
        """
        same = " AND ".join(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in RECORD_COLUMNS)
        names = ", ".join(_quoted(name) for name in rows.columns)
        values = ", ".join(f"new.{_quoted(name)}" for name in rows.columns)
        # Deliberate: not INSERT *, which leaves out columns that the table does not have.
        statement = (
            f"MERGE INTO {_formatted(self._table)} AS old USING {{new_rows}} AS new ON {same} "
            f"AND ({_formatted(inside(spans, 'old.'))}) "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
        )
        spark.sql(statement, new_rows=rows).collect()

    def _append(self, spark: SparkSession, rows: DataFrame, spans: Spans) -> None:
        """Commit to an Iceberg table.

        Deliberate: not MERGE.  Spark plans a MERGE that only inserts as an append, and appends never conflict
        (`test_why_iceberg_gets_no_merge`).  An overwrite of no rows is an append that fails if another commit has added
        data since the given snapshot.
        """
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        spark.sql(f"REFRESH TABLE {self._table}")  # a session may have an older snapshot in its cache
        current = spark.table(f"{self._table}.refs").where("name = 'main'").select("snapshot_id").collect()
        checks = {"isolation-level": "serializable"}
        if current:  # else the table is empty, and any data that another commit has added is a conflict
            snapshot = str(current[0]["snapshot_id"])
            old = spark.read.option("versionAsOf", snapshot).table(self._table).where(inside(spans))
            rows = rows.join(old.select(*RECORD_COLUMNS), list(RECORD_COLUMNS), "left_anti")
            checks["validate-from-snapshot-id"] = snapshot
        rows.writeTo(self._table).options(**checks).overwrite(F.lit(False))

    def _try(self, attempt: Callable[[], None], batch_id: int) -> None:
        """Run an attempt until it does not lose against another commit."""
        begin, pause_s, attempts = time.monotonic(), _FIRST_PAUSE_S, 0
        while True:
            attempts += 1
            try:
                return attempt()
            except Exception as e:  # Deliberate: classic Spark, Spark Connect and Py4J have no common class
                if not is_conflict(e):
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
        return {tp: Span(r.start, r.until) for tp, r in running.ranges.items() if r.start < r.until}
    groups = batch.groupBy("topic", "partition").agg(F.min("offset").alias("start"), F.max("offset").alias("last"))
    rows = groups.where("topic IS NOT NULL AND partition IS NOT NULL AND start IS NOT NULL").collect()
    return {TopicPartition(r["topic"], r["partition"]): Span(r["start"], r["last"] + 1) for r in rows}


def inside(spans: Spans, prefix: str = "") -> str:
    """Return an SQL condition for the rows of these offsets."""
    by_topic: dict[str, list[str]] = {}
    for tp, span in sorted(spans.items()):
        by_topic.setdefault(tp.topic, []).append(
            f"({prefix}`partition` = {tp.partition} AND {prefix}`offset` >= {span.start} "
            f"AND {prefix}`offset` < {span.until})"
        )
    return " OR ".join(
        f"({prefix}`topic` = '{_escaped(topic)}' AND ({' OR '.join(parts)}))" for topic, parts in by_topic.items()
    )


def is_conflict(error: BaseException) -> bool:
    """Tell whether a commit has failed because another one was faster."""
    return any(_CONFLICT.search(str(found)) for found in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


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


def _quoted(name: str) -> str:
    return _formatted("`" + name.replace("`", "``") + "`")


def _formatted(text: str) -> str:
    """Return a text for a statement in which braces name DataFrames."""
    return text.replace("{", "{{").replace("}", "}}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
