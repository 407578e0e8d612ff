"""Commits to Delta and Iceberg tables, and their histories.  Both formats have the same methods.

Runs in the driver, with Spark's DataFrames and SQL only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.stores.lake_history import (
    NOTE,
    Commit,
    Snapshot,
    Spans,
    Version,
    as_note,
    of_snapshots,
    of_versions,
    restored_version,
)
from pyspark_kafka_group.stores.record_columns import RECORD_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Delta reads one file for each version of its history.
_VERSIONS = 100

# Delta's setting for the metadata of the next commits.  Its SQL has no other way.
_DELTA_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

# The name of the property that marks one commit.
_WRITE = "kafka-group.write"


class LakeWrite(NamedTuple):
    """The result of a batch that was written into a lake table.

    Attributes
    ----------
    written : int
        The number of written rows.
    skipped : int
        The number of rows that the table had already of the batch's offsets.  The records of these rows were skipped.
    """

    written: int
    skipped: int


class Format(Protocol):
    """A way to commit to a table."""

    def write(self, spark: SparkSession, rows: DataFrame, spans: Spans) -> LakeWrite:
        """Write the rows of records that the table does not have, in one commit with a note of the spans."""

    def commits(self, spark: SparkSession) -> list[Commit]:
        """Return the commits of the table's history.  Old ones may be missing."""

    def note(self, spark: SparkSession, spans: Spans) -> None:
        """Commit a note without rows."""


class Delta:
    """Commits to a Delta table.

    Delta reads the table and commits in one transaction.  The commit fails if another one has added files that the
    MERGE would have read.  The literal offsets let Delta skip files by their statistics.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def write(self, spark: SparkSession, rows: DataFrame, spans: Spans) -> LakeWrite:
        """See `Format`."""
        same = " AND ".join(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in RECORD_COLUMNS)
        names = ", ".join(_quoted(name) for name in rows.columns)
        values = ", ".join(f"new.{_quoted(name)}" for name in rows.columns)
        # Deliberate: not INSERT *, which leaves out columns that the table does not have.
        statement = (
            f"MERGE INTO {_formatted(self._table)} AS old USING {{new_rows}} AS new ON {same} "
            f"AND ({_formatted(inside(spans, 'old.'))}) "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
        )
        skipped = spark.table(self._table).where(inside(spans)).count()
        # A user's own metadata stay.  Then this commit has no note.
        with nullcontext() if _has_own_metadata(spark) else _metadata(spark, _delta_note(spans)):
            results = spark.sql(statement, new_rows=rows).collect()
        if not results:
            raise ConfigurationError(
                f"LakeTable: Delta has left out the write to {self._table}, because it has seen the version that is "
                f"set before. Unset spark.databricks.delta.write.txnAppId and txnVersion: LakeTable does not need them."
            )
        return LakeWrite(results[0]["num_inserted_rows"], skipped)

    def commits(self, spark: SparkSession) -> list[Commit]:
        """See `Format`."""
        versions = self._versions(spark, _VERSIONS)
        restored = [found for v in versions if (found := restored_version(v, versions)) is not None]
        if restored and min(restored) < versions[-1].number:  # a rollback to a version before these
            versions = self._versions(spark, versions[0].number - max(0, min(restored)) + 1)
        return of_versions(versions)

    def note(self, spark: SparkSession, spans: Spans) -> None:
        """See `Format`."""
        # Deliberate: Delta leaves out a write without rows, and a property that does not change.
        with _metadata(spark, _delta_note(spans)):
            spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ('{_WRITE}' = '{uuid.uuid4().hex}')")

    def _versions(self, spark: SparkSession, count: int) -> list[Version]:
        """Return the newest versions, newest first."""
        history = spark.sql(f"DESCRIBE HISTORY {self._table} LIMIT {count}").selectExpr(
            "version",
            "timestamp",
            "TRY_CAST(operationParameters['version'] AS BIGINT) AS restored",
            "TRY_CAST(trim(BOTH '\"' FROM operationParameters['timestamp']) AS TIMESTAMP) AS restored_time",
            "operation",
            "userMetadata",
            "coalesce(operationMetrics['numTargetRowsInserted'], '?') != '0' AS added",
        )
        return [
            Version(
                row["version"],
                row["timestamp"],
                (row["restored"] if row["restored"] is not None else row["restored_time"])
                if row["operation"] == "RESTORE"
                else None,
                _note_in(row["userMetadata"]),
                row["added"],
            )
            for row in history.collect()
        ]


class Iceberg:
    """Commits to an Iceberg table.

    Deliberate: no MERGE.  Spark plans a MERGE that only inserts as an append, and appends never conflict
    (`test_why_iceberg_gets_no_merge`).  An overwrite of no rows is an append that fails if another commit has added
    data since the given snapshot.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def write(self, spark: SparkSession, rows: DataFrame, spans: Spans) -> LakeWrite:
        """See `Format`."""
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        name, skipped = uuid.uuid4().hex, 0
        options = {
            "isolation-level": "serializable",
            f"snapshot-property.{NOTE}": as_note(spans),
            f"snapshot-property.{_WRITE}": name,
        }
        current = self._current(spark)
        if current is not None:  # else the table is empty, and any data that another commit has added is a conflict
            old = spark.read.option("versionAsOf", str(current)).table(self._table).where(inside(spans))
            skipped = old.count()
            if skipped:
                rows = rows.join(old.select(*RECORD_COLUMNS), list(RECORD_COLUMNS), "left_anti")
            options["validate-from-snapshot-id"] = str(current)
        rows.writeTo(self._table).options(**options).overwrite(F.lit(False))
        self._refresh(spark)
        added = spark.table(f"{self._table}.snapshots").where(f"summary['{_WRITE}'] = '{name}'")
        (result,) = added.selectExpr("CAST(coalesce(summary['added-records'], '0') AS BIGINT) AS rows").collect()
        return LakeWrite(result["rows"], skipped)

    def commits(self, spark: SparkSession) -> list[Commit]:
        """See `Format`."""
        current = self._current(spark)
        snapshots = spark.table(f"{self._table}.snapshots").selectExpr(
            "snapshot_id", "parent_id", f"summary['{NOTE}']", "coalesce(summary['added-records'], '0') != '0'"
        )
        return of_snapshots([Snapshot(*row) for row in snapshots.collect()], current)

    def note(self, spark: SparkSession, spans: Spans) -> None:
        """See `Format`."""
        note = f"snapshot-property.{NOTE}"
        spark.table(self._table).limit(0).writeTo(self._table).option(note, as_note(spans)).append()

    def _current(self, spark: SparkSession) -> int | None:
        """Return the id of the newest snapshot; None for an empty table."""
        self._refresh(spark)
        found = spark.table(f"{self._table}.refs").where("name = 'main'").select("snapshot_id").collect()
        return int(found[0]["snapshot_id"]) if found else None

    def _refresh(self, spark: SparkSession) -> None:
        """Drop what the session has in its cache: an older state of the table."""
        spark.sql(f"REFRESH TABLE {self._table}")


FORMATS: dict[str, type[Delta] | type[Iceberg]] = {"delta": Delta, "iceberg": Iceberg}
"""The formats by the provider that Spark names."""


def inside(spans: Spans, prefix: str = "") -> str:
    """Return the condition, in SQL, that a row is of a record of these offsets.

    The values are literals, so that the formats can skip files by their statistics.
    """
    by_topic: dict[str, list[str]] = {}
    for tp, span in sorted(spans.items()):
        by_topic.setdefault(tp.topic, []).append(
            f"({prefix}`partition` = {tp.partition} AND {prefix}`offset` >= {span.start} "
            f"AND {prefix}`offset` < {span.until})"
        )
    return " OR ".join(
        f"({prefix}`topic` = '{_escaped(topic)}' AND ({' OR '.join(parts)}))" for topic, parts in by_topic.items()
    )


def _delta_note(spans: Spans) -> str:
    return json.dumps({NOTE: as_note(spans)})


def _note_in(metadata: str | None) -> str | None:
    """Return the note in a commit's metadata; None if another program has written the metadata."""
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return None
    note: str | None = found.get(NOTE) if isinstance(found, dict) else None
    return note


@contextmanager
def _metadata(spark: SparkSession, text: str) -> Iterator[None]:
    """Set the metadata of Delta's commits meanwhile."""
    before = spark.conf.get(_DELTA_METADATA, None)
    spark.conf.set(_DELTA_METADATA, text)
    try:
        yield
    finally:
        if before is None or _note_in(before) is not None:  # the note of another thread must not stay
            spark.conf.unset(_DELTA_METADATA)
        else:
            spark.conf.set(_DELTA_METADATA, before)


def _has_own_metadata(spark: SparkSession) -> bool:
    """Return whether the user has set metadata for Delta's commits."""
    before = spark.conf.get(_DELTA_METADATA, None)
    return before is not None and _note_in(before) is None


def _quoted(name: str) -> str:
    return _formatted("`" + name.replace("`", "``") + "`")


def _formatted(text: str) -> str:
    """Return a text for a statement in which braces name DataFrames."""
    return text.replace("{", "{{").replace("}", "}}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
