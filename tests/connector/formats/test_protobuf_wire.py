"""Protobuf: what unusual bytes mean.  The decoder in C, the one in Python and Google's library agree."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_kafka_group.formats.native_decoder import NativeDecoder, protobuf_decoder
from pyspark_kafka_group.formats.protobuf import ProtobufDecoder, file_of, message_of, spark_type
from pyspark_kafka_group.formats.registry import Definition
from tests.connector.reading.clients import need_native_library
from tests.formats_samples import descriptor, framed

MALFORMED: dict[str, Any] = {}


def message(name: str, fields: str, more: str = "", what: str = "message_type") -> str:
    """Describe a message whose fields are such as ``r=2:int32*[...]``: repeated, with more in the brackets."""
    for field, number, kind, star, rest in re.findall(r"(\w+)=(\d+):([\w.]+)(\*?)(?:\[(.*?)\])?", fields):
        meaning = f'type_name: "{kind}"' if "." in kind else f"type: TYPE_{kind.upper()}"
        label = "LABEL_REPEATED" if star else "LABEL_OPTIONAL"
        more += f' field {{ name: "{field}" number: {number} label: {label} {meaning} {rest} }}'
    return f'{what} {{ name: "{name}" {more} }}'


def entry(name: str, key: str, value: str) -> str:
    return message(name, f"key=1:{key} value=2:{value}", "options { map_entry: true }", "nested_type")


def definition(syntax: str, *parts: str) -> Definition:
    file = FileDescriptorProto(name="a.proto", package="p", syntax=syntax)
    return Definition(id=1, kind="PROTOBUF", text=descriptor(text_format.Merge(" ".join(parts), file)))


SUB = message("S", "x=1:int32 r=2:int32*")
CLOSED = 'enum_type { name: "C" value { name: "ONE" number: 1 } value { name: "NEG" number: -5 } %s }'
FEATURE = "[options { features { %s } }]"
PROTO3 = definition("proto3", message("M",
    "i=1:int32 b=2:bool e=3:.p.E r=4:int32* m=5:.p.S t=6:.p.M.TEntry* n=7:.p.M.NEntry* oa=8:int32[oneof_index: 0] "
    "ob=9:.p.S[oneof_index: 0]",
    entry("TEntry", "string", "int32") + entry("NEntry", "int32", ".p.S") + 'oneof_decl { name: "o" }',
), SUB, 'enum_type { name: "E" value { name: "Z" number: 0 } value { name: "N" number: -2 } }')  # fmt: skip
PROTO2 = definition("proto2", CLOSED % "", message("M",
    "c=1:.p.C r=2:.p.C* k=3:.p.C*[options { packed: true }] n=4:.p.M.NEntry* g=5:group[type_name: '.p.M.G'] "
    "h=6:group*[type_name: '.p.M.G']",
    entry("NEntry", "int32", ".p.D") + message("G", "x=1:int32 r=2:int32*", what="nested_type"),
), 'enum_type { name: "D" value { name: "NONE" number: 0 } value { name: "ONE_" number: 1 } }')  # fmt: skip
EDITION = definition("editions", "edition: EDITION_2023", message("M",
    f"imp=1:int32{FEATURE % 'field_presence: IMPLICIT'} exp=2:int32{FEATURE % 'field_presence: EXPLICIT'} "
    f"req=3:int32{FEATURE % 'field_presence: LEGACY_REQUIRED'} c=5:.p.C ver=7:string r=8:int32* "
    f"del=4:.p.S{FEATURE % 'message_encoding: DELIMITED'} non=6:string{FEATURE % 'utf8_validation: NONE'} "
    f"x=9:int32*{FEATURE % 'repeated_field_encoding: EXPANDED'}",
), SUB, CLOSED % "options { features { enum_type: CLOSED } }")  # fmt: skip
NESTED = definition("proto3", message("A", "x=1:int32"), message("B", "x=1:int32",
    message("C", "x=1:int32", message("D", "x=1:int32", what="nested_type"), "nested_type")))  # fmt: skip
NINE, TEN = "ff" * 9, "80" * 9
CASES: list[tuple[Definition, dict[str, dict[str, Any]]]] = [
    (PROTO3, {
        "": {"i": 0, "b": False, "e": "Z", "r": [], "m": None, "oa": None},
        f"08 {NINE}01": {"i": -1}, "08 8580808010": {"i": 5}, "08 85808080808080808000": {"i": 5},
        f"08 {NINE}02": {"i": -1}, f"08 {TEN}8000": MALFORMED, "10 02": {"b": True}, "10 8080808010": {"b": True},
        "18 09": {"e": "9"}, f"18 fe{NINE[2:]}01": {"e": "N"}, "18 8080808010": {"e": "Z"},
        "22 020102": {"r": [1, 2]}, "2001 2002": {"r": [1, 2]}, "2001 22020203 0805 2004": {"r": [1, 2, 3, 4], "i": 5},
        "2200": {"r": []}, "22 0201ff": MALFORMED, "25 01000000": MALFORMED,
        "2a020801 2a03120105 2a021006": {"m": {"x": 1, "r": [5, 6]}}, "2a020801 2a020802": {"m": {"x": 2, "r": []}},
        "32050a01611001 32050a01611002": {"t": [("a", 2)]}, "32021005": {"t": [("", 5)]},
        "32030a0161": {"t": [("a", 0)]}, "3200": {"t": [("", 0)]},
        "320510010a0161": {"t": [("a", 1)]}, "32080a01610a01621001": {"t": [("b", 1)]},
        "32070a016110011002": {"t": [("a", 2)]}, "32070a016110011801": MALFORMED,
        "3a020801": {"n": [(1, {"x": 0, "r": []})]}, "3a0a0801120208011202 1005": {"n": [(1, {"x": 1, "r": [5]})]},
        "4005 4a020801": {"oa": None, "ob": {"x": 1, "r": []}}, "4a020801 4005": {"oa": 5, "ob": None},
        "4a020801 4a021003": {"ob": {"x": 1, "r": [3]}}, "4a020801 4005 4a021003": {"ob": {"x": 0, "r": [3]}},
        "4000": {"oa": 0}, "4a00": {"ob": {"x": 0, "r": []}}, "4005 4807": MALFORMED,
        "f83e01 fa3e0161 fb3efc3e": {"i": 0}, "fb3e": MALFORMED, "0c": MALFORMED, "0005": MALFORMED,
        "08": MALFORMED, "2a03 0801": MALFORMED, "2a020801 00": MALFORMED,
    }),
    (PROTO2, {
        "0801": {"c": "ONE"}, "0809": {"c": None}, "0801 0809": {"c": "ONE"}, "0809 0801": {"c": "ONE"},
        f"08 fb{NINE[2:]}01": {"c": "NEG"}, "088180808010": {"c": "ONE"}, "1001 1009": {"r": ["ONE"]},
        "1203010901": {"r": ["ONE", "ONE"]}, "1801 1809": {"k": ["ONE"]}, "1a020109": {"k": ["ONE"]},
        "220408011001": {"n": [(1, "ONE_")]}, "220408011009": {"n": []}, "22020801": {"n": [(1, "NONE")]},
        "220408011001 220408011009": {"n": [(1, "ONE_")]}, "22021001": {"n": [(0, "ONE_")]},
        "2b08012c": {"g": {"x": 1, "r": []}}, "2b10012c 2b10022c": {"g": {"x": None, "r": [1, 2]}},
        "33 34 33080534": {"h": [{"x": None, "r": []}, {"x": 5, "r": []}]}, "2b0801": MALFORMED, "2b080134": MALFORMED,
        "2a020801": MALFORMED, "2b0a01612c": MALFORMED,
    }),
    (EDITION, {
        "1801": {"imp": 0, "exp": None, "req": 1, "del": None, "c": None, "non": None}, "": MALFORMED,
        "1801 0800 1000": {"imp": 0, "exp": 0}, "1800": {"req": 0}, "1801 28fbffffffffffffffff01": {"c": "NEG"},
        "1801 23080124": {"del": {"x": 1, "r": []}}, "1801 23100124 23100224": {"del": {"x": None, "r": [1, 2]}},
        "1801 22020801": MALFORMED, "1801 2809": {"c": None}, "1801 2a0161": MALFORMED,
        "1801 3201ff": MALFORMED, "1801 3a01ff": MALFORMED, "1801 320161 3a0162": {"non": "a", "ver": "b"},
        "1801 42020102 4003": {"r": [1, 2, 3]}, "1801 4801 4a020203": {"x": [1, 2, 3]},
    }),
]  # fmt: skip


def decoders(file: Definition, name: str) -> tuple[NativeDecoder, ProtobufDecoder]:
    arrow = to_arrow_type(spark_type(message_of(file_of(file), name)), timezone="UTC")
    native = protobuf_decoder(arrow, file, name, lambda _: file)
    assert isinstance(native, NativeDecoder)
    return native, ProtobufDecoder(arrow, file, name, lambda _: file)


def reference(found: Any) -> dict[str, Any]:
    """Return a parsed message as a row."""

    def one(field: Any, value: Any) -> Any:
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return str(value) if known is None else known.name
        return value if field.message_type is None else reference(value)

    row: dict[str, Any] = {}
    for field in found.DESCRIPTOR.fields:
        value, kind = getattr(found, field.name), field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            row[field.name] = [(key, one(kind.fields_by_name["value"], value[key])) for key in value]
        elif field.is_repeated:
            row[field.name] = [one(field, each) for each in value]
        else:
            unset = field.has_presence and not found.HasField(field.name)
            row[field.name] = None if unset else one(field, value)
    return row


@pytest.mark.parametrize(("file", "cases"), CASES, ids=["proto3", "proto2", "edition"])
def test_unusual_messages(file: Definition, cases: dict[str, dict[str, Any]]) -> None:
    need_native_library()
    payloads = [bytes.fromhex(one) for one in cases]
    values = pa.array([framed(1, b"\0" + one) for one in payloads], pa.binary())
    parse = GetMessageClass(message_of(file_of(file), "p.M")).FromString
    native, python = (decoder.decode(values) for decoder in decoders(file, "p.M"))

    assert native.malformed == python.malformed
    assert native.column.equals(python.column)
    assert [list(cases)[n] for n in native.malformed] == [one for one, wanted in cases.items() if wanted is MALFORMED]
    for payload, wanted, row in zip(payloads, cases.values(), native.column.to_pylist(), strict=True):
        if wanted is not MALFORMED:
            assert row == reference(parse(payload)), payload.hex()
            assert {name: row[name] for name in wanted} == wanted, payload.hex()


INDEXES = {"00": "p.A", "0200": "p.A", "8000": "p.A", "0202": "p.B", "028200": "p.B", "040200": "p.B.C",
    "06020000": "p.B.C.D", "028000": "p.A", "020100": "", "040202": "", "020a": "", "01": "", "0201": "", "ca01": "",
    "0402": "", "": "", "02" + "ff" * 11: ""}  # fmt: skip


@pytest.mark.parametrize("name", ["p.A", "p.B", "p.B.C", "p.B.C.D"])
def test_only_records_of_the_message_are_read(name: str) -> None:
    need_native_library()
    heads = [bytes.fromhex(one) for one in INDEXES]
    values = pa.array([framed(1, head + b"\x08\x05") for head in heads], pa.binary())
    native, python = (decoder.decode(values) for decoder in decoders(NESTED, name))

    assert native.malformed == python.malformed
    assert native.column.to_pylist() == python.column.to_pylist()
    assert native.column.to_pylist() == [{"x": 5} if one == name else None for one in INDEXES.values()]
