"""Slices of partitions, whose outer ends move with the log."""

from __future__ import annotations

from pyspark_kafka_group.batch.tasks import added, slice_of
from pyspark_kafka_group.offsets.range_bounds import Span
from pyspark_kafka_group.offsets.start_inputs import StartingOffset
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

SPAN = Span(StartingOffset.EARLIEST, StartingOffset.LATEST)


def r(start: int, until: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(until))


def test_a_partition_that_is_not_cut_moves_with_the_log() -> None:
    whole = slice_of(SPAN, r(0, 9), r(0, 9))
    assert whole.within(r(5, 30)) == r(5, 30)


def test_pieces_always_make_up_the_whole() -> None:
    pieces = [slice_of(SPAN, r(0, 9), part) for part in (r(0, 3), r(3, 6), r(6, 9))]
    assert [piece.within(r(0, 9)) for piece in pieces] == [r(0, 3), r(3, 6), r(6, 9)]
    assert [piece.within(r(0, 20)) for piece in pieces] == [r(0, 3), r(3, 6), r(6, 20)]
    # Records were deleted meanwhile: nobody asks for them.
    later = [piece.within(r(5, 20)) for piece in pieces]
    assert [piece.size for piece in later] == [0, 1, 14]
    assert later[1:] == [r(5, 6), r(6, 20)]
    # The log was truncated.
    assert sum(piece.within(r(0, 2)).size for piece in pieces) == 2


def test_added_partitions_and_topics() -> None:
    assert added({"a": 2}, {"a": 3, "b": 1}) == [TopicPartition("a", 2), TopicPartition("b", 0)]
    assert added({"a": 2}, {"a": 2}) == []
