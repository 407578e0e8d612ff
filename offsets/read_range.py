"""The range of one partition in a running batch, as the source process gives it to an offset table."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafka_group.offsets.types import Offset


class ReadRange(NamedTuple):
    """The range of one partition that a batch reads, and what the group has finished before it.

    Attributes
    ----------
    start, until : Offset
        The batch reads ``[start, until)``.
    finished : Offset
        The group has finished everything below this offset.  A store of offsets must have at least this one.
    begun : bool
        Whether a query of the group has certainly finished records of the partition before this batch.  If not, the
        partition may have no stored offset yet.
    topic_id : str or None
        The id of the topic; None if unknown.
    group_id : str or None
        The consumer group that the query reads for; None if there is none, or it is unknown.
    """

    start: Offset
    until: Offset
    finished: Offset
    begun: bool
    topic_id: str | None = None
    group_id: str | None = None
