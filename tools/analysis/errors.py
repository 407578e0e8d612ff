"""Errors of looking at a group."""

from __future__ import annotations

from pyspark_kafka_group.offsets.errors import GroupError


class OffsetsTopicUnreadableError(GroupError):
    """``__consumer_offsets`` cannot be read: no right, or the cluster has no such topic.

    Attributes
    ----------
    kafka_error : str
        Kafka's name of the error.
    """

    kafka_error: str

    def __init__(self, kafka_error: str) -> None:
        super().__init__(
            f"The topic __consumer_offsets, which has the history of the group, cannot be read ({kafka_error}). Give "
            f"this user the rights Read and Describe on that topic. Some services, Azure Event Hubs for one, have no "
            f"such topic: 'describe', 'watch', 'doctor' and 'history --poll SECONDS' work without it.",
            kafka_error=kafka_error,
        )
