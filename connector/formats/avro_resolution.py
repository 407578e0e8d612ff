"""Resolves what neither Avro's rules nor fastavro decide about schemas: names, times, and types without bytes.

Pure.  A schema is its JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark_kafka_group.formats.avro_types import AS_WRITTEN, Schema, is_millis, only_branch, simple

Names = dict[str, Schema]
"""Schemas by their full names."""

_AVROS = frozenset({
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "error", "enum", "array", "map",
    "fixed",
})  # fmt: skip

_UNITS = {
    "int": frozenset({"date", "time-millis"}),
    "long": frozenset({
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
        "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos",
    }),
}  # fmt: skip
"""The logical types that say what a number counts, by the type that they need."""

_CONVERTED = frozenset({"timestamp-millis", "timestamp-micros"})

PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The other types as which a type may be read."""


def in_full(schema: Schema, namespace: str = "") -> Schema:
    """Return a schema with full names, so that a name has the same meaning everywhere.

    Types without parts are objects, so that `Resolution` can change each one alone.  Null stays a name.
    """
    schema = simple(schema)
    if isinstance(schema, list):
        return [in_full(branch, namespace) for branch in schema]
    if isinstance(schema, str) and schema in PROMOTED:
        return {"type": schema}
    if isinstance(schema, str):
        return schema if "." in schema or schema in _AVROS or not namespace else f"{namespace}.{schema}"
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    name = schema.get("name")
    if isinstance(name, str):
        space = found.pop("namespace", namespace) or ""
        found["name"] = name if "." in name or not space else f"{space}.{name}"
        namespace = found["name"].rpartition(".")[0]
    if isinstance(schema.get("fields"), list):
        found["fields"] = [{**field, "type": in_full(field["type"], namespace)} for field in schema["fields"]]
    for key in ("items", "values"):
        if key in schema:
            found[key] = in_full(schema[key], namespace)
    if not isinstance(schema.get("type"), str):
        found["type"] = in_full(schema.get("type"), namespace)
    return found


def names_of(schemas: Iterable[Schema]) -> Names:
    """Return the definitions of names in schemas with full names."""
    return {one["name"]: one for one in definitions(schemas) if isinstance(one.get("name"), str)}


def definitions(schemas: Iterable[Schema]) -> Iterator[dict[str, Any]]:
    """Yield all parts of schemas that are objects."""
    left, seen = list(schemas), set[int]()
    while left:
        schema = left.pop()
        if isinstance(schema, list):
            left += schema
        elif isinstance(schema, dict) and id(schema) not in seen:
            seen.add(id(schema))  # parts may be shared: then the ways to them double with each level
            yield schema
            left += [field["type"] for field in schema.get("fields", ())]
            left += [schema.get("items"), schema.get("values"), schema.get("type")]


class Resolution:
    """A writer's schema, read with a reader's schema.

    Parameters
    ----------
    writer, reader : Schema
        The two schemas.
    written, read : dict
        The definitions of names in each.
    """

    def __init__(self, writer: Schema, reader: Schema, written: Names, read: Names) -> None:
        self._pairs = [(writer, reader, "")]
        self._written = written
        self._read = read
        self._stripped: set[int] = set()

    def other_unit(self) -> str | None:
        """Return a field that would be read in another unit than it was written in, or whose unit is unknown.

        Call this after `times_read_as_numbers`.  It also finds a field that shares its type with another field, which
        is read as a number.
        """
        for writer, reader, path in self._leaves():
            written, wanted = _unit(writer), _unit(reader)
            if not wanted or not _is_number(writer) or {written, wanted} <= _CONVERTED:
                continue
            if written != wanted if written else is_millis(reader) or id(writer) in self._stripped:
                return path
        return None

    def times_read_as_numbers(self) -> None:
        """Change milliseconds to plain numbers in the writer's schema, if they are read as plain numbers."""
        for writer, reader, _ in self._leaves():
            if is_millis(writer) and not _unit(reader):
                del writer["logicalType"]
                self._stripped.add(id(writer))

    def choose(self) -> bool:
        """Change the writer's schema where fastavro would choose another field, or another type of a union.

        - A value in a union keeps its type if the reader's union has it.  fastavro takes the first type that fits,
          so that a long may become a double.
        - A field has the data of its name, or of its first alias that the writer has.  fastavro reads each of them,
          and keeps the last one.  It skips a field with an unknown name.

        Returns
        -------
        bool
            False if a type has two uses, and only one of them needs the change.
        """
        changed: dict[int, tuple[dict[str, Any], str, Any]] = {}
        unchanged: set[int] = set()
        for writer, reader, _ in self._leaves():
            if not isinstance(writer, dict):
                continue
            for _, (first, *others) in _matches(writer, reader):
                unchanged.add(id(first))
                changed |= {id(one): (one, "name", f"{one['name']}__not_read") for one in others}
            kind, kinds = _kind(writer), list(map(_kind, reader if isinstance(reader, list) else [reader]))
            if kind not in kinds:
                unchanged.add(id(writer))
            elif set(PROMOTED.get(kind, ())) & set(kinds[: kinds.index(kind)]):
                changed[id(writer)] = writer, AS_WRITTEN, True
        for schema, key, value in changed.values():
            schema[key] = value
        return not unchanged & set(changed)

    def _leaves(self) -> Iterator[tuple[Schema, Schema, str]]:
        """Yield matching parts of both schemas and their paths, with each branch of a writer's union separately."""
        left, seen = list(self._pairs), set()
        while left:
            writer, reader, path = left.pop(0)
            writer, reader = _named(writer, self._written), _named(reader, self._read)
            if isinstance(writer, list):
                left += [(branch, reader, path) for branch in writer]
                continue
            branches = reader if isinstance(reader, list) and isinstance(writer, dict) else []
            for inner in [_named(branch, self._read) for branch in branches]:
                if isinstance(inner, dict) and inner.get("type") == writer.get("type") and "logicalType" not in inner:
                    left.append((writer, inner, path))
            yield writer, reader, path
            if not isinstance(writer, dict) or not isinstance(reader, dict) or (id(writer), id(reader)) in seen:
                continue
            seen.add((id(writer), id(reader)))
            for field, (found, *_) in _matches(writer, reader):
                left.append((found["type"], field["type"], f"{path}.{field['name']}".lstrip(".")))
            left += [(writer[key], reader[key], path) for key in ("items", "values") if key in writer and key in reader]


def _named(schema: Schema, names: Names) -> Schema:
    """Return the definition of a schema, without null."""
    schema = only_branch(schema)
    if isinstance(schema, dict) and not isinstance(schema.get("type"), str) and "logicalType" not in schema:
        schema = only_branch(schema.get("type"))
    return names.get(schema, schema) if isinstance(schema, str) else schema


def _matches(writer: dict[str, Any], reader: Schema) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield the fields of a reader's record that the writer's has, each with those of its name and of its aliases."""
    fields = reader.get("fields", ()) if isinstance(reader, dict) else ()
    written = {field["name"]: field for field in writer.get("fields", ())}
    own = {field["name"] for field in fields}
    for field in fields:
        names = dict.fromkeys([field["name"], *(alias for alias in field.get("aliases", ()) if alias not in own)])
        if found := [written[name] for name in names if name in written]:
            yield field, found


def _kind(schema: Schema) -> str:
    return str(schema.get("type") if isinstance(schema, dict) else schema)


def _unit(schema: Schema) -> str:
    """Return the logical type that says what a number counts, without its zone; empty if there is none."""
    if not isinstance(schema, dict):
        return ""
    logical = str(schema.get("logicalType"))
    return logical.removeprefix("local-") if logical in _UNITS.get(str(schema.get("type")), ()) else ""


def _is_number(schema: Schema) -> bool:
    return _kind(schema) in ("int", "long")


class Nothing:
    """Finds types that take no bytes in a record: null, and records that contain only such types.

    It visits each type once, because a few types that use each other twice have millions of parts.

    Parameters
    ----------
    names : dict
        The definitions of names.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._parts: dict[int, int] = {}

    def parts(self, schema: Schema) -> int:
        """Return the number of parts of a type that takes no bytes; 0 for other types."""
        schema = self._names.get(schema, schema) if isinstance(schema, str) else schema
        if not isinstance(schema, dict):
            return int(schema == "null")
        kind = schema.get("type")
        if kind == "fixed":
            return int(not schema.get("size"))
        if kind in ("record", "error"):
            if id(schema) not in self._parts:
                self._parts[id(schema)] = 0  # for a record that contains itself
                inner = [self.parts(field["type"]) for field in schema.get("fields", ())]
                self._parts[id(schema)] = 1 + sum(inner) if all(inner) else 0
            return self._parts[id(schema)]
        return int(kind == "null") if isinstance(kind, str) else self.parts(kind)


MOST_PARTS = 1000
"""How many parts of a record may take no bytes.  fastavro skips them one by one."""


def number_of_nothing(schema: Schema, names: Names) -> str:
    """Return the part of a schema that may have many elements without bytes; empty if there is none.

    A few bytes of such a schema could be any number of elements, or cost any number of steps.
    """
    nothing = Nothing(names)
    left, seen = [schema], set()
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        if one.get("type") == "array" and nothing.parts(one.get("items")):
            return "an array of nothing"
        inner = [field["type"] for field in one.get("fields", ())]
        if sum(map(nothing.parts, inner)) > MOST_PARTS:
            return f"a record with more than {MOST_PARTS} parts that take no bytes"
        left += [*inner, one.get("items"), one.get("values"), one.get("type")]
    return ""


def contains_itself(schema: Schema, names: Names) -> bool:
    """Return whether a record of a schema contains itself: such records may be nested without limit."""
    around: set[int] = set()
    done: set[int] = set()

    def look(schema: Schema) -> bool:
        schema = names.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            return any(look(branch) for branch in schema)
        if not isinstance(schema, dict) or id(schema) in done:
            return False
        if id(schema) in around:
            return True
        around.add(id(schema))
        inner = [field["type"] for field in schema.get("fields", ())]
        inner += [schema[key] for key in ("items", "values") if key in schema]
        inner += [] if isinstance(schema.get("type"), str) else [schema.get("type")]
        found = any(look(one) for one in inner)
        around.discard(id(schema))
        done.add(id(schema))
        return found

    return look(schema)
