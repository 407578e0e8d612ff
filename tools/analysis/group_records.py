"""What Kafka's group coordinators write into ``__consumer_offsets``: the records, decoded.

The names of types and fields follow Kafka's own schemas (``group-coordinator/src/main/resources/common/message``,
read for 4.3); :mod:`pyspark_kafka_group.tools.analysis.record_decoding` makes them out of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_kafka_group.wire.types import TopicPartition

TopicIdPartitions = Mapping[str, frozenset[int]]
"""The numbers of partitions by topic id, as Kafka prints it."""


class OffsetCommit(NamedTuple):
    """A committed offset.

    Attributes
    ----------
    group : str
        Whose.
    tp : TopicPartition
        Of which partition.
    offset : int
        The next offset to read.
    leader_epoch : int or None
        The leader epoch of the record before it (KIP-320); None if unknown.
    metadata : str
        What the committer wrote beside it.
    commit_time_ms : int
        When the coordinator took it, in milliseconds since 1970.
    expire_time_ms : int or None
        When it ends, where the committer has said that (before Kafka 2.1).
    topic_id : str or None
        The id of the topic, where the broker stores it.
    """

    group: str
    tp: TopicPartition
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_time_ms: int
    expire_time_ms: int | None
    topic_id: str | None


class OffsetTombstone(NamedTuple):
    """The group's offset of a partition is gone: it expired, or it was deleted, or the topic was."""

    group: str
    tp: TopicPartition


class ClassicMember(NamedTuple):
    """A member of a classic group, with what it has; the assignment is None if it is not that of a consumer.

    The rebalance timeout is ``max.poll.interval.ms``; None where the record has none.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition] | None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None


class ClassicGroup(NamedTuple):
    """A classic group after a rebalance, or when its last member has gone.

    Attributes
    ----------
    group : str
        Which.
    protocol_type : str
        What the members are; ``consumer`` for consumers.
    generation : int
        Counts the rebalances.
    assignor : str or None
        The assignment strategy.
    leader : str or None
        The member that has assigned.
    state_time_ms : int or None
        Since when it is in its state, in milliseconds since 1970.
    members : tuple of ClassicMember
        Who is in it.
    """

    group: str
    protocol_type: str
    generation: int
    assignor: str | None
    leader: str | None
    state_time_ms: int | None
    members: tuple[ClassicMember, ...]


class ConsumerGroupEpoch(NamedTuple):
    """A group of KIP-848 has a new group epoch."""

    group: str
    epoch: int


class ConsumerMember(NamedTuple):
    """A member of a group of KIP-848, as it has introduced itself."""

    group: str
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str | None
    assignor: str | None
    rebalance_timeout_ms: int | None = None


class TargetAssignment(NamedTuple):
    """What a member of a group of KIP-848 shall have."""

    group: str
    member_id: str
    partitions: TopicIdPartitions


class CurrentAssignment(NamedTuple):
    """What a member of a group of KIP-848 has, and what of it it has to give back."""

    group: str
    member_id: str
    member_epoch: int
    assigned: TopicIdPartitions
    pending_revocation: TopicIdPartitions


class GroupTombstone(NamedTuple):
    """A record of a group, or of one of its members, ends; ``kind`` is Kafka's name of that record."""

    group: str
    kind: str
    member_id: str | None


class OtherRecord(NamedTuple):
    """A record of a known kind whose value is not looked at, or of a kind that a newer Kafka has brought."""

    group: str | None
    kind: str


class Undecodable(NamedTuple):
    """Bytes that are no record of a group coordinator, and why."""

    reason: str


GroupRecord = (
    OffsetCommit
    | OffsetTombstone
    | ClassicGroup
    | ConsumerGroupEpoch
    | ConsumerMember
    | TargetAssignment
    | CurrentAssignment
    | GroupTombstone
    | OtherRecord
    | Undecodable
)
