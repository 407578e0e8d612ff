"""Protobuf: types, presence, message indexes, and malformed records."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.runtime_version import VersionError
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.formats.decoder import TOO_LARGE, Decoded
from pyspark_kafka_group.formats.protobuf import ProtobufDecoder, file_of, message_of, spark_type
from pyspark_kafka_group.formats.registry import Definition, UnknownSchemaError
from pyspark_kafka_group.options.parsers import MalformedError
from tests.connector.columns.batches import varint
from tests.formats_samples import descriptor, framed, order_message, proto_file

FILE = Definition(id=1, kind="PROTOBUF", text=descriptor(proto_file()))
NEWER = Definition(id=2, kind="PROTOBUF", text=descriptor(proto_file(more=True)))
ORDER = b"\x02\x02"  # message 1 of the file, as confluent-kafka writes it
AVRO = Definition(id=3, kind="AVRO", text='"string"')


def find(number: int) -> Definition:
    for known in (FILE, NEWER, AVRO):
        if known.id == number:
            return known
    raise UnknownSchemaError


def decode(values: list[bytes | None], message: str | None = "shop.Order", file: Definition = FILE) -> Decoded:
    wanted = spark_type(message_of(file_of(file), message))
    decoder = ProtobufDecoder(to_arrow_type(wanted, timezone="UTC"), file, message, find)
    return decoder.decode(pa.array(values, pa.binary()))


def file_with(syntax: str, **fields: Any) -> Definition:
    """Return a schema with the message One with these fields, the message Line, and the enum State with an alias."""
    times = ["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"]
    file = FileDescriptorProto(name="one.proto", syntax=syntax, dependency=times)
    one = file.message_type.add(name="One")
    for number, (name, more) in enumerate(fields.items(), 1):
        one.field.add(name=name, number=number, **{"label": 1, **more})
    entry = one.nested_type.add(name="NumbersEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, **NUMBER)
    entry.field.add(name="value", number=2, label=1, **STATE)
    line = file.message_type.add(name="Line")
    line.field.add(name="item", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    state = file.enum_type.add(name="State")
    state.options.allow_alias = True
    for name, number in ("OPEN", 0), ("NEW", 0), ("PAID", 1):
        state.value.add(name=name, number=number)
    return Definition(id=1, kind="PROTOBUF", text=descriptor(file))


LINE = {"type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": ".Line"}
STATE = {"type": FieldDescriptorProto.TYPE_ENUM, "type_name": ".State"}
NUMBER = {"type": FieldDescriptorProto.TYPE_INT32}
TEXT = {"type": FieldDescriptorProto.TYPE_STRING}
TIME = {"type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": ".google.protobuf.Timestamp"}
SPAN = {"type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": ".google.protobuf.Duration"}
NUMBERS = {"type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": ".One.NumbersEntry", "label": 3}


def test_messages_become_types() -> None:
    assert spark_type(message_of(file_of(FILE), "shop.Order")).simpleString() == (
        "struct<id:bigint,lines:array<struct<item:string,count:bigint>>,at:timestamp,state:string,"
        "tags:map<string,int>,note:string,big:decimal(20,0),raw:binary>"
    )
    assert message_of(file_of(FILE), None).full_name == "shop.Refund"


def test_a_message_becomes_a_row() -> None:
    full = order_message(proto_file())(
        id=-5, state=1, tags={"a": 1}, note="", big=2**64 - 1, raw=b"\xff", lines=[{"item": "pen", "count": 2**32 - 1}]
    )
    full.at.FromDatetime(datetime(2024, 5, 1, 12, tzinfo=UTC))
    empty = order_message(proto_file())()

    found = decode([framed(1, ORDER + message.SerializeToString()) for message in (full, empty)])

    assert found.malformed == {}
    assert found.column[0].as_py() == {
        "id": -5,
        "lines": [{"item": "pen", "count": 2**32 - 1}],
        "at": datetime(2024, 5, 1, 12, tzinfo=UTC),
        "state": "PAID",
        "tags": [("a", 1)],
        "note": "",
        "big": Decimal(2**64 - 1),
        "raw": b"\xff",
    }
    unset: dict[str, Any] = {"at": None, "note": None, "lines": [], "tags": []}
    assert found.column[1].as_py() == {"id": 0, "state": "OPEN", "big": Decimal(0), "raw": b"", **unset}


def test_a_newer_schema_is_read_as_the_one_of_the_query() -> None:
    message = order_message(proto_file(more=True))(id=3, later=True)

    found = decode([framed(2, ORDER + message.SerializeToString())])

    assert found.column.field("id").to_pylist() == [3]


def test_an_unknown_member_of_an_enum_is_its_number() -> None:
    message = order_message(proto_file())(state=9)

    assert decode([framed(1, ORDER + message.SerializeToString())]).column.field("state").to_pylist() == ["9"]


def test_what_is_wrong_with_a_record_is_told() -> None:
    found = decode(
        [
            None,
            b"\1\0\0\0\1",
            framed(1, b""),
            framed(1, b"\0"),  # message 0: a refund
            framed(1, b"\x02\x10"),
            framed(1, b"\xff" * 12),
            framed(1, ORDER + b"\x0a"),
            framed(7, ORDER),
            framed(3, ORDER),
        ]
    )

    assert found.malformed == {
        1: "it does not begin with 0, as a record with the id of a schema does",
        2: "it ends within the indexes of its message",
        3: "it is a message of shop.Refund, and not of shop.Order",
        4: "it claims to be a message that its schema does not have",
        5: "an index of its message is too long",
        6: "it is not a message of shop.Order (DecodeError)",
        7: "the registry has no schema 7",
        8: "schema 3 is one of AVRO, and not of Protobuf",
    }
    assert found.column.null_count == 9


@pytest.mark.parametrize("payload", [b"\x12\x1aiban DE89370400440532013000", b"\x09\x31234-5678", b"1234-5678"])
def test_no_reason_shows_a_record_without_indexes(payload: bytes) -> None:
    """Regression: the reason listed bytes of the message, if the producer had written no indexes before it."""
    found = decode([framed(1, payload)])

    assert found.malformed == {0: "it claims to be a message that its schema does not have"}


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (b"\x0a\x01a", "number"),  # a string
        (b"\x0d\0\0\0\0", "number"),  # fixed32
        (b"\x08\x05\x0a\x01a", "number"),
        (b"\x10\x05", "line"),
        (b"\x12\x02\x08\x05", "item"),
        (b"\x1a\x02\x08\x05", "item"),
        (b"\x22\0", "state"),
        (b"\x32\x03\x0a\x01a", "seconds"),
        (b"\x32\x09\x09\0\0\0\0\0\0\0\0", "seconds"),
        (b"\x32\x07\x08\x01\x15\0\0\0\0", "nanos"),
        (b"\x3a\x03\x0a\x01a", "seconds"),
    ],
)
@pytest.mark.parametrize("syntax", ["proto3", "proto2"])  # in proto2, enums are closed
def test_a_field_that_is_written_as_another_type_is_malformed(payload: bytes, field: str, syntax: str) -> None:
    """Regression: the field was 0, "", 1970 or null, without an error."""
    lines = {**LINE, "label": 3}
    file = file_with(syntax, number=NUMBER, line=LINE, lines=lines, state=STATE, numbers=NUMBERS, at=TIME, took=SPAN)

    found = decode([framed(1, b"\0" + payload)], "One", file)

    assert found.malformed == {0: f"{field} has another type than in the schema"}


@pytest.mark.parametrize(
    "payload",
    [
        b"\x08\x01",
        b"\x0a\x04\x0a\0\x10\0",  # a key that is a string
        b"\x0a\x04\x08\x01\x12\0",
        b"\x0a\x06\x08\x01\x10\x01\x18\x01",  # a field behind the value
        b"\x0a\x06\x0a\0\x10\x09\x10\x01",
    ],
)
@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
def test_a_map_that_is_written_as_another_type_is_malformed(payload: bytes, syntax: str) -> None:
    """Regression: with an enum of proto2, the map had no entry."""
    found = decode([framed(1, b"\0" + payload)], "One", file_with(syntax, numbers=NUMBERS))

    assert found.malformed == {0: "numbers has another type, or an entry with other fields, than in the schema"}


def test_text_of_proto2_that_is_not_utf8_is_malformed() -> None:
    """The parser does not check it."""
    file = file_with("proto2", text=TEXT, texts={**TEXT, "label": 3})

    found = decode([framed(1, b"\0\x0a\x01\xff"), framed(1, b"\0\x12\x01a\x12\x01\xff")], "One", file)

    assert found.malformed == {0: "text is not UTF-8", 1: "texts is not UTF-8"}


@pytest.mark.parametrize("module", [timestamp_pb2, duration_pb2])
def test_records_may_be_times_alone(module: Any) -> None:
    """Regression: each record was malformed."""
    file, message = FileDescriptorProto(), next(iter(module.DESCRIPTOR.message_types_by_name.values()))
    module.DESCRIPTOR.CopyToProto(file)

    found = decode(
        [framed(1, b"\0\x08\x05")], message.full_name, Definition(id=1, kind="PROTOBUF", text=descriptor(file))
    )

    assert (found.malformed, found.column.to_pylist()) == ({}, [{"seconds": 5, "nanos": 0}])


def test_fields_that_the_schema_does_not_have_are_ignored() -> None:
    found = decode([framed(1, b"\0\x08\x05\x32\x01a")], "One", file_with("proto3", number=NUMBER))

    assert (found.malformed, found.column.to_pylist()) == ({}, [{"number": 5}])


def test_numbers_that_an_enum_of_proto2_does_not_have_are_not_malformed() -> None:
    file = file_with("proto2", state=STATE, states={**STATE, "label": 3}, numbers=NUMBERS)

    found = decode([framed(1, b"\0\x08\x09\x10\x01\x10\x09\x1a\x04\x08\x01\x10\x09")], "One", file)

    assert (found.malformed, found.column.to_pylist()) == ({}, [{"state": None, "states": ["PAID"], "numbers": []}])


def test_a_missing_required_field_is_malformed() -> None:
    """Regression: it was null."""
    file = file_with("proto2", number={**NUMBER, "label": 2}, other={**NUMBER, "label": 2})

    found = decode([framed(1, b"\0\x08\0\x10\0"), framed(1, b"\0"), framed(1, b"\0\x08\0")], "One", file)

    assert found.malformed == {n: f"the required field {name} is missing" for n, name in ((1, "number"), (2, "other"))}
    assert found.column.to_pylist() == [{"number": 0, "other": 0}, None, None]


def test_of_aliases_the_first_name_counts() -> None:
    found = decode([framed(1, b"\0")], "One", file_with("proto3", state=STATE))

    assert found.column.to_pylist() == [{"state": "OPEN"}]


def test_a_field_may_have_the_name_of_a_method() -> None:
    """Regression: each record was malformed."""
    found = decode([framed(1, b"\0\x08\x05")], "One", file_with("proto2", HasField=NUMBER, Clear=NUMBER))

    assert (found.malformed, found.column.to_pylist()) == ({}, [{"HasField": 5, "Clear": None}])


def test_another_message_is_looked_at_once() -> None:
    asked: list[int] = []

    def count(number: int) -> Definition:
        asked.append(number)
        return find(number)

    wanted = to_arrow_type(spark_type(message_of(file_of(FILE), "shop.Order")), timezone="UTC")
    decoder = ProtobufDecoder(wanted, FILE, "shop.Order", count)

    found = decoder.decode(pa.array([framed(2, b"\0")] * 3, pa.binary()))

    assert found.malformed == dict.fromkeys(range(3), "it is a message of shop.Refund, and not of shop.Order")
    assert asked == [2]


def importing(name: str, *references: tuple[str, FileDescriptorProto]) -> Definition:
    """Return a schema that imports a file and has the message shop.One with an item."""
    order = FileDescriptorProto(name="y", package="shop", syntax="proto3", dependency=[name])
    order.message_type.add(name="One").field.add(
        name="item", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".shop.Item", label=1
    )
    given = tuple((reference, descriptor(file)) for reference, file in references)
    return Definition(id=1, kind="PROTOBUF", text=descriptor(order), references=given)


def item_file() -> FileDescriptorProto:
    times = "google/protobuf/timestamp.proto"
    item = FileDescriptorProto(name="x", package="shop", syntax="proto3", dependency=[times])
    field = item.message_type.add(name="Item").field
    field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT32, label=1)
    field.add(name="at", number=2, label=1, **TIME)
    return item


def test_references_are_files_that_others_import() -> None:
    whole = importing("shop/item.proto", ("shop/item.proto", item_file()))

    assert spark_type(message_of(file_of(whole), None)).simpleString() == "struct<item:struct<id:int,at:timestamp>>"


def test_references_may_come_before_the_files_that_they_import() -> None:
    """Regression: load() failed."""
    times = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    whole = importing("item.proto", ("item.proto", item_file()), ("google/protobuf/timestamp.proto", times))

    assert spark_type(message_of(file_of(whole), None)).simpleString() == "struct<item:struct<id:int,at:timestamp>>"


def test_a_message_of_an_imported_file_is_refused() -> None:
    """Regression: load() accepted it.  Each record was malformed, because its index is one of the schema's messages."""
    file = file_of(importing("item.proto", ("item.proto", item_file())))

    with pytest.raises(MalformedError, match=r"'shop\.Item' is one of the imported file 'item\.proto'"):
        message_of(file, "shop.Item")


def test_what_cannot_be_imported_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: load() failed with protobuf's VersionError if an installed module was newer than protobuf."""

    def newer(name: str) -> Any:
        raise VersionError(f"{name} is too new.")

    with pytest.raises(MalformedError, match=r"imports 'other\.proto', which the registry does not return"):
        file_of(importing("other.proto"))
    monkeypatch.setattr("pyspark_kafka_group.formats.protobuf.import_module", newer)
    with pytest.raises(
        MalformedError, match=r"imports 'google/type/date\.proto', but .* cannot be imported: .* too new"
    ):
        file_of(importing("google/type/date.proto"))


def test_what_no_column_holds_is_refused() -> None:
    tree = FileDescriptorProto(name="t", syntax="proto3")
    tree.message_type.add(name="Tree").field.add(
        name="left", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".Tree", label=1
    )
    tree.message_type.add(name="Empty")
    for n in range(300):
        message = tree.message_type.add(name=f"M{n}")
        message.field.add(name="m", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=f".M{n + 1}", label=1)
    tree.message_type.add(name="M300").field.add(name="x", number=1, label=1, **NUMBER)

    def kind(message: str) -> Any:
        return spark_type(message_of(file_of(Definition(id=1, kind="PROTOBUF", text=descriptor(tree))), message))

    with pytest.raises(MalformedError, match="contains itself"):
        kind("Tree")
    with pytest.raises(MalformedError, match="has no fields"):
        kind("Empty")
    with pytest.raises(MalformedError, match="more than 100 levels"):
        kind("M0")
    assert kind("M300").simpleString() == "struct<x:int>"
    with pytest.raises(MalformedError, match="has no message 'Bush'"):
        kind("Bush")
    with pytest.raises(MalformedError, match="format=serialized"):
        file_of(Definition(id=1, kind="PROTOBUF", text='syntax = "proto3";'))


@given(st.lists(st.binary(max_size=40).map(lambda x: framed(1, ORDER + x)) | st.binary(max_size=20), max_size=10))
def test_any_bytes_are_a_message_or_malformed(values: list[bytes]) -> None:
    found = decode(list(values))

    assert [n for n, valid in enumerate(found.column.is_valid().to_pylist()) if not valid] == sorted(found.malformed)


def test_records_that_say_to_be_other_messages_do_not_cost_a_schema_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: for each list of indexes, the decoder parsed the files again and kept them.

    A producer can invent any number of such lists.
    """
    read: list[int] = []

    def counted(definition: Definition) -> Any:
        read.append(definition.id or 0)
        return file_of(definition)

    monkeypatch.setattr("pyspark_kafka_group.formats.protobuf.file_of", counted)
    other = [framed(2, varint(2) + varint(1) + varint(n + 2)) for n in range(500)]

    found = decode([framed(2, ORDER), *other])

    assert set(found.malformed) == set(range(1, 501))
    assert read == [1, 2]
    assert found.malformed[500] == "it claims to be a message that its schema does not have"


def test_messages_that_would_be_too_large_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty message takes two bytes, but has a value for each of its fields."""
    monkeypatch.setattr(limits, "MAX_DECODED_BYTES", 120_000)
    lines, tags = b"\x12\0", b"\x2a\0"

    for part in (lines, tags):
        assert decode([framed(1, ORDER + part * 50)]).malformed == {}
    assert decode([framed(1, ORDER + lines * 100_000)]).malformed == {0: TOO_LARGE}


def test_narrow_elements_are_objects_too() -> None:
    """Regression: 10 MB of empty messages took 1.2 GB.  As a column, each takes 4 bytes."""
    file = file_with("proto3", number=NUMBER, line=LINE, lines={**LINE, "label": 3})

    assert decode([framed(1, b"\0" + b"\x1a\0" * 2_500_000)], "One", file).malformed == {0: TOO_LARGE}


def test_only_large_records_of_many_parts_are_refused() -> None:
    """Parts that are written in any way: groups, packed numbers, unknown fields; and a record that is cut off."""
    numbers = {**NUMBER, "label": 3}
    file = file_with("proto3", number=NUMBER, line=LINE, lines={**LINE, "label": 3}, packed=numbers)
    large = 6_000_000

    def long(size: int) -> bytes:
        return bytes([*(size >> shift & 127 | 128 for shift in (0, 7, 14)), size >> 21])

    def reason(body: bytes) -> str | None:
        return decode([framed(1, b"\0" + body)], "One", file).malformed.get(0)

    assert reason(b"\x7a" + long(large) + bytes(large)) is None  # one unknown field
    assert reason(b"\x22" + long(1_000_000) + bytes(1_000_000)) is None
    assert reason(b"\x22" + long(large) + bytes(large)) == TOO_LARGE
    assert reason(b"\x78\0" * large) == TOO_LARGE
    assert reason(b"\x7b\x7c" * large) == TOO_LARGE
    assert reason(b"\x1a\0" * 1_000 + b"\x7a" + long(large) + b"\0") == "it is not a message of One (DecodeError)"


def test_a_schema_of_millions_of_parts_is_refused_at_once() -> None:
    file = FileDescriptorProto(name="deep.proto", package="deep", syntax="proto3")
    kinds = FieldDescriptorProto
    for n in range(50):
        message = file.message_type.add(name=f"T{n}")
        for number in (1, 2):
            field = message.field.add(name=f"f{number}", number=number, label=kinds.LABEL_OPTIONAL)
            if n:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".deep.T{n - 1}"
            else:
                field.type = kinds.TYPE_INT32
    definition = Definition(id=9, kind="PROTOBUF", text=descriptor(file))

    with pytest.raises(MalformedError, match="more than 20000 parts"):
        spark_type(message_of(file_of(definition), "deep.T49"))
