"""The format ``avro``: fastavro reads each record with its writer's schema, and resolves it to the reader's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.formats.avro_defaults import decimal_of, drop_unfit_defaults, set_defaults, with_length
from pyspark_kafka_group.formats.avro_resolution import (
    PROMOTED,
    Names,
    Resolution,
    contains_itself,
    definitions,
    in_full,
    names_of,
    number_of_nothing,
)
from pyspark_kafka_group.formats.avro_types import AS_WRITTEN, PREFIX, Schema, for_fastavro, kind_of, of_text
from pyspark_kafka_group.formats.budget import Budget, cost_of, counter, largest_element, most_bytes
from pyspark_kafka_group.formats.decoder import TOO_LARGE, Decoded, MalformedValueError, ObjectDecoder
from pyspark_kafka_group.formats.registry import Definition
from pyspark_kafka_group.formats.schema_lookup import ID_BYTES, DefinitionOf, SchemaLookup, schema_id
from pyspark_kafka_group.options.parsers import MalformedError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_group.formats.native_columns import ColumnLayout, Program

Read = Callable[[BytesIO], Any]
Shape = Callable[[Any], Any]

_ROOT = "value"
"""The field of a record around each schema.  It takes no bytes.  fastavro keeps names and defaults only of records."""


_COUNTED = f"{PREFIX}counted"
"""The logical type of records whose fields are counted while they are read: those in large values."""


class _Strict(BytesIO):
    """A stream that raises at its end, because fastavro does not check the data of skipped fields.

    Without this, fastavro would accept a record that is cut off there.  A record that claims 2 ** 60 numbers there
    would keep the task busy for years.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if len(found) != size:
            raise EOFError
        return found


class _Counted(_Strict):
    """A stream for large records, which counts what is read: fastavro makes at most one object of each part."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self.budget = Budget()
        self.budget.begin(len(value))

    def read(self, size: int | None = -1, /) -> bytes:
        self.budget.spend(1, 0)
        return super().read(size)


class _Reading(threading.local):
    """The stream of the record that this thread reads, if it is a large one."""

    stream: _Counted | None = None


_READING = _Reading()


class AvroDecoder(ObjectDecoder):
    """Decodes records of Avro.

    Parameters
    ----------
    arrow_type : pyarrow.DataType
        The type of the column.
    reader : Definition
        The reader's schema.
    definition_of : callable or None
        Returns the schema with an id.  If None, records have no ids, and were written with the reader's schema.
    """

    def __init__(self, arrow_type: pa.DataType, reader: Definition, definition_of: DefinitionOf | None) -> None:
        super().__init__(arrow_type)
        _teach_fastavro()
        self._reader = reader
        self._lookup = None if definition_of is None else SchemaLookup(reader, definition_of)
        self._raw_reader, *named = schemas = _schemas(reader)
        self._names = names_of([*named, self._raw_reader])
        self._parsed_reader = _parsed(schemas, defaults=True)
        self._shape = _shape(*_parts(self._parsed_reader))
        self._count = counter(arrow_type, self.budget)
        self._dearest = largest_element(arrow_type, cost_of)
        self._reads: dict[tuple[int | None, bool], Read] = {}
        self._writers: dict[int, Schema] = {}
        self._endless: set[int | None] = set()
        self._bare: set[int | None] = {reader.id} if _is_bytes(self._raw_reader) else set()
        self._refused: dict[int, str] = {}

    def look_up(self, values: pa.BinaryArray) -> list[int]:
        """Look up the schemas of the next values, and return their ids."""
        return [] if self._lookup is None else self._lookup.begin(values)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null."""
        self.look_up(values)
        return super().decode(values)

    def one(self, value: bytes) -> Any:
        """Return a record as dictionaries, lists and numbers."""
        number = None if self._lookup is None else schema_id(value)
        large = len(value) * self._dearest > most_bytes(len(value))
        read = self._reads.get((number, large))
        if read is None:
            read = self._reads[number, large] = self._read_of(number, counted=large)
        if number is not None and number in self._bare:
            value = value[:ID_BYTES] + with_length(value[ID_BYTES:])
        payload: BytesIO
        if large:
            payload = _READING.stream = _Counted(value)
        else:
            payload = _Strict(value) if number in self._writers else BytesIO(value)
        if number is not None:
            payload.seek(ID_BYTES)
        try:
            found = read(payload)[_ROOT]
            shaped = found if self._shape is None or found is None else self._shape(found)
        except TooLargeError:
            raise MalformedValueError(TOO_LARGE) from None
        except Exception as problem:
            if type(problem).__name__ == "SchemaResolutionError":
                raise MalformedValueError(f"schema {number} cannot be resolved to the one that is read") from None
            raise MalformedValueError(f"it is not what its schema says ({type(problem).__name__})") from None
        finally:
            _READING.stream = None
        if self._count is not None:
            self._count(shaped)
        left = len(value) - payload.tell()
        if left:
            raise MalformedValueError(f"{left} bytes follow what its schema says")
        return shaped

    def _read_of(self, number: int | None, *, counted: bool) -> Read:
        """Return a function that reads records of a writer's schema."""
        import fastavro

        written = self._writer_of(number)
        writer = _with_counted_records(written) if counted else written
        # Deliberate: without a reader's schema if there is nothing to resolve.  This is three times as fast.
        reader = None if written is self._parsed_reader else self._parsed_reader
        if number in self._endless:
            # Deliberate: fastavro in Python, which raises a RecursionError.  fastavro in C would crash the process.
            from fastavro import _read_py

            return lambda payload: _read_py.schemaless_reader(payload, writer, reader)
        return lambda payload: fastavro.schemaless_reader(payload, writer, reader)

    def _writer_of(self, number: int | None) -> Schema:
        """Return a writer's schema, or the reader's if both are the same; raise :class:`MalformedValueError`."""
        if number is None or number == self._reader.id:
            return self._parsed_reader
        if number not in self._writers and number not in self._refused:
            assert self._lookup is not None
            definition = self._lookup.definition(number)
            try:
                self._writers[number] = self._checked(number, definition)
            except MalformedValueError as problem:
                self._refused[number] = str(problem)  # permanent: the schema of an id never changes
        if number in self._refused:
            raise MalformedValueError(self._refused[number])
        return self._writers[number]

    def program(self, number: int | None, columns: ColumnLayout) -> Program | None:
        """Return the program with which the C library decodes records of a writer's schema.

        Parameters
        ----------
        number : int or None
            The schema's id.
        columns : ColumnLayout
            The columns.

        Returns
        -------
        Program or None
            None if such records must be decoded in Python.

        Raises
        ------
        MalformedValueError
            If such records cannot be decoded.
        """
        from pyspark_kafka_group.formats.avro_program import program_of

        writer = self._writer_of(number)
        reader, read = _parts(_parsed(_schemas(self._reader)))
        to_end = number is not None and number in self._bare
        if writer is self._parsed_reader:
            return program_of(reader, read, None, read, columns, to_end=to_end)
        return program_of(*_parts(writer), reader, read, columns, to_end=to_end)

    def is_refused(self, number: int) -> bool:
        """Return whether records with an id can never be decoded."""
        return number in self._refused

    def _checked(self, number: int, definition: Definition) -> Schema:
        """Return a writer's schema, prepared for reading; raise :class:`MalformedValueError` if it is not possible."""
        if definition.kind != "AVRO":
            raise MalformedValueError(f"schema {number} is one of {definition.kind}, and not of Avro")
        try:
            raw, *named = schemas = _schemas(definition)
            names = names_of([*named, raw])
            nothing = number_of_nothing(raw, names)
            if contains_itself(raw, names):
                self._endless.add(number)
            resolution = Resolution(raw, self._raw_reader, names, self._names)
            resolution.times_read_as_numbers()
            field = resolution.other_unit()
            chosen = resolution.choose()
            writer = _parsed(schemas)
        except Exception as problem:
            raise MalformedValueError(f"fastavro cannot read schema {number} ({type(problem).__name__})") from None
        if nothing:
            raise MalformedValueError(f"schema {number} has {nothing}, which is not supported")
        if field is not None:
            raise MalformedValueError(
                f"schema {number} does not count {field or 'the value'} in the unit of the reader's schema"
            )
        if not chosen:
            raise MalformedValueError(f"schema {number} cannot be resolved to the one that is read")
        if _is_bytes(raw):
            self._bare.add(number)
        # fastavro compares them in the same way: it resolves nothing between equal schemas.
        return self._parsed_reader if writer == self._parsed_reader else writer


def check_avro(definition: Definition) -> None:
    """Raise `MalformedError` for a schema that fastavro cannot read."""
    try:
        raw, *named = schemas = _schemas(definition)
        nothing = number_of_nothing(raw, names_of([*named, raw]))
        if not nothing:
            _parsed(schemas, defaults=True)
    except Exception as problem:
        raise MalformedError(f"fastavro cannot read this schema ({problem}).", "Correct it.") from None
    if nothing:
        raise MalformedError(f"it has {nothing}.", "Name another schema.")


def _is_bytes(schema: Schema) -> bool:
    """Return whether a record with an id is plain bytes, without the length that Avro writes before them.

    Confluent's serializers and deserializers omit the length for such a schema, even with a logical type.
    """
    kind = schema.get("type") if isinstance(schema, dict) else schema
    return bool(kind == "bytes") if isinstance(kind, str) else isinstance(kind, dict) and _is_bytes(kind)


def _schemas(definition: Definition) -> list[Schema]:
    """Return a schema and then its references, with full names and without defaults that do not fit."""
    found = [in_full(of_text(text)) for text in (definition.text, *(text for _, text in definition.references))]
    drop_unfit_defaults(found, names_of(found[::-1]))
    return found


def _parsed(schemas: list[Schema], *, defaults: bool = False) -> Schema:
    """Return a schema parsed by fastavro, as the only field of a record."""
    import fastavro

    raw, *references = map(for_fastavro, schemas)
    named: dict[str, Any] = {}
    for one in references:
        fastavro.parse_schema(one, named, _ignore_default_error=True)
    root = {"type": "record", "name": "kafka_group_root", "fields": [{"name": _ROOT, "type": raw}]}
    # Deliberate: with definitions in place of names.  If one of two schemas contains only the name of a type, fastavro
    # does not find it in a union.
    found = fastavro.parse_schema(root, named, expand=True, _ignore_default_error=True)
    if defaults:
        set_defaults(named.values(), named)
    return found


def _with_counted_records(parsed: Schema) -> Schema:
    """Return a copy of a schema, parsed by fastavro, whose records are counted."""
    found = deepcopy(parsed)
    for one in definitions([found, *found["__named_schemas"].values()]):
        if one.get("type") in ("record", "error"):
            one["logicalType"] = _COUNTED
    return found


def _parts(parsed: Schema) -> tuple[Schema, Names]:
    """Return the schema inside the result of `_parsed`, and the definitions of its names."""
    (root,) = parsed["fields"]
    return root["type"], parsed["__named_schemas"]


def _teach_fastavro() -> None:
    """Register our logical types with fastavro.  Do not change others, because users' code may run here."""
    from fastavro import read

    def millis(value: int, writer: Any = None, reader: Any = None) -> int:
        return value * 1000

    def decimal(value: bytes, writer: Any, reader: Any = None) -> Decimal:
        return decimal_of(value, writer.get("scale", 0))

    def counted(value: Any, writer: Any = None, reader: Any = None) -> Any:
        if _READING.stream is not None:
            _READING.stream.budget.spend(len(value), 0)  # also fields without bytes, such as defaults
        return value

    def as_written(value: Any, writer: Any = None, reader: Any = None) -> Any:
        return value

    for kind in PROMOTED:
        read.LOGICAL_READERS[f"{kind}-{AS_WRITTEN}"] = as_written
    for kind in ("record", "error"):
        read.LOGICAL_READERS[f"{kind}-{_COUNTED}"] = counted
    read.LOGICAL_READERS[f"long-{PREFIX}millis"] = millis
    read.LOGICAL_READERS[f"bytes-{PREFIX}decimal"] = decimal
    read.LOGICAL_READERS[f"fixed-{PREFIX}decimal"] = decimal


def _shape(schema: Schema, names: Names) -> Shape | None:
    """Return a function that converts fastavro's maps and unions for Arrow; None if no conversion is necessary."""
    if isinstance(schema, str):
        return _shape(names[schema], names) if schema in names else None
    if isinstance(schema, list):
        return _shape_of_union([branch for branch in schema if branch != "null"], names)
    kind = schema.get("type")
    if kind in ("record", "error"):
        changed = [(f["name"], shape) for f in schema["fields"] if (shape := _shape(f["type"], names)) is not None]

        def record(found: Any) -> Any:
            found = dict(found)  # a copy: a default is the same object in each record
            for name, shape in changed:
                found[name] = None if found[name] is None else shape(found[name])
            return found

        return record if changed else None
    if kind == "map":
        of_value = _shape(schema["values"], names)
        if of_value is None:
            return lambda found: list(found.items())
        return lambda found: [(key, None if x is None else of_value(x)) for key, x in found.items()]
    if kind == "array":
        element = _shape(schema["items"], names)
        return None if element is None else lambda found: [None if x is None else element(x) for x in found]
    return None if isinstance(kind, str) and kind not in names else _shape(kind, names)


def _shape_of_union(branches: list[Schema], names: Names) -> Shape | None:
    if len(branches) == 1:
        return _shape(branches[0], names)
    if all(branch in ("int", "long") for branch in branches) or all(
        branch in ("float", "double") for branch in branches
    ):
        return None
    members = {kind_of(one): (f"member{n}", _shape(one, names)) for n, one in enumerate(branches)}

    def union(found: Any) -> Any:
        member, shape = members[type(found)]
        return {member: found if shape is None else shape(found)}

    return union
