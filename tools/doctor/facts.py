"""What the doctor knows of a group and its cluster: values only.

What could not be found out is None, and judged by no rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_kafka_group.offsets.cluster.group_description import GroupProtocol
from pyspark_kafka_group.offsets.types import TopicPartition

Settings = Mapping[str, str]
"""Kafka's settings by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """A member.

    Attributes
    ----------
    member_id, client_id, host : str
        Who it is.
    assignment : frozenset of TopicPartition
        What it has.
    subscription : frozenset of str or None
        The topics that it names; None if it has a pattern, or that is not known.
    speaks_classic : bool or None
        Whether it speaks the classic protocol in a group of KIP-848.
    session_timeout_ms, rebalance_timeout_ms : int or None
        Its ``session.timeout.ms`` and ``max.poll.interval.ms``.
    assignor : str or None
        The assignor that it asks for (KIP-848).
    """

    member_id: str
    client_id: str
    host: str
    assignment: frozenset[TopicPartition] = frozenset()
    subscription: frozenset[str] | None = None
    speaks_classic: bool | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    assignor: str | None = None

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host}"


class Batch(NamedTuple):
    """The longest time between two commits of a partition, with records to read all the time, and who committed."""

    tp: TopicPartition
    seconds: float
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lately:
    """What the offsets topic tells of the last hour.

    Attributes
    ----------
    rebalances : int
        How often the group was assigned anew.
    assignors : frozenset of str
        The assignors of the classic group in that time.
    instances : mapping of str to tuple of str
        Who has borne each instance id, one after the other, as texts; changes only.
    batches : tuple of Batch
        The longest batch of each partition.
    idle_seconds : float or None
        How long nobody has used the group; None if the log has nothing of it.
    """

    rebalances: int = 0
    assignors: frozenset[str] = frozenset()
    instances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    batches: tuple[Batch, ...] = ()
    idle_seconds: float | None = None


class OpenTransaction(NamedTuple):
    """A transaction that holds readers back: since which offset, for how long at least, and of which producer."""

    since: int
    seconds: float
    producer_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition that the group has committed, or owns.

    Attributes
    ----------
    committed_offset : int or None
        The group's offset.
    log_start, log_end : int or None
        Where its log starts and ends, open transactions included.
    lag_seconds : float or None
        How old the record at the committed offset is.
    open_transaction : OpenTransaction or None
        What holds readers back.
    """

    committed_offset: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    lag_seconds: float | None = None
    open_transaction: OpenTransaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What the cluster can do, and what the user may do there.

    Attributes
    ----------
    servers : str
        ``bootstrap.servers``.
    has_consumer_protocol : bool
        Whether it offers KIP-848.
    has_transactions : bool
        Whether it offers transactions.
    has_topic_ids : bool
        Whether it tells topic ids (KIP-516).
    offsets_topic_problem : str or None
        Why ``__consumer_offsets`` cannot be read; None if it can.
    transactional_id_problem : str or None
        Why the transactional ids of this project's queries may not be used; None if they may.
    may_read_group : bool or None
        Whether the user has the right Read on the group.
    may_read_topics : mapping of str to bool
        Whether the user has the right Read on each topic; without those of which that is not told.
    missing_topics : frozenset of str
        Topics that do not exist, though members have subscribed to them, or the doctor was asked about them.
    broker : Settings or None
        The settings of the coordinating broker.
    topics : mapping of str to Settings
        The settings of each topic; without those that are not told.
    """

    servers: str = ""
    has_consumer_protocol: bool = True
    has_transactions: bool = True
    has_topic_ids: bool = True
    offsets_topic_problem: str | None = None
    transactional_id_problem: str | None = None
    may_read_group: bool | None = None
    may_read_topics: Mapping[str, bool] = field(default_factory=dict)
    missing_topics: frozenset[str] = frozenset()
    broker: Settings | None = None
    topics: Mapping[str, Settings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it.

    Attributes
    ----------
    group : str
        The group.
    state : str
        Kafka's name of its state.
    protocol : GroupProtocol
        How its members share the partitions.
    assignor : str
        The assignor of a classic group.
    members : tuple of MemberFacts
        Its members.
    partitions : mapping
        Its partitions.
    partition_counts : mapping of str to int
        How many partitions each topic has that a member has subscribed to, or the group has committed.
    lately : Lately or None
        The last hour; None if the offsets topic cannot be read.
    cluster : ClusterFacts
        The cluster.
    """

    group: str
    state: str
    protocol: GroupProtocol
    assignor: str = ""
    members: tuple[MemberFacts, ...] = ()
    partitions: Mapping[TopicPartition, PartitionFacts] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    lately: Lately | None = None
    cluster: ClusterFacts = ClusterFacts()
