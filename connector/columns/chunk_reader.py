"""The C library `_native.c` seen from Python: it measures records, and fills Arrow buffers of that size.

All memory that outlives a call is Arrow's; the C code writes into it and keeps no pointer to it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.constant_columns import ConstantColumns
from pyspark_kafka_group.columns.librdkafka_library import POINTER, TEXT
from pyspark_kafka_group.columns.native_structures import (
    KAFKA_FUNCTIONS,
    Binary,
    Buffers,
    Chunk,
    MessageSource,
    Request,
    mismatch,
)
from pyspark_kafka_group.columns.schema import arrow_schema
from pyspark_kafka_group.offsets.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

# What follows the records of a chunk.
NOTHING, EVENT, BEYOND, FOREIGN, DISORDER = range(5)

_INT32, _INT64 = ctypes.c_int32, ctypes.c_int64

_REMEDY = (
    "Install a wheel for this platform, or put a C compiler on the PATH and install again, "
    "with `pip install --force-reinstall --no-deps --no-cache-dir`"
)
"""Deliberate: without pip's cache, where the wheel lies that was built without a compiler."""


@cache
def native_library() -> ctypes.CDLL | None:
    """The C library of this package, or None where there is none; `library_problem` says why."""
    found = _load()
    return found if isinstance(found, ctypes.CDLL) else None


def library_problem() -> str:
    """Why there is no C library, and what to do about it; empty if there is one."""
    found = _load()
    return found if isinstance(found, str) else ""


@cache
def _load() -> ctypes.CDLL | str:
    """The C library, or why there is none."""
    spec = find_spec("pyspark_kafka_group.columns._native")
    if spec is not None and spec.origin is not None:
        try:
            library = ctypes.CDLL(spec.origin)
        except OSError as problem:
            return f"its C library cannot be loaded ({problem}). {_REMEDY}"
        if reason := mismatch(library):
            return f"its C library cannot be used: {reason}. {_REMEDY}"
        return declared(library)
    if not Path(__file__).exists():
        return (
            "the package is imported from a zip file, out of which no C library can be loaded. "
            "Install it for the Python of the executors"
        )
    return f"its C library is not there, for it was installed without a C compiler. {_REMEDY}"


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Return the C library with its functions declared."""
    library.kg_new.restype = POINTER
    library.kg_new.argtypes = (ctypes.POINTER(MessageSource), POINTER, _INT64)
    library.kg_drop.restype = library.kg_free.restype = library.kg_collect.restype = None
    library.kg_drop.argtypes = library.kg_free.argtypes = library.kg_discard.argtypes = (POINTER,)
    library.kg_discard.restype = _INT64
    library.kg_drop_partition.restype = None
    library.kg_drop_partition.argtypes = (POINTER, TEXT, _INT32)
    library.kg_collect.argtypes = (POINTER, ctypes.POINTER(Request), ctypes.POINTER(Chunk))
    library.kg_fill.restype = ctypes.c_int
    library.kg_fill.argtypes = (POINTER, ctypes.POINTER(Chunk), ctypes.POINTER(Buffers))
    return library


class ChunkReader:
    """Takes chunks of records off a queue of messages.

    Parameters
    ----------
    library
        What `native_library` returns.
    functions
        Of librdkafka, or of `_record_batches.c`.
    queue
        What they take messages from.
    """

    def __init__(self, library: ctypes.CDLL, functions: MessageSource, queue: int) -> None:
        self._library = library
        self._reader = library.kg_new(ctypes.byref(functions), queue, limits.MAX_BATCH_RECORDS)
        if not self._reader:
            raise MemoryError
        self._request = Request()
        self._chunk = Chunk()

    def begin(self, columns: tuple[str, ...]) -> None:
        """Read these columns from now on."""
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._request = Request(
            max_records=limits.MAX_BATCH_RECORDS,
            max_bytes=limits.MAX_BATCH_BYTES,
            want_key="key" in columns,
            want_value="value" in columns,
            want_headers="headers" in columns,
        )

    def collect(self, tp: TopicPartition, start: int, until: int, *, most: int, wait_s: float) -> Chunk:
        """Measure the next records, if they are of ``[start, until)`` of this partition; holds until the next call.

        If nothing is left of what was taken off the queue before, at most `most` messages are taken off it.
        """
        request = self._request
        request.topic, request.partition = tp.topic.encode(), tp.partition
        request.start, request.until, request.take = start, until, most
        request.timeout_ms = int(wait_s * 1000)
        self._library.kg_collect(self._reader, ctypes.byref(request), ctypes.byref(self._chunk))
        return self._chunk

    def build(self, constant: ConstantColumns) -> pa.RecordBatch:
        """The records that the last `collect` has measured; `constant` are the columns of their partition."""
        import pyarrow as pa

        chunk = self._chunk
        buffers = Buffers()
        finish = [self._prepare(name, chunk, buffers, constant) for name in self._columns]
        if self._library.kg_fill(self._reader, ctypes.byref(chunk), ctypes.byref(buffers)) != 0:
            raise RuntimeError("a record changed between being measured and being copied")
        return pa.RecordBatch.from_arrays([make() for make in finish], schema=self._schema)

    def drop(self, tp: TopicPartition | None = None) -> None:
        """Drop what was taken off the queue and not yet read: of one partition, or all."""
        if tp is None:
            self._library.kg_drop(self._reader)
        else:
            self._library.kg_drop_partition(self._reader, tp.topic.encode(), tp.partition)

    def discard(self) -> bool:
        """Drop what is on the queue now; False if there was nothing."""
        return bool(self._library.kg_discard(self._reader))

    def close(self) -> None:
        """Let everything go.  No other call may follow."""
        self._library.kg_free(self._reader)

    def _prepare(self, name: str, chunk: Chunk, buffers: Buffers, constant: ConstantColumns) -> Callable[[], pa.Array]:
        """Allocate what a column needs, and return how the array is made once it is filled."""
        import pyarrow as pa

        records = chunk.records
        match name:
            case "key":
                return _binary(buffers.keys, pa.binary(), records, chunk.key_bytes, chunk.key_nulls)
            case "value":
                return _binary(buffers.values, pa.binary(), records, chunk.value_bytes, chunk.value_nulls)
            case "topic":
                return lambda: constant.topic(records)
            case "partition":
                return lambda: constant.partition(records)
            case "offset":
                offsets = pa.allocate_buffer(8 * records)
                buffers.offsets = offsets.address
                return lambda: pa.Array.from_buffers(pa.int64(), records, [None, offsets], 0)
            case "timestamp":
                return _timestamps(chunk, buffers, constant)
            case "timestampType" if chunk.timestamp_types_differ:
                types = pa.allocate_buffer(4 * records)
                buffers.timestamp_types = types.address
                return lambda: pa.Array.from_buffers(pa.int32(), records, [None, types], 0)
            case "timestampType":
                kafka_type = chunk.timestamp_type
                return lambda: constant.timestamp_type(kafka_type, records)
            case _:
                return self._headers(chunk, buffers)

    def _headers(self, chunk: Chunk, buffers: Buffers) -> Callable[[], pa.Array]:
        """Order and duplicate keys kept, null for a record without headers, as in Spark."""
        import pyarrow as pa

        list_type = self._schema.field("headers").type
        records, headers, nulls = chunk.records, chunk.headers, chunk.records - chunk.header_lists
        offsets = pa.allocate_buffer(4 * (records + 1))
        buffers.header_offsets = offsets.address
        valid = _bits(records) if nulls else None
        if valid is not None:
            buffers.header_valid = valid.address
        keys = _binary(buffers.header_keys, pa.binary(), headers, chunk.header_key_bytes, 0)
        values = _binary(
            buffers.header_values, pa.binary(), headers, chunk.header_value_bytes, chunk.header_value_nulls
        )

        def make() -> pa.Array:
            structs = pa.StructArray.from_arrays([_text(keys()), values()], fields=list(list_type.value_type))
            return pa.Array.from_buffers(list_type, records, [valid, offsets], nulls, children=[structs])

        return make


def _timestamps(chunk: Chunk, buffers: Buffers, constant: ConstantColumns) -> Callable[[], pa.Array]:
    import pyarrow as pa

    records, bad = chunk.records, chunk.bad_timestamps
    timestamps = pa.allocate_buffer(8 * records)
    buffers.timestamps = timestamps.address
    valid = _bits(records) if bad else None
    if valid is not None:
        buffers.timestamps_valid = valid.address
        constant.warn_of_timestamps(bad, chunk.first_bad_timestamp)
    return lambda: pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), records, [valid, timestamps], bad)


def _binary(column: Binary, kind: pa.DataType, length: int, size: int, nulls: int) -> Callable[[], pa.Array]:
    import pyarrow as pa

    offsets, data = pa.allocate_buffer(4 * (length + 1)), pa.allocate_buffer(size)
    column.offsets, column.data = offsets.address, data.address
    valid = _bits(length) if nulls else None
    if valid is not None:
        column.valid = valid.address
    return lambda: pa.Array.from_buffers(kind, length, [valid, offsets, data], nulls)


def _bits(length: int) -> pa.Buffer:
    """One bit per record, all zero."""
    import pyarrow as pa

    return pa.py_buffer(bytearray((length + 7) // 8))


def _text(keys: pa.Array) -> pa.Array:
    """Return keys of headers as text.  Where one is not UTF-8 it has replacement characters, as in Kafka's client."""
    import pyarrow as pa

    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


def functions_at(addresses: Mapping[str, int]) -> MessageSource:
    """The functions of librdkafka that the C code calls, found at these addresses."""
    return MessageSource(*(addresses[name] for name in KAFKA_FUNCTIONS))
