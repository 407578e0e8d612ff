"""Who was in a group, and who had a partition, at each place of its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_kafka_group.tools.analysis.group_records import (
    ClassicGroup,
    ConsumerGroupEpoch,
    ConsumerMember,
    CurrentAssignment,
    GroupRecord,
    GroupTombstone,
    OffsetCommit,
    TopicIdPartitions,
)
from pyspark_kafka_group.wire.types import TopicPartition

_CLASSIC, _MODERN = "GroupMetadata", "ConsumerGroupMetadata"
_MEMBER, _ASSIGNMENT = "ConsumerGroupMemberMetadata", "ConsumerGroupCurrentMemberAssignment"


class Owner(NamedTuple):
    """The member that had a partition."""

    member_id: str
    client_id: str
    host: str


class Membership:
    """The members of one group, as its records go by.

    Under KIP-848 records name topics by their ids.

    Parameters
    ----------
    topic_names : mapping
        The name of each topic by its id, as far as the cluster knows it today; commits tell of others.
    """

    def __init__(self, topic_names: Mapping[str, str]) -> None:
        self._names = dict(topic_names)
        self._known = False
        self._classic: ClassicGroup | None = None
        self._members: dict[str, ConsumerMember] = {}
        self._assigned: dict[str, TopicIdPartitions] = {}

    def apply(self, record: GroupRecord) -> None:
        """Take the next record of the group; those that say nothing of members or topics change nothing."""
        match record:
            case ClassicGroup():
                self._forget()
                self._classic, self._known = record, True
            case ConsumerGroupEpoch():
                self._classic, self._known = None, True
            case ConsumerMember(member_id=member_id):
                self._members[member_id], self._known = record, True
            case CurrentAssignment(member_id=member_id, assigned=assigned, pending_revocation=pending):
                # What has to be given back is still read, and committed, until it is.
                self._assigned[member_id], self._known = _together(assigned, pending), True
            case GroupTombstone(kind=kind, member_id=member_id):
                self._end(kind, member_id)
            case OffsetCommit(tp=tp, topic_id=topic_id) if topic_id is not None:
                self._names[topic_id] = tp.topic  # also of topics that are gone
            case _:
                pass

    @property
    def count(self) -> int | None:
        """How many members there are; None while no record has told."""
        if not self._known:
            return None
        return len(self._classic.members) if self._classic is not None else len(self._members)

    def owner(self, tp: TopicPartition) -> Owner | None:
        """Return the member that has a partition, None if nobody has it, or that is not known."""
        if self._classic is not None:
            for member in self._classic.members:
                if member.assignment is not None and tp in member.assignment:
                    return Owner(member.member_id, member.client_id, member.host)
            return None
        for member_id, assigned in self._assigned.items():
            introduced = self._members.get(member_id)
            if introduced is not None and any(
                tp.partition in numbers and self._names.get(topic_id) == tp.topic
                for topic_id, numbers in assigned.items()
            ):
                return Owner(member_id, introduced.client_id, introduced.host)
        return None

    def _end(self, kind: str, member_id: str | None) -> None:
        if kind in (_CLASSIC, _MODERN):
            # A group that becomes one of the other protocol ends as what it was; what it is now may have come before.
            self._known = True
            if kind == _CLASSIC:
                self._classic = None
            else:
                self._forget_modern()
        elif kind == _MEMBER and member_id is not None:
            self._members.pop(member_id, None)
            self._assigned.pop(member_id, None)
        elif kind == _ASSIGNMENT and member_id is not None:
            self._assigned.pop(member_id, None)

    def _forget(self) -> None:
        self._classic = None
        self._forget_modern()

    def _forget_modern(self) -> None:
        self._members.clear()
        self._assigned.clear()


def _together(one: TopicIdPartitions, other: TopicIdPartitions) -> TopicIdPartitions:
    return {topic: one.get(topic, frozenset()) | other.get(topic, frozenset()) for topic in {*one, *other}}
