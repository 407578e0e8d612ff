"""Read ranges from librdkafka's mock cluster: the whole path from the broker to record batches."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.schema import COLUMNS, DEFAULT_COLUMNS, arrow_schema
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.errors import BrokerError, DataLossError, KafkaGroupError, ReadTimeoutError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import MockKafka
from tests.connector.reading.clients import any_client

__all__ = ["any_client"]

pytestmark = pytest.mark.usefixtures("any_client")

FETCH = 1  # the number of the request in Kafka's protocol
PATIENCE_S = 20.0  # ample for a loaded machine; no passing test waits for it

_names = (f"topic-{number}" for number in count())


@pytest.fixture(autouse=True)
def believes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept an end below the range after a moment, because the end of the mock cluster does not rise again."""
    monkeypatch.setattr(lasting, "SHORTER_S", 0.3)


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    with MockKafka() as kafka:
        yield kafka
        CONSUMERS.close_idle()


def filled_topic(kafka: MockKafka, values: Sequence[bytes], *, partition: int = 0, **fields: Any) -> str:
    """Return a new topic of two partitions, with these records in one of them."""
    name = next(_names)
    kafka.create_topic(name, 2)
    produce(kafka, name, values, partition=partition, **fields)
    return name


def produce(kafka: MockKafka, topic: str, values: Sequence[bytes], *, partition: int = 0, **fields: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1})
    for value in values:
        producer.produce(topic, value, partition=partition, **fields)
    assert producer.flush(PATIENCE_S) == 0


def numbered(size: int) -> list[bytes]:
    return [b"%d" % number for number in range(size)]


def read(
    kafka: MockKafka,
    topic: str,
    start: int,
    until: int,
    *,
    partition: int = 0,
    fail_on_data_loss: bool = True,
    timeout_s: float = PATIENCE_S,
) -> Iterator[pa.RecordBatch]:
    config = reader_config({"bootstrap.servers": kafka.bootstrap_servers}, "etl")
    wanted = {TopicPartition(topic, partition): OffsetRange.checked(start, until)}
    options = ReadOptions(columns=COLUMNS, fail_on_data_loss=fail_on_data_loss, timeout_s=timeout_s)
    return read_ranges(config, wanted, options)


def values(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


# ---------------------------------------------------------------------------------- which records


@pytest.mark.parametrize(("start", "until"), [(0, 5000), (0, 1), (4999, 5000), (1234, 3456)])
def test_exactly_the_range_is_read(kafka: MockKafka, start: int, until: int) -> None:
    topic = filled_topic(kafka, numbered(5000))
    assert values(read(kafka, topic, start, until)) == numbered(5000)[start:until]


def test_an_empty_range_asks_no_broker() -> None:
    nowhere = reader_config({"bootstrap.servers": "127.0.0.1:1"}, "etl")
    options = ReadOptions(columns=DEFAULT_COLUMNS, fail_on_data_loss=True, timeout_s=PATIENCE_S)
    assert not list(read_ranges(nowhere, {TopicPartition("t", 0): OffsetRange.checked(5, 5)}, options))


def test_a_range_shorter_than_what_is_there_is_read_without_waiting(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, numbered(3000))
    values(read(kafka, topic, 0, 10))
    began = time.monotonic()
    for start in range(0, 100, 10):
        values(read(kafka, topic, start, start + 10))
    # Ten ranges.  librdkafka's default back-off, or one full consume() timeout, would cost a second for each.
    assert time.monotonic() - began < 5


def test_all_fields_of_a_record_arrive(kafka: MockKafka) -> None:
    topic = filled_topic(
        kafka, [b"v"], partition=1, key=b"k", timestamp=1_700_000_000_123, headers=[("a", b"1"), ("a", None)]
    )
    [batch] = read(kafka, topic, 0, 1, partition=1)
    assert batch.schema.equals(arrow_schema(COLUMNS))
    [row] = batch.set_column(5, "timestamp", batch.column("timestamp").cast(pa.int64())).to_pylist()
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 1_700_000_000_123_000,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    }


def test_batches_are_bounded_in_records(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, numbered(3 * limits.MAX_BATCH_RECORDS))
    sizes = [batch.num_rows for batch in read(kafka, topic, 0, 3 * limits.MAX_BATCH_RECORDS)]
    assert max(sizes) <= limits.MAX_BATCH_RECORDS
    assert sum(sizes) == 3 * limits.MAX_BATCH_RECORDS


def test_batches_are_bounded_in_bytes(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BATCH_BYTES", 100_000)
    topic = filled_topic(kafka, [b"x" * 30_000] * 20)
    batches = list(read(kafka, topic, 0, 20))
    assert sum(batch.num_rows for batch in batches) == 20
    assert max(batch.num_rows for batch in batches) <= 3


# ------------------------------------------------------------------------------------ several ranges


def read_together(
    kafka: MockKafka, ranges: Mapping[TopicPartition, OffsetRange], *, fail_on_data_loss: bool = True
) -> list[pa.RecordBatch]:
    config = reader_config({"bootstrap.servers": kafka.bootstrap_servers}, "etl")
    columns = ("value", "topic", "partition", "offset")
    options = ReadOptions(columns=columns, fail_on_data_loss=fail_on_data_loss, timeout_s=PATIENCE_S)
    return list(read_ranges(config, ranges, options))


def test_ranges_of_several_partitions_and_topics_are_read_together_each_in_order(kafka: MockKafka) -> None:
    topics = [filled_topic(kafka, numbered(3000)) for _ in range(3)]
    for topic in topics:
        produce(kafka, topic, numbered(3000), partition=1)
    ranges = {
        TopicPartition(topic, partition): OffsetRange.checked(100 * number, 100 * number + 7 ** (number + partition))
        for number, topic in enumerate(topics)
        for partition in (0, 1)
    }
    found: dict[TopicPartition, list[int]] = {}
    for batch in read_together(kafka, ranges):
        for row in batch.to_pylist():
            assert row["value"] == b"%d" % row["offset"]
            found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row["offset"])
    assert found == {tp: list(range(*wanted)) for tp, wanted in ranges.items()}


def test_an_empty_range_among_others_is_passed_over(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, numbered(10))
    ranges = {
        TopicPartition("no-such-topic", 0): OffsetRange.checked(3, 3),
        TopicPartition(topic, 0): OffsetRange.checked(2, 4),
    }
    assert values(iter(read_together(kafka, ranges))) == [b"2", b"3"]


def test_what_is_lost_of_one_range_does_not_touch_the_others(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, numbered(100))
    produce(kafka, topic, numbered(100), partition=1)
    kafka.delete_records(topic, 0, 40)
    ranges = {
        TopicPartition(topic, 0): OffsetRange.checked(30, 50),
        TopicPartition(topic, 1): OffsetRange.checked(30, 50),
    }
    with pytest.raises(DataLossError, match=f"{topic}-0"):
        read_together(kafka, ranges)
    batches = read_together(kafka, ranges, fail_on_data_loss=False)
    rows = sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist())
    assert rows == [(0, offset) for offset in range(40, 50)] + [(1, offset) for offset in range(30, 50)]


# --------------------------------------------------------------------------- consumers that are kept


def test_a_kept_consumer_delivers_nothing_of_the_range_before(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, [b"first"] * 1000)
    produce(kafka, topic, [b"second"] * 1000, partition=1)
    other = filled_topic(kafka, [b"other"] * 1000)
    for _ in range(5):
        assert values(read(kafka, topic, 0, 100)) == [b"first"] * 100
        assert values(read(kafka, topic, 0, 100, partition=1)) == [b"second"] * 100
        assert values(read(kafka, other, 500, 600)) == [b"other"] * 100


def test_two_ranges_read_at_once_do_not_mix(kafka: MockKafka) -> None:
    size = 3 * limits.MAX_BATCH_RECORDS
    topic = filled_topic(kafka, [b"first"] * size)
    produce(kafka, topic, [b"second"] * size, partition=1)
    pairs = list(zip(read(kafka, topic, 0, size), read(kafka, topic, 0, size, partition=1), strict=False))
    assert pairs
    for first, second in pairs:
        assert set(first.column("value").to_pylist()) == {b"first"}
        assert set(second.column("value").to_pylist()) == {b"second"}


def test_reading_that_is_ended_early_leaves_the_next_range_exact(kafka: MockKafka) -> None:
    size = 2 * limits.MAX_BATCH_RECORDS
    topic = filled_topic(kafka, numbered(size))
    batches = cast(Any, read(kafka, topic, 0, size))
    next(batches)
    batches.close()
    assert values(read(kafka, topic, 0, size)) == numbered(size)


def test_a_forked_child_reads_with_a_consumer_of_its_own(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, numbered(100))
    script = """
import os, sys
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.task_reader import read_ranges

def records():
    config = reader_config({"bootstrap.servers": sys.argv[1]}, "etl")
    options = ReadOptions(columns=("value",), fail_on_data_loss=True, timeout_s=20)
    wanted = {TopicPartition(sys.argv[2], 0): OffsetRange.checked(0, 100)}
    return sum(batch.num_rows for batch in read_ranges(config, wanted, options))

assert records() == 100
child = os.fork()
if child == 0:
    os._exit(0 if records() == 100 else 1)
assert os.waitpid(child, 0)[1] == 0
assert records() == 100
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, kafka.bootstrap_servers, topic]
    subprocess.run(command, check=True, timeout=60)


# --------------------------------------------------------------------------------------- data loss


@pytest.mark.parametrize(("start", "lost_from"), [(60, 100), (100, 100), (120, 120)])
def test_a_range_beyond_the_log_is_an_error_or_read_as_far_as_it_goes(
    kafka: MockKafka, start: int, lost_from: int
) -> None:
    topic = filled_topic(kafka, numbered(100))
    with pytest.raises(DataLossError) as loss:
        values(read(kafka, topic, start, 150))
    assert (loss.value.lost_from, loss.value.lost_until) == (lost_from, 150)
    assert values(read(kafka, topic, start, 150, fail_on_data_loss=False)) == numbered(100)[start:]


# --------------------------------------------------------------------------------- brokers in trouble


def test_transient_errors_of_the_broker_are_retried(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, numbered(100))
    kafka.push_errors(FETCH, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.KAFKA_STORAGE_ERROR)
    assert values(read(kafka, topic, 0, 100)) == numbered(100)


@pytest.mark.logs_errors(r"FAIL .*(reset|refused|Disconnected)")
def test_a_broker_that_comes_back_in_time_is_not_noticed(kafka: MockKafka) -> None:
    size = 2 * limits.MAX_BATCH_RECORDS
    topic = filled_topic(kafka, numbered(size))
    batches = read(kafka, topic, 0, size)
    first = next(batches)
    kafka.restart(1)
    assert first.column("value").to_pylist() + values(batches) == numbered(size)


@pytest.mark.logs_errors("FAIL .*refused")
def test_a_broker_that_stays_away_is_a_named_error_within_the_timeout() -> None:
    with MockKafka() as kafka:
        topic = filled_topic(kafka, numbered(100))
        kafka.kill(1)
        began = time.monotonic()
        with pytest.raises(ReadTimeoutError) as timeout:
            values(read(kafka, topic, 30, 100, timeout_s=1.5))
        assert 1.5 <= time.monotonic() - began < PATIENCE_S
    assert (timeout.value.topic, timeout.value.position, timeout.value.until) == (topic, 30, 100)
    assert "kafkaConsumer.pollTimeoutMs" in str(timeout.value)
    assert timeout.value.last_error


def test_a_corrupt_answer_is_an_error(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, numbered(100))
    kafka.push_errors(FETCH, KafkaError.INVALID_MSG)
    with pytest.raises(BrokerError, match="INVALID_MSG"):
        values(read(kafka, topic, 0, 100))


def test_a_failed_read_leaves_no_consumer_behind(kafka: MockKafka) -> None:
    topic = filled_topic(kafka, numbered(100))
    CONSUMERS.close_idle()
    with pytest.raises(KafkaGroupError):
        values(read(kafka, topic, 0, 200))
    assert not CONSUMERS._idle
