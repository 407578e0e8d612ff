"""The answers of :class:`~pyspark_kafka_group.cluster.cluster.Cluster`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.wire.leaders import Leaders
from pyspark_kafka_group.wire.types import Address

T = TypeVar("T")


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics, as in its ``Topic.INTERNAL_TOPICS``.  Other names with two underscores are topics of users."""


class TopicInfo(NamedTuple):
    """A topic, as a broker describes it.

    Attributes
    ----------
    topic_id : str or None
        The id, as Kafka prints it.  A topic that is deleted and created again gets another one.  None from brokers
        before 2.8.
    leader_epochs : dict of int to int
        How often the leader of each partition has changed; -1 if the broker that answered does not know.
    cluster_id : str or None
        The id of its cluster.  None if the brokers have none.
    """

    topic_id: str | None
    leader_epochs: dict[int, int]
    cluster_id: str | None = None


class CommittedOffset(NamedTuple):
    """A committed offset, with the leader epoch of the record before it, None if unknown, and its metadata."""

    offset: Offset
    leader_epoch: int | None
    metadata: str


class GroupCoordinator(NamedTuple):
    """The broker that coordinates a group: its id, None if the cluster does not list it, and its address."""

    node_id: int | None
    address: Address


class DatedOffset(NamedTuple):
    """The offset of a record, and its timestamp in milliseconds since 1970."""

    offset: Offset
    time_ms: int


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not above the asked one, and the offset after its last record."""

    leader_epoch: int
    end_offset: Offset


class LogInfo(NamedTuple):
    """The log of a partition, as its leader describes it.

    Attributes
    ----------
    start, end : Offset
        The range that a reader can read now, ``[start, end)``, under the readers' isolation level.
    high_watermark : Offset
        The end of the log under ``read_uncommitted``; at least ``end``.
    epoch_ends : mapping of LeaderEpoch to Offset
        The ends of some leader epochs.  Epochs that the leader does not know are left out.
    at_time : Offset or None
        The first record of the requested time or later.  None if there is none, or no time was requested.
    """

    start: Offset
    end: Offset
    high_watermark: Offset
    epoch_ends: Mapping[LeaderEpoch, Offset]
    at_time: Offset | None = None


class Look(NamedTuple):
    """One broker's answer about topics.

    Attributes
    ----------
    topics : dict of str to TopicInfo
        The topics that exist.
    leaders : Leaders or None
        The leaders of their partitions, for a few questions that belong together.  None if there are no topics.
    """

    topics: dict[str, TopicInfo]
    leaders: Leaders | None


class Answers(NamedTuple, Generic[T]):
    """An answer for each partition.

    Attributes
    ----------
    found : dict of TopicPartition to T
        The answers.  A partition that is in neither mapping has no such value.
    failed : dict of TopicPartition to str
        The reason to ask again about a partition: the name of Kafka's error, such as UNSTABLE_OFFSET_COMMIT, or a
        text.
    """

    found: dict[TopicPartition, T]
    failed: dict[TopicPartition, str]
