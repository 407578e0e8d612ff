"""The members of a group, and the owner of each partition, at each point of the group's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pyspark_kafka_group.tools.analysis.group_records import (
    CLASSIC_GROUP,
    CONSUMER_GROUP,
    CONSUMER_MEMBER,
    ClassicGroup,
    CommitRecord,
    ConsumerGroupEpoch,
    ConsumerMember,
    CurrentAssignment,
    GroupRecord,
    GroupTombstone,
    TopicIdPartitions,
)
from pyspark_kafka_group.wire.types import TopicPartition


class Owner(NamedTuple):
    """The member that owned a partition."""

    member_id: str
    client_id: str
    host: str


class LoggedMembers:
    """The members of one group, as far as its records have been read.

    Records of KIP-848 name topics by their ids.

    Parameters
    ----------
    topic_names : mapping
        The name of each topic id that the cluster knows today.  Commits add those of deleted topics.
    """

    def __init__(self, topic_names: Mapping[str, str]) -> None:
        self._names = dict(topic_names)
        self._known = False
        self._classic: ClassicGroup | None = None
        self._members: dict[str, ConsumerMember] = {}
        self._assigned: dict[str, TopicIdPartitions] = {}
        self._owners: dict[TopicPartition, Owner] | None = None  # None after a change

    def apply(self, record: GroupRecord) -> None:
        """Take the next record of the group."""
        if isinstance(record, CommitRecord):
            if record.topic_id is not None and self._names.get(record.topic_id) != record.tp.topic:
                self._names[record.topic_id], self._owners = record.tp.topic, None
            return
        self._owners = None
        match record:
            case ClassicGroup():
                self._forget_consumers()
                self._classic, self._known = record, True
            case ConsumerGroupEpoch():
                self._classic, self._known = None, True
            case ConsumerMember(member_id=member_id):
                self._members[member_id], self._known = record, True
            case CurrentAssignment(member_id=member_id, partitions=partitions):
                self._assigned[member_id], self._known = partitions, True
            # A change of the protocol writes a tombstone of the old kind.  Records of the new kind may come first.
            case GroupTombstone(kind=kind) if kind == CLASSIC_GROUP:
                self._classic, self._known = None, True
            case GroupTombstone(kind=kind) if kind == CONSUMER_GROUP:
                self._forget_consumers()
                self._known = True
            case GroupTombstone(kind=kind, member_id=str(member_id)):
                self._assigned.pop(member_id, None)
                if kind == CONSUMER_MEMBER:
                    self._members.pop(member_id, None)
            case _:
                pass

    @property
    def count(self) -> int | None:
        """The number of members; None until a record shows it."""
        if not self._known:
            return None
        return len(self._classic.members) if self._classic is not None else len(self._members)

    def owner(self, tp: TopicPartition) -> Owner | None:
        """Return the owner of a partition; None if there is no owner, or it is unknown."""
        if self._owners is None:  # a group has many more commits than changes of its members
            self._owners = dict(reversed([*self._all_owned()]))  # of two members, the first
        return self._owners.get(tp)

    def _all_owned(self) -> Iterator[tuple[TopicPartition, Owner]]:
        """Yield the partitions of each member."""
        if self._classic is not None:
            for joined in self._classic.members:
                for tp in joined.assignment or ():
                    yield tp, Owner(joined.member_id, joined.client_id, joined.host)
            return
        for member_id, assigned in self._assigned.items():
            introduced = self._members.get(member_id)
            if introduced is None:
                continue
            owner = Owner(member_id, introduced.client_id, introduced.host)
            for topic_id, numbers in assigned.items():
                if (topic := self._names.get(topic_id)) is not None:
                    yield from ((TopicPartition(topic, number), owner) for number in numbers)

    def _forget_consumers(self) -> None:
        self._members.clear()
        self._assigned.clear()
