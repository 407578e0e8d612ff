"""Which offsets the next batch reads.  Pure: positions and log ends in, ranges out."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition

Plannable = Mapping[TopicPartition, tuple[OwnershipEpoch, Offset]]
"""Epoch and position of each partition that may be read."""

Plan = dict[TopicPartition, tuple[OwnershipEpoch, OffsetRange]]


def plan(plannable: Plannable, ends: Mapping[TopicPartition, Offset], limit: int | None) -> Plan:
    """Return the range to read of each partition that has something to read.

    Parameters
    ----------
    plannable : mapping
        Epoch and position of each partition that may be read.
    ends : mapping of TopicPartition to Offset
        Where to stop reading (exclusive).  A partition without an end is left for the next batch, and an end
        below the position, as a new leader may report for a moment, counts as nothing new.
    limit : int or None
        About how many offsets to read at most, shared in proportion to the backlogs.  As in Spark's own source
        a share below one is rounded up, so that no partition starves beside a large one, and the sum may
        exceed the limit by less than the number of partitions.
    """
    backlog = {
        tp: OffsetRange(position, ends[tp])
        for tp, (_, position) in plannable.items()
        if tp in ends and ends[tp] > position
    }
    total = sum(map(len, backlog.values()))
    if limit is not None and total > limit:
        for tp, r in backlog.items():
            share = limit * len(r) / total
            size = math.ceil(share) if share < 1 else math.floor(share)
            backlog[tp] = OffsetRange(r.start, Offset(r.start + size))
    return {tp: (plannable[tp][0], r) for tp, r in backlog.items()}
