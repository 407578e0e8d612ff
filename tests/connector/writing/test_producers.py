"""Both producers write the rows to librdkafka's mock cluster, and report those that they could not write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.errors import AuthenticationError, ColumnError, DeliveryError, OptionError
from pyspark_kafka_group.testing import MockKafka
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.writing import producer_cache
from pyspark_kafka_group.writing.direct_producer import DirectProducer
from pyspark_kafka_group.writing.producer import MessageProducer, SinkProducer
from pyspark_kafka_group.writing.producer_cache import lease, open_producer
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.producer_requests import ProducerRequests
from pyspark_kafka_group.writing.record_rows import RecordColumns, each, record_rows
from tests.connector.writing.murmur2 import MURMUR2

PARTITIONS = 7
PRODUCE, ADD_PARTITIONS_TO_TXN = 0, 24
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS = RecordColumns(key=0, value=1, topic=2, partition=3, headers=4)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)
Kind = Callable[[Mapping[str, str]], SinkProducer]
KINDS: list[Kind] = [DirectProducer, MessageProducer]


@pytest.fixture(scope="module")
def mock() -> Iterator[MockKafka]:
    with MockKafka() as cluster:
        yield cluster


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def producer_of(mock: MockKafka, kind: Kind) -> Iterator[Callable[..., SinkProducer]]:
    """Return a function that makes a producer with these properties, which is closed after the test."""
    with ExitStack() as made:

        def make(transactional_id: str = "", **more: str) -> SinkProducer:
            of_transaction = {"transactional.id": transactional_id} if transactional_id else {}
            return made.enter_context(closing(kind({**config(mock, **more), **of_transaction})))

        yield make


@pytest.fixture
def topic(mock: MockKafka, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    mock.create_topic(name, PARTITIONS)
    return name


def config(mock: MockKafka, **more: str) -> dict[str, str]:
    return producer_config({"bootstrap.servers": mock.bootstrap_servers, **more})


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def write(producer: SinkProducer, found: pa.RecordBatch, topic: str | None = None) -> None:
    producer.send(record_rows(found, COLUMNS, topic))
    producer.flush()


def read(mock: MockKafka, topic: str, since: Mapping[int, int] | None = None) -> list[tuple[Any, ...]]:
    consumer = Consumer({"bootstrap.servers": mock.bootstrap_servers, "group.id": "g", "enable.partition.eof": True})
    starts = since or {}
    consumer.assign([TopicPartition(topic, number, starts.get(number, 0)) for number in range(PARTITIONS)])
    ended, found = 0, []
    while ended < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append((message.partition(), message.key(), message.value(), message.headers()))
    consumer.close()
    return sorted(found, key=repr)


def test_the_direct_one_is_the_default_here(mock: MockKafka) -> None:
    with closing(open_producer(config(mock))) as producer:
        assert isinstance(producer, DirectProducer)


def test_every_kind_of_row_arrives(mock: MockKafka, producer_of: Callable[..., SinkProducer], topic: str) -> None:
    rows = [
        (b"k", "v", topic, 3, None),
        (b"", "", topic, 3, []),
        (None, None, topic, 3, [{"key": "a", "value": b"1"}, {"key": "", "value": None}]),
        (b"\0\xff", "ü", topic, 3, [{"key": "ä", "value": b""}]),
        (b"twice", "v", topic, 4, [{"key": key, "value": key.encode()} for key in "bab"]),
        *((key, "placed", topic, None, None) for key in MURMUR2),
    ]
    # A slice, so that the columns begin within their buffers.
    write(producer_of(), batch([rows[0], *rows, rows[0]]).slice(1, len(rows)))
    expected = [
        (3, b"k", b"v", None),
        (3, b"", b"", None),
        (3, None, None, [("a", b"1"), ("", None)]),
        (3, b"\0\xff", "ü".encode(), [("ä", b"")]),
        (4, b"twice", b"v", [("b", b"b"), ("a", b"a"), ("b", b"b")]),
        *(((value & 0x7FFFFFFF) % PARTITIONS, key, b"placed", None) for key, value in MURMUR2.items()),
    ]
    assert read(mock, topic) == sorted(expected, key=repr)


def test_more_than_the_producer_holds_waits_for_room(
    mock: MockKafka, producer_of: Callable[..., SinkProducer], topic: str
) -> None:
    write(producer_of(**{"buffer.memory": "16384"}), batch([(None, "x" * 1500, topic, 0, None)] * 300))
    assert len(read(mock, topic)) == 300


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_both_write_the_same(mock: MockKafka, topic: str, data: st.DataObject) -> None:
    header = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
    key, text = st.binary(max_size=5), st.none() | st.text(max_size=5)
    headers = st.none() | st.lists(header, max_size=3)
    place = st.integers(0, PARTITIONS - 1)
    row = st.tuples(st.none() | key, text, st.just(topic), place, headers) | st.tuples(
        key, text, st.just(topic), st.none(), headers
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=30))
    start = data.draw(st.integers(0, len(rows) - 1))
    written = []
    for kind in KINDS:
        before = ends(mock, topic)
        producer = kind(config(mock))
        write(producer, batch(rows).slice(start))
        producer.close()
        written.append(read(mock, topic, before))
    assert written[0] == written[1]
    assert len(written[0]) == len(rows) - start


def ends(mock: MockKafka, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": mock.bootstrap_servers, "group.id": "g"})
    found = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in range(PARTITIONS)}
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("row", "code", "remedy"),
    [
        ((None, "v", None, PARTITIONS, None), "_UNKNOWN_PARTITION", "Correct the column partition"),
        ((None, "v" * 1_100_000, None, 0, None), "MSG_SIZE_TOO_LARGE", "raise them, or write smaller values"),
    ],
)
def test_what_cannot_be_written_names_topic_error_and_remedy(
    producer_of: Callable[..., SinkProducer], topic: str, row: tuple[Any, ...], code: str, remedy: str
) -> None:
    with pytest.raises(DeliveryError) as raised:
        write(producer_of(), batch([row]), topic)
    assert (raised.value.topic, raised.value.code) == (topic, code)
    assert remedy in str(raised.value)


def test_a_record_that_never_fits_is_told_and_not_waited_for(
    producer_of: Callable[..., SinkProducer], topic: str
) -> None:
    small, large = (None, "x" * 10_000, None, 0, None), (None, "x" * 20_000, None, 1, None)
    with pytest.raises(DeliveryError, match=r"MSG_SIZE_TOO_LARGE.*kafka\.buffer\.memory") as raised:
        write(producer_of(**{"buffer.memory": "16384"}), batch([small] * 5 + [large]), topic)
    assert (raised.value.topic, raised.value.partition) == (topic, 1)


@pytest.mark.logs_errors("Topic authorization failed|old epoch|fenced")
@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthenticationError,
         "Grant the user of this query WRITE and DESCRIBE on the topic"),
        (KafkaError.INVALID_PRODUCER_EPOCH, DeliveryError,
         "(_FENCED|INVALID_PRODUCER_EPOCH).*Another attempt of this task has begun"),
    ],
    ids=["refused", "fenced"],
)  # fmt: skip
def test_a_failed_transaction_says_why(
    mock: MockKafka, producer_of: Callable[..., SinkProducer], topic: str, code: int, error: type[Exception], text: str
) -> None:
    """Its records fail because the transaction was aborted, but this error does not help users."""
    producer = producer_of(topic)
    producer.begin_transaction()
    mock.push_errors(ADD_PARTITIONS_TO_TXN, code)
    for _ in range(2):
        with pytest.raises(error, match=text):
            write(producer, batch([(None, "v", None, 0, None)]), topic)


@pytest.mark.logs_errors("127.0.0.1:1")
def test_an_unreachable_cluster_is_told_in_bounded_time(kind: Kind) -> None:
    producer = kind(producer_config({"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": "300"}))
    with pytest.raises(DeliveryError, match=r"Check kafka\.bootstrap\.servers"):
        write(producer, batch([(None, "v", None, None, None)]), "t")
    producer.close()


@pytest.mark.parametrize(("key", "value"), [("linger.mx", "1"), ("batch.size", "many"), ("acks", "1001")])
def test_a_property_that_librdkafka_refuses_is_named(key: str, value: str) -> None:
    with pytest.raises(OptionError, match=rf"'kafka\.{key}'"):
        open_producer(producer_config({"bootstrap.servers": "b", key: value}))


@pytest.mark.parametrize(
    ("row", "column", "problem"),
    [
        ((None, "v", None, None, None), "topic", "the data contains a null topic"),
        ((None, "v", "", None, None), "topic", "a row has an empty topic"),
        ((None, "v", "t\0u", None, None), "topic", "a row has a topic with a zero byte in its name"),
        ((None, "v", "t", -1, None), "partition", "-1 is not the number of a partition"),
        ((None, "v", "t", 1, [None]), "headers", "a header is null, or has no key"),
        ((None, "v", "t", 1, [{"key": None, "value": b""}]), "headers", "a header is null, or has no key"),
    ],
)
def test_rows_that_are_no_records_are_refused(row: tuple[Any, ...], column: str, problem: str) -> None:
    with pytest.raises(ColumnError, match=problem) as raised:
        record_rows(batch([(None, "v", "t", 1, None), row]), COLUMNS, None)
    assert raised.value.column == column


@pytest.mark.parametrize(("key", "problem"), [(b"a\0b", "zero byte"), (b"\xff", "not valid UTF-8")])
def test_a_header_that_librdkafka_would_change_is_refused(key: bytes, problem: str) -> None:
    """Regression: it cut the key off at the zero byte.  The direct producer writes any key."""
    entries = pa.StructArray.from_arrays(
        [pa.array([key]).view(pa.string()), pa.array([b"1"])], fields=[*HEADERS.value_type]
    )
    given = pa.record_batch({"value": pa.array([b"v"]), "headers": pa.ListArray.from_arrays([0, 1], entries)})
    rows = record_rows(given, RecordColumns(value=0, headers=1), "t")
    with pytest.raises(ColumnError, match=problem):
        list(each(rows))


def test_a_topic_that_is_no_text_is_refused() -> None:
    given = pa.record_batch({"topic": pa.array([b"t\xff"]).view(pa.string()), "value": pa.array([b"v"])})
    with pytest.raises(ColumnError, match="a topic that is not valid UTF-8"):
        record_rows(given, RecordColumns(value=1, topic=0), None)


def test_an_error_that_is_over_is_not_named_later(mock: MockKafka, topic: str) -> None:
    with closing(MessageProducer(config(mock))) as producer:
        producer._note(KafkaError(KafkaError._TRANSPORT))
        write(producer, batch([(None, "v", topic, None, None)]))
        assert producer._last_error == ""


def test_an_idle_producer_gives_the_memory_of_its_batches_back(mock: MockKafka, topic: str) -> None:
    """Regression: the last batches of each kept producer stayed in memory until its next task."""
    with closing(DirectProducer(config(mock))) as producer:
        write(producer, batch([(None, "v", topic, number, None) for number in range(PARTITIONS)]))
        assert not producer._writer._memory.dropped


@pytest.mark.parametrize("told", [{}, {"retention.ms": "1"}, {"max.message.bytes": None}])
def test_a_system_that_does_not_tell_the_largest_batch(told: dict[str, Any]) -> None:
    """Regression: each write ended with a KeyError, if it told other settings."""
    requests: Any = object.__new__(ProducerRequests)
    requests._settings = SimpleNamespace(answer_s=1.0)
    requests._connections = SimpleNamespace(ask_any=lambda *_: {"t": told, "u": {"max.message.bytes": "7"}})
    assert requests.batch_limits(["t", "u"]) == {"u": 7}


def test_a_column_of_topics_may_be_a_dictionary() -> None:
    """Its indices may have another width than those of the C code."""
    topics = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], pa.uint16()), pa.array(["a", "unused", "c"]))
    given = pa.record_batch({"topic": topics, "value": pa.array([b"1", b"2", b"3"])})
    rows = record_rows(given, RecordColumns(value=1, topic=0), None)
    assert rows.topic is not None
    assert [rows.topics[number] for number in rows.topic.to_pylist()] == ["c", "a", "c"]
    assert len(rows.topics) == 2


def test_large_types_are_taken_too() -> None:
    rows = record_rows(pa.record_batch({"value": pa.array(["a"], pa.large_string())}), RecordColumns(value=0), "t")
    assert rows.value.to_pylist() == [b"a"]


def test_producers_of_the_process_that_forked_this_one_are_left_alone(
    mock: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some have threads, which do not exist in this process.  Closing one of them would never end."""
    idle = {(0, frozenset({("client.id", str(n))})): (None, Deadline.after(0)) for n in range(9)}
    monkeypatch.setattr(producer_cache, "_idle", idle)
    with lease(config(mock)) as mine:
        pass
    assert [producer for producer, _ in idle.values()] == [None] * 9 + [mine]
    mine.close()


def test_a_producer_whose_tokens_only_a_task_renews_is_closed_with_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The direct producer needs a token only to connect."""
    closed: list[bool] = []
    made = MessageProducer.__new__(MessageProducer)
    monkeypatch.setattr(made, "close", lambda: closed.append(True))
    monkeypatch.setattr(producer_cache, "open_producer", lambda _: made)
    monkeypatch.setattr(producer_cache, "_idle", {})
    with lease({"sasl.oauthbearer.provider": "google"}) as mine:
        assert mine is made
        assert not closed
    assert closed
    assert producer_cache._idle == {}


def test_a_producer_is_kept_for_the_next_task_unless_it_failed(mock: MockKafka) -> None:
    with lease(config(mock)) as first:
        pass
    with lease(config(mock)) as again:
        assert again is first
    with pytest.raises(ZeroDivisionError), lease(config(mock)):
        raise ZeroDivisionError
    with lease(config(mock)) as other:
        assert other is not first
    with lease(config(mock, **{"linger.ms": "1"})) as different:
        assert different is not other
