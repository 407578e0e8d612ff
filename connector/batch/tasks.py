"""What each task of a batch read reads: slices of partitions, whose ends are found when it reads.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.offsets.range_bounds import Span
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


class Slice(NamedTuple):
    """A part of what is read of one partition.

    Attributes
    ----------
    span : Span
        All that is read of the partition.
    low, high : Offset or None
        From where and up to where (exclusive) the slice reaches; None where it reaches to the end of the span, wherever
        that is when the slice is read.
    """

    span: Span
    low: Offset | None = None
    high: Offset | None = None

    def within(self, whole: OffsetRange) -> OffsetRange:
        """Return what the slice reads, if the span is now ``whole``."""
        start = whole.start if self.low is None else max(whole.start, self.low)
        until = whole.until if self.high is None else min(whole.until, self.high)
        return OffsetRange(start, max(start, until))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTask:
    """What one task reads.

    Attributes
    ----------
    slices : dict of TopicPartition to Slice
        One of each of some partitions.
    known : dict of str to int, or None
        How many partitions each topic had when the read was planned: this task reads those that were added since, too.
        None for all tasks but one, and where the partitions are named.
    """

    slices: dict[TopicPartition, Slice]
    known: dict[str, int] | None = None


def slice_of(span: Span, whole: OffsetRange, part: OffsetRange) -> Slice:
    """Return the slice for a part of a range.

    Parameters
    ----------
    span : Span
        What is read of the partition.
    whole : OffsetRange
        What that was when it was cut.
    part : OffsetRange
        A piece of it.  The first and the last piece reach as far as the span does when it is read.
    """
    return Slice(
        span,
        None if part.start == whole.start else part.start,
        None if part.until == whole.until else part.until,
    )


def added(known: Mapping[str, int], counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions that are new: of topics that have more of them now, and of new topics."""
    return [TopicPartition(topic, n) for topic, count in counts.items() for n in range(known.get(topic, 0), count)]
