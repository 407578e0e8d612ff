"""Compiles the descriptor of a message to a program for `_formats.c`.

The whole type stays in Python if it has a group, extensions, a map with boolean keys, or more than 25 levels.
The order of entries in a map may differ from the one of the library, which is arbitrary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_group.formats.native_columns import OPERATIONS, ColumnLayout, LayoutColumn, Program

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

_FAIL, _DEFAULT, _NULL_VALUE = (OPERATIONS.index(name) for name in ("FAIL", "DEFAULT", "NULL_VALUE"))
_RECORD, _MESSAGE, _NUMBER, _TEXT, _ENUM, _TIME = range(OPERATIONS.index("PROTO_RECORD"), len(OPERATIONS))
_VARINT, _UINT32, _SINT32, _SINT64, _FIXED32, _FIXED64 = range(6)
_SINGLE, _MERGED, _REPEATED, _ENTRIES = range(4)
_WIRE_VARINT, _WIRE_64, _WIRE_BYTES, _WIRE_32 = 0, 1, 2, 5
_ZERO_BYTES = {_WIRE_VARINT: 1, _WIRE_64: 8, _WIRE_BYTES: 1, _WIRE_32: 4}
"""The size of a zero, or of an empty value, as it is written."""

_NUMBERS = {
    "TYPE_BOOL": ("boolean", _VARINT),
    "TYPE_INT32": ("int32", _VARINT),
    "TYPE_INT64": ("int64", _VARINT),
    "TYPE_UINT32": ("int64", _UINT32),
    "TYPE_UINT64": ("decimal", _VARINT),
    "TYPE_SINT32": ("int32", _SINT32),
    "TYPE_SINT64": ("int64", _SINT64),
    "TYPE_FIXED32": ("int64", _FIXED32),
    "TYPE_SFIXED32": ("int32", _FIXED32),
    "TYPE_FLOAT": ("float", _FIXED32),
    "TYPE_FIXED64": ("decimal", _FIXED64),
    "TYPE_SFIXED64": ("int64", _FIXED64),
    "TYPE_DOUBLE": ("double", _FIXED64),
}
"""The sort of the column, and how the number is written."""

_TIMES = {"google.protobuf.Timestamp": 0, "google.protobuf.Duration": 1}
_DEEPEST = 25
_MOST_CONSTANTS = 4_000_000


def program_of(message: Descriptor, indexes: tuple[int, ...], columns: ColumnLayout) -> Program | None:
    """Return the program that decodes records of a message to columns.

    Parameters
    ----------
    message : Descriptor
        The reader's message.
    indexes : tuple of int
        The indexes of the message in the writer's file.
    columns : ColumnLayout
        The columns for the message.

    Returns
    -------
    Program or None
        None if the message has a part that only Python decodes.
    """
    head = b"".join(_zigzag(number) for number in (len(indexes), *indexes))
    compiler = _ProtobufCompiler(columns, bytes(8) + head)
    try:
        compiler.record(message, len(head), first=indexes == (0,))
    except (TypeError, RecursionError):
        return None
    return Program(compiler.code, bytes(compiler.constants))


def _zigzag(number: int) -> bytes:
    number *= 2
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


class _ProtobufCompiler:
    """Writes a program.  Each method returns the position of its operation.  The constants begin with eight zeros."""

    def __init__(self, columns: ColumnLayout, constants: bytes) -> None:
        self._columns = columns
        self.constants = bytearray(constants)
        self.code: list[int] = []

    def _op(self, *numbers: int) -> int:
        self.code += numbers
        return len(self.code) - len(numbers)

    def record(self, message: Descriptor, head: int, *, first: bool) -> None:
        self._op(_RECORD, 0, 0, 8, head, int(first))
        self.code[2] = self._message(message, self._columns.root, 0)

    def _message(self, message: Descriptor, column: LayoutColumn, depth: int) -> int:
        parts = self._columns.inside(column)
        names = [field.name for field in message.fields]
        if column.sort not in ("struct", "map") or message.is_extendable or depth > _DEEPEST:
            raise TypeError
        if column.sort == "struct" and names != [part.name for part in column.type]:
            raise TypeError
        is_entry = bool(message.GetOptions().map_entry)
        fields = sorted(zip(message.fields, parts, strict=True), key=lambda one: one[0].number)
        oneofs = [one.full_name for one in message.oneofs]
        table: list[int] = []
        for field, part in fields:
            oneof = field.containing_oneof
            table += (
                *self._field(field, part, depth + 1, is_entry=is_entry),
                oneofs.index(oneof.full_name) if oneof is not None and len(oneof.fields) > 1 else -1,
            )
        number = self._struct_of(column)
        return self._op(_MESSAGE, number, int(is_entry), len(fields), *table)

    def _struct_of(self, column: LayoutColumn) -> int:
        return self._columns.entry(column) if column.sort == "map" else column.number

    def _field(self, field: FieldDescriptor, column: LayoutColumn, depth: int, *, is_entry: bool) -> tuple[int, ...]:
        """Return all numbers of a field but the last one."""
        wire = _wire(field)
        if field.is_repeated:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                key, _ = self._columns.inside(column)
                if column.sort != "map" or key.sort == "boolean":
                    raise TypeError
                value = self._message(field.message_type, column, depth)
                return field.number, wire, _ENTRIES, column.number, value, 0
            if column.sort != "list":
                raise TypeError
            (element,) = self._columns.inside(column)
            return field.number, wire, _REPEATED, column.number, self._single(field, element, depth), 0
        value = self._single(field, column, depth)
        if field.is_required or (field.enum_type is not None and field.default_value and is_entry):
            absent = self._op(_FAIL)
        elif field.has_presence and not is_entry:
            absent = self._op(_NULL_VALUE, column.number)
        else:
            absent = self._op(_DEFAULT, value, 0, _ZERO_BYTES[wire])
        kind = _SINGLE if field.message_type is None else _MERGED
        return field.number, wire, kind, column.number, value, absent

    def _single(self, field: FieldDescriptor, column: LayoutColumn, depth: int) -> int:
        """Return the operation that reads one value."""
        if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            is_text = field.type == field.TYPE_STRING
            self._check(column, "string" if is_text else "binary")
            return self._op(_TEXT, column.number, int(is_text))
        if field.enum_type is not None:
            self._check(column, "string")
            return self._enum(field.enum_type, column)
        if field.message_type is not None and field.message_type.full_name in _TIMES:
            self._check(column, "int64")
            if [(one.number, one.type) for one in field.message_type.fields] != [
                (1, field.TYPE_INT64),
                (2, field.TYPE_INT32),
            ]:
                raise TypeError
            return self._op(_TIME, column.number, _TIMES[field.message_type.full_name])
        if field.message_type is not None:
            self._check(column, "struct")
            return self._message(field.message_type, column, depth)
        for name, (sort, written) in _NUMBERS.items():
            if field.type == getattr(field, name):
                self._check(column, sort)
                return self._op(_NUMBER, column.number, written)
        raise TypeError

    def _enum(self, enum: EnumDescriptor, column: LayoutColumn) -> int:
        names = {value.number: value.name for value in reversed(enum.values)}  # of aliases, the first
        table: list[int] = []
        for number, name in sorted(names.items()):
            text = name.encode()
            table += (number, len(self.constants), len(text))
            self.constants += text
        if len(self.constants) > _MOST_CONSTANTS:  # each field has a copy of its enum's names
            raise TypeError
        return self._op(_ENUM, column.number, int(not enum.is_closed), len(names), *table)

    @staticmethod
    def _check(column: LayoutColumn, sort: str) -> None:
        if column.sort != sort:
            raise TypeError


def _wire(field: FieldDescriptor) -> int:
    if field.type == field.TYPE_GROUP:
        raise TypeError
    if field.type in (field.TYPE_FIXED64, field.TYPE_SFIXED64, field.TYPE_DOUBLE):
        return _WIRE_64
    if field.type in (field.TYPE_FIXED32, field.TYPE_SFIXED32, field.TYPE_FLOAT):
        return _WIRE_32
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE):
        return _WIRE_BYTES
    return _WIRE_VARINT
