"""The partition of the offsets topic that holds a group.  Java has computed the hashes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.tools.analysis import offsets_topic
from pyspark_kafka_group.tools.analysis.offsets_topic import (
    OffsetsTopicHeldBackError,
    group_partition,
    java_hash,
    read_group,
)
from tests.tools.analysis import records


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", 0),
        ("orders-etl", 772761269),
        ("grüße😀", 428562490),  # two UTF-16 code units for one character
        ("nobody", -1040220445),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_the_hash_is_that_of_java(text: str, found: int) -> None:
    assert java_hash(text) == found


@pytest.mark.parametrize(
    ("group", "count", "partition"),
    [
        ("orders-etl", 50, 19),
        ("nobody", 4, 1),
        ("polygenelubricants", 50, 0),  # 32 bits cannot hold its absolute value, so Kafka takes 0
        ("anything", 1, 0),
    ],
)
def test_the_partition_of_a_group(group: str, count: int, partition: int) -> None:
    assert group_partition(group, count) == partition


class FakeReader:
    """A consumer of one partition with 5 offsets.  Each poll takes the next answer; after the last one it is silent."""

    def __init__(self, *polls: list[Any]) -> None:
        self.polls = [*polls]

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, part: object, cached: bool) -> tuple[int, int]:
        assert cached, "the other way would give the last stable offset"
        del part
        return 0, 5

    def assign(self, parts: object) -> None:
        del parts

    def consume(self, count: int, timeout: float) -> list[Any]:
        del count, timeout
        return self.polls.pop(0) if self.polls else []

    def close(self) -> None:
        pass


def failed(error: int, offset: int = -1) -> Any:
    return SimpleNamespace(error=lambda: KafkaError(error), offset=lambda: offset)


def stable_end(offset: int) -> Any:
    return failed(KafkaError._PARTITION_EOF, offset)


def committed(offset: int) -> Any:
    """Return the record of a commit."""
    return SimpleNamespace(
        error=lambda: None,
        offset=lambda: offset,
        key=records.offset_key,
        value=lambda: records.offset_value(7),
        timestamp=lambda: (1, 1000),
    )


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return a function that reads the log of ``etl``, given the answers, and returns the offsets of its records."""
    found: list[int] = []

    def read(*polls: list[Any]) -> list[int]:
        found.clear()
        monkeypatch.setattr(offsets_topic, "_consumer", lambda _: FakeReader(*polls))
        found.extend(logged.log_offset for logged in read_group({}, "etl"))
        return found

    return read


def test_repeated_errors_do_not_count_as_answers(
    monkeypatch: pytest.MonkeyPatch, reads: Callable[..., list[int]]
) -> None:
    """Regression: each of them began the wait anew, so ``history`` could wait for ever."""
    monkeypatch.setattr(offsets_topic, "_SILENCE_S", 0.0)
    with pytest.raises(TryAgainError, match="__consumer_offsets-0: nothing came for 0 s"):
        reads(*[[failed(KafkaError._TRANSPORT)]] * 100)


def test_an_open_transaction_is_waited_for(reads: Callable[..., list[int]]) -> None:
    """Regression: reading ended where it began, so ``rewinds`` found nothing, and ``describe`` said OK."""
    assert reads([committed(0), stable_end(1)], [], [committed(1), committed(3), stable_end(5)]) == [0, 1, 3]
    assert reads([committed(0), stable_end(1)], [committed(2), committed(4)]) == [0, 2, 4]


def test_a_transaction_that_stays_open_is_an_error(
    monkeypatch: pytest.MonkeyPatch, reads: Callable[..., list[int]]
) -> None:
    monkeypatch.setattr(offsets_topic, "_OPEN_S", 0.0)
    held_back = "has held back __consumer_offsets-0 since offset 3, .* --start-offset 3 --topic __consumer_offsets"
    with pytest.raises(OffsetsTopicHeldBackError, match=held_back):
        reads([committed(0), committed(1), stable_end(3)])


def test_a_log_without_newer_records_has_an_end(reads: Callable[..., list[int]]) -> None:
    assert reads([stable_end(5)]) == []
    assert reads([committed(4)]) == [4]
    assert reads([committed(3), committed(5)]) == [3], "a record that came after the first call"
