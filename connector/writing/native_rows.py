"""The rows to write, as the C code sees them: the addresses of the columns in memory (`_rows.h`)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.columns.native_library import Int64, Pointer, structure
from pyspark_kafka_group.writing.record_rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa


@structure
class NativeColumn(ctypes.Structure):
    """A column to write; ``column_t``."""

    offsets: Pointer
    data: Pointer
    valid: Pointer
    first: Int64


@structure
class NativeRows(ctypes.Structure):
    """The rows to write; ``rows_t``."""

    topics: Pointer
    topic: Pointer
    partition: Pointer
    keys: NativeColumn
    values: NativeColumn
    headers: NativeColumn
    header_keys: NativeColumn
    header_values: NativeColumn


def layout_of(rows: Rows, topics: int) -> tuple[NativeRows, list[Any]]:
    """Return the addresses of the columns, and the objects to keep alive while C code uses them.

    Parameters
    ----------
    rows : Rows
        The rows.
    topics : int
        The address of an array with an entry for each topic of the rows.
    """
    alive: list[Any] = [rows]
    layout = NativeRows(
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
        layout.headers = NativeColumn(buffer_address(offsets), None, buffer_address(valid), rows.headers.offset)
        layout.header_keys, layout.header_values = binary_column(keys), binary_column(values)
    return layout, alive


def numbers_column(column: pa.Int32Array | None) -> int | None:
    """Return the address of the first number; None if there is no column."""
    return None if column is None else column.buffers()[1].address + 4 * column.offset


def binary_column(column: pa.BinaryArray | None) -> NativeColumn:
    """Return the addresses of the buffers of a column; all null if there is no column."""
    if column is None:
        return NativeColumn()
    valid, offsets, data = column.buffers()
    return NativeColumn(buffer_address(offsets), buffer_address(data), buffer_address(valid), column.offset)


def buffer_address(buffer: pa.Buffer | None) -> int | None:
    """Return the address of a buffer; None if there is no buffer."""
    return None if buffer is None else buffer.address
