"""Converts Avro's schemas to Spark's types, like Spark's ``from_avro``, and to schemas for fastavro.

Pure.  A schema is its JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from pyspark.sql import types as t

from pyspark_kafka_group.formats.ddl import check_parts, decimal_type
from pyspark_kafka_group.options.parsers import MalformedError

Schema = Any
"""Avro's JSON: a name, a list (a union), or an object."""

_SIMPLE: dict[str, t.DataType] = {
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
}

_LOGICAL: dict[tuple[str, str], t.DataType] = {
    ("int", "date"): t.DateType(),
    ("long", "timestamp-millis"): t.TimestampType(),
    ("long", "timestamp-micros"): t.TimestampType(),
    ("long", "local-timestamp-millis"): t.TimestampNTZType(),
    ("long", "local-timestamp-micros"): t.TimestampNTZType(),
}

PREFIX = "kafka-group-"
"""The prefix of our logical types in fastavro.  Logical types of other code stay unchanged."""

AS_WRITTEN = f"{PREFIX}as-written"
"""The key in a schema, and the logical type for fastavro, of a value that fastavro must not convert to another type."""

_KEPT = {
    ("long", "timestamp-millis"): "millis",
    ("long", "local-timestamp-millis"): "millis",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
}
"""The logical types for fastavro.  All others but `AS_WRITTEN` are read as plain numbers."""

_REMEDY = "Read it as binary, and use from_avro; or name another schema."


def of_text(text: str) -> Schema:
    """Return the parsed schema.  A single name such as ``"string"`` needs no quotation marks.

    A decimal that is not valid becomes the bytes that it is written as, as Avro's specification says.
    """
    try:
        return json.loads(text, object_hook=_without_invalid_decimal)
    except (ValueError, OverflowError):  # the latter for the size of a decimal
        if text.strip() in _SIMPLE:
            return text.strip()
        raise MalformedError("it is not an Avro schema in JSON.", _REMEDY) from None


def _without_invalid_decimal(found: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema, without its logical type if that is a decimal that is not valid."""
    if found.get("logicalType") != "decimal" or found.get("type") not in ("bytes", "fixed"):
        return found
    precision, scale = found.get("precision"), found.get("scale", 0)
    if type(precision) is int and type(scale) is int and precision > 0 and 0 <= scale <= precision:
        size = found.get("size") if found["type"] == "fixed" else math.inf
        if isinstance(size, int | float) and precision <= math.log10(2) * (8 * size - 1):
            return found
    return {key: value for key, value in found.items() if key not in ("logicalType", "precision", "scale")}


def spark_type(schema: Schema, named: Iterable[Schema] = ()) -> t.DataType:
    """Return the type of values of a schema.

    Parameters
    ----------
    schema
        The schema.
    named
        The schemas that it references, each after those that it references itself.

    Raises
    ------
    MalformedError
        If this is not a schema, or if Spark has no type for it.
    """
    types = _AvroTypes()
    for other in named:
        types.of(other, "")
    return types.of(schema, "")


class _FieldError(MalformedError):
    """A field has no type of Spark.  `path` are the names of the fields, and `inner` is the error."""

    def __init__(self, path: str, inner: MalformedError) -> None:
        super().__init__(f"field {path}: {inner}", inner.remedy)
        self.path = path
        self.inner = inner


class _AvroTypes:
    """The types of schemas, and the names that they have defined so far."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Schema, str]] = {}
        self._open: set[str] = set()
        self._parts = 0

    def of(self, schema: Schema, namespace: str) -> t.DataType:
        self._parts += 1
        check_parts(self._parts)
        if isinstance(schema, str):
            return _SIMPLE[schema] if schema in _SIMPLE else self._of_name(schema, namespace)
        if isinstance(schema, list):
            return self._of_union(schema, namespace)
        if not isinstance(schema, dict) or "type" not in schema:
            raise MalformedError("it is not an Avro schema.", _REMEDY)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, namespace)
        logical = str(schema.get("logicalType"))
        if kind == "fixed":
            self._name(schema, namespace)
        if kind in ("bytes", "fixed") and logical == "decimal":
            return _decimal(schema)
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]
        if kind in ("record", "error"):
            return self._of_record(schema, namespace)
        if kind == "array":
            return t.ArrayType(self.of(schema.get("items"), namespace), containsNull=True)
        if kind == "map":
            return t.MapType(t.StringType(), self.of(schema.get("values"), namespace), valueContainsNull=True)
        if kind == "enum":
            self._name(schema, namespace)
            return t.StringType()
        if kind == "fixed":
            return t.BinaryType()
        return self.of(kind, namespace)

    def _of_record(self, schema: dict[str, Any], namespace: str) -> t.DataType:
        name, space = self._name(schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise MalformedError(f"the record {name!r} has no fields, which a column cannot hold.", _REMEDY)
        if not all(isinstance(f, dict) and isinstance(f.get("name"), str) and "type" in f for f in fields):
            raise MalformedError(f"the record {name!r} has a field without a name or a type.", _REMEDY)
        self._open.add(name)
        found = [t.StructField(f["name"], self._of_field(f, space), nullable=True) for f in fields]
        self._open.discard(name)
        return t.StructType(found)

    def _of_field(self, field: dict[str, Any], namespace: str) -> t.DataType:
        try:
            return self.of(field["type"], namespace)
        except _FieldError as problem:
            raise _FieldError(f"{field['name']}.{problem.path}", problem.inner) from None
        except MalformedError as problem:
            raise _FieldError(field["name"], problem) from None

    def _of_name(self, name: str, namespace: str) -> t.DataType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._known else name
        if full in self._open:
            raise MalformedError(f"the record {full!r} contains itself, but no column of Spark can.", _REMEDY)
        if full not in self._known:
            raise MalformedError(f"{name!r} is neither a type of Avro nor a name that the schema defines.", _REMEDY)
        return self.of(*self._known[full])

    def _of_union(self, schema: list[Schema], namespace: str) -> t.DataType:
        rest = [branch for branch in map(simple, schema) if branch != "null"]
        if not rest:
            raise MalformedError("it has a union of nothing but null.", _REMEDY)
        if len(rest) == 1:
            return self.of(rest[0], namespace)
        if all(branch in ("int", "long") for branch in rest):
            return t.LongType()
        if all(branch in ("float", "double") for branch in rest):
            return t.DoubleType()
        kinds = [kind_of(branch) for branch in rest]
        if None in kinds or len(set(kinds)) < len(kinds):
            raise MalformedError(
                f"it has a union of several types that cannot be told apart here: {len(rest)} beside null.", _REMEDY
            )
        return t.StructType([t.StructField(f"member{n}", self.of(one, namespace)) for n, one in enumerate(rest)])

    def _name(self, schema: dict[str, Any], namespace: str) -> tuple[str, str]:
        """Note the schema of a name.  Return the full name, and the namespace inside the schema."""
        name = schema.get("name")
        if not isinstance(name, str):
            raise MalformedError(f"it has a {schema['type']} without a name.", _REMEDY)
        if "." not in name:
            space = schema.get("namespace", namespace) or ""
            name = f"{space}.{name}" if space else name
        self._known[name] = schema, namespace
        return name, name.rpartition(".")[0]


def kind_of(branch: Schema) -> type | None:
    """Return the class of fastavro's values for a branch of a union; None if it depends on more."""
    kind = branch.get("type") if isinstance(branch, dict) else branch
    if not isinstance(kind, str) or (isinstance(branch, dict) and branch.get("logicalType")):
        return None
    return {
        "boolean": bool, "int": int, "long": int, "float": float, "double": float, "string": str, "enum": str,
        "bytes": bytes, "fixed": bytes, "array": list, "map": dict, "record": dict,
    }.get(kind)  # fmt: skip


def _decimal(schema: dict[str, Any]) -> t.DataType:
    return decimal_type(schema.get("precision"), schema.get("scale", 0))


def simple(schema: Schema) -> Schema:
    """Return the name of a type without parts, such as ``{"type": "null"}``; any other schema unchanged."""
    if isinstance(schema, dict) and "logicalType" not in schema and schema.get("type") in ("null", *_SIMPLE):
        return schema["type"]
    return schema


def for_fastavro(schema: Schema) -> Schema:
    """Return a schema whose values fastavro reads as numbers: its objects have a smaller range than Spark's types."""
    if isinstance(schema, list):
        return [for_fastavro(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: value for key, value in schema.items() if key != "logicalType"}
    kept = _KEPT.get((str(schema.get("type")), str(schema.get("logicalType"))))
    if kept is not None:
        found["logicalType"] = PREFIX + kept
    elif AS_WRITTEN in schema:
        found["logicalType"] = AS_WRITTEN
    if isinstance(schema.get("fields"), list):
        found["fields"] = [{**field, "type": for_fastavro(field["type"])} for field in schema["fields"]]
    for key in ("items", "values"):
        if key in schema:
            found[key] = for_fastavro(schema[key])
    if not isinstance(schema.get("type"), str):
        found["type"] = for_fastavro(schema.get("type"))
    return simple(found)


def is_millis(schema: Schema) -> bool:
    """Return whether values of a schema are milliseconds, which become microseconds."""
    return isinstance(schema, dict) and _KEPT.get((str(schema.get("type")), str(schema.get("logicalType")))) == "millis"


def only_branch(schema: Schema) -> Schema:
    """Return the only type of a union besides null; any other schema unchanged."""
    rest = [one for one in schema if one != "null"] if isinstance(schema, list) else [schema]
    return rest[0] if len(rest) == 1 else schema
