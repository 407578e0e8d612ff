"""Topic-partitions and half-open offset ranges."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition


def test_partitions_and_ranges_are_written_as_kafka_and_mathematics_do() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    found = OffsetRange.checked(2, 5)
    assert (str(found), found.size, OffsetRange.checked(5, 5).size) == ("[2, 5)", 3, 0)


@pytest.mark.parametrize(("start", "until"), [(3, 2), (-1, 2), (-2, -1), (0, 2**63)])
def test_what_is_no_range_of_a_log_is_refused(start: int, until: int) -> None:
    with pytest.raises(ValueError, match=rf"not an offset range: \[{start}, {until}\)"):
        OffsetRange.checked(start, until)
