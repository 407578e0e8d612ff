"""What the records of a group say of the last hour, and of the members that it has now."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_records import (
    ClassicGroup,
    ConsumerGroupEpoch,
    ConsumerMember,
    GroupTombstone,
    OffsetCommit,
)
from pyspark_kafka_group.tools.analysis.history import LoggedRecord
from pyspark_kafka_group.tools.analysis.membership import Membership

LOOK_BACK_S = 3600.0
"""How long ago rebalances and batches may have been, in seconds."""

_GAPS = 5
"""So many of the longest times between two commits of a partition are kept: in some there was nothing to read."""


class Gap(NamedTuple):
    """A time between two commits of a partition by one member."""

    seconds: float
    begin_ms: int
    offset: int
    member_id: str


class Timeouts(NamedTuple):
    """What a member told the group when it joined, in milliseconds; None where the record does not have it."""

    session_ms: int | None
    rebalance_ms: int | None
    assignor: str | None


class Recent(NamedTuple):
    """What was found.

    Attributes
    ----------
    rebalances : int
        How often the group was assigned anew.
    assignors : frozenset of str
        Those of the classic group.
    instances : mapping
        Who has borne each instance id, one after the other; changes only.
    timeouts : mapping
        Of the members that there are, by member id.
    gaps : mapping
        The longest times between two commits, the longest first.
    last_used_ms : int or None
        When the last record was written.
    """

    rebalances: int
    assignors: frozenset[str]
    instances: Mapping[str, tuple[str, ...]]
    timeouts: Mapping[str, Timeouts]
    gaps: Mapping[TopicPartition, list[Gap]]
    last_used_ms: int | None


def recent(records: Iterable[LoggedRecord], topic_names: Mapping[str, str], *, now_ms: int) -> Recent:
    """Read the records of a group.

    Parameters
    ----------
    records : iterable of LoggedRecord
        All of them, in the order of the log.
    topic_names : mapping
        The name of each topic by its id.
    now_ms : int
        The time, in milliseconds since 1970.
    """
    since_ms = now_ms - int(LOOK_BACK_S * 1000)
    membership = Membership(topic_names)
    rebalances, last_used_ms = 0, None
    assignors: set[str] = set()
    bearers: dict[str, list[str]] = defaultdict(list)
    timeouts: dict[str, Timeouts] = {}
    last: dict[TopicPartition, tuple[OffsetCommit, str | None]] = {}
    gaps: dict[TopicPartition, list[Gap]] = defaultdict(list)

    def bears(instance_id: str | None, bearer: str) -> None:
        if instance_id is not None and bearers[instance_id][-1:] != [bearer]:
            bearers[instance_id].append(bearer)

    for logged in records:
        lately = logged.time_ms >= since_ms
        last_used_ms = logged.time_ms
        membership.apply(logged.record)
        match logged.record:
            case ClassicGroup(members=members, assignor=assignor):
                timeouts = {m.member_id: Timeouts(m.session_timeout_ms, m.rebalance_timeout_ms, None) for m in members}
                if lately and members:
                    rebalances += 1
                    assignors |= {assignor} if assignor else set()
                    for member in members:
                        bears(member.instance_id, f"{member.client_id} at {member.host}")
            case ConsumerGroupEpoch():
                rebalances += lately
            case ConsumerMember() as modern:
                timeouts[modern.member_id] = Timeouts(None, modern.rebalance_timeout_ms, modern.assignor)
                if lately:
                    bears(modern.instance_id, f"{modern.client_id} at {modern.host}")
            case GroupTombstone(member_id=str(member_id)):
                timeouts.pop(member_id, None)
            case OffsetCommit() as commit:
                owner = membership.owner(commit.tp)
                by = owner.member_id if owner else None
                before, committer = last.get(commit.tp, (commit, None))
                if by is not None and committer == by and commit.offset > before.offset and lately:
                    seconds = (commit.commit_time_ms - before.commit_time_ms) / 1000
                    gap = Gap(seconds, before.commit_time_ms, before.offset, by)
                    gaps[commit.tp] = heapq.nlargest(_GAPS, [*gaps[commit.tp], gap])
                if by != committer or commit.offset != before.offset:
                    last[commit.tp] = commit, by
            case _:
                pass
    told = {instance_id: tuple(who) for instance_id, who in bearers.items()}
    return Recent(rebalances, frozenset(assignors), told, timeouts, gaps, last_used_ms)
