"""The Python side of the C library `_formats.c`: the columns that it fills, and the Arrow arrays over its memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.native_library import POINTER, Int32, Int64, NativePart, Pointer, structure

if TYPE_CHECKING:
    import pyarrow as pa

_BITS, _NUMBERS, _BINARY, _LIST, _STRUCT = range(5)
_FINE, _UNKNOWN_SCHEMA, _NO_MEMORY, _TOO_LARGE = range(4)
_INT32, _INT64 = ctypes.c_int32, ctypes.c_int64

OPERATIONS = (
    "FAIL", "SKIP_FIXED", "SKIP_VARINT", "SKIP_BYTES", "SKIP_ARRAY", "SKIP_MAP", "SEQUENCE", "BRANCH", "DEFAULT",
    "TO_END", "NULL_VALUE", "BOOLEAN", "INT", "LONG", "LONG_TIMES", "INT_AS_FLOAT", "INT_AS_DOUBLE", "FLOAT",
    "FLOAT_AS_DOUBLE", "DOUBLE", "BYTES", "STRING", "FIXED", "DECIMAL", "ENUM", "RECORD", "ARRAY", "MAP", "MEMBER",
    "PROTO_RECORD", "PROTO_MESSAGE", "PROTO_NUMBER", "PROTO_TEXT", "PROTO_ENUM", "PROTO_TIME",
)  # fmt: skip
"""The operations of a program, in the order of their numbers in `_formats.c`."""


@structure
class DecodedColumn(ctypes.Structure):
    """A column that grows; ``column_t`` of `_columns.h`."""

    length: Int64
    bytes: Int64
    valid: Pointer
    offsets: Pointer
    data: Pointer
    valid_room: Int64
    offsets_room: Int64
    data_room: Int64
    kind: Int32
    width: Int32
    first_child: Int32
    children: Int32


@structure
class NativeProgram(ctypes.Structure):
    """The program for records of one schema; ``program_t``."""

    id: Int64
    code: Pointer
    constants: Pointer


@structure
class EncodedRows(ctypes.Structure):
    """The records to decode; ``rows_t``."""

    offsets: Pointer
    data: Pointer
    valid: Pointer
    first: Int64


@structure
class NativeOutput(ctypes.Structure):
    """The filled columns; ``output_t`` of `_columns.h`."""

    status: Int32
    count: Int32
    unknown_id: Int64
    declined_count: Int64
    declined: Annotated[Any, ctypes.POINTER(ctypes.c_int32)]
    columns: Annotated[Any, ctypes.POINTER(DecodedColumn)]
    room_left: Int64
    declined_room: Int64
    table_room: Int64
    table: Pointer


FORMATS = NativePart(
    "ka_shared",
    (DecodedColumn, NativeProgram, EncodedRows, NativeOutput, len(OPERATIONS)),
    {
        "ka_new": (POINTER, (POINTER, _INT32, _INT64)),
        "ka_free": (None, (POINTER,)),
        "ka_decode": (_INT64, (POINTER, POINTER, _INT32, _INT32, ctypes.POINTER(EncodedRows), _INT64, _INT64)),
    },
)
"""`_formats.c`."""


class Program(NamedTuple):
    """A program for `_formats.c`, compiled by `avro_program`.

    Attributes
    ----------
    code : list of int
        The operations.  The program begins with the first one.
    constants : bytes
        The constants of operations.
    """

    code: list[int]
    constants: bytes


@dataclass(frozen=True, slots=True)
class LayoutColumn:
    """One column, or a part of one.

    Attributes
    ----------
    number : int
        The number in the layout.
    type : pyarrow.DataType
        The type.
    sort : str
        The sort of its values: ``boolean``, ``int32``, ``int64``, ``float``, ``double``, ``decimal``, ``string``,
        ``binary``, ``list``, ``map`` or ``struct``.
    """

    number: int
    type: pa.DataType
    sort: str


class ColumnLayout:
    """The columns of a type: the type itself, then all its parts.  Parts of one parent are adjacent.

    Parameters
    ----------
    arrow_type : pyarrow.DataType
        The type.

    Raises
    ------
    TypeError
        If `_formats.c` does not support a part of the type.
    """

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._all: list[LayoutColumn] = []
        self._inner: list[list[int]] = []
        self._shapes: list[tuple[int, int]] = []
        types = [arrow_type]
        for number, one in enumerate(types):  # the list grows in the loop
            sort, kind, width, inner = _shape(one)
            self._all.append(LayoutColumn(number, one, sort))
            self._shapes.append((kind, width))
            self._inner.append(list(range(len(types), len(types) + len(inner))))
            types += inner

    @property
    def root(self) -> LayoutColumn:
        """The column of the whole type."""
        return self._all[0]

    def inside(self, column: LayoutColumn) -> list[LayoutColumn]:
        """Return the parts of a column: the element of a list, or the keys and the values of a map."""
        found = [self._all[number] for number in self._inner[column.number]]
        return self.inside(found[0]) if column.sort == "map" else found

    def entry(self, column: LayoutColumn) -> int:
        """Return the number of the struct with the keys and the values of a map."""
        return self._inner[column.number][0]

    def layout(self) -> list[int]:
        """Return the argument of ``ka_new``."""
        return [
            number
            for (kind, width), inner in zip(self._shapes, self._inner, strict=True)
            for number in (kind, width, inner[0] if inner else 0, len(inner))
        ]

    def array(self, number: int, found: ctypes.Array[DecodedColumn], memory: _DecoderMemory) -> pa.Array:
        """Return the array over the memory of a column, without a copy."""
        import pyarrow as pa

        def buffer(address: int | None, size: int) -> pa.Buffer:
            return pa.foreign_buffer(address, size, memory) if address and size else pa.py_buffer(b"")

        column, rows, kind = found[number], found[number].length, self._shapes[number][0]
        buffers = [buffer(column.valid, (rows + 7) // 8) if column.valid else None]
        if kind in (_BINARY, _LIST):
            buffers.append(buffer(column.offsets, (rows + 1) * 4))
        if kind in (_NUMBERS, _BINARY):
            buffers.append(buffer(column.data, column.bytes))
        if kind == _BITS:
            buffers.append(buffer(column.data, (rows + 7) // 8))
        inner = [self.array(one, found, memory) for one in self._inner[number]]
        return pa.Array.from_buffers(self._all[number].type, rows, buffers, children=inner or None)


def _shape(one: pa.DataType) -> tuple[str, int, int, list[pa.DataType]]:
    """Return sort, kind, width and parts of a type."""
    import pyarrow as pa

    plain = {
        pa.bool_(): ("boolean", _BITS, 0),
        pa.int32(): ("int32", _NUMBERS, 4),
        pa.date32(): ("int32", _NUMBERS, 4),
        pa.int64(): ("int64", _NUMBERS, 8),
        pa.float32(): ("float", _NUMBERS, 4),
        pa.float64(): ("double", _NUMBERS, 8),
        pa.string(): ("string", _BINARY, 0),
        pa.binary(): ("binary", _BINARY, 0),
    }
    if one in plain:
        return *plain[one], []
    if (pa.types.is_timestamp(one) or pa.types.is_duration(one)) and one.unit == "us":
        return "int64", _NUMBERS, 8, []
    if pa.types.is_decimal128(one):
        return "decimal", _NUMBERS, 16, []
    if pa.types.is_map(one):
        return "map", _LIST, 0, [pa.struct([one.key_field, one.item_field])]
    if pa.types.is_list(one):
        return "list", _LIST, 0, [one.value_type]
    if pa.types.is_struct(one):
        return "struct", _STRUCT, 0, [one.field(n).type for n in range(one.num_fields)]
    raise TypeError(f"no column of {one}")


class _DecoderMemory:
    """Memory of the C code.  It lives until the last Arrow buffer is freed."""

    def __init__(self, library: ctypes.CDLL, columns: ColumnLayout, most_bytes: int) -> None:
        layout = columns.layout()
        self._free = library.ka_free
        self.address: int | None = library.ka_new((_INT32 * len(layout))(*layout), len(layout) // 4, most_bytes)
        if not self.address:
            raise MemoryError("no memory for the columns of a record")

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self._free(self.address)


class Programs:
    """The programs of known schemas, by schema id.

    Parameters
    ----------
    framed : bool
        Whether records begin with the id of their schema.  If not, there is one program, with the id 0.
    """

    def __init__(self, *, framed: bool) -> None:
        self.framed = framed
        self._kept: dict[int, tuple[ctypes.Array[ctypes.c_int32], ctypes.Array[ctypes.c_char]] | None] = {}
        self._table: ctypes.Array[NativeProgram] | None = None

    def add(self, number: int, program: Program | None) -> None:
        """Add a program.  With None, the C code declines records of this schema."""
        self._kept[number] = None
        if program is not None:
            constants = ctypes.create_string_buffer(program.constants)
            self._kept[number] = (_INT32 * len(program.code))(*program.code), constants
        self._table = None

    def __contains__(self, number: int) -> bool:
        return number in self._kept

    def drop(self, number: int) -> None:
        """Remove a program."""
        del self._kept[number]
        self._table = None

    @property
    def table(self) -> ctypes.Array[NativeProgram]:
        """The table for ``ka_decode``, built once after programs were added or removed."""
        if self._table is None:
            self._table = self._built()
        return self._table

    def _built(self) -> ctypes.Array[NativeProgram]:
        table = (NativeProgram * len(self._kept))()
        for place, (number, kept) in zip(table, sorted(self._kept.items()), strict=True):
            place.id = number
            if kept is not None:
                place.code = ctypes.addressof(kept[0])
                place.constants = ctypes.addressof(kept[1])
        return table


def decode(
    library: ctypes.CDLL,
    columns: ColumnLayout,
    programs: Programs,
    values: pa.BinaryArray,
    meet: Callable[[], None],
) -> tuple[pa.Array, list[int]]:
    """Decode records.

    Parameters
    ----------
    library
        The library of `FORMATS`.
    columns
        The columns to fill.
    programs
        The programs by schema id.
    values : pyarrow.BinaryArray
        The records.
    meet
        Called if a record has an id without a program.  Adds programs for all ids of the records.

    Returns
    -------
    column : pyarrow.Array
        A row for each value.  It is null if the value is null, or the C code has declined it.
    declined : list of int
        The declined rows.  ``~row`` is certainly malformed: it has a number of more than 64 bits, or an index below
        zero.

    Raises
    ------
    limits.TooLargeError
        If the columns would exceed `limits.MAX_DECODED_BYTES`, or the range of Arrow's 32-bit offsets.
    MemoryError
        If there is not enough memory.
    """
    memory = _DecoderMemory(library, columns, limits.MAX_DECODED_BYTES + 2 * values.nbytes)
    valid, offsets, data = values.buffers()
    rows = EncodedRows(
        offsets=offsets.address + 4 * values.offset,
        data=data.address if data is not None and data.size else ctypes.addressof(memory_of_nothing),
        valid=valid.address if valid is not None else None,
        first=values.offset,
    )
    output = NativeOutput.from_address(memory.address or 0)
    row = 0
    while row < len(values):
        table = programs.table
        row = library.ka_decode(
            memory.address, table, len(table), int(programs.framed), ctypes.byref(rows), row, len(values)
        )
        if output.status == _NO_MEMORY:
            raise MemoryError("no memory for the columns of records")
        if output.status == _TOO_LARGE:
            raise limits.TooLargeError
        if output.status == _UNKNOWN_SCHEMA:
            meet()
            assert output.unknown_id in programs
    found = ctypes.cast(output.columns, ctypes.POINTER(DecodedColumn * output.count)).contents
    return columns.array(0, found, memory), output.declined[: output.declined_count]


memory_of_nothing = ctypes.c_uint64()
