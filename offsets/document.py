"""The offset that Spark logs for each batch: one canonical JSON, format version 1.

.. code-block:: json

    {"version": 1, "query": "6f2c...", "topics": {"orders": {"0": [100, 250, 100], "1": [7, 7, null]}}}

For each partition ``[from, until, seen]``: the batch reads ``[from, until)``; partitions that the batch
does not read stay as ``[x, x]`` and are the query's own *marks*, what it has finished, also while another
member owns them.  ``seen`` is the highest offset that this query has seen committed by the group, ``null``
if it has never seen one.

Spark compares offsets as text and stores the text as it is, so equal offsets must have equal text: topics
are sorted, partitions are in numeric order, and nothing volatile is in it.  The offset describes itself:
planning a batch needs only its end, which matters because Spark calls ``partitions`` of a logged batch
before anything else after a restart, and never stores the result of ``initialOffset``.

Marks rise, except where the query has to go back: a replayed batch skipped what another member owns, the
group's offset was rewound, or the log is another one.  ``"rewinds": n`` then counts how often, so that an
offset never has the text of an earlier one; without it the number is 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

FORMAT_VERSION = 1

# The end of the batch that runs, and that of the one before: Spark says that it is finished when the next is planned.
_KNOWN = 2


class Mark(NamedTuple):
    """What one offset says of one partition.

    Attributes
    ----------
    range : OffsetRange
        What the batch reads; empty for a partition it does not read.  ``range.until`` is the mark.
    seen : Offset or None
        Highest offset this query has seen committed.
    """

    range: OffsetRange
    seen: Offset | None


@dataclass(frozen=True, slots=True)
class BatchOffset:
    """The end offset of one batch.

    Attributes
    ----------
    query_id : str or None
        Names the query for its whole life; None only in :data:`INITIAL`, before batch 0.
    marks : mapping of TopicPartition to Mark
        Every partition this query has ever planned or resolved.
    rewinds : int
        How often a mark of this query has gone back.
    """

    query_id: str | None
    marks: Mapping[TopicPartition, Mark] = field(default_factory=dict)
    rewinds: int = 0

    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """Return what the batch reads: the ranges that are not empty."""
        return {tp: mark.range for tp, mark in self.marks.items() if len(mark.range)}

    def to_json(self) -> dict[str, Any]:
        """Return the canonical JSON object; equal offsets give equal text."""
        topics: dict[str, dict[str, list[int | None]]] = {}
        for tp in sorted(self.marks):
            mark = self.marks[tp]
            entry: list[int | None] = [mark.range.start, mark.range.until, mark.seen]
            topics.setdefault(tp.topic, {})[str(tp.partition)] = entry
        rewinds = {"rewinds": self.rewinds} if self.rewinds else {}
        return {"version": FORMAT_VERSION, "query": self.query_id, **rewinds, "topics": topics}

    @classmethod
    def from_json(cls, document: Any) -> BatchOffset:
        """Read an offset that Spark has given back.

        Raises
        ------
        OffsetFormatError
            If the offset was not written by this source, or by a newer format version.
        """
        if not isinstance(document, dict) or "version" not in document:
            raise OffsetFormatError("it was not written by the kafka-group source.")
        if document["version"] != FORMAT_VERSION:
            raise OffsetFormatError(f"its format version is {document['version']!r}, not {FORMAT_VERSION}.")
        try:
            marks = {
                TopicPartition(topic, _partition(number)): _mark(entry)
                for topic, partitions in document["topics"].items()
                for number, entry in partitions.items()
            }
            return cls(_query_id(document["query"]), marks, _count(document.get("rewinds", 0)))
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise OffsetFormatError(f"it is malformed ({problem}).") from problem


class OffsetTexts:
    """Turns offsets into JSON and back, and knows the last ones again.

    Spark gives each offset back several times for each batch, and many times a second while there is nothing to read.
    To compare two documents takes a tenth of the time of reading one.
    """

    def __init__(self) -> None:
        self._known: deque[tuple[dict[str, Any], BatchOffset]] = deque(maxlen=_KNOWN)

    def write(self, offset: BatchOffset) -> dict[str, Any]:
        """Return the canonical JSON object of ``offset``; it must not be changed."""
        for document, known in self._known:
            if known is offset:
                return document
        document = offset.to_json()
        self._known.append((document, offset))
        return document

    def read(self, document: Any) -> BatchOffset:
        """Read an offset that Spark has given back; of a known one the very object is returned.

        Raises
        ------
        OffsetFormatError
            See :meth:`BatchOffset.from_json`.
        """
        for known, offset in self._known:
            if known == document:
                return offset
        offset = BatchOffset.from_json(document)
        self._known.append((document, offset))
        return offset


def _query_id(value: Any) -> str | None:
    if not isinstance(value, str | None):
        raise TypeError(f"{value!r} is not a query id")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a count")
    return value


def _partition(number: str) -> int:
    partition = int(number)
    if partition < 0 or number != str(partition):
        raise ValueError(f"{number!r} is not a partition number")
    return partition


def _mark(entry: Any) -> Mark:
    start, until, seen = entry
    # bool is an int to Python, and a float compares like one: neither is an offset.
    if type(start) is not int or type(until) is not int or type(seen) not in (int, type(None)):
        raise TypeError(f"{entry!r} is not [from, until, seen]")
    return Mark(OffsetRange(Offset(start), Offset(until)), seen)


INITIAL = BatchOffset(query_id=None)
"""What ``initialOffset`` returns: the same in every process, because Spark never stores it."""
