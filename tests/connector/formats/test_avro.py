"""Avro: types, resolution, and malformed records."""

from __future__ import annotations

import contextlib
import copy
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.formats.avro_decoder import AvroDecoder, check_avro
from pyspark_kafka_group.formats.avro_resolution import definitions
from pyspark_kafka_group.formats.avro_types import spark_type
from pyspark_kafka_group.formats.decoder import Decoded
from pyspark_kafka_group.formats.registry import Definition
from pyspark_kafka_group.options.parsers import MalformedError
from tests.connector.formats.avro_samples import (
    array,
    arrow_type,
    definition,
    field,
    logical,
    map_of,
    python_decoder,
    record,
)
from tests.formats_samples import ORDER, ORDER_WITH_COUNT, avro, framed


def decode(reader: Any, values: list[bytes | None], writers: dict[int, Any] | None = None) -> Decoded:
    return python_decoder(reader, writers or {}).decode(pa.array(values, pa.binary()))


def holding(kind: Any, **more: Any) -> dict[str, Any]:
    """Return a schema of records with a field ``a``."""
    return record("R", field("a", kind, **more))


def resolved(writer: Any, value: Any, reader: Any) -> Any:
    """Return the field of a record that was written with one type and read as another, or the error."""
    found = decode(holding(reader), [framed(2, avro(holding(writer), {"a": value}))], {2: holding(writer)})
    return found.malformed.get(0) or found.column[0].as_py()["a"]


MILLIS = logical("long", "timestamp-millis")
OTHER_UNIT = "does not count a in the unit of the reader's schema"


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("kind", "written", "simple", "value"),
    [
        (logical("int", "date"), 19844, "date", date(2024, 5, 1)),
        (MILLIS, 1500, "timestamp", datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
        (logical("long", "timestamp-micros"), 1500, "timestamp", datetime(1970, 1, 1, 0, 0, 0, 1500, UTC)),
        (logical("long", "local-timestamp-millis"), 1500, "timestamp_ntz", datetime(1970, 1, 1, 0, 0, 1, 500000)),
        (logical("bytes", "decimal", precision=9, scale=2), Decimal("-1.25"), "decimal(9,2)", Decimal("-1.25")),
        (logical("fixed", "decimal", precision=9, scale=2, size=4, name="F"), Decimal("1.25"), "decimal(9,2)",
         Decimal("1.25")),
        (logical("string", "uuid"), "x", "string", "x"),
        (logical("int", "time-millis"), 5, "int", 5),
        (ENUM, "B", "string", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"hi", "binary", b"hi"),
        (map_of("int"), {"k": 1}, "map<string,int>", [("k", 1)]),
        (array(["null", "long"]), [1, None], "array<bigint>", [1, None]),
        (["null", "string"], None, "string", None),
        ([{"type": "null"}, "string"], "x", "string", "x"),
        ([{"type": "null"}, MILLIS], None, "timestamp", None),
        ([{"type": "string", "avro.java.string": "String"}, "null", "int"], "x", "struct<member0:string,member1:int>",
         {"member0": "x", "member1": None}),
        (["int", "long"], 5, "bigint", 5),
        (["null", "int", "string"], "x", "struct<member0:int,member1:string>", {"member0": None, "member1": "x"}),
        (["null", "int", map_of("int")], {"k": 1}, "struct<member0:int,member1:map<string,int>>",
         {"member0": None, "member1": [("k", 1)]}),
    ],
)  # fmt: skip
def test_a_value_of_a_type(kind: Any, written: Any, simple: str, value: Any) -> None:
    assert spark_type(holding(kind)).simpleString() == f"struct<a:{simple}>"
    raw = copy.deepcopy(kind)
    if isinstance(raw, dict) and raw["type"] in ("int", "long", "string"):
        raw.pop("logicalType", None)
    found = decode(holding(kind), [framed(1, avro(holding(raw), {"a": written}))])
    assert not found.malformed
    assert found.column[0].as_py()["a"] == value


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (record("N", next=["null", "N"]), "contains itself"),
        (holding(["int", "long", "string"]), "cannot be told apart"),
        (holding("money"), "neither a type of Avro nor a name"),
        (holding(["int", {"x": 1}]), "cannot be told apart"),
        (holding([["int"], "string"]), "cannot be told apart"),
        (record("E"), "has no fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "a field without a name or a type"),
        ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "a field without a name or a type"),
        ({"type": "record", "name": "R", "fields": ["a"]}, "a field without a name or a type"),
        (holding(logical("bytes", "decimal", precision=50)), "precision 50"),
        (holding(array("null")), "neither a type"),
        ({"a": 1}, "not an Avro schema"),
    ],
)
def test_schemas_that_no_column_holds_are_refused(schema: Any, problem: str) -> None:
    with pytest.raises(MalformedError) as raised:
        spark_type(schema)

    assert problem in str(raised.value)


def test_records_are_resolved_to_what_is_read() -> None:
    order = {"id": 1, "item": "pen", "at": 1500, "price": Decimal("1.25"), "note": "x"}
    renamed = {**ORDER, "fields": [{"name": "number", "aliases": ["id"], "type": "double"}]}

    added = decode(ORDER_WITH_COUNT, [framed(2, avro(ORDER, order))], {2: ORDER})
    changed = decode(renamed, [framed(2, avro(ORDER, order))], {2: ORDER})

    assert added.column[0].as_py()["count"] == 1
    assert added.column[0].as_py()["at"] == datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)
    assert changed.column[0].as_py() == {"number": 1.0}


def test_times_are_what_the_writer_meant() -> None:
    micros = logical("long", "timestamp-micros")

    assert resolved(MILLIS, 1500, micros) == datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)
    assert resolved(micros, 1500, MILLIS) == datetime(1970, 1, 1, 0, 0, 0, 1500, UTC)
    assert OTHER_UNIT in resolved("long", 1500, MILLIS)
    assert OTHER_UNIT in resolved("int", 1500, MILLIS)
    assert OTHER_UNIT in resolved(["long", "string"], 1500, MILLIS)
    assert resolved(MILLIS, 1500, "long") == 1500
    assert resolved(["null", MILLIS], 1500, ["null", "double"]) == 1500.0


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (("long", "timestamp-nanos"), ("long", "timestamp-micros")),
        (("long", "local-timestamp-nanos"), ("long", "local-timestamp-micros")),
        (("long", "timestamp-millis"), ("long", "timestamp-nanos")),
        (("long", "timestamp-micros"), ("long", "timestamp-nanos")),
        (("int", "time-millis"), ("long", "time-micros")),
        (("int", "time-millis"), ("int", "date")),
        (("int", "date"), ("long", "timestamp-micros")),
        (("int", "timestamp-millis"), ("long", "timestamp-millis")),  # of no meaning: it needs a long
    ],
)
def test_what_counts_something_else_is_malformed(written: tuple[str, str], read: tuple[str, str]) -> None:
    """Regression: nanoseconds became microseconds, so that a time was 1,000 times too large."""
    assert OTHER_UNIT in resolved(logical(*written), 1500, logical(*read))


def test_a_unit_that_the_reader_does_not_name_is_the_number_that_was_written() -> None:
    for unit in ("timestamp-nanos", "time-micros", "timestamp-millis"):
        assert resolved(logical("long", unit), 1500, "long") == 1500
    assert resolved(logical("long", "local-timestamp-nanos"), 1500, logical("long", "timestamp-nanos")) == 1500
    assert resolved("int", 1, logical("int", "date")) == date(1970, 1, 2)


def test_a_time_behind_a_name_is_not_guessed_either() -> None:
    def schema(at: Any) -> dict[str, Any]:
        return record("R", a=record("T", at=at), b="T")

    reader = record("R", b=record("T", at=MILLIS))
    value = framed(2, avro(schema("long"), {"a": {"at": 1500}, "b": {"at": 1500}}))

    found = decode(reader, [value], {2: schema("long")})

    assert found.malformed == {0: "schema 2 does not count b.at in the unit of the reader's schema"}


NESTED = record("N", field("m", map_of("int")), field("b", "bytes", default="\u00ff"), field("t", MILLIS, default=1000))


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", b"\xff\x01"),
        (logical("bytes", "decimal", precision=9, scale=2), "\u0001\u0002", Decimal("2.58")),
        (logical("fixed", "decimal", precision=4, scale=2, size=2, name="F"), "\u00ff\u00ff", Decimal("-0.01")),
        (["bytes", "null"], "\u00ff", b"\xff"),
        (["null", "bytes"], None, None),
        (MILLIS, 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (array(MILLIS), [1000], [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
        ("double", 5, 5.0),
        ("double", "Infinity", float("inf")),
        (["double", "string"], 5, {"member0": 5.0, "member1": None}),
        (["bytes", "int"], "\u00ff", {"member0": b"\xff", "member1": None}),
        (ENUM, "B", "B"),
        (NESTED, {"m": {"k": 1}}, {"m": [("k", 1)], "b": b"\xff", "t": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}),
        (["null", {"type": "map", "values": NESTED}], None, None),
    ],
)  # fmt: skip
def test_a_new_field_has_its_default_in_each_record(kind: Any, default: Any, value: Any) -> None:
    writer = record("R", x="int")
    reader = record("R", *writer["fields"], field("a", kind, default=default))

    found = decode(reader, [framed(2, avro(writer, {"x": n})) for n in range(2)], {2: writer})

    assert found.malformed == {}
    assert found.column.to_pylist() == [{"x": n, "a": value} for n in range(2)]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("string", None, "x"),
        ("boolean", "true", True),
        ("int", 1570903062179, 5),
        ("long", 1570903062179.133, 5),
        (["int", "null"], "null", 5),
        (array("int"), ["x"], [5]),
        (array("int"), None, [5]),
        (record("I", b="int"), {}, {"b": 5}),
        (ENUM, "Z", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", b"ab"),
        ("float", 1e300, 5.0),
        ("float", 10**400, 5.0),
    ],
)  # fmt: skip
def test_a_default_of_another_type_matters_only_to_records_without_the_field(
    kind: Any, default: Any, value: Any
) -> None:
    """Regression: load() refused the topic, and records of such a writer's schema were malformed.  Spark reads them."""
    wrong, plain = holding(kind, default=default), holding(kind)
    check_avro(definition(wrong))
    older = record("R", x="int")
    value_of_wrong = framed(2, avro(plain, {"a": value}))

    for reader, writer in (wrong, plain), (plain, wrong), (wrong, wrong):
        found = decode(reader, [value_of_wrong], {2: writer})
        assert (found.malformed, found.column.to_pylist()) == ({}, [{"a": value}])
    without = decode(wrong, [framed(2, avro(older, {"x": 1}))], {2: older})
    assert without.malformed == {0: "schema 2 cannot be resolved to the one that is read"}


@pytest.mark.parametrize("number", [34 * 10**37 + 28236692093846346337460743176821145600, 2**129, -(2**128), 10**38])
def test_a_decimal_of_more_than_38_digits_is_malformed(number: int) -> None:
    """Regression: Arrow took some of them for other numbers, such as 0, and a long one blocked a worker for hours."""
    written = logical("bytes", "decimal", precision=60, scale=37)
    wanted = logical("bytes", "decimal", precision=20, scale=10)
    for size in (17, 200_000):
        raw = number.to_bytes(size, "big", signed=True)
        writer = holding("bytes")
        found = decode(holding(wanted), [framed(2, avro(writer, {"a": raw}))], {2: holding(written)})
        assert found.malformed == {0: "it is not what its schema says (ValueError)"}
    huge = b"\x7f" + bytes(1_000_000)
    assert decode(holding(wanted), [framed(2, avro(holding("bytes"), {"a": huge}))], {2: holding(written)}).malformed


def test_a_schema_whose_parts_are_shared_takes_no_exponential_time() -> None:
    """Regression: each level of records that use the next one twice doubled the time."""
    inner: Any = record("R0", x="int")
    for level in range(1, 40):
        name = inner["name"]
        inner = record(f"R{level}", field("a", inner, default={}), field("b", name, default={}))
    with contextlib.suppress(MalformedError):
        check_avro(definition(inner))
    parts = {"type": "int"}
    whole: Any = parts
    for _ in range(60):
        whole = {"type": "record", "name": "R", "fields": [{"name": n, "type": whole} for n in "ab"]}
    assert len(list(definitions([whole]))) == 61


@pytest.mark.parametrize(
    "kind",
    [
        logical("bytes", "decimal", precision=64, scale=127),
        logical("bytes", "decimal"),
        logical("bytes", "decimal", precision=0),
        logical("bytes", "decimal", precision=4, scale=-1),
        logical("bytes", "decimal", precision="4"),
        logical("fixed", "decimal", precision=20, size=2, name="F"),
    ],
)
def test_a_decimal_that_is_not_valid_is_its_bytes(kind: Any) -> None:
    """As in Avro's specification and in ``from_avro``.  Regression: load() refused the topic."""
    plain = {key: value for key, value in kind.items() if key in ("type", "size", "name")}
    found = decode(holding(["null", kind]), [framed(1, avro(holding(["null", plain]), {"a": b"ab"}))])
    assert (found.malformed, found.column.to_pylist()) == ({}, [{"a": b"ab"}])


def test_an_error_of_a_schema_names_the_field() -> None:
    inner = record("I", amount=logical("bytes", "decimal", precision=64))
    with pytest.raises(MalformedError, match=r"^field a\.amount: it has a decimal with precision 64"):
        spark_type(holding(["null", inner]))


@pytest.mark.parametrize("other", [holding(map_of("int")), map_of("int"), "int"], ids=str)
def test_a_value_that_is_null_as_a_whole_is_null(other: Any) -> None:
    schema = ["null", other, "string"] if other == "int" else ["null", other]

    found = decode(schema, [framed(1, avro(schema, None))])

    assert (found.column.to_pylist(), found.malformed) == ([None], {})


LINE = {**record("Line", item="string"), "namespace": "shop"}


@pytest.mark.parametrize(
    ("schema", "whole", "simple", "value"),
    [
        (
            {**record("Order", line="Line"), "namespace": "shop"},
            record("shop.Order", line=LINE),
            "struct<line:struct<item:string>>",
            {"line": {"item": "pen"}},
        ),
        (array("shop.Line"), array(LINE), "array<struct<item:string>>", [{"item": "pen"}]),
    ],
    ids=["record", "array"],
)
def test_references_are_schemas_that_others_name(schema: Any, whole: Any, simple: str, value: Any) -> None:
    given = Definition(id=1, kind="AVRO", text=json.dumps(schema), references=(("shop.Line", json.dumps(LINE)),))
    check_avro(given)
    decoder = AvroDecoder(arrow_type(schema, LINE), given, lambda _: given)

    found = decoder.decode(pa.array([framed(1, avro(whole, value))], pa.binary()))

    assert spark_type(schema, [LINE]).simpleString() == simple
    assert (found.column.to_pylist(), found.malformed) == ([value], {})


def test_names_are_those_of_their_namespace() -> None:
    def named(space: str, kind: Any) -> dict[str, Any]:
        return {**record("In", f=record("T", x=kind), g="T"), "namespace": space}

    schema = record("R", a=named("a", "int"), b=named("b", map_of("int")))
    value: dict[str, Any] = {"a": {"f": {"x": 3}, "g": {"x": 4}}, "b": {"f": {"x": {"k": 1}}, "g": {"x": {"k": 2}}}}

    found = decode(schema, [framed(1, avro(schema, value))])

    assert found.malformed == {}
    expected = {"a": value["a"], "b": {"f": {"x": [("k", 1)]}, "g": {"x": [("k", 2)]}}}
    assert found.column.to_pylist() == [expected]


def test_an_array_of_nothing_is_found_behind_a_name() -> None:
    bomb = record("R", e=record("E", n="null"), a=array("E"))

    found = decode(holding("string", default=""), [framed(2, b"\x80\x80\x80\x80\x80\x80\x80\x01\0")], {2: bomb})

    assert found.malformed == {0: "schema 2 has an array of nothing, which is not supported"}


def test_what_is_wrong_with_a_record_is_told() -> None:
    good = framed(1, avro(holding("string"), {"a": "secret"}))
    bomb = holding(array("null"))
    heads = [None, b"", b"\0\0", b"{...}", framed(9, b"x")]
    records = [good[:-1], good + b"!", framed(2, b"\2"), framed(3, b"\2"), good]

    found = decode(holding("string"), [*heads, *records], {2: bomb, 3: record("Other", z="int")})

    assert found.malformed == {
        1: "it has 0 bytes, but the id of a schema alone takes 5",
        2: "it has 2 bytes, but the id of a schema alone takes 5",
        3: "it does not begin with 0, as a record with the id of a schema does",
        4: "the registry has no schema 9",
        5: "it is not what its schema says (EOFError)",
        6: "1 bytes follow what its schema says",
        7: "schema 2 has an array of nothing, which is not supported",
        8: "schema 3 cannot be resolved to the one that is read",
    }
    assert found.column.to_pylist() == [None] * 9 + [{"a": "secret"}]


def test_a_schema_that_does_not_do_is_looked_at_once() -> None:
    asked: list[int] = []

    def find(number: int) -> Definition:
        asked.append(number)
        return Definition(id=number, kind="JSON", text="{}")

    decoder = AvroDecoder(pa.string(), definition("string"), find)

    found = decoder.decode(pa.array([framed(2, b"x")] * 3, pa.binary()))

    assert found.malformed == dict.fromkeys(range(3), "schema 2 is one of JSON, and not of Avro")
    assert asked == [2]


def test_without_a_registry_records_have_no_ids() -> None:
    decoder = AvroDecoder(arrow_type("string"), definition("string", None), None)

    assert decoder.decode(pa.array([avro("string", "x")], pa.binary())).column.to_pylist() == ["x"]


ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "item": st.text(),
        "at": st.integers(-(10**15), 10**15),
        "price": st.decimals(-9999999, 9999999, places=2),
        "note": st.none() | st.text(),
    }
)
RAW_ORDER = {**ORDER, "fields": [*ORDER["fields"][:2], {"name": "at", "type": "long"}, *ORDER["fields"][3:]]}


@given(st.lists(ORDERS, max_size=5))
def test_what_fastavro_writes_comes_back(orders: list[dict[str, Any]]) -> None:
    found = decode(ORDER, [framed(1, avro(RAW_ORDER, order)) for order in orders])

    assert not found.malformed
    ids = pa.compute.cast(found.column.field("at"), pa.int64()).to_pylist()
    assert ids == [order["at"] * 1000 for order in orders]
    for name in ("id", "item", "price", "note"):
        assert found.column.field(name).to_pylist() == [order[name] for order in orders]


@given(st.lists(st.binary(max_size=40) | st.binary(max_size=40).map(lambda x: framed(1, x)), max_size=10))
def test_any_bytes_are_a_record_or_malformed(values: list[bytes]) -> None:
    found = decode(ORDER, list(values))

    assert [n for n, valid in enumerate(found.column.is_valid().to_pylist()) if not valid] == sorted(found.malformed)


def test_a_schema_of_millions_of_parts_is_refused_at_once() -> None:
    """Regression: load() did not end for a few types that use each other twice."""
    kind = record("T0", x="int")
    for n in range(1, 50):
        kind = record(f"T{n}", a=kind, b=f"T{n - 1}")

    with pytest.raises(MalformedError, match="more than 20000 parts"):
        spark_type(kind)
