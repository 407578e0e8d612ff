"""The partition of the offsets topic that holds a group.  Java has computed the hashes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.tools.analysis import offsets_topic
from pyspark_kafka_group.tools.analysis.offsets_topic import group_partition, java_hash, read_group


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


class Unreachable:
    """A consumer whose broker goes away after the first answers: librdkafka reports this again and again."""

    polls = 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, part: object, timeout: float) -> tuple[int, int]:
        del part, timeout
        return 0, 5

    def assign(self, parts: object) -> None:
        del parts

    def consume(self, count: int, timeout: float) -> list[Any]:
        del count, timeout
        self.polls += 1
        assert self.polls < 100, "it waits for ever"
        return [SimpleNamespace(error=lambda: KafkaError(KafkaError._TRANSPORT))]

    def close(self) -> None:
        pass


def test_repeated_errors_do_not_count_as_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each of them began the wait anew, so ``history`` could wait for ever."""
    monkeypatch.setattr(offsets_topic, "_SILENCE_S", 0.0)
    monkeypatch.setattr(offsets_topic, "_consumer", lambda _: Unreachable())
    with pytest.raises(TryAgainError, match="__consumer_offsets-0: nothing came for 0 s"):
        [*read_group({}, "etl")]
