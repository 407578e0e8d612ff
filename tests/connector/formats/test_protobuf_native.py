"""The decoder of Protobuf in C gives the same as the one in Python, for all messages and schemas."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.formats.native_decoder import NativeDecoder, protobuf_decoder
from pyspark_kafka_group.formats.protobuf import ProtobufDecoder, file_of, message_of, spark_type
from pyspark_kafka_group.formats.registry import Definition, UnknownSchemaError
from tests.connector.reading.clients import need_native_library
from tests.formats_samples import descriptor, framed, proto_file

Kinds: Any = FieldDescriptorProto
SCALARS = [number for number in range(1, 19) if number not in (Kinds.TYPE_GROUP, Kinds.TYPE_MESSAGE, Kinds.TYPE_ENUM)]
KEYS = [kind for kind in SCALARS if kind not in (1, 2, Kinds.TYPE_BYTES, Kinds.TYPE_BOOL)]
ROUNDS = 60


@pytest.fixture(autouse=True)
def native() -> None:
    need_native_library()


class Schemas:
    """Random files, and random messages of them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.proto3 = random.random() < 0.5
        self.count = 0

    def file(self) -> FileDescriptorProto:
        file = FileDescriptorProto(name="r.proto", package="r", syntax="proto3" if self.proto3 else "proto2")
        file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"])
        enum = file.enum_type.add(name="E")
        for name, number in ("A", 0), ("B", 5), ("C", -3):
            enum.value.add(name=name, number=number)
        file.message_type.add(name="Other").field.add(name="x", number=1, type=Kinds.TYPE_INT32, label=1)
        self.message(file.message_type.add(name="M"), ".r.M", 3)
        return file

    def message(self, message: DescriptorProto, name: str, depth: int) -> None:
        numbers = self.random.sample([*range(1, 20), 1000, 536870911], self.random.randint(1, 7))
        if self.random.random() < 0.3:
            message.oneof_decl.add(name="one")
        for n, number in enumerate(numbers):
            field: Any = message.field.add(name=f"f{n}", number=number, label=Kinds.LABEL_OPTIONAL)
            shape = self.random.random()
            if shape < 0.15:
                entry = message.nested_type.add(name=f"F{n}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, label=1, type=self.random.choice(KEYS))
                self.kind(entry.field.add(name="value", number=2, label=1), message, name, depth)
                field.label, field.type, field.type_name = 3, Kinds.TYPE_MESSAGE, f"{name}.F{n}Entry"
                continue
            self.kind(field, message, name, depth)
            if shape < 0.4:
                field.label = Kinds.LABEL_REPEATED
                if field.type not in (Kinds.TYPE_STRING, Kinds.TYPE_BYTES, Kinds.TYPE_MESSAGE):
                    field.options.packed = self.random.random() < 0.5
            elif message.oneof_decl and n < 3:
                field.oneof_index = 0
            elif shape < 0.45 and not self.proto3:
                field.label = Kinds.LABEL_REQUIRED
        if message.oneof_decl and not any(field.HasField("oneof_index") for field in message.field):
            del message.oneof_decl[:]

    def kind(self, field: Any, message: DescriptorProto, name: str, depth: int) -> None:
        chance = self.random.random()
        if chance < 0.1:
            field.type, field.type_name = Kinds.TYPE_ENUM, ".r.E"
        elif chance < 0.2:
            field.type = Kinds.TYPE_MESSAGE
            field.type_name = self.random.choice([".google.protobuf.Timestamp", ".google.protobuf.Duration"])
        elif chance < 0.4 and depth:
            self.count += 1
            field.type, field.type_name = Kinds.TYPE_MESSAGE, f"{name}.N{self.count}"
            self.message(message.nested_type.add(name=f"N{self.count}"), field.type_name, depth - 1)
        else:
            field.type = self.random.choice(SCALARS)

    def value(self, field: Any) -> Any:
        random = self.random
        if field.enum_type is not None:
            return random.choice([0, 5, -3, 9]) if self.proto3 else random.choice([0, 5, -3])
        kind = field.cpp_type
        if kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
            bits = 31 if kind == field.CPPTYPE_INT32 else 63
            return random.choice([0, 1, -1, 2**bits - 1, -(2**bits), random.randint(-(2**bits), 2**bits - 1)])
        if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
            bits = 32 if kind == field.CPPTYPE_UINT32 else 64
            return random.choice([0, 1, 2**bits - 1, random.randint(0, 2**bits - 1)])
        if kind == field.CPPTYPE_BOOL:
            return random.random() < 0.5
        if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
            return random.choice([0.0, -0.0, 1.5, float("inf"), -2.25])
        if field.type == field.TYPE_BYTES:
            return random.randbytes(random.randint(0, 5))
        return random.choice(["", "x", "\0", "größer", "\U0001f600" * 3])

    def fill(self, message: Any) -> None:
        if message.DESCRIPTOR.full_name.startswith("google."):
            message.seconds = self.random.choice([0, 1, -1, 1_700_000_000, self.random.randint(-(2**40), 2**40)])
            message.nanos = self.random.choice([0, 1, -1, 999, -999, -1001, 999_999_999])
            return
        for field in message.DESCRIPTOR.fields:
            if not field.is_required and self.random.random() < 0.3:
                continue
            entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
            found = getattr(message, field.name)
            many = range(self.random.choice([0, 1, 2, 3, 30]))
            if entry is not None:
                for _ in many:
                    key, inner = self.value(entry.fields_by_name["key"]), entry.fields_by_name["value"]
                    if inner.message_type is not None:
                        self.fill(found[key])
                    else:
                        found[key] = self.value(inner)
            elif field.is_repeated and field.message_type is not None:
                for _ in many:
                    self.fill(found.add())
            elif field.is_repeated:
                found.extend(self.value(field) for _ in many)
            elif field.message_type is not None:
                found.SetInParent()
                self.fill(found)
            else:
                setattr(message, field.name, self.value(field))

    def damaged(self, value: bytes) -> bytes:
        random, found = self.random, bytearray(value)
        chance = random.random()
        if chance < 0.2:
            return value + bytes(value)  # every field twice: merged
        if chance < 0.3:
            return value + random.choice([b"\xfd\x07abcd", b"\xfb\x07\xfc\x07", *self.filled_up()])
        for _ in range(random.randint(1, 3)):
            if found:
                at = random.randrange(len(found))
                if random.random() < 0.3:
                    del found[at:]
                else:
                    found[at] = random.choice([random.randrange(256), found[at] ^ 1, found[at] ^ 8, 0x80, 0])
        return bytes(found)

    def filled_up(self) -> list[bytes]:
        """Return unknown fields whose tag, number or length may be longer than necessary."""

        def longer(number: int) -> bytes:
            size = max(self.random.randint(1, 11), 1 + (number > 0x7F))
            return bytes([*(number >> 7 * n & 0x7F | 0x80 for n in range(size - 1)), number >> 7 * (size - 1)])

        return [longer(127 << 3) + b"\x05", b"\xf8\x07" + longer(5), b"\xfa\x07" + longer(1) + b"x"]


def shown(column: pa.Array) -> Any:
    """Return all values, without order in maps; NaN equals NaN."""
    return [ordered(one, column.type) for one in plain(column).to_pylist()]


def plain(column: pa.Array) -> pa.Array:
    """Replace times by numbers, because Python's objects may not hold them."""
    return column.cast(numbers_of(column.type))


def numbers_of(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(n).name, numbers_of(kind.field(n).type)) for n in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(numbers_of(kind.key_type), numbers_of(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(numbers_of(kind.value_type))
    return kind


def ordered(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return [ordered(value[kind.field(n).name], kind.field(n).type) for n in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return sorted(((key, ordered(one, kind.item_type)) for key, one in value), key=lambda one: repr(one[0]))
    if pa.types.is_list(kind):
        return [ordered(one, kind.value_type) for one in value]
    return repr(value)


@pytest.mark.parametrize("seed", range(2))
def test_both_decoders_give_the_same_of_any_schemas_and_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    one = ProtobufDecoder.one
    good = declined = accepted = 0

    def noting(self: ProtobufDecoder, value: bytes) -> Any:
        asked.append(value)
        return one(self, value)

    for number in range(ROUNDS * seed, ROUNDS * (seed + 1)):
        schemas = Schemas(Random(number))
        whole = Definition(id=1, kind="PROTOBUF", text=descriptor(schemas.file()))

        def find(wanted: int, whole: Definition = whole) -> Definition:
            if wanted != 1:
                raise UnknownSchemaError
            return whole

        message = message_of(file_of(whole), "r.M")
        arrow = to_arrow_type(spark_type(message), timezone="UTC")
        native, python = protobuf_decoder(arrow, whole, "r.M", find), ProtobufDecoder(arrow, whole, "r.M", find)
        assert isinstance(native, NativeDecoder)
        written = []
        for _ in range(10):
            value = GetMessageClass(message)()
            schemas.fill(value)
            written.append(value.SerializeToString())
        right = [framed(1, b"\x02\x02" + value) for value in written]
        wrong = [framed(1, b"\x02\x02" + schemas.damaged(value)) for value in written * 3]
        values = [None, *right, None, *wrong, framed(2, b"\0"), b"x", framed(1, b"\0"), framed(1, b"\x02")]
        with monkeypatch.context() as patch:
            asked.clear()
            patch.setattr(ProtobufDecoder, "one", noting)
            found = native.decode(pa.array(values, pa.binary())[1:])
        found.column.validate(full=True)
        expected = python.decode(pa.array(values, pa.binary())[1:])
        assert found.malformed == expected.malformed, number
        assert shown(found.column) == shown(expected.column), number
        good += len(right)
        declined += len(set(asked) & set(right))
        accepted += len(wrong) - len(set(asked) & set(wrong))
    assert declined < good / 20
    assert accepted > ROUNDS


def test_a_column_that_would_be_too_large_is_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty message takes two bytes, but has a value for each of its fields."""
    monkeypatch.setattr(limits, "MAX_DECODED_BYTES", 120_000)
    whole = Definition(id=1, kind="PROTOBUF", text=descriptor(proto_file()))
    arrow = to_arrow_type(spark_type(message_of(file_of(whole), "shop.Order")), timezone="UTC")
    native = protobuf_decoder(arrow, whole, "shop.Order", lambda _: whole)

    assert native.decode(pa.array([framed(1, b"\2\2" + b"\x12\0" * 1000)], pa.binary())).malformed == {}
    with pytest.raises(limits.TooLargeError):
        native.decode(pa.array([framed(1, b"\2\2" + b"\x12\0" * 100_000)], pa.binary()))
