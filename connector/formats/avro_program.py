"""Compiles a writer's and a reader's schema to a program for `_formats.c`.

The rules are fastavro's rules of resolution, because both decoders must return the same values.  `FAIL` marks unusual
parts of a schema: fastavro decodes such records.  The schemas are parsed by fastavro.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from pyspark_kafka_group.formats.avro_defaults import encoded_default, kind_name, meaning
from pyspark_kafka_group.formats.avro_resolution import PROMOTED, Names, Nothing
from pyspark_kafka_group.formats.avro_types import PREFIX, Schema
from pyspark_kafka_group.formats.native_columns import OPERATIONS, ColumnLayout, LayoutColumn, Program

(
    FAIL, SKIP_FIXED, SKIP_VARINT, SKIP_BYTES, SKIP_ARRAY, SKIP_MAP, SEQUENCE, BRANCH, DEFAULT,
    TO_END, NULL_VALUE, BOOLEAN, INT, LONG, LONG_TIMES, INT_AS_FLOAT, INT_AS_DOUBLE, FLOAT, FLOAT_AS_DOUBLE, DOUBLE,
    BYTES, STRING, FIXED, DECIMAL, ENUM, RECORD, ARRAY, MAP, MEMBER, *_,
) = range(len(OPERATIONS))  # fmt: skip
"""The operations with their numbers in `_formats.c`."""

_RECORDS = ("record", "error")
_NAMED = (*_RECORDS, "enum", "fixed")
_SKIPS = {
    "null": (SEQUENCE, 0),
    "boolean": (SKIP_FIXED, 1),
    "int": (SKIP_VARINT,),
    "long": (SKIP_VARINT,),
    "enum": (SKIP_VARINT,),
    "float": (SKIP_FIXED, 4),
    "double": (SKIP_FIXED, 8),
    "bytes": (SKIP_BYTES,),
    "string": (SKIP_BYTES,),
}
_LEAVES = {
    ("boolean", "boolean"): BOOLEAN,
    ("int", "int32"): INT,
    ("int", "int64"): LONG,
    ("int", "float"): INT_AS_FLOAT,
    ("int", "double"): INT_AS_DOUBLE,
    ("long", "int64"): LONG,
    ("long", "float"): INT_AS_FLOAT,
    ("long", "double"): INT_AS_DOUBLE,
    ("float", "float"): FLOAT,
    ("float", "double"): FLOAT_AS_DOUBLE,
    ("double", "double"): DOUBLE,
    ("bytes", "binary"): BYTES,
    ("bytes", "string"): STRING,
    ("string", "string"): STRING,
    ("string", "binary"): STRING,
}
"""The operation for each written type and sort of column."""

_DEEPEST = 60
"""Below the limit of `_formats.c`, which is 64."""

_LONGEST_CODE = 1_000_000

Emit = Callable[[], int]


class Branch(NamedTuple):
    """One type of a union."""

    union: list[Schema]
    number: int


def program_of(
    writer: Schema, written: Names, reader: Schema | None, read: Names, columns: ColumnLayout, *, to_end: bool = False
) -> Program | None:
    """Return the program that decodes records to columns.

    Parameters
    ----------
    writer : Schema
        The writer's schema, with full names.
    written : dict
        The definitions of its names.
    reader : Schema or None
        The reader's schema; None if both are the same.  Defaults are those of its JSON.
    read : dict
        The definitions of its names.
    columns : ColumnLayout
        The columns for the reader's schema.
    to_end : bool
        Whether the record is bytes without a length.

    Returns
    -------
    Program or None
        None if the schemas are nested too deeply, too large, or unusual.
    """
    compiler = _AvroCompiler(written, read, columns)
    try:
        compiler.whole(writer, reader, columns.root, to_end=to_end)
    except (RecursionError, OverflowError, AttributeError, KeyError, TypeError, ValueError):
        return None  # fastavro does not check all parts of a schema
    return compiler.program()


class _AvroCompiler:
    """Writes a program.  Each method returns the position of its operation."""

    def __init__(self, written: Names, read: Names, columns: ColumnLayout) -> None:
        self._written, self._read, self._columns = written, read, columns
        self._code: list[int] = []
        self._constants = bytearray()
        self._skips: dict[str, int] = {}
        self._nothing = Nothing(written)
        self._depth = 0

    def program(self) -> Program:
        return Program(self._code, bytes(self._constants))

    def _op(self, *numbers: int) -> int:
        # A number may be a size from a schema, which fastavro has not checked.
        if len(self._code) > _LONGEST_CODE or any(operator.index(n) != ctypes.c_int32(n).value for n in numbers):
            raise OverflowError
        self._code += numbers
        return len(self._code) - len(numbers)

    def _with(self, head: Sequence[int], inner: Sequence[Emit]) -> int:
        """Write an operation that ends with the positions of other operations."""
        at = self._op(*head, *(0 for _ in inner))
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError
        for n, emit in enumerate(inner, at + len(head)):
            self._code[n] = emit()
        self._depth -= 1
        return at

    def _constant(self, value: bytes) -> int:
        self._constants += value
        return len(self._constants) - len(value)

    def whole(self, writer: Schema, reader: Schema | None, column: LayoutColumn, *, to_end: bool) -> None:
        """Read a record."""
        read = partial(self.read, writer, self._written, reader, column)
        if to_end:
            self._with((TO_END,), [read])
        else:
            read()

    def read(self, writer: Schema, names: Names, reader: Schema | None, column: LayoutColumn) -> int:
        """Read a value of the writer's schema, with or without a reader's schema; `names` belong to the first."""
        writer = meaning(writer, names)
        if isinstance(writer, list):
            if any(isinstance(branch, list) for branch in writer):
                return self._op(FAIL)  # a union within a union, which Avro does not allow but fastavro accepts
            return self._union(writer, names, reader, column)
        if isinstance(reader, list):
            return self._one_of(writer, names, reader, column)
        if reader is not None:
            reader = meaning(reader, self._read)
            if not self._fits(writer, names, reader):
                return self._op(FAIL)
        kind, at = kind_name(writer), column.number
        if kind == "null":
            return self._op(NULL_VALUE, at)
        if reader is not None and kind in _NAMED and _family(kind_name(reader)) != _family(kind):
            return self._op(FAIL)  # fastavro compares only the names
        if kind in _RECORDS and column.sort == "struct":
            return self._record(writer, names, reader, column)
        if kind == "array" and column.sort == "list":
            (element,) = self._columns.inside(column)
            items = None if reader is None else reader["items"]
            return self._with((ARRAY, at), [partial(self.read, writer["items"], names, items, element)])
        if kind == "map" and column.sort == "map":
            _, element = self._columns.inside(column)
            values = None if reader is None else reader["values"]
            return self._with((MAP, at), [partial(self.read, writer["values"], names, values, element)])
        if kind == "enum" and column.sort == "string":
            return self._enum(writer, reader, column)
        return self._leaf(kind, writer, column)

    def _leaf(self, kind: str, writer: Schema, column: LayoutColumn) -> int:
        logical = writer.get("logicalType") if isinstance(writer, dict) else None
        if logical == f"{PREFIX}decimal":
            if column.sort != "decimal" or writer.get("scale", 0) != column.type.scale:
                return self._op(FAIL)
            limit = self._constant((10**column.type.precision).to_bytes(16, "little"))
            return self._op(DECIMAL, column.number, writer["size"] if kind == "fixed" else -1, limit)
        if logical == f"{PREFIX}millis":
            return self._op(LONG_TIMES, column.number, 1000) if column.sort == "int64" else self._op(FAIL)
        if kind == "fixed" and column.sort == "binary":
            return self._op(FIXED, column.number, writer["size"])
        if (kind, column.sort) in _LEAVES:
            return self._op(_LEAVES[kind, column.sort], column.number)
        return self._op(FAIL)

    def _enum(self, writer: Schema, reader: Schema | None, column: LayoutColumn) -> int:
        known = writer["symbols"] if reader is None else reader["symbols"]
        default = None if reader is None else reader.get("default")
        found: list[int] = []
        for symbol in writer["symbols"]:
            text = symbol if symbol in known else default
            value = text.encode() if isinstance(text, str) and text else b""
            found += (self._constant(value), len(value)) if value else (-1, 0)
        return self._op(ENUM, column.number, len(writer["symbols"]), *found)

    def _union(self, writer: list[Schema], names: Names, reader: Schema | None, column: LayoutColumn) -> int:
        """Read each branch of a union, as a branch of the reader's union or as the reader's only type."""
        if reader is None:
            branches = [
                partial(self._member, branch, names, None, Branch(writer, n), column) for n, branch in enumerate(writer)
            ]
        elif isinstance(reader, list):
            branches = [partial(self._one_of, branch, names, reader, column) for branch in writer]
        else:
            branches = [partial(self.read, branch, names, reader, column) for branch in writer]
        return self._with((BRANCH, len(writer)), branches)

    def _one_of(self, writer: Schema, names: Names, union: list[Schema], column: LayoutColumn) -> int:
        """Read a type as the branch of the same type of a union, or else as the first branch that fits."""
        kind = kind_name(meaning(writer, names))
        other = [isinstance(one, list) or kind_name(meaning(one, self._read)) != kind for one in union]
        for n, branch in sorted(enumerate(union), key=lambda one: other[one[0]]):
            if self._fits(writer, names, branch):
                return self._member(writer, names, branch, Branch(union, n), column)
        return self._op(FAIL)

    def _member(self, writer: Schema, names: Names, reader: Schema | None, branch: Branch, column: LayoutColumn) -> int:
        """Read a type as a branch of a union.  If there are several branches, each is a member of a struct."""
        union, number = branch
        if union[number] == "null":
            return self._op(NULL_VALUE, column.number)
        rest = [one for one in union if one != "null"]
        numbers = all(one in ("int", "long") for one in rest) or all(one in ("float", "double") for one in rest)
        if len(rest) == 1 or numbers:
            return self.read(writer, names, reader, column)
        members = self._columns.inside(column) if column.sort == "struct" else []
        if len(members) != len(rest):
            return self._op(FAIL)
        member = number - sum(one == "null" for one in union[:number])
        return self._with((MEMBER, column.number, member), [partial(self.read, writer, names, reader, members[member])])

    def _record(self, writer: Schema, names: Names, reader: Schema | None, column: LayoutColumn) -> int:
        inside = self._columns.inside(column)
        fields = writer["fields"] if reader is None else reader["fields"]
        if len(inside) != len(fields) or len({field["name"] for field in fields}) != len(fields):
            return self._op(FAIL)
        steps: list[Emit]
        if reader is None:
            steps = [
                partial(self.read, field["type"], names, None, child)
                for field, child in zip(fields, inside, strict=True)
            ]
            return self._with((RECORD, column.number, len(steps)), steps)
        steps = []
        left = {field["name"]: (field, child) for field, child in zip(fields, inside, strict=True)}
        known_as = {alias: field["name"] for field in fields for alias in field.get("aliases", ())}
        for field in writer["fields"]:
            name = field["name"] if field["name"] in left else known_as.get(field["name"])
            if name is None:
                steps += self._skipped([field])
            elif name in left:
                wanted, child = left.pop(name)
                steps.append(partial(self.read, field["type"], names, wanted["type"], child))
            else:
                return self._op(FAIL)
        for field, child in left.values():
            steps.append(partial(self._default, field, child))
        return self._with((RECORD, column.number, len(steps)), steps)

    def _default(self, field: dict[str, Any], column: LayoutColumn) -> int:
        """Read a default, which is encoded as Avro."""
        try:
            value = encoded_default(field["type"], field["default"], self._read)
        except (KeyError, ValueError, OverflowError, struct.error):
            return self._op(FAIL)
        at = self._op(DEFAULT, 0, self._constant(value), len(value))
        self._code[at + 1] = self.read(field["type"], self._read, None, column)
        return at

    def _skip(self, writer: Schema) -> int:
        if isinstance(writer, list):
            return self._with((BRANCH, len(writer)), [partial(self._skip, branch) for branch in writer])
        name = writer if isinstance(writer, str) else writer.get("name")
        writer = meaning(writer, self._written)
        kind = kind_name(writer)
        if kind in _SKIPS:
            return self._op(*_SKIPS[kind])
        if kind == "fixed":
            return self._op(SKIP_FIXED, writer["size"])
        if kind in ("array", "map"):
            inner = writer["items"] if kind == "array" else writer["values"]
            return self._with((SKIP_ARRAY if kind == "array" else SKIP_MAP,), [partial(self._skip, inner)])
        if name not in self._skips:  # a skipped record may contain itself
            self._skips[name] = len(self._code)
            steps = self._skipped(writer["fields"])
            self._with((SEQUENCE, len(steps)), steps)
        return self._skips[name]

    def _skipped(self, fields: list[dict[str, Any]]) -> list[Emit]:
        """Skip fields, except those without bytes, which may have any number of parts."""
        return [partial(self._skip, field["type"]) for field in fields if not self._nothing.parts(field["type"])]

    def _fits(self, writer: Schema, names: Names, reader: Schema) -> bool:
        """Return whether a type may be read as another.  For unions, records and enums only the data can decide."""
        writer, reader = meaning(writer, names), meaning(reader, self._read)
        if isinstance(writer, list) or isinstance(reader, list):
            return True
        kind, other = kind_name(writer), kind_name(reader)
        if kind in _NAMED and other in _NAMED:
            if kind == other == "fixed" and writer["size"] != reader["size"]:
                return False
            last = writer["name"].rpartition(".")[2]
            known_as = {writer["name"], last} & set(reader.get("aliases", ()))
            return bool(last == reader["name"].rpartition(".")[2] or known_as)
        if kind == other and kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return self._fits(writer[inner], names, reader[inner])
        return bool(kind == other or other in PROMOTED.get(kind, ()))


def _family(kind: str) -> str:
    return "record" if kind in _RECORDS else kind
