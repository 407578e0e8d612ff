"""The facts about a group and its cluster, and the findings of rules.  Values only.

A value that is unknown is None, and no rule judges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from pyspark_kafka_group.cluster.group_description import GroupProtocol
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.lag_judgement import Status
from pyspark_kafka_group.tools.doctor.recent_records import RecentRecords, Timeouts
from pyspark_kafka_group.wire.describe_requests import DescribedMember

Settings = Mapping[str, str]
"""Kafka's settings by their names."""


class Severity(IntEnum):
    """The severity of a finding.  A note is no fault."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Finding(NamedTuple):
    """A fault, or something that the cluster lacks.

    Attributes
    ----------
    severity : Severity
        An error loses records or stops readers, a warning costs time or is a risk.
    code : str
        The name of the rule, for scripts.
    subject : str
        The group, member, partition or setting at fault.
    evidence : str
        The facts that the doctor has found.
    remedy : str
        What to do.
    """

    severity: Severity
    code: str
    subject: str
    evidence: str
    remedy: str

    def document(self) -> dict[str, str]:
        """Return the finding for JSON."""
        return {
            "severity": self.severity.name,
            "code": self.code,
            "object": self.subject,
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


class SlowBatch(NamedTuple):
    """The longest time between two commits of a partition that had records to read, and the member that committed."""

    tp: TopicPartition
    seconds: float
    member_id: str


class OpenTransaction(NamedTuple):
    """A transaction that holds readers back: its first offset, its minimum age, and its producer."""

    since: int
    seconds: float
    producer_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition that the group owns or has committed.

    Attributes
    ----------
    committed_offset : int or None
        The committed offset.
    log_start, log_end : int or None
        Start and end of the log, open transactions included.
    lag_seconds : float or None
        Age of the record at the committed offset.
    status : Status or None
        Burrow's verdict on the lag.
    problem : str or None
        Kafka's name of the error, if no leader answers.
    open_transaction : OpenTransaction or None
        The transaction that holds readers back.
    """

    committed_offset: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    lag_seconds: float | None = None
    status: Status | None = None
    problem: str | None = None
    open_transaction: OpenTransaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The features of the cluster, and the rights of the user.

    Attributes
    ----------
    servers : str
        ``bootstrap.servers``.
    has_consumer_protocol : bool
        Whether it has KIP-848.
    has_transactions : bool
        Whether it has transactions.
    has_topic_ids : bool
        Whether it has topic ids (KIP-516).
    offsets_topic_problem : str or None
        Why ``__consumer_offsets`` cannot be read; None if it can.
    offsets_topic_held : tuple of TopicPartition and int, or None
        The group's partition of ``__consumer_offsets`` and the offset from which on an open transaction hides commits.
    transactional_id_problem : str or None
        Why this user may not use the transactional ids of queries; None if the user may.
    may_read_group : bool or None
        Whether the user has the right Read on the group.
    may_read_topics : mapping of str to bool
        Whether the user has the right Read on each topic, without topics for which that is unknown.
    missing_topics : frozenset of str
        Topics that do not exist, although a member subscribes to them or ``--topics`` names them.
    broker : Settings or None
        The settings of the coordinating broker.
    topics : mapping of str to Settings
        The settings of each topic, without topics whose settings the user may not see.
    """

    servers: str = ""
    has_consumer_protocol: bool = True
    has_transactions: bool = True
    has_topic_ids: bool = True
    offsets_topic_problem: str | None = None
    offsets_topic_held: tuple[TopicPartition, int] | None = None
    transactional_id_problem: str | None = None
    may_read_group: bool | None = None
    may_read_topics: Mapping[str, bool] = field(default_factory=dict)
    missing_topics: frozenset[str] = frozenset()
    broker: Settings | None = None
    topics: Mapping[str, Settings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Everything that the rules judge.

    Attributes
    ----------
    group : str
        The group.
    state : str
        Kafka's name of its state.
    protocol : GroupProtocol
        Its group protocol.
    assignor : str
        The assignor of a classic group.
    members : tuple of DescribedMember
        Its members.
    partitions : mapping
        Its partitions.
    partition_counts : mapping of str to int
        The number of partitions of each topic that a member subscribes to, or the group has committed.
    recent : RecentRecords or None
        The last hour; None if the offsets topic cannot be read to its end.
    batches : tuple of SlowBatch
        The slowest batch of each partition in the last hour.
    settings : Settings or None
        The settings of the group; None if unknown, or for a classic group.
    cluster : ClusterFacts
        The cluster.
    """

    group: str
    state: str
    protocol: GroupProtocol
    assignor: str = ""
    members: tuple[DescribedMember, ...] = ()
    partitions: Mapping[TopicPartition, PartitionFacts] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    recent: RecentRecords | None = None
    batches: tuple[SlowBatch, ...] = ()
    settings: Settings | None = None
    cluster: ClusterFacts = ClusterFacts()

    def timeouts(self, member: DescribedMember) -> Timeouts:
        """Return the timeouts of a member."""
        known = self.recent.timeouts if self.recent else {}
        return known.get(member.member_id, Timeouts(None, None, None))
