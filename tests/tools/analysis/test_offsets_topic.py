"""The partition of the offsets topic that holds a group.  Java has computed the hashes."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.tools.analysis.offsets_topic import group_partition, java_hash


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
