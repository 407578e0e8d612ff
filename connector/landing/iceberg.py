"""Landing in an Iceberg table, through the package ``pyiceberg``.

The next offsets are a property of the table.  It is written only together with a snapshot, and the commit asserts the
snapshot of the look.  So any other commit is a conflict.

Facts, with pyiceberg 0.12.0: by default, it repeats a commit after a conflict on a newer state, without our look.  With
``commit.retry.num-retries=0`` it deletes the manifests of a commit that has landed, if the answer was a conflict.  So
`Once` hides the conflict from it.  The summary of a snapshot is gone when it expires.  A property stays, also after a
rollback.  So the property names its snapshot, and the look finds out whether the table still descends from it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.landing import errors
from pyspark_kafka_group.landing.landing import Landing
from pyspark_kafka_group.landing.state import Files, TableState, new_number
from pyspark_kafka_group.offsets.errors import ConfigurationError, MissingDependencyError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores.lake_formats import LANDING_PROPERTY, TOPIC_PROPERTY
from pyspark_kafka_group.stores.lake_history import NOTE, OffsetSpan, Snapshot, Spans, as_note, lost, of_snapshots

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql.types import StructType

    from pyspark_kafka_group.landing.files import NewFile, Place
    from pyspark_kafka_group.landing.layout import Layout

_OFFSETS = "kafka-group.landed"
"""The property with the next offsets, and the snapshot that has written them."""

# What of a catalog's properties opens files.  The others, such as its password, stay in the driver.
_OF_FILES = ("s3.", "gcs.", "adls.", "hdfs.", "client.", "py-io-impl")

_DAY = "day"

_CODEC = "write.parquet.compression-codec"
_CODECS = {name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli")} | {"uncompressed": "none"}
"""The codecs of files, and their names in pyarrow."""

# A snapshot with more manifests than this gets them merged, and other commits stay fast.
_MANIFESTS = 100

_MERGE = {"commit.manifest-merge.enabled": "true"}
"""Iceberg's default, which is not pyiceberg's (0.12.0)."""


class Conflict(Exception):  # noqa: N818
    """Another commit was faster.  Deliberate: not pyiceberg's class, after which it repeats, or deletes files."""


class Once:
    """A catalog whose conflicts pyiceberg neither repeats nor cleans up after.

    Parameters
    ----------
    catalog : Catalog
        The catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any, **more: Any) -> Any:
        """Commit, and raise `Conflict` if another commit was faster."""
        from pyiceberg.exceptions import CommitFailedException

        try:
            return self._catalog.commit_table(*arguments, **more)
        except CommitFailedException as e:
            raise Conflict(str(e)) from e


class IcebergLanding(Landing):
    """An Iceberg table that gets each record of its topics once, from any number of applications.

    The tasks of the source write the table's Parquet files.  The driver commits them, with the next offsets.

    Parameters
    ----------
    table : str
        The table, with its namespace, such as ``shop.orders``.  It is created if it does not exist, with the columns of
        the source.
    catalog : mapping of str to str
        The properties with which ``pyiceberg`` loads the catalog.  Those of the file system also travel to the
        executors.
    catalog_name : str
        The name of the catalog.  Catalogs in a database have the tables of several catalogs, by their names.
    partition_by : sequence of str
        How a new table is partitioned: by ``topic``, ``partition``, ``day``, which is the day of the record's
        timestamp, and columns or fields with a text, a whole number or a boolean, such as ``value.region``.
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

        landing = IcebergLanding("shop.orders", catalog={"type": "rest", "uri": "http://catalog:8181"})
        query = landing.stream(spark, options).option("checkpointLocation", "...").start()
    """

    def __init__(
        self,
        table: str,
        catalog: Mapping[str, str],
        *,
        catalog_name: str = "default",
        partition_by: Sequence[str] = (),
        file_bytes: int = 256_000_000,
        new_columns: str = "fail",
        patience_s: float = 300.0,
        checkpoint: str | None = None,
    ) -> None:
        from pyspark_kafka_group.landing.fitting import names

        super().__init__(table, new_columns=new_columns, patience_s=patience_s, checkpoint=checkpoint)
        self._table = table
        self._properties = dict(catalog)
        self._catalog_name = catalog_name
        self._partition_by = names(partition_by)
        self._file_bytes = int(file_bytes)
        self._catalog: Catalog | None = None
        self._id: str | None = None
        self._newest: Table | None = None  # of the last look

    def __getstate__(self) -> dict[str, Any]:
        # A catalog has connections.
        return {**self.__dict__, "_catalog": None, "_newest": None}

    # -- the start

    def _prepare(self, schema: StructType) -> None:
        if find_spec("pyiceberg") is None:
            raise MissingDependencyError("pyiceberg", sys.executable, extra="iceberg")
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        from pyspark_kafka_group.columns.schema import to_arrow
        from pyspark_kafka_group.landing.fitting import without_short_integers
        from pyspark_kafka_group.landing.layout import can_be_shared, field_at

        self._columns = without_short_integers(to_arrow(schema))
        self._check_types()
        named = {path: field_at(self._columns, path) for path in self._partition_by if path != _DAY}
        wrong = [path for path, kind in named.items() if not can_be_shared(kind)]
        if wrong or (_DAY in self._partition_by and "timestamp" not in schema.names):
            raise ConfigurationError(
                f"{self._name}: partition_by={self._partition_by!r} is not possible. Use topic, partition, day, and "
                f"columns or fields with a text, a whole number or a boolean, such as value.region; day needs the "
                f"column timestamp of the source."
            )
        with errors.reaching(self._name):
            catalog = self._open()
            if not catalog.table_exists(self._table):
                catalog.create_namespace_if_not_exists(self._table.rpartition(".")[0])
                with suppress(TableAlreadyExistsError, CommitFailedException):  # another application was faster
                    self._create(catalog)
            self._fit(self._look())

    def _open(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        if self._catalog is None:
            self._catalog = load_catalog(self._catalog_name, **self._properties)
        return self._catalog

    def _create(self, catalog: Catalog) -> None:
        from pyiceberg.transforms import DayTransform, IdentityTransform

        with (
            catalog.create_table_transaction(self._table, self._columns, properties={_CODEC: "zstd"}) as transaction,
            transaction.update_spec() as spec,
        ):
            for name in self._partition_by:
                if name == _DAY:
                    spec.add_field("timestamp", DayTransform(), "timestamp_day")
                else:
                    spec.add_field(name, IdentityTransform(), name.replace(".", "_"))

    def _target(self) -> dict[str, Any]:
        assert self._newest is not None
        assert self._columns is not None
        # Deliberate: without the snapshots, which tasks do not need.
        none: dict[str, Any] = {
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "current_snapshot_id": None,
        }
        return {
            "format": "iceberg",
            "metadata": self._newest.metadata.model_copy(update=none).model_dump_json(),
            "properties": self._of_files(),
            "columns": self._columns.names,
            "layout": asdict(self._layout()),
        }

    def _layout(self) -> Layout:
        from pyiceberg.transforms import DayTransform

        from pyspark_kafka_group.landing.layout import DAY, Layout, field_at

        assert self._newest is not None
        assert self._columns is not None
        by: list[str] = []
        for field in self._newest.spec().fields:
            path = str(self._newest.schema().find_column_name(field.source_id))
            if path not in ("topic", "partition") and field_at(self._columns, path) is not None:
                by.append(DAY if isinstance(field.transform, DayTransform) else path)
        table, codec = str(self._newest.metadata.table_uuid), _CODECS[_codec(self._newest)]
        return Layout(table=table, one_value=tuple(by), file_bytes=self._file_bytes, compression=codec)

    def _of_files(self) -> dict[str, str]:
        assert self._newest is not None
        return {name: value for name, value in self._newest.io.properties.items() if name.startswith(_OF_FILES)}

    # -- the table

    def _look(self) -> IcebergState:
        table = self._open().load_table(self._table)
        found = str(table.metadata.table_uuid)
        if self._id is not None and found != self._id:
            raise errors.created_again(self._name, self._id, found)
        self._id = found
        if problems := unsupported(table):
            raise errors.unsupported(self._name, problems)
        self._newest = table
        look = IcebergState(table)
        if look.is_unknown and not look.lost:
            raise errors.rolled_back_long_ago(self._name)
        return look

    def _place(self) -> Place:
        from pyspark_kafka_group.landing.iceberg_files import place_of

        if self._newest is None:
            self._look()
        assert self._newest is not None
        return place_of(self._newest.location(), self._of_files())

    def _described(self, file: NewFile) -> NewFile:
        from pyspark_kafka_group.landing.iceberg_files import described

        assert self._newest is not None
        return described(file, self._newest.metadata, self._of_files())

    def _conflicts(self, problem: Exception) -> bool:
        return isinstance(problem, Conflict)

    def _committed(self, look: TableState) -> None:
        from pathlib import Path

        from pyspark_kafka_group.landing.files import sync
        from pyspark_kafka_group.landing.iceberg_files import local_path

        assert isinstance(look, IcebergState)
        table = look.table
        snapshot = table.current_snapshot()
        if snapshot is None or local_path(table.location()) is None:
            return
        new = [m.manifest_path for m in snapshot.manifests(table.io) if (m.sequence_number or 0) > look.version]
        for path in (table.metadata_location, snapshot.manifest_list, *new):
            file = Path(local_path(path) or path)
            sync(file)
            sync(file.parent)


class IcebergState(TableState):
    """One state of an Iceberg table.

    Parameters
    ----------
    table : Table
        The table, as the catalog has returned it.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        metadata = table.metadata
        self.id = str(metadata.table_uuid)
        self.version = getattr(metadata, "last_sequence_number", 0)  # format version 1 has none, and is refused
        self.columns = {field.name: not field.required for field in table.schema().fields}
        self.ids = _ids(table)
        self.partitioning = tuple(f"{field.transform}({field.source_id})" for field in table.spec().fields)
        self.topic_ids = _noted(metadata.properties, TOPIC_PROPERTY)
        self.landed = {topic: int(n) for topic, n in _noted(metadata.properties, LANDING_PROPERTY).items()}
        self._new: dict[str, str] = {}  # properties for the next commit
        self._note = json.loads(metadata.properties.get(_OFFSETS, '{"offsets": {}}'))
        snapshots = [
            Snapshot(
                s.snapshot_id,
                s.parent_snapshot_id,
                s.summary.additional_properties.get(NOTE) if s.summary else None,
                str(s.summary.additional_properties.get("added-records", "0")) != "0" if s.summary else False,
            )
            for s in metadata.snapshots
        ]
        self.lost = lost(of_snapshots(snapshots, metadata.current_snapshot_id))

    @property
    def is_unknown(self) -> bool:
        """Whether the table was rolled back, and the snapshot that has written the offsets has expired since.

        As long as that snapshot is there, the history shows what is lost.
        """
        by_id = {s.snapshot_id: s for s in self.table.metadata.snapshots}
        if not self._note["offsets"] or self._note["snapshot"] in by_id:
            return False
        at = self.table.current_snapshot()
        while at is not None and at.sequence_number > self._note["sequence"]:
            if at.parent_snapshot_id is None:
                return True
            if at.parent_snapshot_id not in by_id:
                return False  # older ones have expired as usual, and nothing speaks against the offsets
            at = by_id[at.parent_snapshot_id]
        return True

    @property
    def _was_replaced(self) -> bool:
        """Whether ``CREATE OR REPLACE`` has begun the table anew.  It keeps the table's id, and its properties."""
        if not self._note["offsets"]:
            return False
        by_id = {s.snapshot_id: s for s in self.table.metadata.snapshots}

        def line(at: int | None) -> list[int | None]:
            """Return a snapshot, and those before it: None at the end if the first one of a table is among them."""
            found: list[int | None] = [at]
            while at in by_id:
                at = by_id[at].parent_snapshot_id
                found.append(at)
            return found

        now, noted = line(self.table.metadata.current_snapshot_id), line(self._note["snapshot"])
        return now[-1] is None and self._note["snapshot"] in by_id and not {*now[:-1]} & {*noted}

    def schema(self) -> pa.Schema:
        """See `TableState`."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self.table.schema())

    def add_columns(self, source: pa.Schema) -> None:
        """See `TableState`."""
        import pyarrow as pa

        # Deliberate: with the table's own NOT NULL, which pyiceberg would remove.
        required = {field.name for field in self.table.schema().fields if field.required}
        columns = [field.with_nullable(field.name not in required) for field in source]
        with self.table.update_schema() as update:
            update.union_by_name(pa.schema(columns))

    def next_offset(self, tp: TopicPartition) -> int | None:
        """See `TableState`."""
        found: int | None = self._note["offsets"].get(self._key(tp))
        return found

    def note_topics(self, ids: Mapping[str, str], landed: Iterable[str]) -> None:
        """See `TableState`."""
        # Deliberate: with the next commit, because a commit of properties alone asserts no snapshot.
        self._new |= {TOPIC_PROPERTY + topic: found for topic, found in ids.items()}
        self._new |= {LANDING_PROPERTY + topic: "1" for topic in landed}
        self.topic_ids = {**self.topic_ids, **ids}
        self.landed = {**dict.fromkeys(landed, 1), **self.landed}

    def forget(self, topic: str) -> None:
        """See `TableState`."""
        topics = {topic}
        if self._was_replaced:  # the commit is part of the new table, and then its offsets would seem to be, too
            topics.update(self.landed)
            self._note["offsets"] = {}
        for one in topics:
            self._new |= {TOPIC_PROPERTY + one: "", LANDING_PROPERTY + one: str(new_number())}
        self.commit({}, {}, {}, alone=True)

    def outdated(self, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """See `TableState`."""
        return [tp for tp in tps if self.next_offset(tp) is not None] if self._was_replaced else []

    def _key(self, tp: TopicPartition) -> str:
        """Return the name of a topic-partition's offset.  After `forget`, the offsets have another one."""
        number = self.landed.get(tp.topic, 1)
        return f"{tp.topic}/{tp.partition}" + (f"/{number}" if number > 1 else "")

    def holds(self, paths: Iterable[str]) -> bool:
        """See `TableState`."""
        known = set(self.table.inspect.data_files()["file_path"].to_pylist())
        return all(f"{self.table.location()}/{path}" in known for path in paths)

    def has_rows(self, tp: TopicPartition, span: OffsetSpan) -> bool:
        """See `TableState`."""
        record = f"topic = '{tp.topic}' and partition = {tp.partition}"  # names of topics have no quotes
        rows = f"{record} and offset >= {span.start} and offset < {span.until}"
        return bool(self.table.scan(rows, selected_fields=("offset",), limit=1).to_arrow().num_rows)

    def commit(self, files: Files, offsets: Mapping[TopicPartition, int], note: Spans, *, alone: bool) -> None:
        """See `TableState`.  Any other commit since the look is a conflict."""
        del alone
        table = self._brief()
        stored = {**self._note["offsets"], **{self._key(tp): offset for tp, offset in offsets.items()}}
        with table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties={NOTE: as_note(note)})
            snapshot = table.current_snapshot()
            many = snapshot is not None and len(snapshot.manifests(table.io)) >= _MANIFESTS
            with update.merge_append() if many else update.fast_append() as append:
                for parts in files.values():
                    for file in parts:
                        append.append_data_file(file.entry)
                new = {"offsets": stored, "snapshot": append.snapshot_id, "sequence": self.version + 1}
                transaction.set_properties({**self._new, _OFFSETS: json.dumps(new, separators=(",", ":"))})
        self.table = table

    def _brief(self) -> Table:
        """Return the table with its current snapshot only, and the catalog's conflicts as `Once` reports them.

        Deliberate: pyiceberg (0.12.0) copies all metadata a dozen times for one commit.  With 3,000 snapshots that took
        1.6 s.  The catalog applies the commit to the whole metadata, and the table gets those with its answer.
        """
        from pyiceberg.table import Table

        old, current = self.table.metadata, self.table.current_snapshot()
        brief = old.model_copy(
            update={
                "properties": {**_MERGE, **old.properties},
                "snapshots": [] if current is None else [current],
                "snapshot_log": [],
                "refs": {name: ref for name, ref in old.refs.items() if name == "main"},
            }
        )
        catalog: Any = Once(self.table.catalog)
        return Table(self.table.name(), brief, self.table.metadata_location, self.table.io, catalog, self.table.config)


def unsupported(table: Table) -> list[str]:
    """Return what of a table landing would write wrongly."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.transforms import DayTransform, IdentityTransform
    from pyiceberg.types import BooleanType, IntegerType, LongType, StringType

    from pyspark_kafka_group.landing.layout import field_at

    found, columns = [], schema_to_pyarrow(table.schema())
    if table.metadata.format_version != 2:
        found.append(f"format version {table.metadata.format_version}")
    if table.metadata.properties.get("write.wap.enabled", "false").lower() == "true":
        found.append("the property write.wap.enabled=true")
    if _codec(table) not in _CODECS:
        found.append(f"the property {_CODEC}={_codec(table)}")
    for field in table.spec().fields:
        column = table.schema().find_column_name(field.source_id)
        kind = table.schema().find_field(field.source_id).field_type
        fine = isinstance(field.transform, IdentityTransform) and isinstance(
            kind, StringType | IntegerType | LongType | BooleanType
        )
        fine = fine and field_at(columns, str(column)) is not None  # a name may have a dot
        if not fine and not (isinstance(field.transform, DayTransform) and column == "timestamp"):
            found.append(f"the partition field {field.transform}({column})")
    return found


def _ids(table: Table) -> dict[str, int]:
    """Return the paths of the columns and their fields, and the number by which files name each."""
    from pyiceberg.schema import index_name_by_id

    return {path: number for number, path in index_name_by_id(table.schema()).items()}


def _codec(table: Table) -> str:
    return str(table.properties.get(_CODEC, "zstd")).lower()


def _noted(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix) and value}
