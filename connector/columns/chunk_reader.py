"""The Python side of `_native.c`, which measures the records of loaded batches and fills Arrow buffers of that size.

All memory that outlives a call belongs to Arrow.  The C code writes into it and keeps no pointer to it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.constant_columns import ConstantColumns
from pyspark_kafka_group.columns.native_library import POINTER, Int32, Int64, NativePart, Pointer, structure
from pyspark_kafka_group.columns.record_batches import RecordBatches
from pyspark_kafka_group.columns.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

# The item after the records of a chunk.
NOTHING, MALFORMED, BEYOND, DISORDER = range(4)


@structure
class ChunkRequest(ctypes.Structure):
    """The records to measure; ``request_t``."""

    start: Int64
    until: Int64
    max_bytes: Int64
    want_key: Int32
    want_value: Int32
    want_headers: Int32


@structure
class Chunk(ctypes.Structure):
    """The measured records; ``chunk_t``."""

    records: Int64
    last_offset: Int64
    key_bytes: Int64
    key_nulls: Int64
    value_bytes: Int64
    value_nulls: Int64
    header_lists: Int64
    headers: Int64
    header_key_bytes: Int64
    header_value_bytes: Int64
    header_value_nulls: Int64
    bad_timestamps: Int64
    first_bad_timestamp: Int64
    other_offset: Int64
    timestamp_type: Int32
    timestamp_types_differ: Int32
    follows: Int32


@structure
class Binary(ctypes.Structure):
    """The buffers of a column of variable length; ``binary_t``."""

    offsets: Pointer
    data: Pointer
    valid: Pointer


@structure
class Buffers(ctypes.Structure):
    """The buffers for copies of records; ``buffers_t``."""

    keys: Binary
    values: Binary
    offsets: Pointer
    timestamps: Pointer
    timestamps_valid: Pointer
    timestamp_types: Pointer
    header_offsets: Pointer
    header_valid: Pointer
    header_keys: Binary
    header_values: Binary


CHUNKS = NativePart(
    "kg_shared",
    (ChunkRequest, Chunk, Binary, Buffers),
    {
        "kg_collect": (None, (POINTER, ctypes.POINTER(ChunkRequest), ctypes.POINTER(Chunk))),
        "kg_fill": (ctypes.c_int, (POINTER, ctypes.POINTER(Chunk), ctypes.POINTER(Buffers))),
    },
)
"""`_native.c`."""


class ChunkReader:
    """Reads the records of loaded batches of one partition, as chunks that are columns of Arrow.

    Parameters
    ----------
    library
        The library of `CHUNKS`, which is also that of `record_batches.BATCHES`.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._reader = library.kb_new(limits.MAX_BATCH_RECORDS)
        if not self._reader:
            raise MemoryError
        self._batches: RecordBatches | None = None
        self._request = ChunkRequest()
        self._chunk = Chunk()

    def begin(self, columns: tuple[str, ...]) -> None:
        """Read these columns from now on."""
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._request = ChunkRequest(
            max_bytes=limits.MAX_BATCH_BYTES,
            want_key="key" in columns,
            want_value="value" in columns,
            want_headers="headers" in columns,
        )

    def load(self, position: int, batches: RecordBatches) -> None:
        """Read these batches next, from `position` on, in place of the loaded ones."""
        self._batches = batches  # keep them alive: records point into them
        data, aborted = batches.data, batches.aborted
        self._library.kb_load(self._reader, position, data.address, data.size, aborted.address, aborted.count)

    def unload(self) -> None:
        """Forget the loaded batches."""
        self._library.kb_unload(self._reader)
        self._batches = None

    def collect(self, start: int, until: int) -> Chunk:
        """Measure the next loaded records of ``[start, until)``.  The result is valid until the next call."""
        self._request.start, self._request.until = start, until
        self._library.kg_collect(self._reader, ctypes.byref(self._request), ctypes.byref(self._chunk))
        return self._chunk

    def build(self, constant: ConstantColumns) -> pa.RecordBatch:
        """Return the records that the last `collect` has measured; `constant` has the constant columns."""
        import pyarrow as pa

        chunk = self._chunk
        buffers = Buffers()
        finish = [self._prepare(name, chunk, buffers, constant) for name in self._columns]
        if self._library.kg_fill(self._reader, ctypes.byref(chunk), ctypes.byref(buffers)) != 0:
            raise RuntimeError("a record has changed after it was measured")
        return pa.RecordBatch.from_arrays([make() for make in finish], schema=self._schema)

    def close(self) -> None:
        """Free all memory.  No other call may follow."""
        self._library.kb_free(self._reader)

    def _prepare(self, name: str, chunk: Chunk, buffers: Buffers, constant: ConstantColumns) -> Callable[[], pa.Array]:
        """Allocate the buffers of a column, and return a function that makes the array after they are filled."""
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
        """Prepare the headers, as in Spark: with duplicate keys, in order, null for a record without headers."""
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
    """Return a buffer with one zero bit per record."""
    import pyarrow as pa

    return pa.py_buffer(bytearray((length + 7) // 8))


_KEYS_AT_ONCE = 100_000


def _text(keys: pa.Array) -> pa.Array:
    """Return keys of headers as text.  A key that is not UTF-8 gets replacement characters, as in Kafka's client."""
    import pyarrow as pa

    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        if len(keys) <= _KEYS_AT_ONCE:
            return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
    # Deliberate: in parts.  A small batch may have millions of keys, and objects take far more than they do.
    parts = [keys.slice(start, _KEYS_AT_ONCE) for start in range(0, len(keys), _KEYS_AT_ONCE)]
    return pa.concat_arrays([_text(part) for part in parts])
