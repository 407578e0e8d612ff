"""The metadata string of each committed offset, which Kafka stores beside it.

.. code-block:: json

    {"v": 1, "q": "<query id>", "t": "<topic id>", "c": "<cluster id>", "n": 6, "l": "1f0c", "s": 100,
     "f": [["<query id>", 100]]}

and ``"i": true`` after a reset that was intended.  :class:`CommitNote` describes the fields.  Brokers allow 4096 bytes.
A note takes some 160, and 30 for each former owner.

Kafka's own tools write no metadata.  So an offset without a note was set by another program.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.types import LARGEST_OFFSET, Offset

# How many former owners a note names, besides ANYBODY, and how many characters of their ids.  Each takes room in every
# commit.
_FORMER = 4
_NAME = 12

# The longest lineage, and name of a former owner, in characters, each of which may take twelve bytes.
_LONGEST_NAME = 40

ANYBODY = ""
"""The name of former owners whose names have been dropped."""

OUTSIDE = "-"
"""The name of another program, or of a user who has set the offset: no query of this project."""


def new_lineage() -> str:
    """Return a new name for a start, which sorts behind the names of earlier starts."""
    return f"{time.time_ns() // 1_000_000:011x}{uuid.uuid4().hex[:3]}"


class Former(NamedTuple):
    """A query, by the beginning of its id, and the end of what it has committed."""

    query: str
    until: Offset


class CommitNote(NamedTuple):
    """The note of an offset that a query of this project has committed.

    An example: the queries A and B are members of one group, and read a partition one after the other.  Each row is a
    commit.

    =========  =================================================  =====  =====  ========================
    committed  what has happened                                  query  since  former
    =========  =================================================  =====  =====  ========================
    0          A starts the partition, and has read nothing yet   A      0      none
    100        A has read the offsets 0 to 99                     A      0      none
    100        B gets the partition, and has read nothing yet     B      100    A until 100
    160        B has read the offsets 100 to 159                  B      100    A until 100
    160        A gets it back, and has read nothing yet           A      160    A until 100, B until 160
    =========  =================================================  =====  =====  ========================

    All of them have the lineage of the first start.  After a reset, the next start has a new one.  If A restarts after
    the fourth row, its checkpoint ends at 100, below the committed 160.  The note says that this is no rewind: A has
    committed until 100, and B the rest.

    Attributes
    ----------
    query_id : str
        The query that committed.
    topic_id : str or None
        The id of the topic (KIP-516) whose log the offset belongs to; None if the broker has no ids.
    initial_partition_count : int
        The number of partitions that the topic had when the group first started it.
    since : Offset
        The offset at which the query took over from another one.  If it equals the committed offset, the query has
        processed nothing yet.
    lineage : str
        The name of the start that the commit descends from: the first one of the group, or the one after a reset.  See
        :func:`new_lineage`.
    former : tuple of Former
        The queries that committed before this one took over, in the order of their offsets.  Only the last few have
        names.
    intended : bool
        Whether the lineage begins with a reset that was intended.  Queries that have finished more under an earlier
        one accept it, whatever their ``onOffsetRewind``.
    cluster_id : str or None
        The id of the cluster; None if the brokers have none.  MirrorMaker copies notes to other clusters.
    """

    query_id: str
    topic_id: str | None
    initial_partition_count: int
    since: Offset
    lineage: str
    former: tuple[Former, ...] = ()
    intended: bool = False
    cluster_id: str | None = None

    def formerly_committed_by(self, query_id: str) -> Offset:
        """Return the offset that a query had committed, or may have, before the query of this note took over."""
        names = (query_id[:_NAME], ANYBODY)
        return max((former.until for former in self.former if former.query in names), default=Offset(0))

    @property
    def decided(self) -> Offset:
        """The end of what no query is known to have committed, such as an offset that a user has set."""
        return max((former.until for former in self.former if former.query in (ANYBODY, OUTSIDE)), default=Offset(0))

    def committed_by(self, query_id: str, committed: Offset) -> Offset | None:
        """Return the end of a query's committed batches, given the offset of this note; None if unknown."""
        if self.query_id == query_id and committed > self.since:
            return committed
        own = [former.until for former in self.former if former.query == query_id[:_NAME]]
        return min(max(own), committed) if own else None

    def handed_on(self, committed: Offset) -> tuple[Former, ...]:
        """Return the former owners for the notes of another query, which takes over at ``committed``."""
        name = self.query_id[:_NAME]
        # Offsets above were truncated meanwhile.
        former = [Former(f.query, min(f.until, committed)) for f in self.former]
        if committed > self.since:  # otherwise this query has only committed its start
            former = [*(f for f in former if f.query != name), Former(name, committed)]
        nameless = len(former) - _FORMER
        if nameless > 0:
            former[:nameless] = [Former(ANYBODY, former[nameless - 1].until)]
        return tuple(former)

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        ids = self.query_id, self.topic_id, self.cluster_id
        shared = _shared(ids, self.initial_partition_count, self.lineage, self.intended)
        return f'{shared},"s":{self.since},"f":{_text(self.former)}}}'

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CommitNote:
        """Return the note of a document; an error of its types for one that is damaged."""
        former = tuple(Former(query, Offset(until)) for query, until in document["f"])
        since, intended = Offset(document["s"]), document.get("i") is True
        topic_id, cluster_id = document.get("t"), document.get("c")
        note = cls(document["q"], topic_id, document["n"], since, document["l"], former, intended, cluster_id)
        names = (note.query_id, topic_id or "", cluster_id or "", note.lineage, *(f.query for f in former))
        numbers = (note.initial_partition_count, note.since, *(f.until for f in former))
        if not (
            all(isinstance(name, str) for name in names)
            and all(type(n) is int and 0 <= n <= LARGEST_OFFSET for n in numbers)
        ):
            raise TypeError
        # Deliberate: other notes inherit these, and brokers limit their size.
        if len(former) > _FORMER + 1 or max(map(len, (note.lineage, *(f.query for f in former)))) > _LONGEST_NAME:
            raise ValueError
        return note


@lru_cache(maxsize=16_384)
def _text(former: tuple[Former, ...]) -> str:
    """Return the JSON array of former owners, which stays the same while the owner stays the same."""
    return json.dumps(former, separators=(",", ":"))


@lru_cache(maxsize=1024)
def _shared(ids: tuple[str, str | None, str | None], initial_partition_count: int, lineage: str, intended: bool) -> str:
    """Return the part that is the same for many partitions, up to 10,000, without its closing brace."""
    known = {key: value for key, value in zip("qtc", ids, strict=True) if value is not None}
    document: dict[str, Any] = {"v": 1, **known, "n": initial_partition_count, "l": lineage}
    if intended:
        document["i"] = True
    return json.dumps(document, separators=(",", ":"))[:-1]


def differ(one: str | None, other: str | None) -> bool:
    """Return whether two ids of topics, or of clusters, differ; an unknown one does not."""
    return one is not None and other is not None and one != other
