"""Converts defaults of fields: to values for fastavro, and to Avro's encoding for a program.

Schemas are parsed by fastavro.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from decimal import Context, Decimal
from typing import Any

from pyspark_kafka_group.formats.avro_resolution import Names, definitions
from pyspark_kafka_group.formats.avro_types import PREFIX, Schema

_DECIMALS = Context(prec=80)


def meaning(schema: Schema, names: Names) -> Schema:
    """Return the definition of a name; any other schema unchanged."""
    return names.get(schema, schema) if isinstance(schema, str) else schema


def kind_name(schema: Schema) -> str:
    """Return the name of the type of a schema that is not a union."""
    return str(schema["type"] if isinstance(schema, dict) else schema)


def encoded_default(schema: Schema, default: Any, names: Names) -> bytes:
    """Return a default in Avro's encoding.

    Raises
    ------
    ValueError
        If the default does not have the type of the schema.
    KeyError, OverflowError, struct.error
        If Avro cannot encode the default.
    """
    schema = meaning(schema, names)
    value: Any = default  # Any, so that mypy does not narrow it
    if isinstance(schema, list):
        for number, branch in enumerate(schema):
            try:
                return _varint(number) + encoded_default(branch, default, names)
            except ValueError:
                continue
        raise ValueError
    kind = kind_name(schema)
    _check(kind, default)
    if kind not in _JSON:
        raise ValueError(f"{kind} is no type of Avro")
    if kind in ("record", "error"):
        return b"".join(encoded_default(f["type"], _given(f, value), names) for f in schema["fields"])
    if kind == "array":
        return _block([encoded_default(schema["items"], one, names) for one in value])
    if kind == "map":
        values = value.items()
        return _block(
            [with_length(key.encode()) + encoded_default(schema["values"], one, names) for key, one in values]
        )
    if kind == "enum":
        return _varint(schema["symbols"].index(value))
    if kind == "string":
        return with_length(value.encode())
    if kind in ("bytes", "fixed"):
        written: bytes = value.encode("latin-1")
        if kind == "fixed" and len(written) != schema["size"]:
            raise OverflowError
        return written if kind == "fixed" else with_length(written)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", float(value))
    if kind == "boolean":
        return bytes([value])
    return _varint(value) if kind in ("int", "long") else b""


_JSON: dict[str, type | tuple[type, ...]] = {
    "null": type(None), "boolean": bool, "int": int, "long": int,
    "float": (int, float, str), "double": (int, float, str),  # also "NaN"
    "string": str, "enum": str, "bytes": str, "fixed": str, "array": list, "map": dict, "record": dict, "error": dict,
}  # fmt: skip


_BITS = {"int": 31, "long": 63}

_DECIMAL_BYTES, _TOO_LARGE = 16, 10**38
"""What a decimal of 38 digits takes, and the first number with more."""

_MOST_STEPS = 20_000
"""How many parts a default may have.  Records that use each other twice double them with each level."""


def _check(kind: str, default: Any) -> None:
    """Raise `ValueError` for a JSON default that does not have the type."""
    if not isinstance(default, _JSON.get(kind, object)) or (isinstance(default, bool) and kind != "boolean"):
        raise ValueError(f"the default {default!r} is no {kind}")
    if kind in _BITS and isinstance(default, int) and not -(1 << _BITS[kind]) <= default < 1 << _BITS[kind]:
        raise ValueError(f"the default {default!r} is out of the range of {kind}")


def _given(field: dict[str, Any], default: dict[str, Any]) -> Any:
    """Return the JSON default of a field, for a record that is itself a default."""
    if field["name"] in default:
        return default[field["name"]]
    if "default" not in field:
        raise ValueError(f"a default has no field {field['name']!r}")
    return field["default"]


def _varint(number: int) -> bytes:
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def with_length(value: bytes) -> bytes:
    """Return bytes in Avro's encoding, with their length first."""
    return _varint(len(value)) + value


def _block(elements: list[bytes]) -> bytes:
    return (_varint(len(elements)) + b"".join(elements) if elements else b"") + b"\0"


def drop_unfit_defaults(schemas: Iterable[Schema], names: Names) -> None:
    """Remove defaults that do not have the type of their field, as a registry may accept them.

    They have no meaning in a writer's schema.  In a reader's, only records without the field would need them.

    Parameters
    ----------
    schemas
        The schemas, with full names.  Changed in place.
    names
        The definitions of their names.
    """
    for record in [one for one in definitions(schemas) if isinstance(one.get("fields"), list)]:
        for field in record["fields"]:
            try:
                if "default" in field:
                    default_of(field["type"], field["default"], names)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
                del field["default"]


def set_defaults(parsed: Iterable[Schema], names: Names) -> None:
    """Replace the JSON defaults in parsed schemas by the values that fastavro would read from a record.

    fastavro itself returns the JSON defaults unchanged.

    Parameters
    ----------
    parsed
        The schemas, parsed by fastavro.  Changed in place.
    names
        The definitions of their full names.
    """
    fields = [field for schema in parsed if isinstance(schema, dict) for field in schema.get("fields", ())]
    found = [(field, default_of(field["type"], field["default"], names)) for field in fields if "default" in field]
    for field, value in found:
        if type(value) is not type(field["default"]) or value != field["default"]:
            field["default"] = value


def default_of(schema: Schema, default: Any, names: Names) -> Any:
    """Return the value of a JSON default; raise `ValueError` or `OverflowError` if it does not have the type."""
    return _value(schema, default, names, iter(range(_MOST_STEPS)))


def _value(schema: Schema, default: Any, names: Names, steps: Iterator[int]) -> Any:
    """See `default_of`.  Each part takes one of the steps that are left."""
    if next(steps, None) is None:
        raise OverflowError("the default has too many parts")
    if isinstance(schema, list):
        for branch in schema:
            try:
                return _value(branch, default, names, steps)
            except ValueError:
                continue
        raise ValueError(f"the default {default!r} is of no type of its union")
    kind, logical = (schema["type"], schema.get("logicalType")) if isinstance(schema, dict) else (schema, None)
    if not isinstance(kind, str):
        return _value(kind, default, names, steps)
    if kind in names and not isinstance(schema, dict):
        return _value(names[kind], default, names, steps)
    _check(kind, default)
    if kind in ("record", "error"):
        return {f["name"]: _value(f["type"], _given(f, default), names, steps) for f in schema["fields"]}
    if kind == "array":
        return [_value(schema["items"], one, names, steps) for one in default]
    if kind == "map":
        return {key: _value(schema["values"], one, names, steps) for key, one in default.items()}
    if kind == "enum" and default not in schema["symbols"]:
        raise ValueError(f"the default {default!r} is no symbol")
    if kind in ("bytes", "fixed"):
        value = default.encode("latin-1")
        if kind == "fixed" and len(value) != schema["size"]:
            raise ValueError(f"the default {default!r} has another size")
        if logical not in ("decimal", f"{PREFIX}decimal"):
            return value
        found = decimal_of(value, schema.get("scale", 0))  # raises for one of more digits than a column takes
        return found if logical == f"{PREFIX}decimal" else value
    if kind in ("float", "double"):
        try:
            number = float(default)
            struct.pack("<f" if kind == "float" else "<d", number)
        except OverflowError:
            raise ValueError(f"the default {default!r} is out of the range of {kind}") from None
        return number
    return default * 1000 if logical == f"{PREFIX}millis" else default


def decimal_of(value: bytes, scale: int) -> Decimal:
    """Return the decimal for bytes of Avro.

    Raises
    ------
    ValueError
        If it has more than 38 digits, which no column takes.  Deliberate: Arrow (26) takes some of them for others, and
        Python takes hours for very many.
    """
    more, number = value[:-_DECIMAL_BYTES], int.from_bytes(value[-_DECIMAL_BYTES:], "big", signed=True)
    if more.strip(b"\xff" if number < 0 else b"\0") or abs(number) >= _TOO_LARGE:
        raise ValueError("the decimal has more than 38 digits")
    return Decimal(number).scaleb(-scale, _DECIMALS)
