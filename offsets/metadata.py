"""The metadata string of each committed offset, which Kafka stores beside it.

``{"v": 2, "q": "<query id>", "t": "<topic id>", "n": 6, "l": "1f0c", "s": 100}``: who committed, of which log the
offset is, how many partitions the topic had when the group first started it (see
:mod:`pyspark_kafka_group.offsets.start`), from which start all of this descends, and since which offset nobody else
has committed.  Brokers allow 4096 bytes; this takes some 130.  Version 1 had only ``q`` and ``n``.

Kafka's own tools write none, so an offset without it is somebody's decision, never a commit of this project.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.types import Offset


class CommitNote(NamedTuple):
    """What a commit of this project says of itself.

    Attributes
    ----------
    query_id : str
        Which query committed.
    topic_id : str or None
        The id of the topic (KIP-516) whose log the offset belongs to; None where the broker has no ids.
    first_partitions : int
        How many partitions the topic had when the group first started it.
    since : Offset or None
        Where the query took over: it has committed everything since then, and nobody else has.  Equal to the committed
        offset, the commit is that of a start, with nothing processed yet.
    lineage : str or None
        Names the start that all commits since then go on from: the first one of the group, or the one after somebody
        has reset or deleted the offset.
    """

    query_id: str
    topic_id: str | None
    first_partitions: int
    since: Offset | None
    lineage: str | None = None

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        shared = _shared(self.query_id, self.topic_id, self.first_partitions, self.lineage)
        return f"{shared}}}" if self.since is None else f'{shared},"s":{self.since}}}'

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
        )


@lru_cache(maxsize=1024)
def _shared(query_id: str, topic_id: str | None, first_partitions: int, lineage: str | None) -> str:
    """Return the part that is the same for many partitions, without the brace that ends it: there may be 10,000."""
    document: dict[str, Any] = {"v": 2, "q": query_id}
    if topic_id is not None:
        document["t"] = topic_id
    document["n"] = first_partitions
    if lineage is not None:
        document["l"] = lineage
    return json.dumps(document, separators=(",", ":"))[:-1]


def differ(one: str | None, other: str | None) -> bool:
    """Tell whether two topic ids, or two lineages, differ; what is not known does not."""
    return one is not None and other is not None and one != other
