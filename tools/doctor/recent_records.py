"""Reads the last hour and the current members from a group's records."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_records import (
    ClassicGroup,
    CommitRecord,
    CommitTombstone,
    ConsumerGroupEpoch,
    ConsumerMember,
    GroupTombstone,
    LoggedRecord,
)
from pyspark_kafka_group.tools.analysis.lag_judgement import LOOK_BACK_S, CommitWindows
from pyspark_kafka_group.tools.analysis.membership import LoggedMembers

_KEPT = 5
"""Number of intervals to keep for each partition: in some of them there may be nothing to read."""


class CommitInterval(NamedTuple):
    """The time between two commits of a partition by one member."""

    seconds: float
    begin_ms: int
    offset: int
    member_id: str


class Timeouts(NamedTuple):
    """The timeouts, in milliseconds, and the assignor that a member has sent; None if unknown."""

    session_ms: int | None
    rebalance_ms: int | None
    assignor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRecords:
    """The last hour of a group.

    Attributes
    ----------
    rebalances : int
        The number of rebalances.
    assignors : frozenset of str
        The assignors of the classic group.
    instances : mapping of str to tuple of str
        The clients that have used each instance id, in order; changes only.
    timeouts : mapping of str to Timeouts
        The timeouts of the current members, by member id.
    intervals : mapping
        The longest intervals between two commits of each partition, the longest first.
    windows : CommitWindows
        The last commits of each partition.
    idle_seconds : float or None
        Time since the last record; None if there is none.
    own_expiry : bool
        Whether each offset has a time of expiry from its commit, as a bookmark sets it: thousands of years ahead.
    """

    rebalances: int = 0
    assignors: frozenset[str] = frozenset()
    instances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    timeouts: Mapping[str, Timeouts] = field(default_factory=dict)
    intervals: Mapping[TopicPartition, list[CommitInterval]] = field(default_factory=dict)
    windows: CommitWindows = field(default_factory=CommitWindows)
    idle_seconds: float | None = None
    own_expiry: bool = False


def recent(records: Iterable[LoggedRecord], topic_names: Mapping[str, str], *, now_ms: int) -> RecentRecords:
    """Return the facts in the records of a group.

    Parameters
    ----------
    records : iterable of LoggedRecord
        All records of the group, in the order of the log.
    topic_names : mapping
        The name of each topic by its id.
    now_ms : int
        The time, in milliseconds since 1970.
    """
    since_ms = now_ms - int(LOOK_BACK_S * 1000)
    members, commits, windows = _Members(), _Commits(LoggedMembers(topic_names)), CommitWindows()
    idle_seconds = None
    for logged in records:
        lately = logged.time_ms >= since_ms
        idle_seconds = max(0, now_ms - logged.time_ms) / 1000
        if lately:
            windows.add(logged.record)
        members.apply(logged, lately=lately)
        commits.apply(logged, lately=lately)
    expiry = commits.expiry.values()
    return RecentRecords(
        rebalances=members.rebalances,
        assignors=frozenset(members.assignors),
        instances={instance_id: tuple(used_by) for instance_id, used_by in members.clients.items()},
        timeouts=members.timeouts,
        intervals=commits.intervals,
        windows=windows,
        idle_seconds=idle_seconds,
        own_expiry=bool(expiry) and None not in expiry,
    )


class _Members:
    """Collects rebalances, assignors, clients by instance id, and timeouts of members."""

    def __init__(self) -> None:
        self.rebalances = 0
        self.assignors: set[str] = set()
        self.clients: dict[str, list[str]] = defaultdict(list)
        self.timeouts: dict[str, Timeouts] = {}

    def apply(self, logged: LoggedRecord, *, lately: bool) -> None:
        match logged.record:
            case ClassicGroup(members=members, assignor=assignor):
                self.timeouts = {
                    m.member_id: Timeouts(m.session_timeout_ms, m.rebalance_timeout_ms, None) for m in members
                }
                if lately and members:
                    self.rebalances += 1
                    self.assignors |= {assignor} if assignor else set()
                    for member in members:
                        self._add_client(member.instance_id, f"{member.client_id} at {member.host}")
            case ConsumerGroupEpoch():
                self.rebalances += lately
            case ConsumerMember() as consumer:
                self.timeouts[consumer.member_id] = Timeouts(None, consumer.rebalance_timeout_ms, consumer.assignor)
                if lately:
                    self._add_client(consumer.instance_id, f"{consumer.client_id} at {consumer.host}")
            case GroupTombstone(member_id=str(member_id)):
                self.timeouts.pop(member_id, None)
            case _:
                pass

    def _add_client(self, instance_id: str | None, client: str) -> None:
        if instance_id is not None and self.clients[instance_id][-1:] != [client]:
            self.clients[instance_id].append(client)


class _Commits:
    """Collects the expiry of commits, and the longest intervals between two commits of one member."""

    def __init__(self, members: LoggedMembers) -> None:
        self._members = members
        self._last: dict[TopicPartition, tuple[CommitRecord, str | None]] = {}
        self.intervals: dict[TopicPartition, list[CommitInterval]] = defaultdict(list)
        self.expiry: dict[TopicPartition, int | None] = {}

    def apply(self, logged: LoggedRecord, *, lately: bool) -> None:
        self._members.apply(logged.record)
        match logged.record:
            case CommitTombstone(tp=tp):
                self.expiry.pop(tp, None)
            case CommitRecord() as commit:
                self.expiry[commit.tp] = commit.expire_time_ms
                owner = self._members.owner(commit.tp)
                by = owner.member_id if owner else None
                before, committer = self._last.get(commit.tp, (commit, None))
                if by is not None and committer == by and commit.offset > before.offset and lately:
                    seconds = (commit.commit_time_ms - before.commit_time_ms) / 1000
                    interval = CommitInterval(seconds, before.commit_time_ms, before.offset, by)
                    self.intervals[commit.tp] = heapq.nlargest(_KEPT, [*self.intervals[commit.tp], interval])
                if by != committer or commit.offset != before.offset:
                    self._last[commit.tp] = commit, by
            case _:
                pass
