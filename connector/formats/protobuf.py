"""The format ``protobuf``: Google's library parses each record as the reader's message.  Fields match by number.

The registry returns a schema as descriptors of files.  A record contains the index of its message in its file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.columns.schema import to_arrow_type
from pyspark_kafka_group.formats.budget import Budget, width_of
from pyspark_kafka_group.formats.ddl import check_parts
from pyspark_kafka_group.formats.decoder import TOO_LARGE, Decoded, MalformedValueError, ObjectDecoder
from pyspark_kafka_group.formats.protobuf_size import check_size, cost_of_message, is_large
from pyspark_kafka_group.formats.registry import Definition
from pyspark_kafka_group.formats.schema_lookup import ID_BYTES, DefinitionOf, SchemaLookup, schema_id
from pyspark_kafka_group.options.parsers import MalformedError

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    from pyspark_kafka_group.formats.native_columns import ColumnLayout, Program

_WIRE_VARINT, _WIRE_BYTES = 0, 2
_DEEP = 100
"""How deeply messages may be nested: the limit of Protobuf's parser."""

_NO_SUCH_MESSAGE = "it claims to be a message that its schema does not have"
_REMEDY = "Read it as binary, and use from_protobuf."


def file_of(definition: Definition) -> FileDescriptor:
    """Return the file of a definition, in a new pool.

    Raises
    ------
    MalformedError
        If it cannot be read.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    given: dict[str, FileDescriptorProto] = {}
    for name, text in (*definition.references, ("default", definition.text)):
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError, TypeError):
            raise MalformedError(
                "the registry does not return it as a descriptor (format=serialized).",
                "Register it as a descriptor, as confluent-kafka does, or read it as binary, and use from_protobuf.",
            ) from None
        except Exception as problem:
            raise MalformedError(f"its descriptor cannot be read ({type(problem).__name__}).", _REMEDY) from None
        file.name = name
        given[name] = file
    pool = DescriptorPool()
    try:
        _add("default", given, pool, set())
        return pool.FindFileByName("default")
    except (TypeError, KeyError, RecursionError) as problem:
        raise MalformedError(f"its descriptor is incomplete ({problem}).", _REMEDY) from None


def _add(name: str, given: Mapping[str, FileDescriptorProto], pool: DescriptorPool, added: set[str]) -> None:
    """Add a file to a pool, after the files that it imports."""
    if name in added:
        return
    added.add(name)
    file = given[name] if name in given else _installed(name)
    for needed in file.dependency:
        _add(needed, given, pool, added)
    pool.Add(file)


def _installed(name: str) -> FileDescriptorProto:
    """Return a file of an installed package, such as google/protobuf/timestamp.proto."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if module.startswith("confluent."):
        module = f"confluent_kafka.schema_registry.{module}"
    elif not module.startswith("google."):
        raise MalformedError(f"it imports {name!r}, which the registry does not return.", _REMEDY)
    file = FileDescriptorProto()
    try:
        import_module(module).DESCRIPTOR.CopyToProto(file)
    except Exception as problem:  # also protobuf's VersionError, if the module is newer than protobuf
        raise MalformedError(
            f"it imports {name!r}, but the module {module} cannot be imported: {str(problem).rstrip('.')}.",
            "Install the package with this module, in a version for the installed protobuf.",
        ) from None
    return file


def message_of(file: FileDescriptor, name: str | None) -> Descriptor:
    """Return a message by its full name, or the first one; raise `MalformedError` if there is none."""
    if name is None:
        if not file.message_types_by_name:
            raise MalformedError("it has no message.", "Name another schema.")
        return next(iter(file.message_types_by_name.values()))
    try:
        found = file.pool.FindMessageTypeByName(name)
    except KeyError:
        names = ", ".join(sorted(one.full_name for one in file.message_types_by_name.values()))
        raise MalformedError(f"the schema has no message {name!r}.", f"It has {names}.") from None
    if found.file.name != file.name:
        raise MalformedError(
            f"the message {name!r} is one of the imported file {found.file.name!r}.",
            "Name a message of the schema itself, or the schema of that file.",
        )
    return found


def message_at(file: FileDescriptor, indexes: tuple[int, ...]) -> str:
    """Return the full name of the message with these indexes; raise :class:`MalformedValueError`."""
    messages = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise MalformedValueError(_NO_SUCH_MESSAGE)  # Deliberate: without the indexes, which may be any bytes
        found = messages[index]
        messages = list(found.nested_types)
    assert found is not None
    return str(found.full_name)


Get = Callable[[Any], Any]

_TIMES: dict[str, t.DataType] = {
    "google.protobuf.Timestamp": t.TimestampType(),
    "google.protobuf.Duration": t.DayTimeIntervalType(),
}
"""The types of these messages as fields.  A record of one is a struct, as any other message."""

_MICROSECONDS: dict[str, Get] = {
    "google.protobuf.Timestamp": lambda found: found.seconds * 1_000_000 + found.nanos // 1000,
    "google.protobuf.Duration": lambda found: found.seconds * 1_000_000 + int(found.nanos / 1000),
}


def spark_type(message: Descriptor) -> t.StructType:
    """Return the type of a message; raise `MalformedError` if Spark has no type for it."""
    return _ProtobufTypes().struct(message, ())


class ProtobufDecoder(ObjectDecoder):
    """Decodes records of Protobuf.

    Parameters
    ----------
    arrow_type : pyarrow.DataType
        The type of the column.
    reader : Definition
        The schema of the message.
    message : str or None
        The name of the message; None for the first one in the schema.
    definition_of : callable
        Returns the schema with an id.
    """

    def __init__(
        self,
        arrow_type: pa.DataType,
        reader: Definition,
        message: str | None,
        definition_of: DefinitionOf,
    ) -> None:
        from google.protobuf.message_factory import GetMessageClass

        super().__init__(arrow_type)
        descriptor = message_of(file_of(reader), message)
        self._descriptor = descriptor
        self._name = descriptor.full_name
        self._parse = GetMessageClass(descriptor).FromString
        self._get = _message(descriptor, self.budget, root=True)
        self._message_cost = cost_of_message(descriptor)
        self._dearest = self._message_cost.dearest()
        self._lookup = SchemaLookup(reader, definition_of)
        self._files: dict[int, FileDescriptor | str] = {}

    def look_up(self, values: pa.BinaryArray) -> list[int]:
        """Look up the schemas of the next values, and return their ids."""
        return self._lookup.begin(values)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; a null stays null."""
        self.look_up(values)
        return super().decode(values)

    def program(self, number: int | None, columns: ColumnLayout) -> Program | None:
        """Return the program for records of a schema; None if Python must decode them.  See `AvroDecoder.program`."""
        from pyspark_kafka_group.formats.protobuf_program import program_of

        assert number is not None
        indexes = _indexes_of(self._name, list(self._file(number).message_types_by_name.values()))
        return None if indexes is None else program_of(self._descriptor, indexes, columns)

    def is_refused(self, number: int) -> bool:
        """Return whether records with an id can never be decoded."""
        return isinstance(self._files.get(number), str)

    def one(self, value: bytes) -> Any:
        """Return a record as dictionaries, lists and numbers."""
        number = schema_id(value)
        indexes, begin = _message_indexes(value)
        name = message_at(self._file(number), indexes)
        if name != self._name:  # Protobuf itself would not notice this
            raise MalformedValueError(f"it is a message of {name}, and not of {self._name}")
        if is_large(value, self._dearest):
            try:
                check_size(value, begin, self._message_cost)
            except TooLargeError:
                raise MalformedValueError(TOO_LARGE) from None
        try:
            return self._get(self._parse(value[begin:]))
        except (MalformedValueError, TooLargeError):
            raise
        except Exception as problem:
            raise MalformedValueError(f"it is not a message of {self._name} ({type(problem).__name__})") from None

    def _file(self, number: int) -> FileDescriptor:
        """Return the file of a schema; raise :class:`MalformedValueError` if there is none."""
        if number not in self._files:
            self._files[number] = _file_or_problem(self._lookup.definition(number))
        found = self._files[number]
        if isinstance(found, str):
            raise MalformedValueError(f"schema {number}{found}")
        return found


def _indexes_of(name: str, messages: list[Descriptor]) -> tuple[int, ...] | None:
    """Return the indexes of a message in its file; None if the file does not have it.  See `message_at`."""
    for n, message in enumerate(messages):
        if message.full_name == name:
            return (n,)
        inner = _indexes_of(name, list(message.nested_types)) if name.startswith(f"{message.full_name}.") else None
        if inner is not None:
            return n, *inner
    return None


def _message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a record's message in its file, and the position where the message begins.

    Raises
    ------
    MalformedValueError
        If the indexes are cut off or invalid.
    """
    count, at = _zigzag(value, ID_BYTES)
    if not 0 <= count <= _DEEP:
        raise MalformedValueError(_NO_SUCH_MESSAGE)
    if count == 0:
        return (0,), at
    indexes = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 64:
        if at >= len(value):
            raise MalformedValueError("it ends within the indexes of its message")
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise MalformedValueError("an index of its message is too long")


def _file_or_problem(definition: Definition) -> FileDescriptor | str:
    if definition.kind != "PROTOBUF":
        return f" is one of {definition.kind}, and not of Protobuf"
    try:
        return file_of(definition)
    except MalformedError as problem:
        return f": {problem}"


class _ProtobufTypes:
    """The type of a message, and the number of its parts so far."""

    def __init__(self) -> None:
        self._parts = 0

    def struct(self, message: Descriptor, around: tuple[str, ...]) -> t.StructType:
        """Return the type of a message; `around` are the messages that contain it."""
        name = message.full_name
        if name in around:
            raise MalformedError(f"the message {name} contains itself, but no column of Spark can.", _REMEDY)
        if not message.fields:
            raise MalformedError(f"the message {name} has no fields, which a column cannot hold.", _REMEDY)
        if len(around) > _DEEP:
            raise MalformedError(
                f"it nests messages in more than {_DEEP} levels, which Protobuf does not parse.", _REMEDY
            )
        inner = (*around, name)
        return t.StructType([t.StructField(field.name, self._field(field, inner)) for field in message.fields])

    def _field(self, field: FieldDescriptor, around: tuple[str, ...]) -> t.DataType:
        entry = _entry(field)
        if entry is not None:
            key, value = (entry.fields_by_name[name] for name in ("key", "value"))
            return t.MapType(self.single(key, around), self.single(value, around), valueContainsNull=True)
        single = self.single(field, around)
        return t.ArrayType(single, containsNull=True) if field.is_repeated else single

    def single(self, field: FieldDescriptor, around: tuple[str, ...]) -> t.DataType:
        """Return the type of a field, or of one element of a repeated field."""
        self._parts += 1
        check_parts(self._parts)
        if field.message_type is not None:
            name = field.message_type.full_name
            return _TIMES[name] if name in _TIMES else self.struct(field.message_type, around)
        kinds: dict[int, t.DataType] = {
            field.CPPTYPE_INT32: t.IntegerType(),
            field.CPPTYPE_INT64: t.LongType(),
            field.CPPTYPE_UINT32: t.LongType(),
            field.CPPTYPE_UINT64: t.DecimalType(20, 0),
            field.CPPTYPE_DOUBLE: t.DoubleType(),
            field.CPPTYPE_FLOAT: t.FloatType(),
            field.CPPTYPE_BOOL: t.BooleanType(),
            field.CPPTYPE_ENUM: t.StringType(),
            field.CPPTYPE_STRING: t.BinaryType() if field.type == field.TYPE_BYTES else t.StringType(),
        }
        return kinds[field.cpp_type]


def _entry(field: FieldDescriptor) -> Descriptor | None:
    """Return the entry message of a map; None if the field is not a map."""
    message = field.message_type
    return message if message is not None and message.GetOptions().map_entry else None


def _message(message: Descriptor, budget: Budget, *, root: bool = False) -> Get:
    """Return a function that converts a message to a dictionary.  Unset fields become null if Protobuf knows them.

    The function raises `MalformedValueError` if a required field is missing, or a field is written as another type.
    """
    known = {field.number: field for field in message.fields}
    time = None if root else _MICROSECONDS.get(message.full_name)
    fields = [
        (field.name, field.has_presence and not field.is_repeated, _field(field, budget)) for field in message.fields
    ]
    required = [field.name for field in message.fields if field.is_required]

    def get(found: Any) -> Any:
        # The parser treats a field of another wire type as unknown, and the field of the schema stays unset.
        for unknown in _unknown_fields(found):
            field = known.get(unknown.field_number)
            if field is not None and not _is_unknown_number(unknown, field):
                entry = "" if _entry(field) is None else ", or an entry with other fields,"
                raise MalformedValueError(f"{field.name} has another type{entry} than in the schema")
        if time is not None:
            return time(found)
        has = type(found).HasField  # the message may have a field of that name
        for name in required:
            if not has(found, name):
                raise MalformedValueError(f"the required field {name} is missing")
        return {
            name: convert(getattr(found, name)) if not presence or has(found, name) else None
            for name, presence, convert in fields
        }

    return get


def _unknown_fields(message: Any) -> list[Any]:
    """Return the fields of a message that the parser treats as unknown."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    unknown = UnknownFieldSet(message)
    return [unknown[n] for n in range(len(unknown))]


def _is_unknown_number(unknown: Any, field: FieldDescriptor) -> bool:
    """Return whether an unknown field is a number that a closed enum does not have, or an entry of a map with one."""
    from google.protobuf.message_factory import GetMessageClass

    entry = _entry(field)
    if entry is None:
        return field.enum_type is not None and field.enum_type.is_closed and unknown.wire_type == _WIRE_VARINT
    if unknown.wire_type != _WIRE_BYTES:
        return False
    value, inner = entry.fields_by_name["value"], _unknown_fields(GetMessageClass(entry).FromString(unknown.data))
    return bool(inner) and all(one.field_number == value.number and _is_unknown_number(one, value) for one in inner)


def _field(field: FieldDescriptor, budget: Budget) -> Get:
    entry = _entry(field)
    if entry is None and not field.is_repeated:
        return _one(field, budget)
    kinds = [field] if entry is None else [entry.fields_by_name[name] for name in ("key", "value")]
    width = sum(width_of(to_arrow_type(_ProtobufTypes().single(kind, ()))) for kind in kinds)
    parts = [_one(kind, budget) for kind in kinds]

    def repeated(found: Any) -> Any:
        budget.spend(len(found), width)
        if entry is None:
            return list(map(parts[0], found))
        key, value = parts
        # Deliberate: by the keys.  Not every version can iterate over the items of a map of messages.
        return [(key(one), value(found[one])) for one in found]

    return repeated


def _one(field: FieldDescriptor, budget: Budget) -> Get:
    if field.message_type is not None:
        return _message(field.message_type, budget)
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}  # of aliases, the first
        return lambda found: names.get(found, str(found))
    if field.cpp_type == field.CPPTYPE_UINT64:
        return Decimal
    if field.type == field.TYPE_STRING:
        return lambda found: _text(field, found)
    return lambda found: found


def _text(field: FieldDescriptor, found: str | bytes) -> str:
    if isinstance(found, bytes):  # only where Protobuf does not check it, as in proto2
        raise MalformedValueError(f"{field.name} is not UTF-8")
    return found
