"""Where the columns of rows are in memory, as `_produce.c` takes them.  Whoever uses that keeps the columns alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_group.columns.native_structures import ProducerColumn

if TYPE_CHECKING:
    import pyarrow as pa


def numbers_column(column: pa.Int32Array | None) -> int | None:
    """Return where the first number is; None if there is no column."""
    return None if column is None else column.buffers()[1].address + 4 * column.offset


def binary_column(column: pa.BinaryArray | None) -> ProducerColumn:
    """Return where the buffers of a column are; all null if there is no column."""
    if column is None:
        return ProducerColumn()
    valid, offsets, data = column.buffers()
    return ProducerColumn(buffer_address(offsets), buffer_address(data), buffer_address(valid), column.offset)


def buffer_address(buffer: pa.Buffer | None) -> int | None:
    """Return where a buffer is."""
    return None if buffer is None else buffer.address
