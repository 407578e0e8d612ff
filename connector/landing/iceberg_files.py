"""Writes the files of an Iceberg table in the tasks, and opens its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pfs

from pyspark_kafka_group.landing.files import Layout, NewFile, Place, local_folder, write_ranges
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def place_of(location: str, properties: Mapping[str, str]) -> Place:
    """Return the folder of a table.  Object stores are opened by pyiceberg, with the properties of its files."""
    local = local_folder(location)
    if local is not None:
        return Place.on_disk(local)
    from pyiceberg.io.pyarrow import PyArrowFileIO

    parts = urlsplit(location)
    files = PyArrowFileIO(dict(properties)).fs_by_scheme(parts.scheme, parts.netloc)
    return Place(pfs.SubTreeFileSystem(f"{parts.netloc}{parts.path}", files))


def described(file: NewFile, metadata: TableMetadata, properties: Mapping[str, str]) -> NewFile:
    """Return a written file with its entry for the manifest, which contains bounds from the file's footer."""
    from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file

    path = f"{metadata.location}/{file.path}"
    return replace(file, entry=parquet_file_to_data_file(PyArrowFileIO(dict(properties)), metadata, path))


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
