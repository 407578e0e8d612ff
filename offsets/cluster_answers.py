"""What :class:`~pyspark_kafka_group.offsets.cluster_requests.ClusterRequests` answers."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from pyspark_kafka_group.offsets.types import Offset, TopicPartition

T = TypeVar("T")


class TopicInfo(NamedTuple):
    """What the cluster knows of a topic.

    Attributes
    ----------
    topic_id : str or None
        Its id, as Kafka prints it; a topic that is deleted and created again gets another one.  None from brokers
        before 2.8.
    leader_epochs : dict of int to int
        How often the leader of each partition has changed; -1 if the broker that answered does not know.
    """

    topic_id: str | None
    leader_epochs: dict[int, int]


class CommittedOffset(NamedTuple):
    """A committed offset, with the leader epoch of the record before it, None if unknown, and its metadata."""

    offset: Offset
    leader_epoch: int | None
    metadata: str


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not above the asked one, and the offset after its last record."""

    leader_epoch: int
    end_offset: Offset


class Answers(NamedTuple, Generic[T]):
    """An answer for each partition.

    Attributes
    ----------
    found : dict of TopicPartition to T
        What was found.  A partition that is neither here nor below has nothing of the kind.
    failed : dict of TopicPartition to str
        Why a partition has to be asked about again: Kafka's name of the error, UNSTABLE_OFFSET_COMMIT say, or a text.
    """

    found: dict[TopicPartition, T]
    failed: dict[TopicPartition, str]
