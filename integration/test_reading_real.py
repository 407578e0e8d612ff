"""Ranges read from real Kafka, for cases that the mock cluster does not cover."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS
from pyspark_kafka_group.offsets import lasting
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
    monkeypatch.setattr(lasting, "SHORTER_S", 0.5)
    log = Transactions(kafka, topic())
    log.add(2, commit=True)
    log.leave_open(3)
    commit = threading.Timer(2, log._producer.commit_transaction)
    commit.start()
    read_from = log.end
    found = read(kafka, log.topic, 0, read_from + 3, fail_on_data_loss=False)
    commit.join()
    assert values(found) == [b"0", b"1", *numbered(read_from, read_from + 3)]


@pytest.mark.parametrize("any_client", ["direct"], indirect=True)
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


def test_the_time_of_the_broker_is_told_as_spark_tells_it(kafka: Kafka, topic: TopicFactory) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    produce(producer(kafka), name, [b"v"], timestamp=1_700_000_000_123)
    batches = read(kafka, name, 0, 1)
    assert column(batches, "timestampType") == [1]
    [arrived] = pc.cast(batches[0].column("timestamp"), pa.int64()).to_pylist()
    assert arrived > 1_700_000_000_123_000


# --------------------------------------------------------------------------------------- data loss
