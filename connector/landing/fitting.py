"""Whether the columns of the source fit those of a table, structs included.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa


class Misfits(NamedTuple):
    """What keeps rows of the source out of a table.

    Attributes
    ----------
    absent : list of str
        The columns, and the fields of structs, that the table lacks.
    others : list of str
        What cannot be cured by more columns, in words.
    """

    absent: list[str]
    others: list[str]


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of columns, which a user may give as one text."""
    return (given,) if isinstance(given, str) else tuple(given)


def misfits(source: pa.Schema, table: pa.Schema) -> Misfits:
    """Compare the columns of the source with those of a table.

    Fields have the same names and types, in any order.  Further fields of the table must take null, and fields inside
    a column if those of the source do: only the columns themselves are checked for each record.
    """
    found = Misfits([], [])
    for absent, text in _compare("", list(source), list(table)):
        (found.absent if absent else found.others).append(text)
    return found


def _compare(above: str, source: list[pa.Field], table: list[pa.Field]) -> Iterator[tuple[bool, str]]:
    """Yield what differs, and whether it is absent in the table."""
    known = {field.name: field for field in table}
    cases = {field.name.lower(): field.name for field in table}
    wanted = {field.name for field in source}
    for field in source:
        name = above + field.name
        if field.name in known:
            yield from _compare_types(name, field.type, known[field.name].type)
            if above and field.nullable and not known[field.name].nullable:
                yield False, f"{name} must not be null"
        elif found := cases.get(field.name.lower()):  # Spark could not read a table with both
            yield False, f"{name} is {above}{found}"
        else:
            yield True, name
    for field in table:
        if field.name not in wanted and not field.nullable:
            yield False, f"{above}{field.name} must not be null"


def _compare_types(name: str, source: pa.DataType, table: pa.DataType) -> Iterator[tuple[bool, str]]:
    if pa.types.is_struct(source) and pa.types.is_struct(table):
        yield from _compare(f"{name}.", list(source), list(table))
    elif _is_list(source) and _is_list(table):
        elements = [[kind.value_field.with_name("element")] for kind in (source, table)]
        yield from _compare(f"{name}.", *elements)
    elif pa.types.is_map(source) and pa.types.is_map(table):
        yield from _compare_types(f"{name}.key", source.key_type, table.key_type)
        values = [[kind.item_field.with_name("value")] for kind in (source, table)]
        yield from _compare(f"{name}.", *values)
    elif _SAME.get(source, source) != _SAME.get(table, table):
        yield False, f"{name} has another type"


_SAME = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
"""Types that differ only in how Arrow stores them."""


def without_short_integers(columns: pa.Schema) -> pa.Schema:
    """Return columns with 32 bits where they have 8 or 16, also in structs, lists and maps: Iceberg has no shorter."""

    def field(of: pa.Field) -> pa.Field:
        return of.with_type(wide(of.type))

    def wide(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([field(kind.field(number)) for number in range(kind.num_fields)])
        if pa.types.is_list(kind):
            return pa.list_(field(kind.value_field))
        if pa.types.is_map(kind):
            return pa.map_(field(kind.key_field), field(kind.item_field))
        return pa.int32() if kind in (pa.int8(), pa.int16()) else kind

    return pa.schema([field(one) for one in columns])


def of_no_table(columns: pa.Schema) -> Iterator[str]:
    """Yield the columns and fields whose types neither Delta nor Iceberg has, with the types."""

    def wrong(path: str, kind: pa.DataType) -> Iterator[str]:
        if pa.types.is_nested(kind):
            for number in range(kind.num_fields):
                yield from wrong(f"{path}.{kind.field(number).name}", kind.field(number).type)
        elif pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_null(kind):
            yield f"{path} ({kind})"

    for column in columns:
        yield from wrong(column.name, column.type)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
