"""Landing in a Delta table, through the package ``deltalake``.

Each topic-partition is an application of Delta's transactions: its version is the next offset.  A commit fails if one
of its applications has committed since the look.  Delta does not compare versions; the look does.

Facts, with deltalake 1.6.6: the retries of a commit check the applications again; ``max_commit_retries=0`` makes any
other commit a conflict.  After a lost answer, deltalake repeats the commit, finds its own transaction, and raises a
conflict.  RESTORE keeps the transactions, so the history decides what a table has lost.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.landing import errors
from pyspark_kafka_group.landing.landing import Landing
from pyspark_kafka_group.landing.state import Files, TableState, new_number
from pyspark_kafka_group.offsets.errors import ConfigurationError, MissingDependencyError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores.lake_formats import LANDING_PROPERTY, TOPIC_PROPERTY, delta_note, note_in
from pyspark_kafka_group.stores.lake_history import (
    Lost,
    OffsetSpan,
    Spans,
    Version,
    lost,
    of_versions,
    restored_version,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    from pyspark_kafka_group.landing.files import Place
    from pyspark_kafka_group.landing.layout import Layout

_log = logging.getLogger("pyspark_kafka_group")

# Features with which a plain append is right.  Some need a look at the properties or at the columns: `_unsupported`.
_FINE = {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"),
    *("deletionVectors", "timestampNtz", "v2Checkpoint", "domainMetadata", "vacuumProtocolCheck"),
}

# Properties that change what an append must write, and the values with which they do not.
_HARMLESS = {
    "delta.columnMapping.mode": {"none"},
    "delta.setTransactionRetentionDuration": set[str](),
    "delta.enableRowTracking": {"false"},
    "delta.enableInCommitTimestamps": {"false"},
    "delta.randomizeFilePrefixes": {"false"},
}

# Metadata of columns that Delta computes or checks itself, and their names for users.
_COMPUTED = {
    **{name: name for name in ("delta.generationExpression", "delta.invariants", "delta.identity.start")},
    "CURRENT_DEFAULT": "CURRENT_DEFAULT",
    "__CHAR_VARCHAR_TYPE_STRING": "the type CHAR or VARCHAR",
}

# Delta reads one file for each version of its history, or since its last checkpoint.
_VERSIONS = 100
_CHECKPOINT_EVERY = 100


class DeltaLanding(Landing):
    """A Delta table that gets each record of its topics once, from any number of applications.

    The tasks of the source write the table's Parquet files.  The driver commits them, with the next offsets.

    Parameters
    ----------
    uri : str or Path
        The table: a folder that all executors share, or the URL of an object store, such as ``s3://lake/orders``.  It
        is created if it does not exist, with the columns of the source.
    storage_options : mapping of str to str, optional
        The options with which ``deltalake`` opens the object store.  They also travel to the executors.
    day_column : str, optional
        A column for the day of the record's timestamp, in UTC, that the source does not have.
    field_columns : mapping of str to str, optional
        Columns that the source does not have, and the field of the source that each one repeats, such as
        ``{"region": "value.region"}``.  Delta cannot partition a table by a field of a struct.
    partition_by : sequence of str
        How a new table is partitioned: by ``topic``, ``partition``, ``day_column``, and columns with texts, whole
        numbers or booleans, or some of them.
    file_bytes : int
        A file that has reached this size ends, in bytes.  A task writes at least one file for each of its ranges with
        records.
    new_columns : {"fail", "add"}
        What happens at the start if the source has columns, or fields of structs, that the table lacks: an error, or
        they are added to the table.  For example, the registry has a newer schema.
    patience_s : float
        How long to try again if other commits win, in seconds.
    checkpoint : str, optional
        The stream's ``checkpointLocation``.  Only for Spark Connect.

    Attributes
    ----------
    total : Landed
        What this object has landed.

    Examples
    --------
    ::

        landing = DeltaLanding("/lake/orders")
        query = landing.stream(spark, options).option("checkpointLocation", "...").start()
    """

    def __init__(
        self,
        uri: str | Path,
        *,
        storage_options: Mapping[str, str] | None = None,
        day_column: str | None = None,
        field_columns: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        file_bytes: int = 256_000_000,
        new_columns: str = "fail",
        patience_s: float = 300.0,
        checkpoint: str | None = None,
    ) -> None:
        from pyspark_kafka_group.landing.files import is_url
        from pyspark_kafka_group.landing.fitting import names

        uri = str(uri)
        if is_url(uri) and "://" not in uri and not uri.startswith("file:"):
            raise ConfigurationError(
                f"DeltaLanding: {errors.without_password(uri)} is neither a folder nor a URL. Give a URL as text, with "
                f"two slashes behind the colon."
            )
        super().__init__(uri, new_columns=new_columns, patience_s=patience_s, checkpoint=checkpoint)
        self._uri = uri if is_url(uri) else str(Path(uri).absolute())  # executors have another working directory
        self._options = {name: str(value) for name, value in (storage_options or {}).items()}
        self._day_column = day_column
        self._field_columns = dict(field_columns or {})
        self._partition_by = names(partition_by)
        self._file_bytes = int(file_bytes)
        self._id: str | None = None
        self._history: tuple[int, Lost] | None = None  # the version up to which it was read, and what it shows
        self._synced: int | None = None  # the version up to which the log is certainly on the disk

    # -- the start

    def _prepare(self, schema: StructType) -> None:
        if find_spec("deltalake") is None:
            raise MissingDependencyError("deltalake", sys.executable, extra="delta")
        from deltalake import DeltaTable

        from pyspark_kafka_group.columns.schema import to_arrow

        source = to_arrow(schema)
        self._check_further_columns(source)
        self._columns = self._layout(self._partition_by).columns(source)
        self._check_types()
        self._check_partitioning(self._partition_by)
        with errors.reaching(self._name):
            if not DeltaTable.is_deltatable(self._uri, self._options):
                DeltaTable.create(
                    self._uri,
                    self._columns,
                    mode="ignore",
                    partition_by=list(self._partition_by) or None,
                    storage_options=self._options,
                )
            look = self._look()
            self._fit(look)
        self._partition_by = look.partitioning
        self._check_partitioning(self._partition_by)

    def _check_further_columns(self, source: pa.Schema) -> None:
        from pyspark_kafka_group.landing.layout import can_be_shared, field_at

        known = {name.lower() for name in source.names}
        if self._day_column is not None:
            if "timestamp" not in known or self._day_column.lower() in known:
                raise ConfigurationError(
                    f"{self._name}: day_column={self._day_column!r} needs the column timestamp of the source, and a "
                    f"name that no column has. Add timestamp to the option 'columns', or choose another name."
                )
            known.add(self._day_column.lower())
        for name, path in self._field_columns.items():
            if name.lower() in known or not can_be_shared(field_at(source, path)):
                raise ConfigurationError(
                    f"{self._name}: field_columns={{{name!r}: {path!r}}} is not possible. Give a name that no column "
                    f"has, and a field with a text, a whole number or a boolean, such as value.region."
                )
            known.add(name.lower())

    def _check_partitioning(self, columns: Iterable[str]) -> None:
        from pyspark_kafka_group.landing.layout import can_be_shared

        assert self._columns is not None
        possible = {self._day_column, *(f.name for f in self._columns if can_be_shared(f.type))}
        others = [name for name in columns if name not in possible]
        if others:
            raise ConfigurationError(
                f"{self._name}: the table is partitioned by {', '.join(others)}. Landing can partition by day_column, "
                f"and by columns with a text, a whole number or a boolean; field_columns makes such columns of fields. "
                f"Use another table or LakeTable."
            )

    def _layout(self, partition_columns: Sequence[str]) -> Layout:
        from pyspark_kafka_group.landing.layout import Layout

        return Layout(
            table=str(self._id),
            day_column=self._day_column,
            field_columns=self._field_columns,
            one_value=tuple(name for name in partition_columns if name not in ("topic", "partition")),
            empty_is_null=True,
            file_bytes=self._file_bytes,
        )

    def _target(self) -> dict[str, Any]:
        return {
            "format": "delta",
            "uri": self._uri,
            "options": self._options,
            "layout": asdict(self._layout(self._partition_by)),
        }

    # -- the table

    def _look(self) -> DeltaState:
        from deltalake import DeltaTable

        table = DeltaTable(self._uri, storage_options=self._options)
        found = str(table.metadata().id)
        if self._id is not None and found != self._id:
            raise errors.created_again(self._name, self._id, found)
        self._id = found
        if problems := unsupported(table):
            raise errors.unsupported(self._name, problems)
        return DeltaState(table, self._lost(table))

    def _lost(self, table: DeltaTable) -> Lost:
        """Return what a rollback has removed.  Reads the history once, and again only after a rollback."""
        version = table.version()
        if self._history is not None:
            known, gone = self._history
            newer = table.history(version - known) if version > known else []
            if not gone and not any(entry["operation"] == "RESTORE" for entry in newer):
                self._history = (version, gone)
                return gone
        versions = _versions(table, _VERSIONS)
        restored = [found for v in versions if (found := restored_version(v, versions)) is not None]
        if restored and min(restored) < versions[-1].number:  # a rollback to a version before these
            versions = _versions(table, versions[0].number - max(0, min(restored)) + 1)
        self._history = (version, lost(of_versions(versions)))
        return self._history[1]

    def _place(self) -> Place:
        from pyspark_kafka_group.landing.delta_files import place_of

        return place_of(self._uri, self._options)

    def _conflicts(self, problem: Exception) -> bool:
        from deltalake.exceptions import CommitFailedError

        return isinstance(problem, CommitFailedError)

    def _committed(self, look: TableState) -> None:
        from pyspark_kafka_group.landing.files import local_folder, sync

        local = local_folder(self._uri)
        if local is not None:
            log = Path(local, "_delta_log")
            version = look.version if self._synced is None else self._synced + 1
            while (entry := log / f"{version:020}.json").exists():
                sync(entry)
                version += 1
            sync(log)
            self._synced = max(version - 1, look.version)
        if look.version % _CHECKPOINT_EVERY == _CHECKPOINT_EVERY - 1:
            try:
                self._look().table.create_checkpoint()
            except Exception as e:  # Deliberate: the commit is done, and a checkpoint only makes looks faster
                _log.warning("%s: a checkpoint of the table's log failed, so commits get slower: %s", self._name, e)


class DeltaState(TableState):
    """One version of a Delta table.

    Parameters
    ----------
    table : DeltaTable
        The table, at this version.
    lost : Lost
        The offsets whose records a rollback has removed.
    """

    def __init__(self, table: DeltaTable, lost: Lost) -> None:
        self.table = table
        self.lost = lost
        self.version = table.version()
        metadata = table.metadata()
        self.id = str(metadata.id)
        self.partitioning = tuple(metadata.partition_columns)
        self.columns = {found.name: found.nullable for found in table.schema().fields}
        self.topic_ids = _noted(metadata.configuration, TOPIC_PROPERTY)
        self.landed = {t: int(n) for t, n in _noted(metadata.configuration, LANDING_PROPERTY).items()}

    def schema(self) -> pa.Schema:
        """See `TableState`."""
        import pyarrow as pa

        return pa.schema(self.table.schema().to_arrow())

    def add_columns(self, source: pa.Schema) -> None:
        """See `TableState`."""
        from deltalake import write_deltalake

        write_deltalake(self.table, source.empty_table(), mode="append", schema_mode="merge")

    def next_offset(self, tp: TopicPartition) -> int | None:
        """See `TableState`."""
        return self.table.transaction_version(self._application(tp))

    def note_topics(self, ids: Mapping[str, str], landed: Iterable[str]) -> None:
        """See `TableState`."""
        self._set(
            {TOPIC_PROPERTY + topic: found for topic, found in ids.items()}
            | {LANDING_PROPERTY + topic: "1" for topic in landed}
        )

    def forget(self, topic: str) -> None:
        """See `TableState`."""
        self._set({TOPIC_PROPERTY + topic: "", LANDING_PROPERTY + topic: str(new_number())})

    def outdated(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """See `TableState`.

        Deliberate: by the property.  If a table is overwritten, deltalake and Spark keep the transactions only.
        """
        new = (tp for tp in tps if tp.topic not in self.landed)
        return [tp for tp in new if self.next_offset(tp) is not None and not self.lost.get(tp)]

    def _set(self, properties: dict[str, str]) -> None:
        # Regression: with a property, deltalake 1.6.6 adds the feature variantType to a table that has features, and
        # then older readers refuse the table.
        protocol = self.table.protocol()
        features = sorted(protocol.writer_features or ())
        if protocol.min_writer_version >= 7 and "variantType" not in features:
            raise errors.property_needed(self.table.table_uri, features, properties)
        self.table.alter.set_table_properties(properties, raise_if_not_exists=False)

    def _application(self, tp: TopicPartition) -> str:
        """Return the application id of a topic-partition.  After `forget`, the offsets are of another application."""
        number = self.landed.get(tp.topic, 1)
        return f"kafka-group/{tp.topic}/{tp.partition}" + (f"/{number}" if number > 1 else "")

    def holds(self, paths: Iterable[str]) -> bool:
        """See `TableState`."""
        known = {uri.rpartition("/")[2] for uri in self.table.file_uris()}
        return all(path.rpartition("/")[2] in known for path in paths)

    def has_rows(self, tp: TopicPartition, span: OffsetSpan) -> bool:
        """See `TableState`."""
        from deltalake import QueryBuilder

        topic = tp.topic.replace("'", "''")
        found = (
            QueryBuilder()
            .register("landed", self.table)
            .execute(
                f"SELECT 1 FROM landed WHERE topic = '{topic}' AND \"partition\" = {tp.partition} "
                f'AND "offset" >= {span.start} AND "offset" < {span.until} LIMIT 1'
            )
        )
        return bool(found.read_all().num_rows)

    def commit(self, files: Files, offsets: Mapping[TopicPartition, int], note: Spans, *, alone: bool) -> None:
        """See `TableState`."""
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction
        from deltalake.transaction import AddAction, RemoveAction

        from pyspark_kafka_group.landing.delta_files import delta_stats, partition_values

        now, by = int(time.time() * 1000), self.partitioning
        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size, partition_values(f, by), now, True, delta_stats(f, tp, by))
            for tp in files
            for f in files[tp]
        ]
        self.table.create_write_transaction(
            actions,
            "append",
            self.table.schema(),
            list(by),
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": delta_note(note)},
                max_commit_retries=0 if alone else None,
                app_transactions=[Transaction(self._application(tp), offset) for tp, offset in offsets.items()],
            ),
            # Deliberate: a checkpoint that fails would make a successful commit raise.
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )


def unsupported(table: DeltaTable) -> list[str]:
    """Return the features, properties and columns of a table that landing would write wrongly."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    found = [f"the feature {name}" for name in features - _FINE]
    for name, harmless in _HARMLESS.items():
        if name in configuration and configuration[name].lower() not in harmless:
            found.append(f"the property {name}={configuration[name]}")
    found += [f"the constraint {name}" for name in configuration if name.startswith("delta.constraints.")]
    for column in table.schema().fields:
        found += [f"{what} of the column {column.name}" for name, what in _COMPUTED.items() if name in column.metadata]
    return found


def _noted(configuration: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value for name, value in configuration.items() if name.startswith(prefix) and value
    }


def _versions(table: DeltaTable, count: int) -> list[Version]:
    """Return the newest versions, newest first."""
    return [_version(entry) for entry in table.history(count)]


def _version(entry: Mapping[str, Any]) -> Version:
    restored: int | datetime | None = None
    parameters = entry.get("operationParameters") or {}
    if entry["operation"] == "RESTORE":
        if str(parameters.get("version", "")).isdecimal():
            restored = int(parameters["version"])
        else:
            found = str(parameters.get("timestamp") or parameters.get("datetime")).strip('"')
            restored = _utc(datetime.fromisoformat(found)) if not found.isdecimal() else _time(int(found))
    inserted = (entry.get("operationMetrics") or {}).get("numTargetRowsInserted")
    return Version(
        number=entry["version"],
        time=_time(entry["timestamp"]),
        restored=restored,
        note=note_in(entry.get("userMetadata")),
        added=str(inserted) != "0",
    )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.astimezone(UTC)
