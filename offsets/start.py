"""Where a partition starts: one pure decision, made each time a partition is assigned.

====================================================  =============================================
the group's committed offset C, the query's mark H,    the partition starts at
the highest offset K it has seen committed
====================================================  =============================================
C, and no H or C >= H                                 C
K <= C < H                                            H, committed at once: finished here, and the
                                                      query died before it could commit
C < K, or no C although H or K exists                 by ``onOffsetRewind``: nowhere, a named error
                                                      (``fail``), at the higher of H and K
                                                      (``checkpoint``), or at C, and without C as if for
                                                      the first time (``group``)
no C, no H: the group starts this topic               ``startingOffsets``, committed at once, so that
                                                      a later owner does not resolve it anew
no C, no H: the partition was added to a topic that   its beginning
the group has started before
C or H outside the log                                nowhere (``failOnDataLoss``), or the nearest
                                                      offset that exists; the beginning if the log is
                                                      a new one: no C, and it ends below H
====================================================  =============================================

Members start at the same time, so "the group has started this topic before" cannot be read off another
partition's committed offset: a second member would take a partition that it is the first to resolve for one
that was added later.  Every commit therefore carries, in its metadata, how many partitions the topic had when
the group first started it; only higher numbers were added later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from pyspark_kafka_group.offsets.errors import DataLossError, OffsetRewindError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition


class StartingOffset(Enum):
    """The words of ``startingOffsets``; explicit offsets are plain numbers."""

    EARLIEST = "earliest"
    LATEST = "latest"


class RewindPolicy(Enum):
    """The words of ``onOffsetRewind``."""

    FAIL = "fail"  # end the query with a named error
    CHECKPOINT = "checkpoint"  # go on at what this query has finished, and put the group back there
    GROUP = "group"  # go back with the group, and process again


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the cluster says of a partition that was just assigned.

    Attributes
    ----------
    committed : Offset or None
        The group's stable committed offset; None if it has none.
    log_start, log_end : Offset
        What a reader can get now, ``[log_start, log_end)``, under the readers' isolation level.
    high_watermark : Offset
        The end of the log under ``read_uncommitted``; at least ``log_end``.
    topic_partitions : int
        How many partitions the topic has now.
    topic_started : bool
        Whether the group has a committed offset in any partition of the topic.
    first_partitions : int or None
        How many partitions the topic had when the group first started it, as the commits' metadata say.
    """

    committed: Offset | None
    log_start: Offset
    log_end: Offset
    high_watermark: Offset
    topic_partitions: int
    topic_started: bool
    first_partitions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPolicy:
    """The options that decide where a partition starts."""

    group_id: str
    default: StartingOffset
    explicit: Mapping[TopicPartition, Offset | StartingOffset]
    fail_on_data_loss: bool
    on_rewind: RewindPolicy = RewindPolicy.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start at ``position``.

    Attributes
    ----------
    position : Offset
        The first offset to plan.
    committed : Offset or None
        The group's committed offset, as far as it still counts.  Lower than ``position``, or None: the
        position has to be committed.
    durable_first : bool
        Whether nothing may be planned before ``position`` is committed.
    first_partitions : int
        To be carried by every commit of this partition.
    skipped : tuple of (Offset, Offset) or None
        Records that are gone, ``[from, until)``, with ``failOnDataLoss=false``.
    rewound : bool
        Whether the group's offset had gone back, and ``onOffsetRewind`` decided.
    """

    position: Offset
    committed: Offset | None
    durable_first: bool
    first_partitions: int
    skipped: tuple[Offset, Offset] | None = None
    rewound: bool = False


def decide_start(
    tp: TopicPartition, facts: Facts, *, finished: Offset | None, seen: Offset | None, policy: StartPolicy
) -> Start:
    """Decide where ``tp`` starts.

    Parameters
    ----------
    tp : TopicPartition
        The partition that was assigned.
    facts : Facts
        What the cluster says of it.
    finished, seen : Offset or None
        H and K of the table above, from the query's last finished offset.
    policy : StartPolicy
        The options.

    Raises
    ------
    OffsetRewindError
        If the group's offset went back behind what the query has seen committed.
    DataLossError
        If the offset to start at is outside the log and ``failOnDataLoss`` is true.
    """
    committed = facts.committed
    mark = max((x for x in (finished, seen) if x is not None), default=None)
    rewound = mark is not None and (committed is None or (seen is not None and committed < seen))
    if committed is None and mark is not None and mark > facts.high_watermark:
        rewound = False  # the topic was deleted and created again, and its offsets with it
    if rewound and policy.on_rewind is RewindPolicy.FAIL:
        raise OffsetRewindError(
            topic=tp.topic,
            partition=tp.partition,
            group_id=policy.group_id,
            committed=committed,
            finished=finished,
            seen=seen,
        )
    if mark is None or (rewound and policy.on_rewind is RewindPolicy.GROUP):
        wanted = _first_position(tp, facts, policy) if committed is None else committed
    else:
        # Not H alone: what the group once had committed up to K somebody has finished.
        wanted = mark if committed is None else max(committed, mark)
    start = Start(
        position=wanted,
        committed=committed,
        durable_first=committed is None,
        first_partitions=(facts.topic_partitions if facts.first_partitions is None else facts.first_partitions),
        rewound=rewound,
    )
    return _inside_the_log(tp, facts, start, policy)


def _first_position(tp: TopicPartition, facts: Facts, policy: StartPolicy) -> Offset:
    added_later = facts.topic_started and (facts.first_partitions is None or tp.partition >= facts.first_partitions)
    wanted = policy.explicit.get(tp, StartingOffset.EARLIEST if added_later else policy.default)
    if wanted is StartingOffset.EARLIEST:
        return facts.log_start
    if wanted is StartingOffset.LATEST:
        return facts.log_end
    return wanted


def _inside_the_log(tp: TopicPartition, facts: Facts, start: Start, policy: StartPolicy) -> Start:
    wanted = start.position
    if facts.log_start <= wanted <= facts.high_watermark:
        return start
    if wanted < facts.log_start:
        gone = (wanted, facts.log_start)
        committed = start.committed
        nearest = facts.log_start
    else:
        # Truncated, or re-created: the old offsets mean nothing in this log, and the next commit is lower.
        gone = (facts.high_watermark, wanted)
        committed = None
        # A topic's committed offsets are deleted with it: without one this log was never read.
        nearest = facts.log_start if facts.committed is None else facts.log_end
    if policy.fail_on_data_loss:
        raise DataLossError(
            topic=tp.topic,
            partition=tp.partition,
            lost_from=gone[0],
            lost_until=gone[1],
            log_start=facts.log_start,
            log_end=facts.high_watermark,
        )
    return replace(start, position=nearest, committed=committed, durable_first=True, skipped=gone)
