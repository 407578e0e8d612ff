"""Defaults of fields as Avro writes them, for a program to read; a schema is as fastavro has parsed it."""

from __future__ import annotations

import struct
from typing import Any

from pyspark_kafka_group.formats.avro_resolution import Names
from pyspark_kafka_group.formats.avro_types import Schema


def meaning(schema: Schema, names: Names) -> Schema:
    """Return what a name means; any other schema as it is."""
    return names.get(schema, schema) if isinstance(schema, str) else schema


def kind_name(schema: Schema) -> str:
    """Return what kind of type a schema is that is no union."""
    return str(schema["type"] if isinstance(schema, dict) else schema)


def encoded_default(schema: Schema, default: Any, names: Names) -> bytes:
    """Return a default as Avro writes it.

    Raises
    ------
    ValueError
        It is none of the type.
    KeyError, OverflowError, struct.error
        It is one that Avro cannot write.
    """
    schema = meaning(schema, names)
    value: Any = default  # not narrowed by what is asked of it
    if isinstance(schema, list):
        for number, branch in enumerate(schema):
            try:
                return _varint(number) + encoded_default(branch, default, names)
            except ValueError:
                continue
        raise ValueError
    kind = kind_name(schema)
    expected: Any = _JSON.get(kind)
    if expected is None or not isinstance(default, expected) or (isinstance(default, bool) and kind != "boolean"):
        raise ValueError
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


def _given(field: dict[str, Any], default: dict[str, Any]) -> Any:
    """Return the value of a field of a record that is a default itself."""
    if field["name"] in default:
        return default[field["name"]]
    if "default" not in field:
        raise ValueError
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
    """Return bytes as Avro writes them: behind their length."""
    return _varint(len(value)) + value


def _block(elements: list[bytes]) -> bytes:
    return (_varint(len(elements)) + b"".join(elements) if elements else b"") + b"\0"
