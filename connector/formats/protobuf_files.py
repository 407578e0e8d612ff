"""From the descriptors of the registry to the messages that Google's library reads."""

from __future__ import annotations

import base64
import binascii
from importlib import import_module
from typing import TYPE_CHECKING

from pyspark_kafka_group.formats.decoder import MalformedValueError
from pyspark_kafka_group.formats.definitions import Definition
from pyspark_kafka_group.options.parsers import MalformedError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool

_REMEDY = "Read it as binary, and use from_protobuf."


def file_of(definition: Definition) -> FileDescriptor:
    """Return the file of a definition, in a pool of its own.

    Raises
    ------
    MalformedError
        If it cannot be read.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    files = []
    for name, text in (*definition.references, ("default", definition.text)):
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError, TypeError):
            raise MalformedError(
                "the registry does not give it as a descriptor (format=serialized).", _REMEDY
            ) from None
        except Exception as problem:
            raise MalformedError(f"its descriptor cannot be read ({type(problem).__name__}).", _REMEDY) from None
        file.name = name
        files.append(file)
    try:
        known: set[str] = set()
        given = {file.name for file in files}
        for file in files:
            for needed in file.dependency:
                if needed not in given:
                    _add_of_python(needed, pool, known)
            pool.Add(file)
        return pool.FindFileByName(files[-1].name)
    except (TypeError, KeyError, ImportError) as problem:
        raise MalformedError(f"its descriptor is incomplete ({problem}).", _REMEDY) from None


def _add_of_python(name: str, pool: DescriptorPool, known: set[str]) -> None:
    """Add a file that everybody has, as google/protobuf/timestamp.proto, and what it needs."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name in known:
        return
    known.add(name)
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if module.startswith("confluent."):
        module = f"confluent_kafka.schema_registry.{module}"
    elif not module.startswith("google."):
        raise KeyError(name)
    file = FileDescriptorProto()
    import_module(module).DESCRIPTOR.CopyToProto(file)
    for needed in file.dependency:
        _add_of_python(needed, pool, known)
    pool.Add(file)


def message_of(file: FileDescriptor, name: str | None) -> Descriptor:
    """Return a message by its full name, or the first one; raises `MalformedError` if there is none."""
    if name is None:
        if not file.message_types_by_name:
            raise MalformedError("it has no message.", "Name another schema.")
        return next(iter(file.message_types_by_name.values()))
    try:
        found = file.pool.FindMessageTypeByName(name)
    except KeyError:
        names = ", ".join(sorted(one.full_name for one in file.message_types_by_name.values()))
        raise MalformedError(f"the schema has no message {name!r}.", f"It has {names}.") from None
    return found


def message_at(file: FileDescriptor, indexes: tuple[int, ...]) -> str:
    """Return the full name of the message that a record says it is; raises :class:`MalformedValueError`."""
    messages = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise MalformedValueError(f"it says to be message {list(indexes)}, which its schema does not have")
        found = messages[index]
        messages = list(found.nested_types)
    assert found is not None
    return str(found.full_name)
