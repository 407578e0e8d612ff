"""When readers fetch directly, and which client reads if they cannot."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError

from pyspark_kafka_group.columns import native_library
from pyspark_kafka_group.columns.chunk_reader import CHUNKS
from pyspark_kafka_group.columns.native_library import READER_OVERRIDE
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading import client_cache
from pyspark_kafka_group.reading.answer_time import AnswerTime
from pyspark_kafka_group.reading.client_cache import open_client
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.fetcher import Failed, Fetcher, FetchRange
from pyspark_kafka_group.reading.message_client import MessageClient
from pyspark_kafka_group.reading.reader_client import ReaderClient, ReaderEvent, Records
from pyspark_kafka_group.reading.reader_config import direct_settings, reader_config
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.leaders import Replica
from pyspark_kafka_group.wire.messages import FETCH
from pyspark_kafka_group.wire.types import Address, StoppedLoginError
from tests.connector.reading.clients import need_native_library
from tests.connector.reading.test_read_ranges import filled_topic, numbered, produce


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    need_native_library()
    with MockKafka() as kafka:
        yield kafka


@pytest.fixture
def client(kafka: MockKafka) -> Iterator[DirectClient]:
    client = open_client(reader_config({"bootstrap.servers": kafka.bootstrap_servers}, "etl"))
    yield cast(DirectClient, client)
    client.close()


def read(client: ReaderClient, *tps: TopicPartition, start: int = 0, until: int) -> list[bytes]:
    """Read these ranges together, and return all values."""
    found: list[bytes] = []
    ends = dict.fromkeys(tps, until)
    client.assign({tp: OffsetRange(Offset(start), Offset(until)) for tp in tps}, ("value",))
    while ends:
        records = client.poll(ends, 0.1)
        if records is None:
            continue
        assert isinstance(records, Records), records
        if records.batch is not None:
            found += records.batch.column("value").to_pylist()
        if records.position >= until:
            del ends[records.tp]
            if ends:
                client.unassign(records.tp)
    client.unassign_all()
    return found


def fetches_itself(client: DirectClient) -> bool:
    return bool(client._fetchers._by_address) and client._fallback is None


@pytest.mark.parametrize("ahead_kbytes", [1, 100])
def test_little_room_for_what_is_fetched_ahead_slows_reading_and_loses_nothing(
    kafka: MockKafka, ahead_kbytes: int
) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap_servers, "fetch.message.max.bytes": "1000"}
    client = open_client(reader_config({**properties, "queued.max.messages.kbytes": str(ahead_kbytes)}, "etl"))
    topic = filled_topic(kafka, numbered(3000))
    produce(kafka, topic, numbered(3000), partition=1)
    both = read(client, TopicPartition(topic, 0), TopicPartition(topic, 1), until=3000)
    assert sorted(both) == sorted(2 * numbered(3000))
    assert fetches_itself(cast(DirectClient, client))
    client.close()


@pytest.mark.parametrize("error", [KafkaError.UNKNOWN, KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION])
def test_an_error_that_passes_is_told_and_retried(kafka: MockKafka, client: DirectClient, error: int) -> None:
    """Regression: librdkafka read for 30 s."""
    tp = TopicPartition(filled_topic(kafka, numbered(100)), 0)
    kafka.push_errors(FETCH, error)
    client.assign({tp: OffsetRange(Offset(0), Offset(100))}, ("value",))
    while (found := client.poll({tp: 100}, 0.1)) is None:
        pass
    assert isinstance(found, ReaderEvent)
    assert (found.tp, found.error.code()) == (tp, error)
    client.unassign_all()
    assert read(client, tp, until=100) == numbered(100)
    assert fetches_itself(client)


def test_a_connection_that_broke_between_two_readings_is_made_anew(kafka: MockKafka, client: DirectClient) -> None:
    tp = TopicPartition(filled_topic(kafka, numbered(100)), 0)
    assert read(client, tp, until=100) == numbered(100)
    (address,) = client._fetchers._by_address
    client._fetchers._delivered.put(Failed(address, ConnectionError("broken")))
    client.unassign_all()
    assert read(client, tp, until=100) == numbered(100)
    assert fetches_itself(client)


@pytest.mark.parametrize(("written", "checks"), [("true", True), ("1", True), ("False", False), ("0", False)])
def test_checksums_are_checked_unless_that_is_turned_off(written: str, checks: bool) -> None:
    config = reader_config({"bootstrap.servers": "127.0.0.1:1", "check.crcs": written}, "g")
    client = DirectClient(config, direct_settings(config), lambda: pytest.fail("not now"))
    assert client._settings.check_crcs is checks
    client.close()


@pytest.mark.logs_errors("FAIL .*Connection refused")
@pytest.mark.parametrize(
    ("reason", "level", "text"),
    [
        ("switch", "INFO", "KAFKA_GROUP_ACCELERATOR is off"),
        ("library", "WARNING", "its C library is missing"),
    ],
)
def test_without_the_library_the_other_client_reads_and_that_is_told_once(
    reason: str, level: str, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if reason == "switch":
        monkeypatch.setenv(READER_OVERRIDE, "off")
    else:
        monkeypatch.setitem(CHUNKS.__dict__, "_found", "its C library is missing")
    client_cache._say_once.cache_clear()
    with caplog.at_level("INFO", "pyspark_kafka_group.reading"):
        for _ in range(2):
            client = open_client(reader_config({"bootstrap.servers": "127.0.0.1:1"}, "g"))
            assert isinstance(client, MessageClient)
            client.close()
    client_cache._say_once.cache_clear()
    (told,) = [line for line in caplog.records if "slower" in line.getMessage()]
    assert (told.levelname, told.getMessage()) == (level, f"Reading through Python objects, which is slower: {text}.")


@pytest.mark.parametrize(("origin", "why"), [(None, "is missing"), (__file__, "cannot be loaded (")])
def test_where_the_library_is_missing_the_warning_tells_the_remedy(
    origin: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "find_spec", lambda _name: SimpleNamespace(origin=origin) if origin else None)
    found = native_library._library.__wrapped__()
    assert isinstance(found, str)
    assert found.startswith(f"its C library {why}")
    assert found.endswith("with `pip install --force-reinstall --no-deps --no-cache-dir`")


def test_a_fetcher_that_is_closed_while_its_login_is_renewed_asks_nothing_more() -> None:
    renewing, go_on = threading.Event(), threading.Event()
    made: list[MagicMock] = []
    delivered: list[object] = []

    def connect(_address: Address, **_more: object) -> BrokerConnection:
        made.append(MagicMock(good_until=Deadline.after(0)))
        if len(made) == 2:
            renewing.set()
            go_on.wait(20)
        return cast(BrokerConnection, made[-1])

    settings = direct_settings(reader_config({"bootstrap.servers": "127.0.0.1:1"}, "g"))
    assert settings is not None
    library, at = cast(ctypes.CDLL, None), Address("b", 1)
    fetcher = Fetcher(library, at, connect, settings.fetch, delivered.append, answer_time=AnswerTime(60))
    fetcher.add([FetchRange(TopicPartition("t", 0), 0, 10)])
    assert renewing.wait(20)
    closing = threading.Thread(target=fetcher.close)
    closing.start()
    closing.join(5)
    assert not closing.is_alive(), "Regression: it waited for the login, which may take as long as late answers"
    go_on.set()
    fetcher._thread.join(20)
    assert [(connection.request.called, connection.close.called) for connection in made] == [(False, True)] * 2
    assert delivered == []


def test_a_fetcher_that_is_closed_just_before_it_connects_does_not_connect() -> None:
    """Regression: closing waited for the whole login."""
    about_to, closed, connected = threading.Event(), threading.Event(), threading.Event()

    class Slow(AnswerTime):
        @contextlib.contextmanager
        def wait(self) -> Iterator[float]:
            about_to.set()
            assert closed.wait(20)
            yield 60.0

    def connect(_address: Address, **_more: object) -> BrokerConnection:
        connected.set()
        time.sleep(20)
        raise ConnectionError

    settings = direct_settings(reader_config({"bootstrap.servers": "127.0.0.1:1"}, "g"))
    library, at, delivered = cast(ctypes.CDLL, None), Address("b", 1), list[object]()
    fetcher = Fetcher(library, at, connect, settings.fetch, delivered.append, answer_time=Slow(60))
    fetcher.add([FetchRange(TopicPartition("t", 0), 0, 10)])
    assert about_to.wait(20)
    closing = threading.Thread(target=fetcher.close)
    closing.start()
    while not fetcher._closed:
        time.sleep(0.01)
    closed.set()
    closing.join(5)
    assert not closing.is_alive()
    assert (connected.is_set(), delivered) == (False, [])


def test_a_login_that_was_stopped_is_an_error_at_once(
    kafka: MockKafka, client: DirectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would reveal the password.  librdkafka would complete it."""
    tp = TopicPartition(filled_topic(kafka, numbered(10)), 0)
    connect = MagicMock(side_effect=StoppedLoginError("too few iterations"))
    monkeypatch.setattr(client._fetchers, "_connect", connect)
    monkeypatch.setattr(client._questions, "connect", connect)
    with pytest.raises(AuthenticationError, match="too few"):
        read(client, tp, until=10)  # during the search for the leader
    client._leaders.known[tp] = Replica(Address("127.0.0.1", 1), Deadline.after(60))
    client.unassign_all()
    with pytest.raises(AuthenticationError, match="too few"):
        read(client, tp, until=10)  # during the fetch
    assert client._fallback is None


def test_a_worker_that_reads_directly_does_not_load_librdkafka(kafka: MockKafka) -> None:
    """Loading librdkafka takes 30 ms in each new worker, and pandas 0.3 s."""
    topic = filled_topic(kafka, numbered(100))
    script = """
import sys
from pyspark_kafka_group.columns.schema import COLUMNS
from pyspark_kafka_group.reading.reader_config import direct_settings, reader_config
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.task_reader import read_ranges

config = reader_config({"bootstrap.servers": sys.argv[1]}, "etl")
options = ReadOptions(columns=COLUMNS, fail_on_data_loss=True, timeout_s=20)
wanted = {TopicPartition(sys.argv[2], 0): OffsetRange.checked(0, 100)}
assert sum(batch.num_rows for batch in read_ranges(config, wanted, options)) == 100
assert "confluent_kafka" not in sys.modules
assert "pandas" not in sys.modules
"""
    command = [sys.executable, "-c", script, kafka.bootstrap_servers, topic]
    subprocess.run(command, check=True, timeout=60)
