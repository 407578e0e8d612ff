"""What a running batch reads of one partition, as the source process tells whoever keeps offsets beside the rows."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_kafka_group.offsets.types import Offset


class ReadRange(NamedTuple):
    """What a batch reads of one partition, and what the group has finished of it before.

    Attributes
    ----------
    start, until : Offset
        The batch reads ``[start, until)``.
    finished : Offset
        The group has finished everything below, so whoever keeps offsets must have at least this one.
    begun : bool
        Whether a query of the group has certainly finished records of the partition before this batch.  If not, the
        partition may have no stored offset yet.
    topic_id : str or None
        The id of the topic; None if it is not known.
    """

    start: Offset
    until: Offset
    finished: Offset
    begun: bool
    topic_id: str | None = None
