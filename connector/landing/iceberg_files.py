"""Writes the files of an Iceberg table in the tasks, and opens its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pfs

from pyspark_kafka_group.landing.files import NewFile, Place, write_ranges
from pyspark_kafka_group.landing.layout import DAY, Layout
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Record


def place_of(location: str, properties: Mapping[str, str]) -> Place:
    """Return the folder of a table.  Object stores are opened by pyiceberg, with the properties of its files."""
    local = local_path(location)
    if local is not None:
        return Place.on_disk(local)
    from pyiceberg.io.pyarrow import PyArrowFileIO

    parts = urlsplit(location)
    files = PyArrowFileIO(dict(properties)).fs_by_scheme(parts.scheme, parts.netloc)
    return Place(pfs.SubTreeFileSystem(f"{parts.netloc}{parts.path}", files))


def local_path(location: str) -> str | None:
    """Return the path on the local disk as pyiceberg reads it, with any % as it is; None in an object store."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, _, path = PyArrowFileIO.parse_location(location)
    return path if scheme == "file" else None


def described(file: NewFile, metadata: TableMetadata, properties: Mapping[str, str]) -> NewFile:
    """Return a written file with its entry for the manifest, which contains bounds from the file's footer."""
    from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file

    files, path = PyArrowFileIO(dict(properties)), f"{metadata.location}/{file.path}"
    try:
        entry = parquet_file_to_data_file(files, metadata, path)
    except OverflowError:  # a time before the year 1 or after 9999, which Python does not know
        entry = parquet_file_to_data_file(files, _without_bounds_of_times(metadata), path)
    # Deliberate: pyiceberg reads the partition from bounds.  A table may want none, and long texts have none.
    entry[_PARTITION] = partition_of(file, metadata)
    return replace(file, entry=entry)


_PARTITION = 3
"""The place of the partition in an entry (pyiceberg 0.12.0)."""


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


def _without_bounds_of_times(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata of a table whose manifests have no bounds of times."""
    from pyiceberg.schema import index_by_id
    from pyiceberg.types import DateType, TimestampType, TimestamptzType

    schema = metadata.schema()
    times = [
        schema.find_column_name(number)
        for number, field in index_by_id(schema).items()
        if isinstance(field.field_type, DateType | TimestampType | TimestamptzType)
    ]
    modes = {f"write.metadata.metrics.column.{name}": "counts" for name in times}
    return metadata.model_copy(update={"properties": {**metadata.properties, **modes}})


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
    found = write_ranges(batches, ranges, place, Layout.from_json(target["layout"]), columns)
    return {tp: [described(file, metadata, properties) for file in files] for tp, files in found.items()}
