"""The accelerated reader gives the same batches as the plain one, and frees all messages of librdkafka.

Here it reads from a fake of librdkafka, with messages in memory.  ``test_reading`` contains whole readings with either
client.
"""

from __future__ import annotations

import ctypes
import logging
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.columns import limits, native_library
from pyspark_kafka_group.columns.chunk_reader import (
    BEYOND,
    CHUNKS,
    DISORDER,
    EVENT,
    FOREIGN,
    NOTHING,
    Chunk,
    ChunkReader,
    functions_at,
)
from pyspark_kafka_group.columns.constant_columns import ConstantColumns
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from pyspark_kafka_group.columns.record_batches import BATCHES
from pyspark_kafka_group.columns.schema import COLUMNS, arrow_schema
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading import librdkafka_client
from pyspark_kafka_group.reading.client_cache import open_client
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.librdkafka_client import LibrdkafkaClient
from pyspark_kafka_group.reading.message_client import MessageClient
from pyspark_kafka_group.reading.reader_client import ReaderClient, Records
from pyspark_kafka_group.reading.reader_config import reader_config
from tests.connector.columns.test_from_messages import PARTITION, TOPIC, UNHURRIED, event, record, record_lists
from tests.connector.reading.clients import need_native_library
from tests.connector.reading.test_range_reader import ScriptedConsumer

pytestmark = pytest.mark.usefixtures("library")

FAR = 2**63 - 1
TP = TopicPartition(TOPIC, PARTITION)
CONFIG = reader_config({"bootstrap.servers": "127.0.0.1:1"}, "g")


@pytest.fixture(scope="module")
def library() -> None:
    need_native_library()


class _Message(ctypes.Structure):
    """``rd_kafka_message_t``."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class FakeLibrdkafka:
    """A queue of messages, and the functions that the C code calls."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.destroyed: list[int] = []
        self._kept: list[Any] = []
        self._sources = list(messages)
        self._messages = [self._message(number, message) for number, message in enumerate(messages)]
        self._by_address = {ctypes.addressof(m): number for number, m in enumerate(self._messages)}
        self._next = 0
        c = ctypes
        pointer, number = c.c_void_p, c.c_int
        self._functions = {
            "consume_batch": c.CFUNCTYPE(c.c_ssize_t, pointer, number, c.POINTER(pointer), c.c_size_t)(self._consume),
            "destroy": c.CFUNCTYPE(None, pointer)(lambda at: self.destroyed.append(self._by_address[at])),
            "timestamp": c.CFUNCTYPE(c.c_int64, pointer, c.POINTER(number))(self._timestamp),
            "headers": c.CFUNCTYPE(number, pointer, c.POINTER(pointer))(self._headers),
            "header_count": c.CFUNCTYPE(c.c_size_t, pointer)(lambda at: len(self._sources[at - 1].headers() or ())),
            "header_at": c.CFUNCTYPE(
                number, pointer, c.c_size_t, c.POINTER(pointer), c.POINTER(pointer), c.POINTER(c.c_size_t)
            )(self._header_at),
            "topic_name": c.CFUNCTYPE(pointer, pointer)(lambda at: at),
            "error_text": c.CFUNCTYPE(pointer, pointer)(lambda at: _Message.from_address(at).payload),
        }

    def reader(self) -> ChunkReader:
        native = CHUNKS.library
        assert native is not None
        addresses = {n: ctypes.cast(f, ctypes.c_void_p).value or 0 for n, f in self._functions.items()}
        return ChunkReader(native, functions_at(addresses), 1)

    def _data(self, data: bytes | str | None) -> int | None:
        if data is None:
            return None
        buffer = ctypes.create_string_buffer(data.encode() if isinstance(data, str) else data)
        self._kept.append(buffer)
        return ctypes.addressof(buffer)

    def _message(self, number: int, source: Message) -> _Message:
        error = source.error()
        key, value = source.key(), source.value()
        return _Message(
            err=0 if error is None else error.code(),
            topic=self._data(source.topic()),
            partition=source.partition(),
            payload=self._data(value),
            len=len(value or b""),
            key=self._data(key),
            key_len=len(key or b""),
            offset=source.offset(),
        )

    def _consume(self, queue: int, timeout_ms: int, messages: Any, size: int) -> int:
        count = min(size, len(self._messages) - self._next)
        for at in range(count):
            messages[at] = ctypes.addressof(self._messages[self._next + at])
        self._next += count
        return count

    def _timestamp(self, at: int, kind: Any) -> int:
        kind[0], milliseconds = self._sources[self._by_address[at]].timestamp()
        return milliseconds

    def _headers(self, at: int, found: Any) -> int:
        number = self._by_address[at]
        if not self._sources[number].headers():
            return -156  # RD_KAFKA_RESP_ERR__NOENT
        found[0] = number + 1
        return 0

    def _header_at(self, headers: int, index: int, key: Any, value: Any, size: Any) -> int:
        name, data = cast("list[tuple[str, bytes | None]]", self._sources[headers - 1].headers())[index]
        key[0], value[0], size[0] = self._data(name), self._data(data), len(data or b"")
        return 0


def collect(reader: ChunkReader, start: int, until: int) -> Chunk:
    return reader.collect(TP, start, until, most=until - start, wait_s=0.0)


def chunks(kafka: FakeLibrdkafka, columns: tuple[str, ...], start: int = 0, until: int = FAR) -> list[pa.RecordBatch]:
    """Return the batches of a reading, up to the first event or the end of the messages."""
    reader = kafka.reader()
    reader.begin(columns)
    constant = ConstantColumns(TOPIC, PARTITION)
    found = []
    while (chunk := collect(reader, start, until)).records:
        start = chunk.last_offset + 1
        found.append(reader.build(constant))
    reader.close()
    return found


def plain(messages: Sequence[Message], columns: tuple[str, ...], start: int = 0, until: int = FAR) -> pa.Table:
    client = MessageClient({}, cast(Any, ScriptedConsumer(script=messages)))
    client.assign({TP: OffsetRange(Offset(start), Offset(FAR))}, columns)
    batches = []
    while start < until and isinstance(found := client.poll({TP: until}, 0.0), Records):
        start = found.position
        batches += [found.batch] if found.batch is not None else []
    return pa.Table.from_batches(batches, arrow_schema(columns))


some_columns = st.sets(st.sampled_from(COLUMNS), min_size=1).map(lambda names: tuple(c for c in COLUMNS if c in names))


@UNHURRIED
@given(messages=record_lists(), columns=some_columns, max_bytes=st.integers(0, 200), chunk=st.integers(1, 50))
def test_the_rows_are_those_of_the_plain_client(
    messages: list[Message], columns: tuple[str, ...], max_bytes: int, chunk: int
) -> None:
    messages = [m for m in messages if cast(int, m.offset()) < FAR]
    kafka = FakeLibrdkafka(messages)
    with patch.multiple(limits, MAX_BATCH_RECORDS=chunk, MAX_BATCH_BYTES=max_bytes):
        batches = chunks(kafka, columns)
        expected = plain(messages, columns)
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows <= chunk
    assert pa.Table.from_batches(batches, arrow_schema(columns)).equals(expected)
    assert kafka.destroyed == list(range(len(messages)))


@UNHURRIED
@given(messages=record_lists(), until=st.integers(1, 2**63 - 1))
def test_the_end_of_the_range_is_that_of_the_plain_client(messages: list[Message], until: int) -> None:
    batches = chunks(FakeLibrdkafka(messages), ("offset", "value"), 0, until)
    expected = plain(messages, ("offset", "value"), 0, until)
    assert pa.Table.from_batches(batches, expected.schema).equals(expected)


@pytest.mark.parametrize(
    ("message", "follows"),
    [
        (event(KafkaError._PARTITION_EOF, 6), EVENT),
        (record(9), BEYOND),
        (record(3), DISORDER),
        (Message(topic="other", partition=PARTITION, offset=6), FOREIGN),
        (Message(topic=TOPIC, partition=PARTITION + 1, offset=6), FOREIGN),
    ],
    ids=["event", "beyond", "backwards", "other topic", "other partition"],
)
def test_what_ends_the_records_is_told_after_them(message: Message, follows: int) -> None:
    kafka = FakeLibrdkafka([record(4), record(5), message, record(7)])
    reader = kafka.reader()
    reader.begin(("offset",))
    chunk = collect(reader, 4, 8)
    assert (chunk.records, chunk.follows) == (2, follows)
    assert reader.build(ConstantColumns(TOPIC, PARTITION)).column("offset").to_pylist() == [4, 5]
    chunk = collect(reader, 6, 8)
    assert (chunk.records, chunk.follows, chunk.other_offset) == (0, follows, message.offset())
    assert (chunk.other_topic.decode(), chunk.other_partition) == (message.topic(), message.partition())
    if follows == EVENT:
        assert (chunk.error, chunk.error_text) == (KafkaError._PARTITION_EOF, b"reason")
        assert collect(reader, 6, 8).records == 1
    reader.close()
    assert sorted(kafka.destroyed) == [0, 1, 2, 3]


def test_an_empty_queue_is_nothing() -> None:
    reader = FakeLibrdkafka([]).reader()
    reader.begin(("offset",))
    assert (collect(reader, 0, 5).records, collect(reader, 0, 5).follows) == (0, NOTHING)
    reader.close()


def test_what_was_fetched_of_one_partition_can_be_let_go_alone() -> None:
    other = Message(topic=TOPIC, partition=PARTITION + 1, offset=6, timestamp=(TIMESTAMP_CREATE_TIME, 0))
    kafka = FakeLibrdkafka([record(4), other, record(5), other])
    reader = kafka.reader()
    reader.begin(("offset",))
    assert collect(reader, 4, 9).records == 1
    reader.drop(TopicPartition(TOPIC, PARTITION + 1))
    assert kafka.destroyed == [1, 3]
    assert collect(reader, 4, 9).records == 2
    reader.close()


def test_messages_that_were_not_read_are_let_go_with_the_assignment() -> None:
    kafka = FakeLibrdkafka([record(offset) for offset in range(5)])
    reader = kafka.reader()
    reader.begin(("offset",))
    with patch.object(limits, "MAX_BATCH_RECORDS", 2):
        assert collect(reader, 0, 5).records == 5  # the limit from the start of the reading
    reader.drop()
    assert kafka.destroyed == list(range(5))
    reader.close()


def test_timestamps_beyond_sparks_range_become_null_as_in_the_plain_client(caplog: pytest.LogCaptureFixture) -> None:
    limit = (2**63 - 1) // 1000
    times = [limit, limit + 1, -limit, -limit - 1, 0]
    messages = [record(n, timestamp=(TIMESTAMP_CREATE_TIME, time)) for n, time in enumerate(times)]
    with caplog.at_level(logging.WARNING, "pyspark_kafka_group.reading"):
        batches = chunks(FakeLibrdkafka(messages), ("timestamp",))
        assert "orders-7: 2 records from offset 1 on" in caplog.text
    assert pa.Table.from_batches(batches).equals(plain(messages, ("timestamp",)))


def test_a_header_key_that_is_not_utf_8_gets_replacement_characters_as_in_sparks_own_source() -> None:
    kafka = FakeLibrdkafka([record(0, headers=[("key", b"v")])])
    garbled = kafka._data(b"k\xffy")
    with patch.object(kafka, "_data", lambda data: garbled):
        [batch] = chunks(kafka, ("headers",))
    assert batch.column("headers").to_pylist()[0][0]["key"] == "k\ufffdy"


@pytest.mark.logs_errors("FAIL .*Connection refused")
@pytest.mark.parametrize(
    ("switch", "kind"), [("", DirectClient), ("librdkafka", LibrdkafkaClient), ("off", MessageClient)]
)
def test_the_fastest_client_is_the_one_that_is_used(
    switch: str, kind: type[ReaderClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(READER_OVERRIDE, switch)
    librdkafka_client._missing.cache_clear()
    client = open_client(CONFIG)
    assert isinstance(client, kind)
    client.close()
    monkeypatch.undo()
    librdkafka_client._missing.cache_clear()


@pytest.mark.logs_errors("FAIL .*Connection refused")
@pytest.mark.parametrize("reason", ["switch", "library", "function"])
def test_without_it_the_plain_client_is_used_and_that_is_said_once(
    reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(READER_OVERRIDE, "off" if reason == "switch" else "librdkafka")
    if reason == "library":
        monkeypatch.setitem(CHUNKS.__dict__, "_found", "its C library is missing")
    elif reason == "function":
        monkeypatch.setitem(cast(Any, librdkafka_client._SIGNATURES), "rd_kafka_no_such_function", (None, ()))
    librdkafka_client._missing.cache_clear()
    librdkafka_client._say_once.cache_clear()
    try:
        with caplog.at_level(logging.INFO, "pyspark_kafka_group.reading"):
            for _ in range(2):
                client = open_client(CONFIG)
                assert isinstance(client, MessageClient)
                client.close()
        (said,) = [r for r in caplog.records if "slower" in r.getMessage()]
        # A user who has switched it off knows this.
        assert said.levelname == ("INFO" if reason == "switch" else "WARNING")
    finally:
        librdkafka_client._missing.cache_clear()
        librdkafka_client._say_once.cache_clear()


@pytest.mark.logs_errors("FAIL .*Connection refused")
@pytest.mark.parametrize(
    ("origin", "why"),
    [(None, "its C library is missing"), (__file__, "its C library cannot be loaded (")],
    ids=["missing", "unusable"],
)
def test_where_the_library_is_missing_one_warning_tells_the_remedy(
    origin: str | None, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caches = native_library._library, librdkafka_client._missing, librdkafka_client._say_once
    for cached in caches:
        cached.cache_clear()
    for part in (CHUNKS, BATCHES):
        monkeypatch.delitem(part.__dict__, "_found", raising=False)
    monkeypatch.setattr(native_library, "find_spec", lambda _name: SimpleNamespace(origin=origin) if origin else None)
    try:
        for _ in range(2):
            client = open_client(CONFIG)
            assert isinstance(client, MessageClient)
            client.close()
    finally:
        for cached in caches:
            cached.cache_clear()
        for part in (CHUNKS, BATCHES):
            part.__dict__.pop("_found", None)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith(f"Reading through Python objects, which is slower: {why}")
    assert warning.endswith(
        " Install a wheel for this platform, or put a C compiler on the PATH and install again, "
        "with `pip install --force-reinstall --no-deps --no-cache-dir`."
    )


@pytest.mark.logs_errors("FAIL .*Connection refused")
def test_the_client_reports_errors_and_log_lines_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "hunter2-group", "sasl.password": "hunter2"}
    client = LibrdkafkaClient(config)
    with caplog.at_level(logging.INFO, "pyspark_kafka_group.reading"):
        client.assign({TP: OffsetRange(Offset(0), Offset(FAR))}, ("value",))
        for _ in range(100):
            client.poll({TP: 1}, 0.1)
            if client.errors and caplog.records:
                break
    assert KafkaError._TRANSPORT in client.errors
    assert "Connection refused" in caplog.text
    assert "hunter2" not in caplog.text
    client.close()


def test_opening_and_closing_many_clients_leaks_no_threads() -> None:
    script = """
import psutil
from pyspark_kafka_group.reading.librdkafka_client import LibrdkafkaClient
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition

threads = psutil.Process().num_threads
config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
LibrdkafkaClient(config).close()
before = threads()
for _ in range(20):
    client = LibrdkafkaClient(config)
    client.assign({TopicPartition("t", 0): OffsetRange(0, 1)}, ("value",))
    client.poll({TopicPartition("t", 0): 1}, 0.01)
    client.close()
assert threads() < before + 10, (before, threads())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert "%3|" not in run.stderr, "log lines go to the logger, which redacts them"
