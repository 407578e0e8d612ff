"""Skip markers: which ranges of a logged batch a restarted query does not read, because others own them now.

Spark runs a batch of its log again after a crash, and records its end as finished whatever the source reads.  A
range that another member has taken over meanwhile is not read again: the new owner began at the committed offset,
at or below it.  Before such a batch runs the skip must be durable, or a later restart would take the end of the
batch for what the query has finished.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark_kafka_group.offsets.document import BatchOffset
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class SkipMarker:
    """One range of one batch was not read.

    Attributes
    ----------
    range : OffsetRange
        The range, as the batch's end has it.
    rewinds : int
        The number of rewinds of the batch's end.  Marks rise between two rewinds, so this and the range name one
        batch in the whole life of a query.
    """

    range: OffsetRange
    rewinds: int

    @classmethod
    def of(cls, end: BatchOffset, tp: TopicPartition) -> SkipMarker:
        """Return the marker that says that the batch that ends at ``end`` did not read ``tp``."""
        return cls(end.marks[tp].range, end.rewinds)

    def names(self, end: BatchOffset, tp: TopicPartition) -> bool:
        """Tell whether this is the marker of ``tp`` in the batch that ends at ``end``."""
        return tp in end.marks and self == SkipMarker.of(end, tp)

    def encode(self) -> str:
        """Return the metadata of the offset that stores the marker."""
        document = {"v": 1, "r": [self.range.start, self.range.until], "n": self.rewinds}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str | None) -> SkipMarker | None:
        """Read what :meth:`encode` wrote; None for what another program committed."""
        try:
            document = json.loads(text or "")
            start, until = document["r"]
            return cls(OffsetRange(Offset(start), Offset(until)), document["n"]) if document["v"] == 1 else None
        except (ValueError, TypeError, KeyError):
            return None
