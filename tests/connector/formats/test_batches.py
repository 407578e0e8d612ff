"""Formats turn the batches of a reader into those that Spark expects, by the policy for malformed records."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import StructType

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.schema import arrow_schema
from pyspark_kafka_group.formats import planning
from pyspark_kafka_group.formats.batches import BatchDecoder, typed_reading
from pyspark_kafka_group.formats.planning import column_plans, typed_schema
from pyspark_kafka_group.formats.registry import Definition, UnknownSchemaError
from pyspark_kafka_group.formats.schema_lookup import SchemaLookup
from pyspark_kafka_group.offsets.errors import (
    ConfigurationError,
    DeliveryError,
    MalformedRecordError,
    MissingDependencyError,
    OptionError,
)
from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.format_settings import Formats
from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer
from pyspark_kafka_group.writing import dead_letters
from pyspark_kafka_group.writing.dead_letters import DeadLetters
from pyspark_kafka_group.writing.record_rows import each
from tests.connector.columns.batches import varint
from tests.connector.formats.avro_samples import array, logical, record
from tests.connector.reading.clients import need_native_library

BASE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}
JSON = {"valueFormat": "json", "valueSchema": "id INT", "columns": "value,offset"}


LETTERS = {"malformedRecords": "deadLetter", "deadLetterTopic": "dead"}


def formats(**options: str) -> tuple[Formats, tuple[str, ...]]:
    settings = parse_batch({**BASE, **{key.replace("__", "."): value for key, value in options.items()}})
    assert settings.formats is not None
    return settings.formats, settings.columns


def batch(columns: tuple[str, ...], *values: bytes | None, keys: Sequence[bytes | None] = ()) -> pa.RecordBatch:
    """Return these columns of records of one partition, from offset 100 on."""
    rows = len(values)
    made: dict[str, Any] = {
        "key": list(keys) or [b"k"] * rows,
        "value": list(values),
        "topic": ["orders"] * rows,
        "partition": [3] * rows,
        "offset": list(range(100, 100 + rows)),
        "timestamp": [None] * rows,
        "timestampType": [0] * rows,
        "headers": [None] * rows,
    }
    return pa.RecordBatch.from_pydict({name: made[name] for name in columns}, schema=arrow_schema(columns))


def decode(*values: bytes | None, send: Any = None, **options: str) -> list[pa.RecordBatch]:
    given, columns = formats(**{**JSON, **options})
    schema = typed_schema(columns, given)
    typed = typed_reading(given, columns, schema)
    decoder = BatchDecoder(schema, typed.plans, given, send)
    return list(decoder.decode(iter([batch(typed.columns, *values)])))


def test_rows_have_the_columns_that_were_asked_for() -> None:
    (found,) = decode(b'{"id": 1}', None)

    assert found.to_pydict() == {"value": [{"id": 1}, None], "offset": [100, 101]}


LINES = record("Order", lines=array(["null", record("Line", **{f"f{n}": "string" for n in range(30)})]))


def lines(count: int) -> bytes:
    """Return a record with this many nulls, each of which has 30 parts as a column."""
    return varint(count) + b"\0" * (count + 1)


def test_a_batch_whose_columns_would_be_too_large_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    need_native_library()
    monkeypatch.setattr(limits, "MAX_DECODED_BYTES", 2_000_000)
    letters: list[list[Any]] = []

    def send(batch: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        letters.extend([batch.column("offset")[row].as_py(), reason] for row, reason in reasons.items())

    asked = {"valueFormat": "avro", "valueSchema": json.dumps(LINES), "keyFormat": "string"}
    values = [*[lines(4000)] * 9, lines(200_000), None, lines(1)]
    found = decode(*values, send=send, columns="key,value,offset", **asked, **LETTERS)

    assert len(found) > 1
    assert [offset for one in found for offset in one.column("offset").to_pylist()] == [*range(100, 109), 110, 111]
    sizes = [None if row is None else len(row["lines"]) for one in found for row in one.column("value").to_pylist()]
    assert sizes == [*[4000] * 9, None, 1]
    assert letters == [[109, "value: it would take more than 128 MB when it is decoded"]]


def test_json_that_would_be_too_large_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each element of three bytes has 30 parts as a column.

    Regression: a document of 8 MB, or some hundred bytes compressed, took 330 MB.
    """
    monkeypatch.setattr(limits, "MAX_DECODED_BYTES", 4_000_000)
    parts = ", ".join(f"f{n} STRING" for n in range(30))
    many = b'{"a": [' + b"{}," * 100_000 + b"{}]}"
    some = b'{"a": [' + b"{}," * 999 + b"{}]}"

    for more in ("", ", m MAP<STRING, INT>"):  # with Arrow's reader, and with ours
        found = decode(many, *[some] * 20, malformedRecords="null", valueSchema=f"a ARRAY<STRUCT<{parts}>>{more}")
        rows = [row for one in found for row in one.to_pylist()]
        assert [row["offset"] for row in rows] == list(range(100, 121))
        assert rows[0]["value"] is None
        assert rows[0]["malformed"] == "value: it would take more than 128 MB when it is decoded"
        assert [len(row["value"]["a"]) for row in rows[1:]] == [1000] * 20


def test_fail_names_the_first_malformed_record() -> None:
    with pytest.raises(MalformedRecordError) as raised:
        decode(b"{}", b"x", b"y")

    error = raised.value
    assert (error.topic, error.partition, error.offset, error.column) == ("orders", 3, 101, "value")


def test_null_says_why_in_a_column() -> None:
    (found,) = decode(b'{"id": 1}', b'{"id": "x"}', malformedRecords="null")

    assert found.to_pydict() == {
        "value": [{"id": 1}, None],
        "offset": [100, 101],
        "malformed": [None, "value: id is a string, and not int"],
    }


def test_dead_letters_make_no_rows() -> None:
    send = MagicMock()

    found = decode(b"x", b"{}", send=send, **LETTERS)

    assert [one.column("offset").to_pylist() for one in found] == [[101]]
    ((read, reasons),) = [call.args for call in send.call_args_list]
    assert read.column("headers").to_pylist() == [None, None]
    assert reasons == {0: "value: it is not JSON: Expecting value at character 0"}
    assert decode(b"x", send=send, **LETTERS) == []


def test_both_columns_are_decoded() -> None:
    (found,) = decode(b'{"id": 1}', keyFormat="string", columns="key,value")

    assert found.to_pydict() == {"key": ["k"], "value": [{"id": 1}]}


def test_a_string_has_to_be_utf_8() -> None:
    given, columns = formats(valueFormat="string", columns="value", malformedRecords="null")
    typed = typed_reading(given, columns, typed_schema(columns, given))
    decoder = BatchDecoder(typed.schema, typed.plans, given)

    (found,) = decoder.decode(iter([batch(typed.columns, b"a", b"\xff", None)]))

    assert found.column("value").to_pylist() == ["a", None, None]
    assert found.column("malformed").to_pylist() == [None, "value: it is not UTF-8 at byte 0", None]


def test_dead_letters_are_written_as_they_were_with_their_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = MagicMock()
    producer = lease.return_value.__enter__.return_value
    monkeypatch.setattr(dead_letters, "lease", lease)
    columns = ("key", "value", "topic", "partition", "offset", "headers")
    properties = {"bootstrap.servers": "b:9092", "fetch.min.bytes": "7", "isolation.level": "read_committed"}

    read = batch(columns, b"x", b"{", b"z")
    traces = pa.array([None, [{"key": "trace", "value": b"7"}], None], read.schema.field("headers").type)

    DeadLetters({**properties, "acks": "0"}, "dead", "me").send(
        read.set_column(columns.index("headers"), read.schema.field("headers"), traces), {1: "value: bad"}
    )

    assert [name for name, _, _ in producer.method_calls] == ["send", "flush"]
    (rows,) = producer.send.call_args.args
    assert (rows.topics, rows.key.to_pylist(), rows.value.to_pylist()) == (("dead",), [b"k"], [b"{"])
    assert [(h["key"], h["value"]) for h in rows.headers.to_pylist()[0]] == [
        (b"trace", b"7"),
        (b"kafka-group.topic", b"orders"),
        (b"kafka-group.partition", b"3"),
        (b"kafka-group.offset", b"101"),
        (b"kafka-group.error", b"value: bad"),
    ]
    ((_, arguments),) = each(rows)  # the records, as a producer without direct access sends them
    assert arguments["headers"][:2] == [("trace", b"7"), ("kafka-group.topic", b"orders")]
    (config,) = lease.call_args.args
    assert (config["acks"], config["bootstrap.servers"]) == ("all", "b:9092")
    assert "fetch.min.bytes" not in config


def test_the_headers_of_a_letter_take_no_more_memory_than_those_of_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a record of some kB with millions of headers took gigabytes, in each attempt."""
    lease = MagicMock()
    monkeypatch.setattr(dead_letters, "lease", lease)
    columns, count = ("key", "value", "topic", "partition", "offset", "headers"), 300_000
    read = batch(columns, b"x", b"{")
    entries = pa.StructArray.from_arrays(
        [pa.repeat(pa.scalar(""), count), pa.nulls(count, pa.binary())],
        fields=[*read.schema.field("headers").type.value_type],
    )
    many = pa.ListArray.from_arrays(pa.array([0, 1, count], pa.int32()), entries)
    read = read.set_column(columns.index("headers"), pa.field("headers", many.type), many)
    tracemalloc.start()
    try:
        DeadLetters({"bootstrap.servers": "b:9092"}, "dead", "me").send(read, {0: "bad", 1: "bad"})
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    (rows,) = lease.return_value.__enter__.return_value.send.call_args.args
    assert pc.list_value_length(rows.headers).to_pylist() == [5, count + 3]
    assert rows.headers.slice(0, 1).flatten().field("key").to_pylist()[:2] == [b"", b"kafka-group.topic"]


_WITH, _WITHOUT = 4, 0  # headers of a letter with and without the added ones


@pytest.mark.parametrize("most", [_WITH, _WITHOUT, -1])
def test_a_letter_that_is_too_large_is_written_alone_and_then_without_the_added_headers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most: int
) -> None:
    """Regression: a query ended each time because its letters filled a batch that their topic did not accept.

    Later, it ended because a record had the largest size that its topic allows, and a letter has more headers.
    """
    written: list[tuple[str | None, int, int]] = []

    @contextmanager
    def lease(config: dict[str, str]) -> Iterator[Any]:
        def send(rows: Any) -> None:
            alone, most_headers = config.get("batch.size"), max(map(len, rows.headers.to_pylist()))
            written.append((alone, rows.count, most_headers))
            if alone is None or most_headers > most:
                raise DeliveryError(topic="dead", partition=0, code="MSG_SIZE_TOO_LARGE", text="", remedy="")

        yield MagicMock(send=send)

    monkeypatch.setattr(dead_letters, "lease", lease)
    read = batch(("key", "value", "topic", "partition", "offset", "headers"), b"x", b"{", b"[")
    letters = DeadLetters({"bootstrap.servers": "b:9092"}, "dead", "me")
    problem = pytest.raises(DeliveryError, match=r"\(a dead letter\)\. Set max\.message\.bytes .* 65536 higher")
    with nullcontext() if most >= 0 else problem:
        letters.send(read, {1: "value: bad", 2: "value: worse"})
    expected = {
        _WITH: [("1", 1, _WITH)] * 2,
        _WITHOUT: [("1", 1, _WITH), ("1", 1, _WITHOUT)] * 2,
        -1: [("1", 1, _WITH), ("1", 1, _WITHOUT)],
    }
    assert written == [(None, 2, _WITH), *expected[most]]
    told = [record.getMessage() for record in caplog.records]
    assert ["offset 101 is too large" in text and "value: bad" in text for text in told] == [True, False] * (
        most == _WITHOUT
    )


def test_the_schema_stays_although_the_newest_version_changes() -> None:
    with SchemaRegistryServer() as server:
        first = server.register("orders-value", '"int"')
        given, columns = formats(valueFormat="avro", columns="value", schema__registry__url=server.url)
        schema = typed_schema(columns, given)
        server.register("orders-value", '"string"')

        (plan,) = column_plans(given, columns, schema)

    assert schema.simpleString() == "struct<value:int>"
    assert schema["value"].metadata == {"schema.registry.id": first}
    assert plan.definition is not None
    assert plan.definition.text == '"int"'


@pytest.mark.parametrize(
    ("options", "name", "problem"),
    [
        ({"valueFormat": "json", "valueSchema": "id BIGIN"}, "valueSchema", "'BIGIN' is not a supported type"),
        ({"valueFormat": "avro", "valueSchema": '{"type": "x"}'}, "valueSchema", "neither a type of Avro nor a name"),
        (
            {"valueFormat": "json", "valueSchema": "a " + "ARRAY<" * 2000 + "INT" + ">" * 2000},
            "valueSchema",
            "too deeply",
        ),
        ({"valueFormat": "avro", "valueSchema": "[" * 10_000}, "valueSchema", "too deeply"),
        (
            {
                "valueFormat": "avro",
                "valueSchema": json.dumps(logical("fixed", "decimal", name="F", precision=3, size=10**400)),
            },
            "valueSchema",
            "not an Avro schema",
        ),
        (
            {"valueFormat": "avro", "valueSchema": '{"type": {"type": "string"}, "name": "R", "fields": 1}'},
            "valueSchema",
            "fastavro cannot read",
        ),
        ({"valueFormat": "avro", "registry": "yes"}, "valueSubject", "has no subject 'orders-value'"),
        ({"valueFormat": "avro", "registry": "yes", "valueSchemaId": "9"}, "valueSchemaId", "has no schema 9"),
        ({"keyFormat": "protobuf", "registry": "yes", "keySubject": "s"}, "keySubject", "schema 1 is a schema of AVRO"),
    ],
)
def test_a_schema_that_does_not_do_names_its_option(options: dict[str, str], name: str, problem: str) -> None:
    with SchemaRegistryServer() as server:
        server.register("s", json.dumps("int"))
        if options.pop("registry", None):
            options["schema.registry.url"] = server.url
        given, columns = formats(**options)

        with pytest.raises(OptionError) as raised:
            typed_schema(columns, given)

    assert f"'{name}'" in str(raised.value)
    assert problem in str(raised.value)


def test_another_schema_than_ours_is_refused() -> None:
    given, columns = formats(**JSON)

    with pytest.raises(ConfigurationError, match=r"Remove \.schema"):
        column_plans(given, columns, StructType().add("value", "string").add("offset", "long"))


@pytest.mark.parametrize(
    ("kind", "package"), [("avro", "fastavro"), ("avro", "authlib"), ("protobuf", "google.protobuf")]
)
def test_a_missing_package_is_named_on_the_driver(kind: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = planning._there
    monkeypatch.setattr(planning, "_there", lambda name: name != package and there(name))
    given, columns = formats(valueFormat=kind, schema__registry__url="http://127.0.0.1:1")

    with pytest.raises(MissingDependencyError) as raised:
        typed_schema(columns, given)

    assert f"`pip install 'pyspark-kafka-group[{kind}]'`" in str(raised.value)
    assert sys.executable in str(raised.value)


def test_a_folder_of_the_name_of_a_package_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: Spark's jar has `google/protobuf`, so a missing package was told as a registry without an answer."""
    (tmp_path / "of_a_jar" / "protobuf").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert not planning._there("of_a_jar.protobuf")
    assert planning._there("pyspark.sql")


def test_ids_that_cost_no_request_do_not_hide_the_others() -> None:
    """Regression: 64 ids that no registry can have made the records of rarer schemas malformed."""
    known = Definition(id=7, kind="AVRO", text="")

    def definition_of(number: int) -> Definition:
        if number == 7:
            return known
        raise UnknownSchemaError(asked=False)

    lookup = SchemaLookup(Definition(id=None, kind="AVRO", text=""), definition_of)
    junk = [b"\0" + (2**31 + n).to_bytes(4, "big") for n in range(100)] * 2
    lookup.begin(pa.array([*junk, b"\0\0\0\0\7"], pa.binary()))
    assert lookup.definition(7) is known
