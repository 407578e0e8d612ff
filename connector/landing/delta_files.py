"""Writes the files of a Delta table in the tasks, and opens its folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pfs

from pyspark_kafka_group.landing.files import NewFile, Place, local_folder, write_ranges
from pyspark_kafka_group.landing.layout import Layout
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition

_MILLISECOND = 1000
"""In microseconds."""

_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999."""


def place_of(uri: str, options: Mapping[str, str]) -> Place:
    """Return the folder of a table.  Object stores are opened by deltalake, with its ``storage_options``."""
    local = local_folder(uri)
    if local is not None:
        return Place.on_disk(local)
    from deltalake.fs import DeltaStorageHandler

    class ByteStreams(DeltaStorageHandler):
        """Regression: deltalake 1.6 refuses the buffers that pyarrow 26 writes."""

        def open_output_stream(self, path: str, metadata: Any = None) -> pa.PythonFile:
            return pa.PythonFile(_Bytes(self._handler.open_output_stream(path, None)), mode="w")

    return Place(pfs.PyFileSystem(ByteStreams(uri, dict(options))))


class _Bytes:
    """A stream that passes on what it gets as ``bytes``."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream, self._size = stream, 0

    def write(self, data: Any) -> int:
        found = bytes(data)
        self._size += len(found)
        self._stream.write(found)
        return len(found)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()


def write_task(
    target: Mapping[str, Any], batches: Iterator[pa.RecordBatch], ranges: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, list[NewFile]]:
    """See :func:`.source.write_task`."""
    return write_ranges(batches, ranges, place_of(target["uri"], target["options"]), Layout.from_json(target["layout"]))


def partition_values(file: NewFile, columns: Collection[str]) -> dict[str, str | None]:
    """Return the values of a file's partition columns, as Delta's log has them.

    Deliberate: files have these columns, too.  Polars reads them from there
    (`test_polars_reads_a_table_with_partitions`), and Delta's readers ignore them.
    """
    return {name: _text(file.values[name]) for name in columns}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def delta_stats(file: NewFile, tp: TopicPartition, partition_columns: Collection[str]) -> str:
    """Return the statistics of the record's columns in a file, for Delta's log.

    Deliberate: no others.  A wrong or a rounded bound hides rows.  Kafka's timestamps are whole milliseconds, as
    Delta's bounds are; others have no bounds.  Nor have those whose year has not four digits.
    """
    low: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition, "offset": file.first}
    high: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition, "offset": file.last}
    times = file.times or ()
    if times and all(_FIRST_US <= time <= _LAST_US and time % _MILLISECOND == 0 for time in times):
        low["timestamp"], high["timestamp"] = map(_iso, times)
    for bounds in (low, high):
        for name in partition_columns:
            bounds.pop(name, None)
    nulls = {name: count for name, count in file.nulls.items() if name not in partition_columns}
    stats = {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": {k: nulls[k] for k in low}}
    return json.dumps(stats, separators=(",", ":"))


def _iso(microseconds: int) -> str:
    time = pa.scalar(microseconds, pa.timestamp("us")).cast(pa.timestamp("ms"))
    return f"{pc.strftime(time, '%Y-%m-%dT%H:%M:%S').as_py()}Z"
