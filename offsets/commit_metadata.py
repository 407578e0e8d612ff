"""The metadata string of each committed offset, which Kafka stores beside it.

``{"v": 2, "q": "<query id>", "t": "<topic id>", "n": 6, "l": "1f0c", "s": 100, "f": [["<query id>", 100]]}``: who
committed, of which log the offset is, how many partitions the topic had when the group first started it (see
:mod:`pyspark_kafka_group.offsets.start_position`), from which start all of this descends, since which offset nobody
else has committed, and who had before.  Brokers allow 4096 bytes; this takes some 130, and 30 for each former owner.
Version 1 had only ``q`` and ``n``.

Kafka's own tools write none, so an offset without it is somebody's decision, never a commit of this project.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.types import Offset

# How many former owners a note names, and how much of their names: each takes room beside every committed offset.
_FORMER = 4
_NAME = 12

ANYBODY = ""
"""Stands for owners whose names are not known any more."""


class Former(NamedTuple):
    """A query, by the beginning of its name, and up to where it has committed."""

    query: str
    until: Offset


class CommitNote(NamedTuple):
    """What a commit of this project says of itself.

    Attributes
    ----------
    query_id : str
        Which query committed.
    topic_id : str or None
        The id of the topic (KIP-516) whose log the offset belongs to; None where the broker has no ids.
    initial_partition_count : int
        How many partitions the topic had when the group first started it.
    since : Offset or None
        Where the query took over: it has committed everything since then, and nobody else has.  Equal to the committed
        offset, the commit is that of a start, with nothing processed yet.
    lineage : str or None
        Names the start that all commits since then go on from: the first one of the group, or the one after somebody
        has reset or deleted the offset.
    former : tuple of Former or None
        Up to where each query had committed before this one took over, in the order of these offsets; None if an older
        version committed.  Only the last few have names.
    """

    query_id: str
    topic_id: str | None
    initial_partition_count: int
    since: Offset | None
    lineage: str | None = None
    former: tuple[Former, ...] | None = None

    def formerly_committed_by(self, query_id: str) -> Offset:
        """Return up to where a query had committed, or may have, before the query of this note took over."""
        names = (query_id[:_NAME], ANYBODY)
        return max((former.until for former in self.owners_before if former.query in names), default=Offset(0))

    def committed_by(self, query_id: str, committed: Offset) -> Offset | None:
        """Return up to where a query has committed batches, given the offset of this note; None if it is not known."""
        if self.query_id == query_id and self.since is not None and committed > self.since:
            return committed
        own = [former.until for former in self.owners_before if former.query == query_id[:_NAME]]
        return min(max(own), committed) if own else None

    def handed_on(self, committed: Offset) -> tuple[Former, ...]:
        """Return the former owners for the notes of another query, which takes over from ``committed``."""
        if self.since is None:  # version 1, which told nothing of former owners
            return (Former(ANYBODY, committed),)
        name = self.query_id[:_NAME]
        # What is above was truncated since.
        former = [Former(f.query, min(f.until, committed)) for f in self.owners_before]
        if committed > self.since:  # else it is that of a start: this query has processed nothing
            former = [*(f for f in former if f.query != name), Former(name, committed)]
        nameless = len(former) - _FORMER
        if nameless > 0:
            former[:nameless] = [Former(ANYBODY, former[nameless - 1].until)]
        return tuple(former)

    @property
    def owners_before(self) -> tuple[Former, ...]:
        """What is known of the former owners; of a note of an older version, nothing but where they ended."""
        if self.former is not None:
            return self.former
        return (Former(ANYBODY, self.since),) if self.since else ()

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        text = _shared(self.query_id, self.topic_id, self.initial_partition_count, self.lineage)
        if self.since is not None:
            text = f'{text},"s":{self.since}'
        if self.former is not None:
            text = f'{text},"f":{_text(self.former)}'
        return f"{text}}}"

    @classmethod
    def decode(cls, metadata: str | None) -> CommitNote | None:
        """Read what :meth:`encode` wrote, in this version or an older one; None for what another program committed."""
        if not metadata:
            return None
        try:
            document = json.loads(metadata)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        query_id, count = document.get("q"), document.get("n")
        topic_id, since, lineage = document.get("t"), document.get("s"), document.get("l")
        if not isinstance(query_id, str) or type(count) is not int:
            return None
        return cls(
            query_id,
            topic_id if isinstance(topic_id, str) else None,
            count,
            Offset(since) if type(since) is int and since >= 0 else None,
            lineage if isinstance(lineage, str) else None,
            _decoded(document.get("f")),
        )


def _decoded(former: Any) -> tuple[Former, ...] | None:
    try:
        found = [(query, until) for query, until in former]
    except (TypeError, ValueError):
        return None
    well = all(isinstance(query, str) and type(until) is int and until >= 0 for query, until in found)
    return tuple(Former(query, Offset(until)) for query, until in found) if well else None


@lru_cache(maxsize=16_384)
def _text(former: tuple[Former, ...]) -> str:
    """Return the JSON array of former owners; they stay the same as long as a partition has the same owner."""
    return json.dumps(former, separators=(",", ":"))


@lru_cache(maxsize=1024)
def _shared(query_id: str, topic_id: str | None, initial_partition_count: int, lineage: str | None) -> str:
    """Return the part that is the same for many partitions, without the brace that ends it: there may be 10,000."""
    document: dict[str, Any] = {"v": 2, "q": query_id}
    if topic_id is not None:
        document["t"] = topic_id
    document["n"] = initial_partition_count
    if lineage is not None:
        document["l"] = lineage
    return json.dumps(document, separators=(",", ":"))[:-1]


def differ(one: str | None, other: str | None) -> bool:
    """Tell whether two topic ids, or two lineages, differ; what is not known does not."""
    return one is not None and other is not None and one != other
