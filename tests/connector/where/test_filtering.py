"""The rows that the option where drops, and when: before values are decoded, if the condition allows."""

from __future__ import annotations

import json
import pickle
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pyarrow as pa
import pytest

from pyspark_kafka_group.columns.schema import arrow_schema, to_arrow
from pyspark_kafka_group.formats import batches
from pyspark_kafka_group.formats.batches import decoded, typed_reading
from pyspark_kafka_group.formats.planning import typed_schema
from pyspark_kafka_group.offsets.errors import ConditionError, MalformedRecordError
from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.where.filtering import RowFilter, row_filter
from tests.connector.formats.test_batches import BASE, JSON
from tests.connector.formats.test_batches import batch as records

GOOD, BAD = b'{"id": 1}', b"{"


def keyed(columns: tuple[str, ...], *keys: bytes | None) -> pa.RecordBatch:
    return records(columns, *[None] * len(keys), keys=keys)


def read(keys: list[bytes | None], values: list[bytes | None], where: str, send: Any = None, **options: str) -> Any:
    """Return the rows of a typed read, each as a dict."""
    settings = parse_batch({**BASE, **JSON, "columns": "key,value,offset", **options, "where": where})
    assert settings.formats is not None
    schema = typed_schema(settings.columns, settings.formats)
    typed = typed_reading(settings.formats, settings.columns, schema)
    wanted: RowFilter = pickle.loads(pickle.dumps(row_filter(where, to_arrow(schema))))
    batch = records(wanted.columns_to_read(typed.columns), *values, keys=keys)
    found = list(decoded(iter([batch]), typed, send, wanted))
    assert all(one.num_rows for one in found)
    return [row for one in found for row in one.to_pylist()]


def offsets(rows: Any) -> list[int]:
    return [row["offset"] for row in rows]


def test_columns_of_the_condition_that_are_not_wanted_are_read_and_dropped() -> None:
    wanted = row_filter("key = 'a' AND partition = 3", arrow_schema(("value",)))
    assert wanted.columns_to_read(("value",)) == ("key", "value", "partition")
    batch = records(("key", "value", "partition"), b"1", b"2", b"3", keys=[b"a", b"b", None])
    assert [found.to_pydict() for found in wanted.rows(iter([batch]), ("value",))] == [{"value": [b"1"]}]


def test_a_batch_of_which_nothing_is_left_is_left_out() -> None:
    wanted = row_filter("key = 'a'", arrow_schema(("key",)))
    assert list(wanted.rows(iter([keyed(("key",), b"b")]), ("key",))) == []


def test_closing_the_rows_closes_the_batches() -> None:
    closed = []

    def source() -> Any:
        try:
            yield keyed(("key",), b"a")
            yield keyed(("key",), b"a")
        finally:
            closed.append(True)

    rows = row_filter("key = 'a'", arrow_schema(("key",))).rows(source(), ("key",))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert closed == [True]


def test_a_record_for_which_the_condition_fails_is_named() -> None:
    wanted = row_filter("CAST(CAST(key AS STRING) AS INT) > 0", arrow_schema(("key",)))
    assert wanted.columns_to_read(("key",)) == ("key", "topic", "partition", "offset")
    batch = keyed(("key", "topic", "partition", "offset"), b"1", b"x")
    with pytest.raises(ConditionError, match=r"orders-3: .*offset 101.*TRY_CAST"):
        list(wanted.rows(iter([batch]), ("key",)))


def test_a_row_that_an_earlier_part_drops_does_not_fail() -> None:
    wanted = row_filter("offset > 100 AND CAST(CAST(key AS STRING) AS INT) > 0", arrow_schema(("key",)))
    batch = keyed(("key", "topic", "partition", "offset"), b"x", b"1", b"0")
    assert [found.to_pydict() for found in wanted.rows(iter([batch]), ("key",))] == [{"key": [b"1"]}]


def test_values_that_need_not_be_decoded_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = create_autospec(batches.BatchDecoder._column, side_effect=batches.BatchDecoder._column)
    monkeypatch.setattr(batches.BatchDecoder, "_column", decode)
    rows = read([b"eu", b"us", b"eu"], [GOOD, BAD, GOOD], "key = 'eu' AND value.id = 1")
    assert offsets(rows) == [100, 102]
    ((_, _, name, values),) = [call.args for call in decode.call_args_list]
    assert (name, values.to_pylist()) == ("value", [GOOD, GOOD])


def test_the_key_is_decoded_before_the_value() -> None:
    options = {"keyFormat": "json", "keySchema": "k INT"}
    rows = read([b'{"k": 1}', b'{"k": 2}'], [GOOD, BAD], "value.id = 1 AND key.k = 1", **options)
    assert offsets(rows) == [100]


@pytest.mark.parametrize("where", ["key = 'eu'", "value.id = 1", "value.id = 1 AND key = 'eu'"])
def test_a_malformed_record_that_the_rest_keeps_is_an_error(where: str) -> None:
    with pytest.raises(MalformedRecordError, match="offset 101"):
        read([b"us", b"eu"], [GOOD, BAD], where)


def test_a_malformed_record_that_the_rest_drops_is_no_error() -> None:
    assert offsets(read([b"eu", b"us"], [GOOD, BAD], "value.id = 1 AND key = 'eu'")) == [100]


def test_a_malformed_value_that_becomes_null_is_tested_as_null() -> None:
    null = {"malformedRecords": "null"}
    assert offsets(read([b"a", b"b"], [GOOD, BAD], "value.id = 1", **null)) == [100]
    (row,) = read([b"a", b"b", b"c"], [GOOD, BAD, None], "value.id IS NULL AND malformed IS NOT NULL", **null)
    assert row["offset"] == 101
    assert row["malformed"].startswith("value: ")


def test_dead_letters_are_those_that_the_rest_keeps() -> None:
    send = MagicMock()
    options = {"malformedRecords": "deadLetter", "deadLetterTopic": "letters"}
    keys: list[bytes | None] = [b"us", b"eu", b"eu", b"eu"]
    rows = read(keys, [BAD, GOOD, BAD, b'{"id": 2}'], "key = 'eu' AND value.id = 1", send=send, **options)
    assert offsets(rows) == [101]
    ((batch, reasons),) = [call.args for call in send.call_args_list]
    assert [batch.column("offset")[row].as_py() for row in reasons] == [102]


def test_a_part_that_may_fail_waits_for_the_parts_before_it() -> None:
    where = "value.id != 0 AND 10 / partition > 1 AND CAST(CAST(key AS STRING) AS INT) = 1"
    assert offsets(read([b"x", b"1"], [json.dumps({"id": 0}).encode(), GOOD], where)) == [101]
