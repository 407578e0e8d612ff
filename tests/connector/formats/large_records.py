"""Decodes records that describe millions of values, in a process whose memory is limited.

``test_memory.py`` runs it: ``python -m tests.connector.formats.large_records KIND``.
"""

from __future__ import annotations

import base64
import json
import resource
import sys
from collections.abc import Callable

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.columns.schema import to_arrow_type
from pyspark_kafka_group.formats import protobuf
from pyspark_kafka_group.formats.ddl import struct_type
from pyspark_kafka_group.formats.decoder import Decoder
from pyspark_kafka_group.formats.json_decoder import JsonDecoder
from pyspark_kafka_group.formats.native_decoder import avro_decoder, protobuf_decoder
from pyspark_kafka_group.formats.registry import Definition
from tests.connector.columns.batches import varint
from tests.connector.formats.avro_samples import array, arrow_type, definition, field, record

MOST_BYTES = 600_000_000
"""What decoding may take, besides the memory that the process has before: the 128 MB of a column twice, and the record
of 90 MB as a text, several times."""

MEGA = 1_000_000


def json_decoder(width: int = 1) -> Decoder:
    wanted = struct_type(", ".join(f"f{n} BIGINT" for n in range(width)))
    return JsonDecoder(wanted, to_arrow_type(wanted))


def avro() -> Decoder:
    item = record("I", *(field(f"f{n}", ["null", "string"], default=None) for n in range(30)))
    schema = record("R", a=array(item))
    whole = definition(schema)
    return avro_decoder(arrow_type(schema), whole, lambda _: whole)


def proto() -> Decoder:
    file = FileDescriptorProto(name="o.proto", package="s", syntax="proto3")
    outer = file.message_type.add(name="R")
    outer.field.add(name="a", number=1, type=11, label=3, type_name=".s.I")
    inner = file.message_type.add(name="I")
    for n in range(30):
        inner.field.add(name=f"f{n}", number=n + 1, type=9, label=1)
    whole = Definition(id=1, kind="PROTOBUF", text=base64.b64encode(file.SerializeToString()).decode())
    arrow = to_arrow_type(protobuf.spark_type(protobuf.message_of(protobuf.file_of(whole), None)))
    return protobuf_decoder(arrow, whole, None, lambda _: whole)


HEAD = b"\0\0\0\0\1"

KINDS: dict[str, tuple[Callable[[], Decoder], Callable[[], bytes], int]] = {
    "json of 90 MB": (json_decoder, lambda: b'{\n"f0":1,"x":[' + b"1," * 45 * MEGA + b"1]}", 1),
    "json of 30 MB": (json_decoder, lambda: b'{\n"f0":1,"x":[' + b"1," * 15 * MEGA + b"1]}", 1),
    "json of objects": (json_decoder, lambda: b'{\n"f0":1,"x":[' + b"{}," * 10 * MEGA + b"1]}", 1),
    "avro and a byte": (avro, lambda: HEAD + varint(MEGA) + b"\0" * 30 * MEGA + b"\0x", 1),
    "protobuf and a group": (proto, lambda: HEAD + b"\0" + b"\x0a\0" * MEGA + b"\x0b\x0c", 1),
    "wide json": (lambda: json_decoder(5000), lambda: b"{}", 8192),
    "wide json in two lines": (lambda: json_decoder(1000), lambda: b"{\n}", 8192),
}


def main(kind: str) -> None:
    """Decode the records as `BatchDecoder` does.  Print the number of rows, and why the first record is malformed."""
    make, record, rows = KINDS[kind]
    decoder = make()
    values = pa.array([record()] * rows, pa.binary())
    decoder.decode(values.slice(0, 0))  # imports what it needs
    with open("/proc/self/statm", encoding="ascii") as found:
        used = int(found.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
    parts, done = [values], 0
    malformed = None
    while parts:
        part = parts.pop()
        try:
            found_rows = decoder.decode(part)
        except TooLargeError:
            half = len(part) // 2
            parts += [part.slice(half), part.slice(0, half)]
            continue
        done += len(found_rows.column)
        malformed = malformed or found_rows.malformed.get(0)
    print(json.dumps([done, malformed]))


if __name__ == "__main__":
    main(sys.argv[1])
