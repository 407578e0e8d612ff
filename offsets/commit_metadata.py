"""The metadata string of each committed offset, which Kafka stores beside it.

.. code-block:: json

    {"v": 1, "q": "<query id>", "t": "<topic id>", "n": 6, "l": "1f0c", "s": 100, "f": [["<query id>", 100]]}

:class:`CommitNote` describes the fields.  Brokers allow 4096 bytes.  A note takes some 130, and 30 for each former
owner.

Kafka's own tools write no metadata.  So an offset without a note was set by another program.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import Offset

# How many former owners a note names, and how much of their names: each takes room beside every committed offset.
_FORMER = 4
_NAME = 12

ANYBODY = ""
"""Stands for owners whose names have been dropped."""


class Former(NamedTuple):
    """A query, by the beginning of its name, and up to where it has committed."""

    query: str
    until: Offset


class CommitNote(NamedTuple):
    """The note beside an offset that a query of this project has committed.

    Attributes
    ----------
    query_id : str
        Which query committed.
    topic_id : str or None
        The id of the topic (KIP-516) whose log the offset belongs to; None where the broker has no ids.
    initial_partition_count : int
        How many partitions the topic had when the group first started it.
    since : Offset
        Where the query took over from another one.  If it equals the committed offset, the query has processed nothing
        yet.
    lineage : str
        Names the start that the commit descends from: the first one of the group, or the one after a reset.
    former : tuple of Former
        Up to where each query had committed before this one took over, in the order of these offsets.  Only the last
        few have names.
    """

    query_id: str
    topic_id: str | None
    initial_partition_count: int
    since: Offset
    lineage: str
    former: tuple[Former, ...] = ()

    def formerly_committed_by(self, query_id: str) -> Offset:
        """Return up to where a query had committed, or may have, before the query of this note took over."""
        names = (query_id[:_NAME], ANYBODY)
        return max((former.until for former in self.former if former.query in names), default=Offset(0))

    def committed_by(self, query_id: str, committed: Offset) -> Offset | None:
        """Return up to where a query has committed batches, given the offset of this note; None if it is not known."""
        if self.query_id == query_id and committed > self.since:
            return committed
        own = [former.until for former in self.former if former.query == query_id[:_NAME]]
        return min(max(own), committed) if own else None

    def handed_on(self, committed: Offset) -> tuple[Former, ...]:
        """Return the former owners for the notes of another query, which takes over from ``committed``."""
        name = self.query_id[:_NAME]
        # What is above was truncated since.
        former = [Former(f.query, min(f.until, committed)) for f in self.former]
        if committed > self.since:  # else it is that of a start: this query has processed nothing
            former = [*(f for f in former if f.query != name), Former(name, committed)]
        nameless = len(former) - _FORMER
        if nameless > 0:
            former[:nameless] = [Former(ANYBODY, former[nameless - 1].until)]
        return tuple(former)

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        shared = _shared(self.query_id, self.topic_id, self.initial_partition_count, self.lineage)
        return f'{shared},"s":{self.since},"f":{_text(self.former)}}}'

    @classmethod
    def decode(cls, metadata: str | None) -> CommitNote | None:
        """Read what :meth:`encode` wrote; None for what another program committed."""
        if not metadata:
            return None
        try:
            document = json.loads(metadata)
            former = tuple(Former(query, Offset(until)) for query, until in document["f"])
            note = cls(document["q"], document.get("t"), document["n"], Offset(document["s"]), document["l"], former)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        names = (note.query_id, note.topic_id or "", note.lineage, *(f.query for f in former))
        numbers = (note.initial_partition_count, note.since, *(f.until for f in former))
        well = all(isinstance(name, str) for name in names) and all(type(n) is int and n >= 0 for n in numbers)
        return note if well else None


@lru_cache(maxsize=16_384)
def _text(former: tuple[Former, ...]) -> str:
    """Return the JSON array of former owners; they stay the same as long as a partition has the same owner."""
    return json.dumps(former, separators=(",", ":"))


@lru_cache(maxsize=1024)
def _shared(query_id: str, topic_id: str | None, initial_partition_count: int, lineage: str) -> str:
    """Return the part that is the same for many partitions, without the brace that ends it: there may be 10,000."""
    topic = {} if topic_id is None else {"t": topic_id}
    document = {"v": 1, "q": query_id, **topic, "n": initial_partition_count, "l": lineage}
    return json.dumps(document, separators=(",", ":"))[:-1]


def differ(one: str | None, other: str | None) -> bool:
    """Return whether two topic ids differ; one that is not known does not."""
    return one is not None and other is not None and one != other
