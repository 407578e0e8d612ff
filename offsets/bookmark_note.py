"""The metadata of an offset that a bookmark has committed.

``{"v": 1, "bookmark": {"t": "<topic id>", "n": 6, "e": 4}}``: the topic id, the number of partitions of the topic, and
the leader epoch.  A commit that never expires has no field for the epoch.

A bookmark commits all partitions at once.  So a partition below ``n`` without an offset has lost it, and any other
partition was added later.

It is not a :class:`~pyspark_kafka_group.offsets.commit_metadata.CommitNote`.  A query treats such an offset as an
operator's decision, like an offset without metadata.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from pyspark_kafka_group.offsets.notes import document_of


class BookmarkNote(NamedTuple):
    """The note of an offset that a bookmark has committed.

    Attributes
    ----------
    topic_id : str or None
        The id of the topic (KIP-516) whose log the offset belongs to; None if the broker has no ids.
    partition_count : int
        The number of partitions of the topic.
    leader_epoch : int or None
        The epoch of the leader when the range was planned; None if unknown.  No record before the offset has a later
        one.
    """

    topic_id: str | None
    partition_count: int
    leader_epoch: int | None = None

    def encode(self) -> str:
        """Return the metadata for one committed offset."""
        document = {"v": 1, "bookmark": {"t": self.topic_id, "n": self.partition_count, "e": self.leader_epoch}}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def decode(cls, metadata: str | None) -> BookmarkNote | None:
        """Read what :meth:`encode` wrote; None for everything else.  Raises as :func:`document_of` does."""
        document = document_of(metadata, "bookmark") or {}
        found = document.get("bookmark")
        if not isinstance(found, dict) or type(found.get("n")) is not int:
            return None
        topic_id, epoch = found.get("t"), found.get("e")
        return cls(topic_id if isinstance(topic_id, str) else None, found["n"], epoch if type(epoch) is int else None)
