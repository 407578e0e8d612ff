"""Ranges read from real Kafka, for cases that the mock cluster does not cover."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from pyspark_kafka_group.columns.limits import MAX_BATCH_BYTES
from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.errors import DataLossError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.kafka import Kafka
from tests.connector.reading.clients import any_client

__all__ = ["any_client"]

pytestmark = pytest.mark.usefixtures("any_client")

PATIENCE_S = 30.0
LARGE = 5 * 1024 * 1024


@pytest.fixture(autouse=True)
def no_consumers_left() -> Iterator[None]:
    yield
    CONSUMERS.close_idle()


def producer(kafka: Kafka, **properties: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in properties.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5, **settings})


def produce(to: Producer, topic: str, values: Sequence[bytes | None], **fields: Any) -> None:
    for value in values:
        to.produce(topic, value, partition=0, **fields)
    assert to.flush(PATIENCE_S) == 0


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def read(
    kafka: Kafka,
    topic: str,
    start: int,
    until: int,
    *,
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
    isolation_level: str = "read_committed",
) -> list[pa.RecordBatch]:
    properties = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": isolation_level}
    columns = COLUMNS if include_headers else DEFAULT_COLUMNS
    options = ReadOptions(columns=columns, fail_on_data_loss=fail_on_data_loss, timeout_s=PATIENCE_S)
    wanted = {TopicPartition(topic, 0): OffsetRange.checked(start, until)}
    return list(read_ranges(reader_config(properties, "etl"), wanted, options))


def column(batches: list[pa.RecordBatch], name: str) -> list[Any]:
    return [value for batch in batches for value in batch.column(name).to_pylist()]


def values(batches: list[pa.RecordBatch]) -> list[Any]:
    return column(batches, "value")


# ------------------------------------------------------------------------------------- transactions


class Transactions:
    """A topic with a series of finished transactions, and the offsets of their records."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka = kafka
        self.topic = topic
        self.committed: dict[int, bytes] = {}
        self.aborted: dict[int, bytes] = {}
        self.end = 0
        self._producer = producer(kafka, transactional_id=f"tx-{self.topic}")
        self._producer.init_transactions(PATIENCE_S)

    def add(self, size: int, *, commit: bool) -> None:
        self.leave_open(size)
        if commit:
            self._producer.commit_transaction(PATIENCE_S)
        else:
            self._producer.abort_transaction(PATIENCE_S)
        where = self.committed if commit else self.aborted
        where.update((offset, b"%d" % offset) for offset in range(self.end, self.end + size))
        self.end += size + 1  # the control record

    def leave_open(self, size: int) -> None:
        self._producer.begin_transaction()
        produce(self._producer, self.topic, numbered(self.end, self.end + size))

    def read(self, start: int, until: int, *, isolation_level: str = "read_committed") -> list[Any]:
        return values(read(self.kafka, self.topic, start, until, isolation_level=isolation_level))


@pytest.fixture(scope="module")
def transactions(kafka: Kafka) -> Iterator[Transactions]:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name)
    log = Transactions(kafka, name)
    for size, commit in [(3, True), (2, False), (2, True), (3, False)]:
        log.add(size, commit=commit)
    yield log
    kafka.delete_topic(name)


def test_only_committed_records_are_read_whatever_the_range(transactions: Transactions) -> None:
    # All ranges: each start and end lies in, before, at or after committed, aborted and control records.
    for start in range(transactions.end):
        for until in range(start + 1, transactions.end + 1):
            expected = [v for offset, v in transactions.committed.items() if start <= offset < until]
            assert transactions.read(start, until) == expected, (start, until)


def test_a_range_of_only_aborted_and_control_records_is_empty(transactions: Transactions) -> None:
    first_aborted, last_aborted = min(transactions.aborted), transactions.end - 1
    assert transactions.read(first_aborted, first_aborted + 3) == []
    assert transactions.read(last_aborted, transactions.end) == []


def test_aborted_records_are_read_under_read_uncommitted(transactions: Transactions) -> None:
    everything = transactions.committed | transactions.aborted
    expected = [everything[offset] for offset in sorted(everything)]
    assert transactions.read(0, transactions.end, isolation_level="read_uncommitted") == expected


def test_a_range_up_to_an_open_transaction_is_read_without_waiting_for_it(kafka: Kafka, topic: TopicFactory) -> None:
    log = Transactions(kafka, topic())
    log.add(3, commit=True)
    log.add(2, commit=False)
    log.leave_open(4)
    asker = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "asker"})
    last_stable = asker.get_watermark_offsets(KafkaPartition(log.topic, 0), timeout=PATIENCE_S)[1]
    asker.close()
    assert last_stable == log.end
    assert log.read(0, last_stable) == [b"0", b"1", b"2"]


# ------------------------------------------------------------------------------------------ records


def test_a_range_behind_the_begin_of_an_open_transaction_waits_for_its_end(
    kafka: Kafka, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: its records counted as lost.  A batch that was planned for read_uncommitted may have one."""
    monkeypatch.setattr(lasting, "SHORTER_S", 1.0)
    log = Transactions(kafka, topic())
    log.add(2, commit=True)
    log.leave_open(3)
    commit = threading.Timer(5, log._producer.commit_transaction)
    commit.start()
    read_from = log.end
    found = read(kafka, log.topic, 0, read_from + 3, fail_on_data_loss=False)
    commit.join()
    assert values(found) == [b"0", b"1", *numbered(read_from, read_from + 3)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_and_a_range_may_split_a_compressed_batch(
    kafka: Kafka, topic: TopicFactory, codec: str
) -> None:
    name = topic()
    produce(producer(kafka, compression_type=codec, linger_ms=100), name, numbered(0, 10_000))
    parts = [(0, 1), (1, 4321), (4321, 4322), (4322, 10_000)]
    for start, until in parts:
        batches = read(kafka, name, start, until)
        assert column(batches, "offset") == list(range(start, until))
        assert values(batches) == numbered(start, until)


def test_keys_values_and_headers_arrive_as_they_were_sent(kafka: Kafka, topic: TopicFactory) -> None:
    name = topic()
    sender = producer(kafka)
    headers = [("trace", b"\x00\xff"), ("trace", None), ("größe", b"")]
    produce(sender, name, [b"v"], key=b"k", headers=headers)
    produce(sender, name, [None], key=b"")
    batches = read(kafka, name, 0, 2, include_headers=True)
    assert column(batches, "key") == [b"k", b""]
    assert values(batches) == [b"v", None]
    assert column(batches, "headers") == [[{"key": key, "value": value} for key, value in headers], None]


@pytest.mark.parametrize(("kind", "spark_id"), [("CreateTime", 0), ("LogAppendTime", 1)])
def test_the_kind_of_timestamp_is_told_as_spark_tells_it(
    kafka: Kafka, topic: TopicFactory, kind: str, spark_id: int
) -> None:
    name = topic(config={"message.timestamp.type": kind, "retention.ms": "-1"})  # so that Kafka keeps the old record
    produce(producer(kafka), name, [b"v"], timestamp=1_700_000_000_123)
    batches = read(kafka, name, 0, 1)
    assert column(batches, "timestampType") == [spark_id]
    sent = 1_700_000_000_123_000
    [arrived] = pc.cast(batches[0].column("timestamp"), pa.int64()).to_pylist()
    assert arrived == sent if kind == "CreateTime" else arrived > sent


def test_large_values_arrive_whole_in_batches_of_bounded_size(kafka: Kafka, topic: TopicFactory) -> None:
    name = topic(config={"max.message.bytes": str(2 * LARGE)})
    large = [os.urandom(LARGE) for _ in range(10)]
    produce(producer(kafka, message_max_bytes=2 * LARGE), name, large)
    batches = read(kafka, name, 0, 10)
    assert max(batch.num_rows for batch in batches) * LARGE <= MAX_BATCH_BYTES
    assert values(batches) == large


# --------------------------------------------------------------------------------------- data loss


@pytest.fixture
def trimmed(kafka: Kafka, topic: TopicFactory) -> str:
    """Return a topic that had the records [0, 100) and now has [40, 100)."""
    name = topic()
    produce(producer(kafka), name, numbered(0, 100))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    [deleted] = admin.delete_records([KafkaPartition(name, 0, 40)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 40
    return name


def test_a_trimmed_start_is_an_error_with_the_exact_range(kafka: Kafka, trimmed: str) -> None:
    with pytest.raises(DataLossError) as loss:
        read(kafka, trimmed, 10, 90)
    assert (loss.value.lost_from, loss.value.lost_until) == (10, 40)
    assert (loss.value.log_start, loss.value.log_end) == (40, 100)


def test_a_trimmed_start_is_passed_over_if_so_asked(
    kafka: Kafka, trimmed: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pyspark_kafka_group.reading"):
        assert values(read(kafka, trimmed, 10, 90, fail_on_data_loss=False)) == numbered(40, 90)
        assert values(read(kafka, trimmed, 10, 30, fail_on_data_loss=False)) == []
    assert f"{trimmed}-0: offsets [10, 40) are gone" in caplog.text
    assert f"{trimmed}-0: offsets [10, 30) are gone" in caplog.text


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_topic_made_anew_with_fewer_records_is_an_error_with_the_exact_range(
    kafka: Kafka, topic: TopicFactory, isolation: str
) -> None:
    name = topic()
    produce(producer(kafka), name, numbered(0, 100))
    assert len(values(read(kafka, name, 0, 100, isolation_level=isolation))) == 100
    kafka.delete_topic(name)
    kafka.create_topic(name, 1)
    produce(producer(kafka), name, numbered(0, 60))
    with pytest.raises(DataLossError) as loss:
        read(kafka, name, 50, 100, isolation_level=isolation)
    assert (loss.value.lost_from, loss.value.lost_until) == (60, 100)
