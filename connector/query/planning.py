"""Plans the offsets of the next batch.  Pure: positions and log ends in, ranges out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from pyspark_kafka_group.coordinator.handover.inputs import PlannedRange
from pyspark_kafka_group.coordinator.handover.state import Position
from pyspark_kafka_group.offsets.commit_metadata import differ
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, TopicPartition

Plannable = Mapping[TopicPartition, Position]
"""The position of each partition that may be read."""

PlannedRanges = dict[TopicPartition, PlannedRange]

LeaderEpochs = Mapping[TopicPartition, LeaderEpoch]
"""The epoch of each partition's leader, if known."""


def recreated_topics(plannable: Plannable, topic_ids: Mapping[str, str]) -> set[str]:
    """Return the topics that were deleted and created again since their partitions got their positions.

    Parameters
    ----------
    plannable : mapping
        The position of each partition that may be read.  It contains the id of its topic.
    topic_ids : mapping of str to str
        The topics' current ids, if known.
    """
    return {tp.topic for tp, position in plannable.items() if differ(position.topic_id, topic_ids.get(tp.topic))}


class Suspects(NamedTuple):
    """Partitions whose log may have changed since the query got their positions.

    Attributes
    ----------
    silent : set of TopicPartition
        Their log end is unknown.
    shorter : set of TopicPartition
        Their log ends below the position.
    outdated : set of TopicPartition
        Their log end has an older leader epoch than the position.  Either this leader has not learned yet that it was
        replaced, or this is another log, whose epochs started again.
    to_validate : dict of TopicPartition to LeaderEpoch
        The leader epoch of the position.  A new leader may lack records below the position.  Ask it where its log ends
        for this epoch, and compare (KIP-320).  This includes partitions with something to read if the leader epoch of
        their log end is unknown.
    """

    silent: set[TopicPartition]
    shorter: set[TopicPartition]
    outdated: set[TopicPartition]
    to_validate: dict[TopicPartition, LeaderEpoch]


def suspects(plannable: Plannable, ends: Mapping[TopicPartition, Offset], leader_epochs: LeaderEpochs) -> Suspects:
    """Compare the positions with the newest log ends and the epochs of their leaders."""
    found = Suspects(set(), set(), set(), {})
    for tp, (_, offset, leader_epoch, _) in plannable.items():
        end = ends.get(tp)
        if end is None:
            found.silent.add(tp)
        elif end < offset:
            found.shorter.add(tp)
        if leader_epoch is None:
            continue
        now = leader_epochs.get(tp)
        if now is None:
            if end is not None and end > offset:
                found.to_validate[tp] = leader_epoch
        elif now > leader_epoch:
            found.to_validate[tp] = leader_epoch
        elif now < leader_epoch:
            found.outdated.add(tp)
    return found


def below(plannable: Plannable, epoch_ends: Mapping[TopicPartition, Offset]) -> set[TopicPartition]:
    """Return the partitions whose log ends below the position for the leader epoch of the position."""
    return {tp for tp, end in epoch_ends.items() if end < plannable[tp].offset}


def cut_ranges(
    plannable: Plannable, ends: Mapping[TopicPartition, Offset], leader_epochs: LeaderEpochs, limit: int | None
) -> PlannedRanges:
    """Return the range to read of each partition that has something to read.

    Partitions without an end are left out, and those whose end is below their position: a later batch reads them.

    As in Spark's own source, a share of the limit below one is rounded up, so that no partition starves beside a large
    one.  The sum may therefore exceed the limit by less than the number of partitions.

    ``ends`` say where to stop reading (exclusive).  ``limit`` is the approximate maximum number of offsets, which the
    partitions share in proportion to their backlogs; None for no limit.
    """
    behind = [(tp, epoch, at, end) for tp, (epoch, at, _, _) in plannable.items() if (end := ends.get(tp, at)) > at]
    total = sum(end - at for _, _, at, end in behind)
    if limit is not None and total > limit:
        behind = [(tp, epoch, at, Offset(at + _share(end - at, limit, total))) for tp, epoch, at, end in behind]
    return {tp: PlannedRange(epoch, OffsetRange(at, end), leader_epochs.get(tp)) for tp, epoch, at, end in behind}


def _share(offsets: int, limit: int, total: int) -> int:
    """Return the share of ``limit`` of a partition that has ``offsets`` of ``total`` offsets to read."""
    # In the order of Spark's own source: another order may round to one offset less.
    share = limit * (offsets / total)
    return math.ceil(share) if share < 1 else math.floor(share)


def backlog(plannable: Plannable, ends: Mapping[TopicPartition, Offset]) -> int:
    """Return how many offsets there are to read before ``ends``."""
    return sum(max(0, ends.get(tp, at) - at) for tp, (_, at, _, _) in plannable.items())
