"""Topic-partitions and half-open offset ranges."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


def test_topic_partitions_sort_by_topic_then_by_number() -> None:
    shuffled = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert sorted(shuffled) == [TopicPartition("a", 9), TopicPartition("a", 10), TopicPartition("b", 0)]


def test_topic_partition_is_written_as_kafka_does() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_size_of_a_range_is_its_number_of_offsets() -> None:
    assert OffsetRange(Offset(2), Offset(5)).size == 3


def test_empty_range_is_a_range() -> None:
    assert OffsetRange.checked(5, 5).size == 0


def test_range_is_written_half_open() -> None:
    assert str(OffsetRange(Offset(2), Offset(5))) == "[2, 5)"


@pytest.mark.parametrize(("start", "until"), [(3, 2), (-1, 2), (-2, -1)])
def test_range_that_runs_backwards_or_begins_below_zero_is_refused(start: int, until: int) -> None:
    with pytest.raises(ValueError, match=rf"not an offset range: \[{start}, {until}\)"):
        OffsetRange.checked(start, until)
