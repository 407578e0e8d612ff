"""The Python side of the C library `_produce.c`: the addresses of the columns in memory.

The caller keeps the columns alive.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.columns.native_library import POINTER, Int64, NativePart, Pointer, structure
from pyspark_kafka_group.writing.record_rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa

PRODUCER_FUNCTIONS = {
    "produce": "rd_kafka_produce",
    "producev": "rd_kafka_producev",
    "headers_new": "rd_kafka_headers_new",
    "header_add": "rd_kafka_header_add",
    "headers_destroy": "rd_kafka_headers_destroy",
    "last_error": "rd_kafka_last_error",
}
"""The functions of librdkafka that `_produce.c` calls, by their names in the C code, in its order."""


class ProducerFunctions(ctypes.Structure):
    """Functions of librdkafka; ``producer_t``."""

    _fields_ = [(name, POINTER) for name in PRODUCER_FUNCTIONS]


@structure
class ProducerColumn(ctypes.Structure):
    """A column to write; ``column_t``."""

    offsets: Pointer
    data: Pointer
    valid: Pointer
    first: Int64


@structure
class ProducerRows(ctypes.Structure):
    """The rows to write; ``rows_t``."""

    topics: Pointer
    topic: Pointer
    partition: Pointer
    keys: ProducerColumn
    values: ProducerColumn
    headers: ProducerColumn
    header_keys: ProducerColumn
    header_values: ProducerColumn


PRODUCE = NativePart(
    "kg_produce_shared",
    (ProducerFunctions, ProducerColumn, ProducerRows),
    {
        "kg_produce": (
            ctypes.c_int64,
            (POINTER, POINTER, POINTER, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_int32)),
        ),
        "kg_digest": (ctypes.c_uint64, (POINTER, POINTER, POINTER, ctypes.c_int64)),
    },
)
"""`_produce.c`."""


def layout_of(rows: Rows, topics: int) -> tuple[ProducerRows, list[Any]]:
    """Return the addresses of the columns, and the objects to keep alive while C code uses them.

    Parameters
    ----------
    rows : Rows
        The rows.
    topics : int
        The address of an array with an entry for each topic of the rows.
    """
    alive: list[Any] = [rows]
    layout = ProducerRows(
        topics=topics,
        topic=numbers_column(rows.topic),
        partition=numbers_column(rows.partition),
        keys=binary_column(rows.key),
        values=binary_column(rows.value),
    )
    if rows.headers is not None:
        entries = rows.headers.values
        keys, values = entries.field(0), entries.field(1)
        alive += [entries, keys, values]
        valid, offsets = rows.headers.buffers()[:2]
        layout.headers = ProducerColumn(buffer_address(offsets), None, buffer_address(valid), rows.headers.offset)
        layout.header_keys, layout.header_values = binary_column(keys), binary_column(values)
    return layout, alive


def numbers_column(column: pa.Int32Array | None) -> int | None:
    """Return the address of the first number; None if there is no column."""
    return None if column is None else column.buffers()[1].address + 4 * column.offset


def binary_column(column: pa.BinaryArray | None) -> ProducerColumn:
    """Return the addresses of the buffers of a column; all null if there is no column."""
    if column is None:
        return ProducerColumn()
    valid, offsets, data = column.buffers()
    return ProducerColumn(buffer_address(offsets), buffer_address(data), buffer_address(valid), column.offset)


def buffer_address(buffer: pa.Buffer | None) -> int | None:
    """Return the address of a buffer; None if there is no buffer."""
    return None if buffer is None else buffer.address
