"""Which offsets the next batch reads.  Pure: positions and log ends in, ranges out."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark_kafka_group.coordinator.handover.inputs import PlannedRange
from pyspark_kafka_group.coordinator.handover.state import Position
from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, TopicPartition

Plannable = Mapping[TopicPartition, Position]
"""The position of each partition that may be read."""

PlannedRanges = dict[TopicPartition, PlannedRange]

LeaderEpochs = Mapping[TopicPartition, LeaderEpoch]
"""That of the leader of each partition; without those that are not known."""


def recreated_topics(plannable: Plannable, topic_ids: Mapping[str, str]) -> set[str]:
    """Return the topics that were deleted and created again since their partitions got their positions.

    Parameters
    ----------
    plannable : mapping
        The position of each partition that may be read, and of which log it is.
    topic_ids : mapping of str to str
        The topics' ids now; without those that are not known.
    """
    return {tp.topic for tp, position in plannable.items() if differ(position.topic_id, topic_ids.get(tp.topic))}


def to_validate(
    plannable: Plannable, ends: Mapping[TopicPartition, Offset], leader_epochs: LeaderEpochs
) -> dict[TopicPartition, LeaderEpoch]:
    """Return the partitions that have another leader than the one which had everything below their position.

    What they know may have been truncated, and has to be compared with where the log ends for the leader epoch that is
    returned (KIP-320).  So has what is about to be read where it is not known which leader has told the end.
    """
    found = {}
    for tp, (_, offset, leader_epoch, _) in plannable.items():
        if leader_epoch is None:
            continue
        now = leader_epochs.get(tp)
        if now > leader_epoch if now is not None else ends.get(tp, offset) > offset:
            found[tp] = leader_epoch
    return found


def under_old_leaders(plannable: Plannable, leader_epochs: LeaderEpochs) -> set[TopicPartition]:
    """Return the partitions whose log end was told under an older leader than one that is known.

    Either it does not know yet that it was replaced, or this is another log, which has begun to count anew.
    """
    return {
        tp
        for tp, position in plannable.items()
        if position.leader_epoch is not None and leader_epochs.get(tp, position.leader_epoch) < position.leader_epoch
    }


def truncated(
    plannable: Plannable, ends: Mapping[TopicPartition, Offset], epoch_ends: Mapping[TopicPartition, Offset]
) -> set[TopicPartition]:
    """Return the partitions whose log, or the part of it that their leader epoch had, ends below their position.

    Parameters
    ----------
    plannable : mapping
        The position of each partition that may be read.
    ends : mapping of TopicPartition to Offset
        Log ends, as far as they are known.
    epoch_ends : mapping of TopicPartition to Offset
        Where the log ends for the leader epoch of the position, as far as it was asked for.
    """
    return {
        tp
        for tp, (_, offset, _, _) in plannable.items()
        if ends.get(tp, offset) < offset or epoch_ends.get(tp, offset) < offset
    }


def plan(
    plannable: Plannable, ends: Mapping[TopicPartition, Offset], leader_epochs: LeaderEpochs, limit: int | None
) -> PlannedRanges:
    """Return the range to read of each partition that has something to read.

    Parameters
    ----------
    plannable : mapping
        The position of each partition that may be read.
    ends : mapping of TopicPartition to Offset
        Where to stop reading (exclusive).  A partition without an end is left for the next batch, and so is one whose
        end is below its position.
    leader_epochs : mapping of TopicPartition to LeaderEpoch
        Under which leader the log reaches to its end.
    limit : int or None
        About how many offsets to read at most, shared in proportion to the backlogs.  As in Spark's own source
        a share below one is rounded up, so that no partition starves beside a large one, and the sum may
        exceed the limit by less than the number of partitions.
    """
    ranges: PlannedRanges = {}
    total = 0
    for tp, (epoch, at, _, _) in plannable.items():
        end = ends.get(tp, at)
        if end > at:
            ranges[tp] = PlannedRange(epoch, OffsetRange(at, end), leader_epochs.get(tp))
            total += end - at
    if limit is None or total <= limit:
        return ranges
    return {tp: PlannedRange(epoch, _share(r, limit, total), leader) for tp, (epoch, r, leader) in ranges.items()}


def _share(r: OffsetRange, limit: int, total: int) -> OffsetRange:
    """Return the beginning of ``r`` that is its share of ``limit``, if all ranges have ``total`` offsets."""
    # In this order, as there, where rounding may make one offset less of it.
    share = limit * (r.size / total)
    return OffsetRange(r.start, Offset(r.start + (math.ceil(share) if share < 1 else math.floor(share))))


def backlog(plannable: Plannable, ends: Mapping[TopicPartition, Offset]) -> int:
    """Return how many offsets there are to read; the arguments are those of :func:`plan`."""
    return sum(max(0, ends.get(tp, at) - at) for tp, (_, at, _, _) in plannable.items())
