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

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from pyspark_kafka_group.formats import native_decoder as avro_native
from pyspark_kafka_group.formats.avro_decoder import AvroDecoder, check_avro
from pyspark_kafka_group.formats.decoder import TOO_LARGE, Decoded
from pyspark_kafka_group.formats.native_columns import Programs
from pyspark_kafka_group.formats.native_decoder import NativeDecoder, avro_decoder
from pyspark_kafka_group.formats.registry import Definition, UnknownSchemaError
from pyspark_kafka_group.formats.schema_lookup import MOST_UNKNOWN
from pyspark_kafka_group.options.parsers import MalformedError
from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer
from tests.connector.columns.batches import varint
from tests.connector.formats.avro_pairs import LOGICAL, PLAIN, Pairs
from tests.connector.formats.avro_samples import (
    array,
    arrow_type,
    definition,
    field,
    finder,
    logical,
    map_of,
    python_decoder,
    record,
)
from tests.connector.reading.clients import need_native_library
from tests.formats_samples import avro, framed

ROUNDS = 120


@pytest.fixture(autouse=True)
def native() -> None:
    need_native_library()


def decoders(reader: Any, writers: dict[int, Any]) -> tuple[NativeDecoder, AvroDecoder]:
    check_avro(definition(reader))
    native = avro_decoder(arrow_type(reader), definition(reader), finder(writers))
    assert isinstance(native, NativeDecoder)
    return native, python_decoder(reader, writers)


def both(reader: Any, writer: Any, *payloads: bytes) -> Decoded:
    """Decode records of the writer's schema with both decoders, which must give the same."""
    native, python = decoders(reader, {2: writer})
    values = pa.array([framed(2, payload) for payload in payloads], pa.binary())
    found = native.decode(values)
    found.column.validate(full=True)
    assert same(found, python.decode(values))
    return found


def malformed(reader: Any, writer: Any, *payloads: bytes) -> dict[int, str]:
    """Return what both decoders say about malformed records."""
    return dict(both(reader, writer, *payloads).malformed)


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


ID = record("R", id="int")
CUT_OFF = "it is not what its schema says (EOFError)"
FIXED = {"type": "fixed", "name": "F", "size": 2}


def test_records_of_several_schemas_are_decoded_without_an_object_each(monkeypatch: pytest.MonkeyPatch) -> None:
    before = record("R", id="int", gone=array("string"))
    now = record("R", field("id", "long"), field("note", ["null", "string"], default=None))
    native, _ = decoders(now, {2: before})
    python_is_not_asked(monkeypatch)
    new, old = avro(now, {"id": 1, "note": "x"}), avro(before, {"id": 2, "gone": ["a", "b"]})

    found = native.decode(pa.array([framed(1, new), framed(2, old), None] * 2, pa.binary()))

    assert found.column.to_pylist() == [{"id": 1, "note": "x"}, {"id": 2, "note": None}, None] * 2
    assert found.malformed == {}


def test_each_kind_of_type_is_decoded_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[Any] = [*PLAIN, *LOGICAL, ["null", "int"], ["int", "string"], array("int"), map_of(["null", "int"]),
        {"type": "enum", "name": "E", "symbols": ["A"]}, FIXED, record("I", x="int")]  # fmt: skip
    schema = record("R", *(field(f"f{n}", kind) for n, kind in enumerate(kinds)))
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


MANY_KEYS = b"".join(b"\x08" + b"%04d" % n + varint(n) for n in range(5000))


def test_a_name_twice_in_a_map_is_the_last_one() -> None:
    few = varint(3) + b"".join(b"\2k" + varint(n) for n in range(3)) + b"\0"
    more = varint(5001) + MANY_KEYS + b"\x080007" + b"\2" + b"\0"

    found = both(map_of("int"), map_of("int"), few, more)

    assert found.column[0].as_py() == [("k", 2)]
    assert len(found.column[1]) == 5000
    assert dict(found.column[1].as_py())["0007"] == 1


def test_maps_with_many_keys_are_decoded_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    native, _ = decoders(map_of("int"), {})
    python_is_not_asked(monkeypatch)

    found = native.decode(pa.array([framed(1, varint(5000) + MANY_KEYS + b"\0")], pa.binary()))

    assert found.column[0].as_py() == [(f"{n:04}", n) for n in range(5000)]


def test_keys_that_are_made_to_collide_are_left_to_python() -> None:
    """The hash of these keys in C, FNV-1a, ends in the same bits.  Each lookup would then compare all of them."""

    def slot(key: bytes) -> int:
        hashed = 0xCBF29CE484222325
        for byte in key:
            hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
        return (hashed ^ hashed >> 32) % 256

    keys = [key for n in range(30_000) if slot(key := b"%05d" % n) == 7][:100]

    found = both(map_of("int"), map_of("int"), varint(100) + b"".join(b"\x0a" + key + b"\2" for key in keys) + b"\0")

    assert len(found.column[0]) == 100


def test_what_is_passed_over_may_contain_itself() -> None:
    writer = record("R", tree=record("T", next=["null", "T"]), id="int")

    found = both(ID, writer, *(b"\2" * depth + b"\0\4" for depth in (0, 3, 50, 100, 100_000)))

    assert found.column.to_pylist()[:4] == [{"id": 2}] * 4
    assert set(found.malformed) == {4}


@pytest.mark.parametrize("kind", ["float", "double", "boolean", FIXED], ids=str)
def test_no_record_keeps_a_task_for_years(kind: Any) -> None:
    """Regression: fastavro counted the 2 ** 60 numbers of an array in an unread field, and the query hung."""
    assert malformed(ID, record("R", gone=array(kind), id="int"), varint(2**60) + b"\0\0\0") == {0: CUT_OFF}


def test_a_record_that_ends_within_what_is_not_read_is_malformed() -> None:
    assert malformed(ID, record("R", id="int", gone="double"), b"\2" + b"\0" * 7) == {0: CUT_OFF}


WIDE = record("Line", **{f"f{n}": "string" for n in range(30)})
"""A null of it is one byte, and has 30 parts as a column."""


def test_columns_of_a_few_bytes_have_a_limit() -> None:
    """Regression: a record of 8 MB, or 270 bytes compressed, took 1 GB."""
    native, _ = decoders(record("R", lines=array(["null", WIDE])), {})

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
    schema = record("R", map=map_of("int"), lines=array(["null", WIDE]))
    twice = varint(2) + b"\2k\2" * 2 + b"\0"
    small, large = (twice + varint(count) + b"\0" * (count + 1) for count in (1000, 100_000))

    assert len(both(schema, schema, small).column[0]["lines"]) == 1000
    assert malformed(schema, schema, small, large) == {1: TOO_LARGE}


def test_a_large_record_is_decoded_whose_columns_are_as_large() -> None:
    schema = record("R", a="bytes", b="bytes")
    native, _ = decoders(schema, {})
    value = avro(schema, {"a": bytes(90_000_000), "b": bytes(90_000_000)})

    found = native.decode(pa.array([framed(1, value)], pa.binary()))

    assert found.malformed == {}
    assert found.column.nbytes > 180_000_000


def tower(levels: int, bottom: dict[str, Any]) -> dict[str, Any]:
    """Return a type of records, each of which contains the one below it twice."""
    kind = bottom
    for n in range(1, levels):
        kind = record(f"T{n}", a=kind, b=f"T{n - 1}")
    return kind


def test_records_of_nothing_are_passed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    native, _ = decoders(ID, {2: record("R", id="int", gone=["null", tower(9, record("T0"))])})
    python_is_not_asked(monkeypatch)

    found = native.decode(pa.array([framed(2, b"\2\2")], pa.binary()))

    assert (found.column.to_pylist(), found.malformed) == ([{"id": 1}], {})


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        (tower(50, record("T0", nothing="null")), "a record with more than 1000 parts that take no bytes"),
        (array(tower(50, record("T0", nothing="null"))), "an array of nothing"),
    ],
    ids=["record", "array"],
)
def test_records_of_nothing_without_an_end_in_sight_are_refused(gone: Any, reason: str) -> None:
    """Regression: 7 bytes kept a task busy for hours.  The C code, or fastavro, skipped 2 ** 50 empty records."""
    writer = record("R", id="int", gone=["null", gone])

    assert malformed(ID, writer, b"\2\2") == {0: f"schema 2 has {reason}, which is not supported"}


def test_records_that_end_within_what_is_passed_over_do_not_cost_more() -> None:
    writer = record("R", id="int", gone=["null", tower(50, record("T0", x="int"))])

    assert set(malformed(ID, writer, b"\2\2" + b"\0" * 1000)) == {0}


def test_many_unknown_ids_cost_a_few_requests_and_those_of_most_records_are_asked_for_first() -> None:
    asked: list[int] = []

    def find(number: int) -> Definition:
        asked.append(number)
        if number != 7:
            raise UnknownSchemaError
        return definition("int", 7)

    reader = definition("int")
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


@pytest.mark.parametrize("payload", [b"", b"\x03", b"\x00\xff\x10", bytes(200), b"text"], ids=len)
@pytest.mark.parametrize(
    "schema", ["bytes", {"type": "bytes"}, logical("bytes", "decimal", precision=9, scale=2)], ids=str
)
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
    expected: Any = payload
    if "scale" in schema:
        unscaled = int.from_bytes(payload, "big", signed=True)
        expected = Decimal(unscaled).scaleb(-2) if abs(unscaled) < 10**9 else None

    for decoder in decoders(schema, {}):
        assert decoder.decode(pa.array([value, None], pa.binary())).column.to_pylist() == [expected, None]


@pytest.mark.parametrize("reader", ["bytes", "string", ["null", "bytes"], ["null", "int", "bytes"]], ids=str)
def test_bytes_alone_are_resolved_to_what_is_read(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = both(reader, "bytes", b"text", b"")
    both(reader, ["bytes", "null"], b"\0\x08text", b"\2")
    native, _ = decoders(reader, {2: "bytes"})
    python_is_not_asked(monkeypatch)

    found = native.decode(pa.array([framed(2, b"text"), framed(2, b"")], pa.binary()))

    assert shown(found.column) == shown(expected.column)
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
    inner = record("T", x="int")
    first, second = record("R", b=inner, a="T"), record("R", a=inner, b=["null", "T"])
    value = {"a": {"x": 1}, "b": {"x": 2}}

    for reader, writer in ((first, second), (second, first)):
        assert both(reader, writer, avro(writer, value)).column.to_pylist() == [value]


@pytest.mark.parametrize(
    ("union", "branch", "value", "expected"),
    [
        (["null", "boolean", "double", "long", "string"], 3, varint(2**53 + 1), {"member2": 2**53 + 1}),
        (["null", "float", "int"], 2, varint(2**24 + 1), {"member1": 2**24 + 1}),
        (["null", {"type": "double"}, {"type": "long"}], 2, varint(5), {"member1": 5}),
        (["string", "bytes"], 1, b"\6abc", {"member1": b"abc"}),
        (["string", "bytes"], 1, b"\2\xff", {"member1": b"\xff"}),
        (["bytes", "string", "null"], 1, b"\2a", {"member1": "a"}),
        (["null", "double", array("long")], 1, struct.pack("<d", 0.5), {"member0": 0.5}),
    ],
    ids=str,
)
def test_a_value_in_a_union_keeps_its_type_if_the_schema_changes(
    union: list[Any], branch: int, value: bytes, expected: dict[str, Any]
) -> None:
    """Regression: the first type that fits was read, so that a long became a double, and bytes became text."""
    reader = record("R", field("u", union), field("new", "int", default=0))

    for kind, payload in ((union, varint(branch) + value), (union[branch], value)):
        found = both(reader, record("R", u=kind), payload)
        assert found.malformed == {}
        members = found.column[0].as_py()["u"]
        assert {member: one for member, one in members.items() if one is not None} == expected


def test_a_type_that_a_union_does_not_have_becomes_the_first_that_fits() -> None:
    """Avro's library for Java, and so Spark, does the same."""
    found = both(record("R", u=["double", "long"]), record("R", u="int"), b"\6")

    assert found.column.to_pylist() == [{"u": {"member0": 3.0, "member1": None}}]


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
    reader = record("R", field("n", "int", aliases=["old", "older", "old"]))
    writer = record("R", **dict.fromkeys(written, "int"))

    found = both(reader, writer, b"".join(varint(n + 1) for n in range(len(written))))

    assert (found.malformed, found.column.to_pylist()) == ({}, [{"n": expected}])


def test_fields_may_swap_their_names() -> None:
    reader = record("R", field("a", "int", aliases=["b"]), field("b", "int", aliases=["a"]))
    writer = record("R", a="int", b="int", gone="int")

    assert both(reader, writer, b"\2\4\6").column.to_pylist() == [{"a": 1, "b": 2}]


def test_a_field_that_one_use_of_a_type_reads_and_another_must_not_is_malformed() -> None:
    """The two uses share the type's fields, so that the decoders cannot read both correctly."""
    writer = record("R", a=record("T", o="int", n="int"), b="T")
    first, second = field("n", "int", aliases=["o"]), field("o", "int", default=0)
    reader = record("R", a={**record("T", first), "namespace": "p"}, b={**record("T", second), "namespace": "q"})

    assert malformed(reader, writer, b"\2\4\6\10") == {0: "schema 2 cannot be resolved to the one that is read"}


MILLIS = logical("long", "timestamp-millis")


def space(name: str, kind: Any) -> dict[str, Any]:
    return {**record("In", f=record("T", x=kind), g="T"), "namespace": name}


def test_a_time_is_that_of_its_own_namespace() -> None:
    """Two types have the same last name.

    Regression: the decoder took b.T for a.T, and multiplied a number by 1,000.
    """
    reader = record("R", b={**record("In", g=record("T", x="long")), "namespace": "b"})
    plain = record("R", b=space("b", "long"), a=space("a", "long"))
    one = {"f": {"x": 1500}, "g": {"x": 1500}}

    found = both(reader, record("R", b=space("b", MILLIS), a=space("a", "long")), avro(plain, {"b": one, "a": one}))

    assert found.column.to_pylist() == [{"b": {"g": {"x": 1500}}}]


def test_a_type_that_is_read_as_time_and_as_number_is_refused() -> None:
    """Regression: the time was 1,000 times too small."""
    writer = record("R", a=record("T", x=MILLIS), b="T")
    micros, number = record("T", x=logical("long", "timestamp-micros")), record("T", x="long")
    reader = record("R", a={**micros, "namespace": "p"}, b={**number, "namespace": "q"})

    reason = "schema 2 does not count a.x in the unit of the reader's schema"
    assert malformed(reader, writer, varint(1500) * 2) == {0: reason}


@pytest.mark.parametrize("kind", ["int", array("int"), map_of("int")], ids=str)
def test_types_of_one_name_and_different_kinds_are_malformed(kind: Any) -> None:
    """fastavro matches types by their names alone.  The C code must not fill a column of another kind."""
    fixed, inner = {**FIXED, "name": "shop.N"}, record("depot.N", x=kind)

    for reader, writer in ((fixed, inner), (inner, fixed)):
        assert set(malformed(["null", reader], ["null", writer], b"\2\2\2", b"\0", b"\2\2")) == {0, 2}


@pytest.mark.parametrize("size", [2**32 + 2, -2, "2", 2.0, None], ids=str)
def test_a_size_that_is_none_is_left_to_python(size: Any) -> None:
    assert 0 in malformed(ID, record("R", gone={**FIXED, "size": size}, id="int"), b"xx\4")


def test_what_fastavro_makes_another_value_of_is_malformed() -> None:
    """fastavro takes the last symbol or branch for an index of -1, and some of the bits of a 70-bit number."""
    symbols = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    schema = record("R", e=symbols, u=["int", "null"])
    native, _ = decoders(schema, {})
    endless = b"\xff" * 9 + b"\x03"
    values = [b"\1\2", b"\2\1", b"\2\0" + endless, b"\2\2", b"\4\2", b"\2\0" + b"\xff" * 3]

    found = native.decode(pa.array([framed(1, value) for value in values], pa.binary()))

    assert [found.malformed.get(n) for n in range(3)] == [avro_native.SENSELESS] * 3
    assert set(found.malformed) == {0, 1, 2, 4, 5}
    assert found.column[3].as_py() == {"e": "B", "u": None}


def test_fields_that_take_no_bytes_are_objects_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's records have 30 fields with a default that the writer's do not have."""
    defaults = [field(f"f{n}", "string", default="") for n in range(30)]
    flag = field("flag", "boolean")
    written, read = (record("R", lines=array(record("Line", flag, *more))) for more in ([], defaults))
    decoder = python_decoder(read, {2: written})
    monkeypatch.setattr(limits, "MAX_DECODED_BYTES", 12_000)
    for count, reason in ((2, {}), (8, {0: TOO_LARGE})):
        values = [framed(2, varint(count) + bytes(count) + b"\0")]
        assert decoder.decode(pa.array(values, pa.binary())).malformed == reason
