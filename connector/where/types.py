"""The types of a condition, as Spark treats them."""

from __future__ import annotations

import pyarrow as pa

NULL = pa.null()
BOOL = pa.bool_()
_SPARK = {"string": "STRING", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT"}
_SPARK |= {"bool": "BOOLEAN", "date32[day]": "DATE"}
_SPARK |= {"timestamp[us, tz=UTC]": "TIMESTAMP", "timestamp[us]": "TIMESTAMP_NTZ"}
MOST_DIGITS = 38
"""The most digits that a decimal of Spark has."""

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
"""How many digits Spark gives the integers of a type."""


def name_of(kind: pa.DataType) -> str:
    """Return the name of a type in Spark."""
    if pa.types.is_nested(kind):
        return "STRUCT" if pa.types.is_struct(kind) else "MAP" if pa.types.is_map(kind) else "ARRAY"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _SPARK.get(str(kind), str(kind).upper())


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are texts or bytes, which Spark compares byte by byte."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether values can be compared here: no structs, arrays and maps."""
    simple = kind in (NULL, BOOL) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return simple or is_text(kind) or is_number(kind)


def is_wider(kind: pa.DataType, than: pa.DataType) -> bool:
    """Return whether Spark casts a number without an error."""
    if not is_number(kind) or not is_number(than):
        return False
    if pa.types.is_integer(kind):
        return bool(pa.types.is_floating(than) or (pa.types.is_integer(than) and than.bit_width >= kind.bit_width))
    return bool(pa.types.is_floating(than))


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which Spark compares two types (with ANSI mode, its default); None if that is not simple."""
    if not (is_comparable(left) and is_comparable(right)):
        return None
    if left == right == NULL:
        return BOOL
    if right in (left, NULL):
        return left
    if left == NULL:
        return right
    if is_text(left) and is_text(right):
        return pa.binary()
    if not is_number(left) or not is_number(right):
        return None
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return left if left.bit_width >= right.bit_width else right
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    exact = [pa.decimal128(_DIGITS[kind], 0) if kind in _DIGITS else kind for kind in (left, right)]
    scale = max(kind.scale for kind in exact)
    digits = max(kind.precision - kind.scale for kind in exact) + scale
    return pa.decimal128(digits, scale) if digits <= MOST_DIGITS else None  # else Spark rounds one of them


def limits(kind: pa.DataType) -> tuple[int, int]:
    """Return the lowest and the highest integer of a type."""
    half = 1 << (kind.bit_width - 1)
    return -half, half - 1
