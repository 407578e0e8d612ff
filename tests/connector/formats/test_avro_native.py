"""The decoder in C gives the same results as the one in Python, for all records and schemas.

The decoder in C only refuses a few more records.
"""

from __future__ import annotations

import gc
import json
import resource
import struct
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from pyspark_kafka_group.formats import native_decoder as avro_native
from pyspark_kafka_group.formats.avro_decoder import AvroDecoder, check_avro
from pyspark_kafka_group.formats.avro_types import spark_type
from pyspark_kafka_group.formats.ddl import all_nullable
from pyspark_kafka_group.formats.decoder import TOO_LARGE, Decoded
from pyspark_kafka_group.formats.native_columns import Programs
from pyspark_kafka_group.formats.native_decoder import NativeDecoder, avro_decoder
from pyspark_kafka_group.formats.registry import Definition, UnknownSchemaError
from pyspark_kafka_group.formats.schema_lookup import MOST_UNKNOWN
from pyspark_kafka_group.options.parsers import MalformedError
from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer
from tests.connector.formats.avro_pairs import LOGICAL, PLAIN, Pairs, varint
from tests.connector.reading.clients import need_native_library
from tests.formats_samples import avro, framed

ROUNDS = 120


@pytest.fixture(autouse=True)
def native() -> None:
    need_native_library()


def definition(schema: Any, number: int | None) -> Definition:
    return Definition(id=number, kind="AVRO", text=json.dumps(schema))


def decoders(reader: Any, writers: dict[int, Any]) -> tuple[NativeDecoder, AvroDecoder]:
    def find(number: int) -> Definition:
        if number not in writers:
            raise UnknownSchemaError
        return definition(writers[number], number)

    whole = definition(reader, 1)
    check_avro(whole)
    arrow = to_arrow_type(all_nullable(spark_type(reader)), timezone="UTC")
    native = avro_decoder(arrow, whole, find)
    assert isinstance(native, NativeDecoder)
    return native, AvroDecoder(arrow, whole, find)


def shown(column: pa.Array) -> list[str]:
    """Return all values as text.  So NaN equals NaN, and times may be out of range for Python's objects."""
    nulls = str(column.is_null().to_pylist())
    if pa.types.is_struct(column.type):
        return [nulls, *(text for inner in column.flatten() for text in shown(inner))]
    if pa.types.is_map(column.type):
        column = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    if pa.types.is_list(column.type):
        return [nulls, str(column.value_lengths().to_pylist()), *shown(column.flatten())]
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return [str(column.to_pylist())]


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def same(one: Decoded, other: Decoded) -> bool:
    return one.malformed == other.malformed and shown(one.column) == shown(other.column)


def rows_of(pairs: Pairs, number: int, schema: Any) -> list[bytes | None]:
    good = [framed(number, pairs.written(schema)) for _ in range(8)]
    bad = [framed(number, pairs.damaged(pairs.written(schema))) for _ in range(8)]
    return [*good, None, *bad]


@pytest.mark.parametrize("seed", range(4))
def test_both_decoders_give_the_same_of_any_schemas_and_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    one = AvroDecoder.one
    taken = declined = 0

    def noting(self: AvroDecoder, value: bytes) -> Any:
        asked.append(value)
        return one(self, value)

    for number in range(ROUNDS * seed, ROUNDS * (seed + 1)):
        random = Random(number)
        pairs = Pairs(random)
        reader = pairs.record(3) if random.random() < 0.8 else pairs.schema(3)
        writer = pairs.before(reader)
        try:
            native, python = decoders(reader, {1: reader, 2: writer})
            values = [*rows_of(pairs, 1, reader), *rows_of(pairs, 2, writer), framed(3, b""), b"x"]
        except (MalformedError, RecursionError):  # incompatible schemas, or an endless recursion
            continue
        random.shuffle(values)
        column = pa.array([None, *values], pa.binary())[1:]

        with monkeypatch.context() as patch:
            asked.clear()
            patch.setattr(AvroDecoder, "one", noting)
            found = native.decode(column)

        found.column.validate(full=True)
        senseless = [row for row, reason in found.malformed.items() if reason == avro_native.SENSELESS]
        assert not any(found.column[row].is_valid for row in senseless)
        column = pa.array([None if n in senseless else value.as_py() for n, value in enumerate(column)], pa.binary())
        expected = python.decode(column)
        rest = {row: reason for row, reason in found.malformed.items() if row not in senseless}
        assert same(Decoded(found.column, rest), expected), (number, reader, writer)
        declined += len(asked) - len(expected.malformed)
        taken += len(column) - column.null_count - len(asked)
    assert taken > 10 * ROUNDS
    assert declined < taken / 20  # the C code decodes nearly all valid records


def python_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(self: AvroDecoder, value: bytes) -> Any:
        raise AssertionError("a record was declined")

    monkeypatch.setattr(AvroDecoder, "one", one)


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def test_records_of_several_schemas_are_decoded_without_an_object_each(monkeypatch: pytest.MonkeyPatch) -> None:
    before = record({"name": "id", "type": "int"}, {"name": "gone", "type": {"type": "array", "items": "string"}})
    now = record({"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None})
    native, _ = decoders(now, {2: before})
    python_is_not_asked(monkeypatch)
    new, old = avro(now, {"id": 1, "note": "x"}), avro(before, {"id": 2, "gone": ["a", "b"]})
    values = [framed(1, new), framed(2, old), None]

    found = native.decode(pa.array(values * 2, pa.binary()))

    assert found.column.to_pylist() == [{"id": 1, "note": "x"}, {"id": 2, "note": None}, None] * 2
    assert found.malformed == {}


def test_each_kind_of_type_is_decoded_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[Any] = [*PLAIN, *LOGICAL, ["null", "int"], ["int", "string"],
        {"type": "array", "items": "int"}, {"type": "map", "values": ["null", "int"]},
        {"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "fixed", "name": "F", "size": 2},
        {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}]  # fmt: skip
    schema = record(*({"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)))
    native, _ = decoders(schema, {})
    python_is_not_asked(monkeypatch)
    pairs = Pairs(Random(0), twins=0)
    monkeypatch.setattr("tests.connector.formats.avro_pairs.SPECIAL", (5, -7))

    found = native.decode(pa.array([framed(1, pairs.written(schema)) for _ in range(20)], pa.binary()))

    assert found.malformed == {}


def test_what_was_decoded_outlives_its_decoder() -> None:
    native, _ = decoders("string", {})
    column = native.decode(pa.array([framed(1, avro("string", "x" * 9))] * 3000, pa.binary())).column.slice(2990)
    del native
    gc.collect()

    assert column.to_pylist() == ["x" * 9] * 10


def test_an_id_that_the_registry_gets_later_is_asked_for_again() -> None:
    writers: dict[int, Any] = {}
    native, _ = decoders("string", writers)
    values = pa.array([framed(2, avro("string", "x"))], pa.binary())

    before = native.decode(values)
    writers[2] = "string"

    assert before.malformed == {0: "the registry has no schema 2"}
    assert native.decode(values).column.to_pylist() == ["x"]


def test_a_name_twice_in_a_map_is_the_last_one() -> None:
    native, python = decoders({"type": "map", "values": "int"}, {})
    entries = b"".join(b"\2k" + varint(n) for n in range(3))
    many = b"".join(b"\x08" + b"%04d" % n + varint(n) for n in range(5000))
    few, more = varint(3) + entries + b"\0", varint(5001) + many + b"\x080007" + b"\2" + b"\0"
    values = pa.array([framed(1, few), framed(1, more)], pa.binary())

    found = native.decode(values)

    assert found.column[0].as_py() == [("k", 2)]
    assert len(found.column[1]) == 5000
    assert dict(found.column[1].as_py())["0007"] == 1
    assert same(found, python.decode(values))


def test_maps_with_many_keys_are_decoded_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    native, _ = decoders({"type": "map", "values": "int"}, {})
    python_is_not_asked(monkeypatch)
    many = b"".join(b"\x08" + b"%04d" % n + varint(n) for n in range(5000))

    found = native.decode(pa.array([framed(1, varint(5000) + many + b"\0")], pa.binary()))

    assert found.column[0].as_py() == [(f"{n:04}", n) for n in range(5000)]


def test_keys_that_are_made_to_collide_are_left_to_python() -> None:
    """The hash of these keys in C, FNV-1a, ends in the same bits.  Each lookup would then compare all of them."""

    def slot(key: bytes) -> int:
        hashed = 0xCBF29CE484222325
        for byte in key:
            hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
        return (hashed ^ hashed >> 32) % 256

    native, python = decoders({"type": "map", "values": "int"}, {})
    keys = [key for n in range(30_000) if slot(key := b"%05d" % n) == 7][:100]
    values = pa.array([framed(1, varint(100) + b"".join(b"\x0a" + key + b"\2" for key in keys) + b"\0")], pa.binary())

    found = native.decode(values)

    assert len(found.column[0]) == 100
    assert same(found, python.decode(values))


def test_what_is_passed_over_may_contain_itself() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
    writer = record({"name": "tree", "type": tree}, {"name": "id", "type": "int"})
    native, python = decoders(record({"name": "id", "type": "int"}), {2: writer})
    values = pa.array([framed(2, b"\2" * depth + b"\0" + b"\4") for depth in (0, 3, 50, 100, 100_000)], pa.binary())

    found = native.decode(values)

    assert found.column.to_pylist()[:4] == [{"id": 2}] * 4
    assert set(found.malformed) == {4}
    assert same(found, python.decode(values))


@pytest.mark.parametrize("kind", ["float", "double", "boolean", {"type": "fixed", "name": "F", "size": 2}], ids=str)
def test_no_record_keeps_a_task_for_years(kind: Any) -> None:
    """Regression: fastavro counted the 2 ** 60 numbers of an array in an unread field, and the query hung."""
    writer = record({"name": "gone", "type": {"type": "array", "items": kind}}, {"name": "id", "type": "int"})
    native, python = decoders(record({"name": "id", "type": "int"}), {2: writer})
    values = pa.array([framed(2, varint(2**60) + b"\0\0\0")], pa.binary())

    for decoder in (native, python):
        assert decoder.decode(values).malformed == {0: "it is not what its schema says (EOFError)"}


def test_a_record_that_ends_within_what_is_not_read_is_malformed() -> None:
    writer = record({"name": "id", "type": "int"}, {"name": "gone", "type": "double"})
    native, python = decoders(record({"name": "id", "type": "int"}), {2: writer})
    values = pa.array([framed(2, b"\2" + b"\0" * 7)], pa.binary())

    for decoder in (native, python):
        assert decoder.decode(values).malformed == {0: "it is not what its schema says (EOFError)"}


def test_columns_of_a_few_bytes_have_a_limit() -> None:
    """Regression: a record of 8 MB, or 270 bytes compressed, took 1 GB.

    A null is one byte, and has 30 parts as a column.
    """
    line = {"type": "record", "name": "Line", "fields": [{"name": f"f{n}", "type": "string"} for n in range(30)]}
    native, _ = decoders(record({"name": "lines", "type": {"type": "array", "items": ["null", line]}}), {})

    def decoded(count: int) -> Decoded:
        return native.decode(pa.array([framed(1, varint(count) + b"\0" * (count + 1))], pa.binary()))

    assert len(decoded(100_000).column[0]["lines"]) == 100_000
    before = peak_memory()
    with pytest.raises(TooLargeError):
        decoded(8_000_000)
    assert peak_memory() - before < 2 * limits.MAX_DECODED_BYTES


def test_columns_that_python_decodes_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a record that the C code declines, here because a map has a name twice."""
    monkeypatch.setattr(limits, "MAX_DECODED_BYTES", 1_000_000)
    line = {"type": "record", "name": "Line", "fields": [{"name": f"f{n}", "type": "string"} for n in range(30)]}
    both = [{"type": "map", "values": "int"}, {"type": "array", "items": ["null", line]}]
    schema = record(*({"name": f"f{n}", "type": one} for n, one in enumerate(both)))
    twice = varint(2) + b"\2k\2" * 2 + b"\0"

    for decoder in decoders(schema, {}):
        values = [framed(1, twice + varint(count) + b"\0" * (count + 1)) for count in (1000, 100_000)]
        assert len(decoder.decode(pa.array(values[:1], pa.binary())).column[0]["f1"]) == 1000
        assert decoder.decode(pa.array(values, pa.binary())).malformed == {1: TOO_LARGE}


def test_a_large_record_is_decoded_whose_columns_are_as_large() -> None:
    native, _ = decoders(record({"name": "a", "type": "bytes"}, {"name": "b", "type": "bytes"}), {})
    value = avro(
        record({"name": "a", "type": "bytes"}, {"name": "b", "type": "bytes"}),
        {"a": bytes(90_000_000), "b": bytes(90_000_000)},
    )

    found = native.decode(pa.array([framed(1, value)], pa.binary()))

    assert found.malformed == {}
    assert found.column.nbytes > 180_000_000


def tower(levels: int, bottom: list[Any], top: str = "gone") -> dict[str, Any]:
    """Return a record with an id, and a field of records.  Each of these contains the one below it twice."""
    kind: dict[str, Any] = {"type": "record", "name": "T0", "fields": bottom}
    for n in range(1, levels):
        kind = {
            "type": "record",
            "name": f"T{n}",
            "fields": [{"name": "a", "type": kind}, {"name": "b", "type": f"T{n - 1}"}],
        }
    return record({"name": "id", "type": "int"}, {"name": top, "type": ["null", kind]})


def test_records_of_nothing_are_passed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    native, _ = decoders(record({"name": "id", "type": "int"}), {2: tower(9, [])})
    python_is_not_asked(monkeypatch)

    found = native.decode(pa.array([framed(2, b"\2\2")], pa.binary()))

    assert (found.column.to_pylist(), found.malformed) == ([{"id": 1}], {})


@pytest.mark.parametrize("array", [False, True])
def test_records_of_nothing_without_an_end_in_sight_are_refused(array: bool) -> None:
    """Regression: 7 bytes kept a task busy for hours.  The C code, or fastavro, skipped 2 ** 50 empty records."""
    writer = tower(50, [{"name": "nothing", "type": "null"}])
    if array:
        writer["fields"][1]["type"][1] = {"type": "array", "items": writer["fields"][1]["type"][1]}
    native, python = decoders(record({"name": "id", "type": "int"}), {2: writer})
    reason = "an array of nothing" if array else "a record with more than 1000 parts that take no bytes"

    for decoder in (native, python):
        found = decoder.decode(pa.array([framed(2, b"\2\2")], pa.binary()))
        assert found.malformed == {0: f"schema 2 has {reason}, which is not supported"}


def test_records_that_end_within_what_is_passed_over_do_not_cost_more() -> None:
    native, python = decoders(record({"name": "id", "type": "int"}), {2: tower(50, [{"name": "x", "type": "int"}])})
    values = pa.array([framed(2, b"\2\2" + b"\0" * 1000)], pa.binary())

    for decoder in (native, python):
        assert set(decoder.decode(values).malformed) == {0}


def test_many_unknown_ids_cost_a_few_requests_and_those_of_most_records_are_asked_for_first() -> None:
    asked: list[int] = []

    def find(number: int) -> Definition:
        asked.append(number)
        if number != 7:
            raise UnknownSchemaError
        return definition("int", 7)

    reader = definition("int", 1)
    hostile = [framed(1000 + n, b"\2") for n in range(8000)]
    values = pa.array([framed(1, b"\2"), *hostile, framed(7, b"\4"), framed(7, b"\6"), None], pa.binary())
    for decoder in (avro_decoder(pa.int32(), reader, find), AvroDecoder(pa.int32(), reader, find)):
        asked.clear()

        found = decoder.decode(values)

        assert asked[0] == 7
        assert len(asked) == MOST_UNKNOWN + 1
        assert found.column[0].as_py() == 1
        assert found.column[8001:].to_pylist() == [2, 3, None]
        assert found.malformed[1] == "the registry has no schema 1000"
        assert found.malformed[8000] == (
            "schema 8999 was not looked up, because the registry does not have 64 other ids of the same batch"
        )
        assert len(found.malformed) == 8000


def test_programs_are_put_in_order_once_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each unknown id rebuilt the table, so 8192 records took 26 s."""
    native, _ = decoders("int", {})
    built: list[int] = []
    make = Programs._built

    def counted(self: Programs) -> Any:
        built.append(len(self._kept))
        return make(self)

    monkeypatch.setattr(Programs, "_built", counted)

    found = native.decode(pa.array([framed(2 + n, b"\2") for n in range(8000)], pa.binary()))

    assert len(found.malformed) == 8000
    assert built == [0, 8000]
    assert list(native._programs._kept) == []  # the cache keeps nothing about unknown ids


CONFLUENT: list[Any] = [
    "bytes",
    {"type": "bytes"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
]


@pytest.mark.parametrize("payload", [b"", b"\x03", b"\x00\xff\x10", bytes(200), b"text"], ids=len)
@pytest.mark.parametrize("schema", CONFLUENT, ids=str)
def test_bytes_alone_are_as_confluents_serializer_writes_them(schema: Any, payload: bytes) -> None:
    """Such bytes have no length.

    Regression: such records were malformed, or lost the bytes that the decoder took for a length.
    """
    with SchemaRegistryServer() as server:
        number = server.register("orders-value", json.dumps(schema))
        client = SchemaRegistryClient({"url": server.url})
        serializer = AvroSerializer(
            client, json.dumps(schema), conf={"auto.register.schemas": False, "use.latest.version": True}
        )
        value = serializer(payload, SerializationContext("orders", MessageField.VALUE))
    assert value == framed(number, payload)
    is_decimal = isinstance(schema, dict) and "scale" in schema
    expected: Any = Decimal(int.from_bytes(payload, "big", signed=True)).scaleb(-2) if is_decimal else payload
    values = pa.array([value, None], pa.binary())

    for decoder in decoders(schema, {}):
        found = decoder.decode(values)
        if is_decimal and payload in (b"text", bytes(200)):
            expected = None if payload == b"text" else Decimal(0)
        assert found.column.to_pylist() == [expected, None]


@pytest.mark.parametrize("reader", ["bytes", "string", ["null", "bytes"], ["null", "int", "bytes"]], ids=str)
def test_bytes_alone_are_resolved_to_what_is_read(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    native, python = decoders(reader, {2: "bytes", 3: ["bytes", "null"]})
    values = pa.array([framed(2, b"text"), framed(2, b""), framed(3, b"\0\x08text"), framed(3, b"\2")], pa.binary())
    expected = python.decode(values)

    python_is_not_asked(monkeypatch)
    found = native.decode(values.slice(0, 2))

    assert shown(found.column) == shown(expected.column.slice(0, 2))
    assert found.column.null_count == 0
    assert str(found.column[0]).count("text") or found.column[0].as_py() == b"text"


def test_bytes_without_a_registry_have_a_length() -> None:
    arrow, reader = pa.binary(), definition("bytes", None)
    for decoder in (avro_decoder(arrow, reader, None), AvroDecoder(arrow, reader, None)):
        assert decoder.decode(pa.array([b"\x08text"], pa.binary())).column.to_pylist() == [b"text"]


def test_what_is_switched_off_is_python_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(READER_OVERRIDE, "off")
    avro_native._say_once.cache_clear()
    decoder = avro_decoder(pa.string(), definition("string", None), None)
    avro_decoder(pa.string(), definition("string", None), None)

    assert isinstance(decoder, AvroDecoder)
    said = "Decoding Avro through Python objects, which is slower: it is switched off."
    assert [one.getMessage() for one in caplog.records] == [said]


def test_a_union_has_a_type_by_its_name_in_one_schema_only() -> None:
    """Regression: such records were malformed, with a TypeError."""
    inner = {"type": "record", "name": "T", "fields": [{"name": "x", "type": "int"}]}
    first = record({"name": "b", "type": inner}, {"name": "a", "type": "T"})
    second = record({"name": "a", "type": inner}, {"name": "b", "type": ["null", "T"]})
    both = {"a": {"x": 1}, "b": {"x": 2}}

    for reader, writer in ((first, second), (second, first)):
        native, python = decoders(reader, {2: writer})
        values = pa.array([framed(2, avro(writer, both))], pa.binary())
        for decoder in (native, python):
            assert decoder.decode(values).column.to_pylist() == [both]


@pytest.mark.parametrize(
    ("union", "branch", "value", "expected"),
    [
        (["null", "boolean", "double", "long", "string"], 3, varint(2**53 + 1), {"member2": 2**53 + 1}),
        (["null", "float", "int"], 2, varint(2**24 + 1), {"member1": 2**24 + 1}),
        (["null", {"type": "double"}, {"type": "long"}], 2, varint(5), {"member1": 5}),
        (["string", "bytes"], 1, b"\6abc", {"member1": b"abc"}),
        (["string", "bytes"], 1, b"\2\xff", {"member1": b"\xff"}),
        (["bytes", "string", "null"], 1, b"\2a", {"member1": "a"}),
        (["null", "double", {"type": "array", "items": "long"}], 1, struct.pack("<d", 0.5), {"member0": 0.5}),
    ],
    ids=str,
)
def test_a_value_in_a_union_keeps_its_type_if_the_schema_changes(
    union: list[Any], branch: int, value: bytes, expected: dict[str, Any]
) -> None:
    """Regression: the first type that fits was read, so that a long became a double, and bytes became text."""
    reader = record({"name": "u", "type": union}, {"name": "new", "type": "int", "default": 0})
    writers = {2: record({"name": "u", "type": union}), 3: record({"name": "u", "type": union[branch]})}
    values = pa.array([framed(2, varint(branch) + value), framed(3, value)], pa.binary())

    for decoder in decoders(reader, writers):
        found = decoder.decode(values)
        assert found.malformed == {}
        for row in found.column.to_pylist():
            assert {member: one for member, one in row["u"].items() if one is not None} == expected


def test_a_type_that_a_union_does_not_have_becomes_the_first_that_fits() -> None:
    """Avro's library for Java, and so Spark, does the same."""
    native, python = decoders(
        record({"name": "u", "type": ["double", "long"]}), {2: record({"name": "u", "type": "int"})}
    )
    values = pa.array([framed(2, b"\6")], pa.binary())

    for decoder in (native, python):
        assert decoder.decode(values).column.to_pylist() == [{"u": {"member0": 3.0, "member1": None}}]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["old", "n"], 2),
        (["n", "old"], 1),
        (["older", "old"], 2),
        (["older", "old", "n"], 3),
        (["older"], 1),
    ],
    ids=str,
)
def test_a_name_counts_more_than_an_alias_and_an_alias_more_than_those_after_it(
    written: list[str], expected: int
) -> None:
    """Regression: the first in the record counted, or the record was malformed."""
    reader = record({"name": "n", "type": "int", "aliases": ["old", "older", "old"]})
    writer = record(*({"name": name, "type": "int"} for name in written))
    values = pa.array([framed(2, b"".join(varint(n + 1) for n in range(len(written))))], pa.binary())

    for decoder in decoders(reader, {2: writer}):
        found = decoder.decode(values)
        assert (found.malformed, found.column.to_pylist()) == ({}, [{"n": expected}])


def test_fields_may_swap_their_names() -> None:
    reader = record({"name": "a", "type": "int", "aliases": ["b"]}, {"name": "b", "type": "int", "aliases": ["a"]})
    writer = record({"name": "a", "type": "int"}, {"name": "b", "type": "int"}, {"name": "gone", "type": "int"})

    for decoder in decoders(reader, {2: writer}):
        found = decoder.decode(pa.array([framed(2, b"\2\4\6")], pa.binary()))
        assert found.column.to_pylist() == [{"a": 1, "b": 2}]


def test_a_field_that_one_use_of_a_type_reads_and_another_must_not_is_malformed() -> None:
    """The two uses share the type's fields, so that the decoders cannot read both correctly."""
    inner = {"type": "record", "name": "T", "fields": [{"name": "o", "type": "int"}, {"name": "n", "type": "int"}]}
    writer = record({"name": "a", "type": inner}, {"name": "b", "type": "T"})

    def named(namespace: str, field: dict[str, Any]) -> dict[str, Any]:
        return {"type": "record", "name": "T", "namespace": namespace, "fields": [{"type": "int", **field}]}

    first, second = named("p", {"name": "n", "aliases": ["o"]}), named("q", {"name": "o", "default": 0})
    reader = record({"name": "a", "type": first}, {"name": "b", "type": second})

    for decoder in decoders(reader, {2: writer}):
        found = decoder.decode(pa.array([framed(2, b"\2\4\6\10")], pa.binary()))
        assert found.malformed == {0: "schema 2 cannot be resolved to the one that is read"}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def space(name: str, kind: Any) -> dict[str, Any]:
    inner = {"type": "record", "name": "T", "fields": [{"name": "x", "type": kind}]}
    fields = [{"name": "f", "type": inner}, {"name": "g", "type": "T"}]
    return {"type": "record", "name": "In", "namespace": name, "fields": fields}


def test_a_time_is_that_of_its_own_namespace() -> None:
    """Two types have the same last name.

    Regression: the decoder took b.T for a.T, and multiplied a number by 1,000.
    """
    writer = record({"name": "b", "type": space("b", MILLIS)}, {"name": "a", "type": space("a", "long")})
    only = {**space("b", "long"), "fields": [{"name": "g", "type": space("b", "long")["fields"][0]["type"]}]}
    native, python = decoders(record({"name": "b", "type": only}), {2: writer})
    plain = record({"name": "b", "type": space("b", "long")}, {"name": "a", "type": space("a", "long")})
    one = {"f": {"x": 1500}, "g": {"x": 1500}}
    values = pa.array([framed(2, avro(plain, {"b": one, "a": one}))], pa.binary())

    for decoder in (native, python):
        assert decoder.decode(values).column.to_pylist() == [{"b": {"g": {"x": 1500}}}]


def test_a_type_that_is_read_as_time_and_as_number_is_refused() -> None:
    """Regression: the time was 1,000 times too small."""
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    inner = {"type": "record", "name": "T", "fields": [{"name": "x", "type": MILLIS}]}
    writer = record({"name": "a", "type": inner}, {"name": "b", "type": "T"})

    def named(namespace: str, kind: Any) -> dict[str, Any]:
        return {**inner, "namespace": namespace, "fields": [{"name": "x", "type": kind}]}

    reader = record({"name": "a", "type": named("p", micros)}, {"name": "b", "type": named("q", "long")})
    native, python = decoders(reader, {2: writer})
    values = pa.array([framed(2, varint(1500) * 2)], pa.binary())

    for decoder in (native, python):
        assert decoder.decode(values).malformed == {0: "schema 2 does not count a.x in the unit of the reader's schema"}


@pytest.mark.parametrize("kind", ["int", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}], ids=str)
def test_types_of_one_name_and_different_kinds_are_malformed(kind: Any) -> None:
    """fastavro matches types by their names alone.  The C code must not fill a column of another kind."""
    fixed = {"type": "fixed", "name": "shop.N", "size": 2}
    inner = {"type": "record", "name": "depot.N", "fields": [{"name": "x", "type": kind}]}

    for reader, writer in ((fixed, inner), (inner, fixed)):
        native, python = decoders(["null", reader], {2: ["null", writer]})
        values = pa.array([framed(2, b"\2" + b"\2\2"), framed(2, b"\0"), framed(2, b"\2" + b"\2")], pa.binary())
        found = native.decode(values)
        found.column.validate(full=True)
        assert set(found.malformed) == {0, 2}
        assert same(found, python.decode(values))


@pytest.mark.parametrize("size", [2**32 + 2, -2, "2", 2.0, None], ids=str)
def test_a_size_that_is_none_is_left_to_python(size: Any) -> None:
    gone = {"name": "gone", "type": {"type": "fixed", "name": "F", "size": size}}
    writer = record(gone, {"name": "id", "type": "int"})
    native, python = decoders(record({"name": "id", "type": "int"}), {2: writer})
    values = pa.array([framed(2, b"xx\4")], pa.binary())

    found = native.decode(values)

    assert 0 in found.malformed
    assert same(found, python.decode(values))


def test_what_fastavro_makes_another_value_of_is_malformed() -> None:
    """fastavro takes the last symbol or branch for an index of -1, and some of the bits of a 70-bit number."""
    symbols = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    schema = record({"name": "e", "type": symbols}, {"name": "u", "type": ["int", "null"]})
    native, _ = decoders(schema, {})
    endless = b"\xff" * 9 + b"\x03"
    values = [b"\1\2", b"\2\1", b"\2\0" + endless, b"\2\2", b"\4\2", b"\2\0" + b"\xff" * 3]

    found = native.decode(pa.array([framed(1, value) for value in values], pa.binary()))

    assert [found.malformed.get(n) for n in range(3)] == [avro_native.SENSELESS] * 3
    assert set(found.malformed) == {0, 1, 2, 4, 5}
    assert found.column[3].as_py() == {"e": "B", "u": None}


def test_fields_that_take_no_bytes_are_objects_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's records have 30 fields with a default that the writer's do not have."""
    flag = {"name": "flag", "type": "boolean"}
    fields = [flag, *({"name": f"f{n}", "type": "string", "default": ""} for n in range(30))]
    inner = [record() | {"name": "Line", "fields": some} for some in ([flag], fields)]
    lines = [record({"name": "lines", "type": {"type": "array", "items": one}}) for one in inner]
    _, decoder = decoders(lines[1], {2: lines[0]})
    monkeypatch.setattr(limits, "MAX_DECODED_BYTES", 12_000)
    for count, reason in ((2, {}), (8, {0: TOO_LARGE})):
        values = [framed(2, varint(count) + bytes(count) + b"\0")]
        assert decoder.decode(pa.array(values, pa.binary())).malformed == reason
