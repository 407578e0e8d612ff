"""Messages become the rows that Spark's own Kafka source would give."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    Message,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.columns.from_messages import Columns, RecordBatchBuilder, collect
from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS, arrow_schema

TOPIC, PARTITION = "orders", 7
MAX_RECORDS = 100
UNHURRIED = settings(deadline=None)  # a loaded machine is no bug

KAFKA_TIMESTAMP_TYPES = {TIMESTAMP_NOT_AVAILABLE: -1, TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}

data = st.none() | st.binary(max_size=20)
headers: st.SearchStrategy[list[tuple[str, str | bytes | None]] | None] = st.none() | st.lists(
    st.tuples(st.sampled_from(["a", "b", "", "ü"]), data), max_size=3
)
# 0001-01-01 to 9999-12-31: the range of Spark's timestamps
timestamps = st.tuples(
    st.sampled_from(sorted(KAFKA_TIMESTAMP_TYPES)), st.integers(min_value=-62135596800000, max_value=253402300799999)
)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Message]:
    offsets = sorted(draw(st.sets(st.integers(0, 2**63 - 1), max_size=MAX_RECORDS)))
    return [
        record(offset, key=draw(data), value=draw(data), headers=draw(headers), timestamp=draw(timestamps))
        for offset in offsets
    ]


def record(
    offset: int,
    *,
    key: bytes | None = None,
    value: bytes | None = None,
    headers: list[tuple[str, str | bytes | None]] | None = None,
    timestamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 0),
) -> Message:
    return Message(
        topic=TOPIC, partition=PARTITION, offset=offset, key=key, value=value, headers=headers, timestamp=timestamp
    )


def event(code: int, offset: int) -> Message:
    return Message(topic=TOPIC, partition=PARTITION, offset=offset, value=b"reason", error=KafkaError(code))


def columns_of(include_headers: bool) -> tuple[str, ...]:
    return COLUMNS if include_headers else DEFAULT_COLUMNS


def built(messages: Sequence[Message], *, include_headers: bool = False) -> pa.RecordBatch:
    columns = collect(messages, include_headers=include_headers)
    return RecordBatchBuilder(TOPIC, PARTITION, columns_of(include_headers)).build(columns)


def bounded(messages: Sequence[Message], max_bytes: int, *, include_headers: bool = False) -> list[pa.RecordBatch]:
    columns = collect(messages, include_headers=include_headers)
    builder = RecordBatchBuilder(TOPIC, PARTITION, columns_of(include_headers))
    return list(builder.build_bounded(columns, max_bytes=max_bytes))


def naive_batch(messages: Sequence[Message], *, include_headers: bool) -> pa.RecordBatch:
    """Build the same batch in the plainest way: one dict per record, and pyarrow converts everything."""
    rows: list[dict[str, Any]] = []
    for message in messages:
        kafka_type, milliseconds = message.timestamp()
        row: dict[str, Any] = {
            "key": message.key(),
            "value": message.value(),
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": milliseconds * 1000 if kafka_type else -1000,
            "timestampType": KAFKA_TIMESTAMP_TYPES[kafka_type],
        }
        if include_headers:
            found = cast("list[tuple[str, bytes | None]] | None", message.headers())
            row["headers"] = [{"key": key, "value": value} for key, value in found] if found else None
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns_of(include_headers)))


@UNHURRIED
@given(messages=record_lists().filter(bool), include_headers=st.booleans())
def test_a_batch_equals_the_naive_conversion(messages: list[Message], include_headers: bool) -> None:
    batch = built(messages, include_headers=include_headers)
    batch.validate(full=True)
    assert batch.equals(naive_batch(messages, include_headers=include_headers))


@UNHURRIED
@given(messages=record_lists(), include_headers=st.booleans(), max_bytes=st.integers(0, 200))
def test_bounded_batches_hold_all_records_in_order_and_only_a_single_record_is_above_the_bound(
    messages: list[Message], include_headers: bool, max_bytes: int
) -> None:
    batches = bounded(messages, max_bytes, include_headers=include_headers)
    schema = arrow_schema(columns_of(include_headers))
    expected = [naive_batch(messages, include_headers=include_headers)] if messages else []
    assert pa.Table.from_batches(batches, schema).equals(pa.Table.from_batches(expected, schema))
    for batch in batches:
        assert batch.num_rows == 1 or sum(map(row_bytes, batch.to_pylist())) <= max_bytes


def row_bytes(row: dict[str, Any]) -> int:
    size = len(row["key"] or b"") + len(row["value"] or b"")
    return size + sum(len(header["key"]) + len(header["value"] or b"") for header in row.get("headers") or ())


def test_bounded_batches_are_as_few_as_the_order_allows() -> None:
    messages = [record(offset, value=b"x" * 10) for offset in range(7)]
    assert [batch.num_rows for batch in bounded(messages, 30)] == [3, 3, 1]


def test_a_record_without_headers_has_null_there_as_in_sparks_own_source() -> None:
    messages = [record(0, headers=None), record(1, headers=[]), record(2, headers=[("a", b"1")])]
    for some in (messages, messages[:2]):
        batch = built(some, include_headers=True)
        assert batch.column("headers").to_pylist()[:2] == [None, None]


@pytest.mark.parametrize("milliseconds", [-1, 0])
def test_a_record_without_timestamp_gets_minus_one_millisecond_as_in_sparks_own_source(milliseconds: int) -> None:
    """librdkafka's own documentation says -1 for old message formats, but it gives 0 (2.14)."""
    batch = built([record(0, timestamp=(TIMESTAMP_NOT_AVAILABLE, milliseconds))])
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [-1000]
    assert batch.column("timestampType").to_pylist() == [-1]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_timestamp_beyond_sparks_range_becomes_null_with_a_warning(
    sign: int, caplog: pytest.LogCaptureFixture
) -> None:
    limit = (2**63 - 1) // 1000
    messages = [
        record(offset, timestamp=(TIMESTAMP_CREATE_TIME, sign * time))
        for offset, time in [(3, limit), (5, limit + 1), (6, 0)]
    ]
    with caplog.at_level(logging.WARNING, "pyspark_kafka_group.reading"):
        batch = built(messages)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [sign * limit * 1000, None, 0]
    assert "orders-7: 1 records from offset 5 on" in caplog.text


@pytest.mark.parametrize("include_headers", [False, True])
def test_collect_stops_before_the_first_event(include_headers: bool) -> None:
    messages = [record(4), record(5), event(KafkaError._PARTITION_EOF, 6), record(6)]
    columns = collect(messages, include_headers=include_headers)
    assert columns.offsets == [4, 5]
    assert len(columns.headers) == (2 if include_headers else 0)


def test_collect_of_an_event_alone_is_empty() -> None:
    assert collect([event(KafkaError._ALL_BROKERS_DOWN, 0)], include_headers=True) == Columns()


class CHeaders:
    """A record whose headers are decoded as confluent-kafka 2.16 does it: by ``PyUnicode_FromString``."""

    def __init__(self, offset: int, *keys: bytes) -> None:
        self._record = record(offset)
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)

    def headers(self) -> list[tuple[str, bytes]]:
        decode = ctypes.pythonapi.PyUnicode_FromString
        decode.restype, decode.argtypes = ctypes.py_object, [ctypes.c_char_p]
        return [(decode(key), b"v") for key in self._keys]


def test_header_keys_that_are_not_utf_8_have_replacement_characters() -> None:
    """As in the direct client, and in Spark's own source.  Regression: such a record was an error."""
    keys = b"k\xffy", b"key", b"\xe2\x82", "\u20ac".encode()
    columns = collect(cast("list[Message]", [CHeaders(4, *keys)]), include_headers=True)
    assert columns.headers == [[(key.decode(errors="replace"), b"v") for key in keys]]
    with pytest.raises(UnicodeDecodeError):
        CHeaders(4, *keys).headers()
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode()


def test_other_threads_decode_strictly_meanwhile() -> None:
    def decode() -> list[tuple[str, bytes]]:
        with ThreadPoolExecutor(1) as other, pytest.raises(UnicodeDecodeError):
            other.submit(b"\xff".decode).result()
        return []

    message = SimpleNamespace(
        error=lambda: None, key=bytes, value=bytes, offset=lambda: 1, timestamp=lambda: (1, 1), headers=decode
    )
    assert collect(cast("list[Message]", [message]), include_headers=True).headers == [[]]
