"""Writes the files of an Iceberg table in the tasks, and opens its folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pfs
import pyarrow.parquet as pq

from pyspark_kafka_group.landing.files import NewFile, Place, write_ranges
from pyspark_kafka_group.landing.layout import DAY, Layout
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import StatisticsCollector
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Record


def place_of(location: str, properties: Mapping[str, str]) -> Place:
    """Return the folder of a table.  Object stores are opened by pyiceberg, with the properties of its files."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    local = local_path(location)
    if local is not None:
        return Place.on_disk(local)
    scheme, address, path = PyArrowFileIO.parse_location(location)
    return Place(pfs.SubTreeFileSystem(path, PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, address)))


def local_path(location: str) -> str | None:
    """Return the path on the local disk as pyiceberg reads it, with any % as it is; None in an object store."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, _, path = PyArrowFileIO.parse_location(location)
    return path if scheme == "file" else None


def described(file: NewFile, metadata: TableMetadata, properties: Mapping[str, str]) -> NewFile:
    """Return a written file with its entry for the manifest, which contains bounds from the file's footer.

    Deliberate: not by pyiceberg's `parquet_file_to_data_file` (0.12.0).  It takes the partition from bounds, which a
    table may not want.  And it ignores a row group whose texts are too long for bounds, so those of the file are wrong.
    """
    from pyiceberg.io.pyarrow import PyArrowFileIO, data_file_statistics_from_parquet_metadata
    from pyiceberg.io.pyarrow import compute_statistics_plan as plan_of
    from pyiceberg.io.pyarrow import parquet_path_to_id_mapping as ids_of
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    path = f"{metadata.location}/{file.path}"
    with PyArrowFileIO(dict(properties)).new_input(path).open() as stream:
        footer = pq.read_metadata(stream)
    ids, plan = ids_of(metadata.schema()), plan_of(metadata.schema(), metadata.properties)
    plan = _only_counted(plan, {ids[column] for column in _without_bounds(footer)})
    try:
        statistics = data_file_statistics_from_parquet_metadata(footer, plan, ids).to_serialized_dict()
    except (OverflowError, UnicodeEncodeError):  # a time that Python does not know; a bound that is no text
        plan = _only_counted(plan, _times_and_texts(metadata.schema()))
        statistics = data_file_statistics_from_parquet_metadata(footer, plan, ids).to_serialized_dict()
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition_of(file, metadata),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )
    return replace(file, entry=entry)


def _without_bounds(footer: pq.FileMetaData) -> set[str]:
    """Return the columns with a row group whose values have no bounds."""
    chunks = [
        footer.row_group(group).column(column)
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    ]
    return {
        chunk.path_in_schema
        for chunk in chunks
        if chunk.statistics is None
        or not (
            chunk.statistics.has_min_max
            or (chunk.statistics.has_null_count and chunk.statistics.null_count == chunk.num_values)
        )
    }


def _only_counted(plan: Mapping[int, StatisticsCollector], columns: Collection[int]) -> dict[int, StatisticsCollector]:
    """Return a plan of statistics in which some columns have no bounds."""
    from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode

    none, counts = MetricsMode(MetricModeTypes.NONE), MetricsMode(MetricModeTypes.COUNTS)
    return {
        number: replace(one, mode=counts) if number in columns and one.mode != none else one
        for number, one in plan.items()
    }


def _times_and_texts(schema: Schema) -> set[int]:
    from pyiceberg.schema import index_by_id
    from pyiceberg.types import DateType, StringType, TimestampType, TimestamptzType

    kinds = DateType | StringType | TimestampType | TimestamptzType
    return {number for number, field in index_by_id(schema).items() if isinstance(field.field_type, kinds)}


def partition_of(file: NewFile, metadata: TableMetadata) -> Record:
    """Return the partition of a file: what its rows have one value of."""
    from pyiceberg.transforms import DayTransform
    from pyiceberg.typedef import Record

    found: list[Any] = []
    for field in metadata.spec().fields:
        # The table has the column, but the source may lack it.
        if isinstance(field.transform, DayTransform):
            day = file.values.get(DAY)
            found.append(None if day is None else (day - date(1970, 1, 1)).days)
        else:
            found.append(file.values.get(str(metadata.schema().find_column_name(field.source_id))))
    return Record(*found)


def write_task(
    target: Mapping[str, Any], batches: Iterator[pa.RecordBatch], ranges: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, list[NewFile]]:
    """See :func:`.source.write_task`."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.table.metadata import TableMetadataUtil

    metadata, properties = TableMetadataUtil.parse_raw(target["metadata"]), target["properties"]
    table = schema_to_pyarrow(metadata.schema())
    # Deliberate: with the table's ids of columns, so that readers find them after a column was renamed.
    columns = pa.schema([table.field(name) for name in target["columns"]])
    place = place_of(metadata.location, properties)
    return write_ranges(
        batches,
        ranges,
        place,
        Layout.from_json(target["layout"]),
        columns=columns,
        describe=lambda file: described(file, metadata, properties),
    )
