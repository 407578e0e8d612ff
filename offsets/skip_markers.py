"""Skip markers: the ranges of a logged batch that a restarted query does not read, because others own them now.

After a crash, Spark runs the last batch of its log again, and records its end as finished whatever the source reads.
The query does not read a range again that another member has taken over meanwhile: the new owner began at the
committed offset, at or below the range.  The skip must be durable before the batch runs.  Otherwise a later restart
would take the end of the batch for what the query has finished.

A restart needs the markers of two batches: the last one that Spark has finished, and the next one, which it runs
again.  Both may have left the same partition to others, so a partition keeps up to two markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class SkipMarker:
    """One range of one batch that was not read.

    Attributes
    ----------
    range : OffsetRange
        The range, as the batch's end has it.
    rewinds : int
        The number of rewinds in the end of the batch.  Processed offsets rise between two rewinds.  So this number
        and the range identify one batch in the whole life of a query.
    """

    range: OffsetRange
    rewinds: int

    @classmethod
    def of(cls, end: BatchOffset, tp: TopicPartition) -> SkipMarker:
        """Return the marker that says that the batch that ends at ``end`` did not read ``tp``."""
        return cls(end.entries[tp].range, end.rewinds)


Markers = Mapping[TopicPartition, tuple[SkipMarker, ...]]
"""The markers of each topic-partition that was skipped."""


def is_marked(markers: Markers, end: BatchOffset, tp: TopicPartition) -> bool:
    """Return whether ``markers`` say that the batch that ends at ``end`` did not read ``tp``."""
    return tp in markers and tp in end.entries and SkipMarker.of(end, tp) in markers[tp]


def with_skips(markers: Markers, finished: BatchOffset, end: BatchOffset, skipped: Iterable[TopicPartition]) -> Markers:
    """Return the markers of ``skipped`` for the batch that ends at ``end`` and does not read them.

    Parameters
    ----------
    markers : Markers
        The markers that are durable now.
    finished : BatchOffset
        The end of the last batch that Spark has finished.  Older batches need no markers.
    end : BatchOffset
        The end of the batch that runs again.
    skipped : iterable of TopicPartition
        The partitions that it does not read.
    """
    return {
        tp: (
            *((SkipMarker.of(finished, tp),) if is_marked(markers, finished, tp) else ()),
            SkipMarker.of(end, tp),
        )
        for tp in skipped
    }
