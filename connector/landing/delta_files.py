"""Writes the files of a Delta table in the tasks, and opens its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pfs

from pyspark_kafka_group.landing.files import Layout, NewFile, Place, local_folder, write_ranges
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition


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
