"""Commits to Delta and Iceberg tables, and their histories.  Both formats have the same methods.

Runs in the driver, with Spark's DataFrames and SQL only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores.lake_history import (
    NOTE,
    OffsetSpan,
    Snapshot,
    Spans,
    TableCommit,
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

# The property with the id of a topic, without its name.  Deliberate: a property of the table.  The notes of commits
# expire with the table's history, and then the records of another topic would look as if they were written.
TOPIC_PROPERTY = "kafka-group.topic."

# The property of a topic that landing fills, without its name.  `LakeTable` must not write rows of its records: landing
# stores offsets, and would not see such rows.
LANDING_PROPERTY = "kafka-group.landing."

# More topics would make Spark's generated code too large.
_MOST_TERMS = 100

# Above all partition numbers of Kafka.  The condition for rows has an element for each number.
_PARTITIONS = 1_000_000


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


class NotedTopics(NamedTuple):
    """What a table notes about topics.

    Attributes
    ----------
    ids : dict of str to str
        The ids of the topics whose rows the table has, as far as they were noted.
    landed : set of str
        The topics that landing fills.
    """

    ids: dict[str, str]
    landed: set[str]


class LakeFormat(Protocol):
    """A way to commit to a table."""

    def write(self, spark: SparkSession, rows: DataFrame, spans: Spans) -> LakeWrite:
        """Write the rows of records that the table does not have, in one commit with a note of the spans."""

    def commits(self, spark: SparkSession) -> list[TableCommit]:
        """Return the commits of the table's history.  Old ones may be missing."""

    def note(self, spark: SparkSession, spans: Spans) -> None:
        """Commit a note without rows."""

    def topics(self, spark: SparkSession) -> NotedTopics:
        """Return what the table notes about topics."""


class Delta:
    """Commits to a Delta table.

    Delta reads the table and commits in one transaction.  The commit fails if another one has added files that the
    MERGE would have read.  The literal offsets let Delta skip files by their statistics.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def write(self, spark: SparkSession, rows: DataFrame, spans: Spans) -> LakeWrite:
        """See `LakeFormat`."""
        same = " AND ".join(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in RECORD_COLUMNS)
        names = ", ".join(_quoted(name) for name in rows.columns)
        values = ", ".join(f"new.{_quoted(name)}" for name in rows.columns)
        # Deliberate: not INSERT *, which leaves out columns that the table does not have.
        statement = (
            f"MERGE INTO {_formatted(self._table)} AS old USING {{new_rows}} AS new ON {same} "
            f"AND ({_formatted(around(spans, 'old.'))}) "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
        )
        skipped = known_rows(spark.table(self._table), spans).count()
        # A user's own metadata stay.  Then this commit has no note.
        with nullcontext() if _has_own_metadata(spark) else _metadata(spark, delta_note(spans)):
            results = spark.sql(statement, new_rows=rows).collect()
        if not results:
            raise ConfigurationError(
                f"LakeTable: Delta has left out the write to {self._table}, because it has seen the version that is "
                f"set before. Unset spark.databricks.delta.write.txnAppId and txnVersion: LakeTable does not need them."
            )
        return LakeWrite(results[0]["num_inserted_rows"], skipped)

    def commits(self, spark: SparkSession) -> list[TableCommit]:
        """See `LakeFormat`."""
        versions = self._versions(spark, _VERSIONS)
        restored = [found for v in versions if (found := restored_version(v, versions)) is not None]
        if restored and min(restored) < versions[-1].number:  # a rollback to a version before these
            versions = self._versions(spark, versions[0].number - max(0, min(restored)) + 1)
        return of_versions(versions)

    def note(self, spark: SparkSession, spans: Spans) -> None:
        """See `LakeFormat`."""
        # Deliberate: Delta leaves out a write without rows, and a property that does not change.
        with _metadata(spark, delta_note(spans)):
            spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ('{_WRITE}' = '{uuid.uuid4().hex}')")

    def topics(self, spark: SparkSession) -> NotedTopics:
        """See `LakeFormat`."""
        return _topics(spark, self._table)

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
                note_in(row["userMetadata"]),
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
        """See `LakeFormat`."""
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        name, skipped = uuid.uuid4().hex, 0
        options = {
            "isolation-level": "serializable",
            f"snapshot-property.{NOTE}": as_note(spans),
            f"snapshot-property.{_WRITE}": name,
        }
        current = self._current(spark)
        if current is not None:  # else the table is empty, and any data that another commit has added is a conflict
            # Deliberate: no time travel.  Its columns are those of the snapshot, without columns that were added since.
            # Of another commit in between, the rows are seen here, and the overwrite fails.
            self._refresh(spark)
            old = known_rows(spark.table(self._table), spans)
            skipped = old.count()
            if skipped:
                rows = rows.join(old.select(*RECORD_COLUMNS), list(RECORD_COLUMNS), "left_anti")
            options["validate-from-snapshot-id"] = str(current)
        rows.writeTo(self._table).options(**options).overwrite(F.lit(False))
        self._refresh(spark)
        added = spark.table(f"{self._table}.snapshots").where(f"summary['{_WRITE}'] = '{name}'")
        (result,) = added.selectExpr("CAST(coalesce(summary['added-records'], '0') AS BIGINT) AS rows").collect()
        return LakeWrite(result["rows"], skipped)

    def commits(self, spark: SparkSession) -> list[TableCommit]:
        """See `LakeFormat`."""
        current = self._current(spark)
        while True:
            snapshots = spark.table(f"{self._table}.snapshots").selectExpr(
                "snapshot_id", "parent_id", f"summary['{NOTE}']", "coalesce(summary['added-records'], '0') != '0'"
            )
            found = [Snapshot(*row) for row in snapshots.collect()]
            before, current = current, self._current(spark)
            # Deliberate: both of one moment.  A commit in between would look as if it had been rolled back
            # (`test_a_commit_between_two_questions_is_no_rollback`).
            if current == before:
                return of_snapshots(found, current)

    def note(self, spark: SparkSession, spans: Spans) -> None:
        """See `LakeFormat`."""
        note = f"snapshot-property.{NOTE}"
        spark.table(self._table).limit(0).writeTo(self._table).option(note, as_note(spans)).append()

    def topics(self, spark: SparkSession) -> NotedTopics:
        """See `LakeFormat`."""
        self._refresh(spark)
        return _topics(spark, self._table)

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


def note_topics(spark: SparkSession, table: str, ids: Mapping[str, str]) -> None:
    """Note the ids of topics in the table."""
    pairs = ", ".join(f"'{topic_property(topic)}' = '{topic_id}'" for topic, topic_id in sorted(ids.items()))
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({pairs})")


def topic_property(topic: str) -> str:
    """Return the name of the property with the id of a topic, as SQL text."""
    return _escaped(TOPIC_PROPERTY + topic)


def _topics(spark: SparkSession, table: str) -> NotedTopics:
    found = spark.sql(f"SHOW TBLPROPERTIES {table}").where("startswith(key, 'kafka-group.')").collect()
    noted = {row["key"]: row["value"] for row in found if row["value"]}
    ids = {name.removeprefix(TOPIC_PROPERTY): value for name, value in noted.items() if name.startswith(TOPIC_PROPERTY)}
    return NotedTopics(ids, {n.removeprefix(LANDING_PROPERTY) for n in noted if n.startswith(LANDING_PROPERTY)})


def known_rows(table: DataFrame, spans: Spans) -> DataFrame:
    """Return the rows of a table whose records are in these offsets."""
    return table.where(around(spans)).where(inside(spans))


def inside(spans: Spans) -> str:
    """Return the condition, in SQL, that a row is of a record of these offsets.

    Deliberate: two lookups by the number of the partition.  A comparison for each partition takes seconds with
    thousands of them, and Spark cannot compile it (`test_the_condition_does_not_grow_with_the_partitions`).

    Raises
    ------
    ConfigurationError
        If a partition has a number that Kafka does not use.
    """
    topics = sorted({tp.topic for tp in spans})
    size = 1 + max((tp.partition for tp in spans), default=0)
    if size > _PARTITIONS or any(tp.partition < 0 for tp in spans):
        raise ConfigurationError("LakeTable: the column partition has numbers that are no partitions of Kafka.")
    names = ", ".join(f"'{_escaped(topic)}'" for topic in topics)

    def bound(field: int) -> str:
        by_topic = []
        for topic in topics:
            numbers = range(size)
            found = [spans.get(TopicPartition(topic, number)) for number in numbers]
            by_topic.append([None if span is None else span[field] for span in found])
        # Spark evaluates the text once, because it is constant.
        text = json.dumps(by_topic, separators=(",", ":"))
        topic = f"CAST(array_position(array({names}), `topic`) AS INT) - 1"
        return f"get(get(from_json('{text}', 'ARRAY<ARRAY<BIGINT>>'), {topic}), `partition`)"

    return f"`offset` >= {bound(0)} AND `offset` < {bound(1)}"


def around(spans: Spans, prefix: str = "") -> str:
    """Return a condition, in SQL, that is true for all rows of records of these offsets, and false for most others.

    The values are literals, so that the formats can skip files by their statistics.
    """
    by_topic: dict[str, dict[int, OffsetSpan]] = {}
    for tp, span in sorted(spans.items()):
        by_topic.setdefault(tp.topic, {})[tp.partition] = span
    groups: list[tuple[Sequence[str], dict[int, OffsetSpan]]] = [([topic], found) for topic, found in by_topic.items()]
    if len(groups) > _MOST_TERMS:
        whole = OffsetSpan(min(span.start for span in spans.values()), max(span.until for span in spans.values()))
        groups = [(list(by_topic), {tp.partition: whole for tp in spans})]
    return " OR ".join(_term(topics, found, prefix) for topics, found in groups)


def _term(topics: Sequence[str], spans: Mapping[int, OffsetSpan], prefix: str) -> str:
    names = ", ".join(f"'{_escaped(topic)}'" for topic in topics)
    numbers = ", ".join(map(str, sorted(spans)))
    return (
        f"({prefix}`topic` IN ({names}) AND {prefix}`partition` IN ({numbers}) "
        f"AND {prefix}`offset` >= {min(span.start for span in spans.values())} "
        f"AND {prefix}`offset` < {max(span.until for span in spans.values())})"
    )


def delta_note(spans: Spans) -> str:
    """Return the metadata of a commit to a Delta table that covers these offsets."""
    return json.dumps({NOTE: as_note(spans)})


def note_in(metadata: str | None) -> str | None:
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
        if before is None or note_in(before) is not None:  # the note of another thread must not stay
            spark.conf.unset(_DELTA_METADATA)
        else:
            spark.conf.set(_DELTA_METADATA, before)


def _has_own_metadata(spark: SparkSession) -> bool:
    """Return whether the user has set metadata for Delta's commits."""
    before = spark.conf.get(_DELTA_METADATA, None)
    return before is not None and note_in(before) is None


def _quoted(name: str) -> str:
    return _formatted("`" + name.replace("`", "``") + "`")


def _formatted(text: str) -> str:
    """Return a text for a statement in which braces name DataFrames."""
    return text.replace("{", "{{").replace("}", "}}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
