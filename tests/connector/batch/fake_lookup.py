"""A cluster for batch reads, told by the test."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark_kafka_group.offsets.cluster.group_description import Member
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

Offsets = dict[TopicPartition, Offset]


@dataclass
class FakeLookup:
    """In place of :class:`~pyspark_kafka_group.offsets.cluster.range_lookup.RangeLookup`.

    Attributes
    ----------
    logs : dict of TopicPartition to OffsetRange
        What each log holds.
    stored : dict of TopicPartition to Offset
        What the group has committed.
    present : tuple of Member
        The members of the group.
    problem : Exception or None
        What becomes of a commit after it has succeeded.
    """

    logs: dict[TopicPartition, OffsetRange]
    stored: Offsets = field(default_factory=dict)
    present: tuple[Member, ...] = ()
    problem: Exception | None = None

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        return {topic: sum(tp.topic == topic for tp in self.logs) for topic in topics}

    def log_starts(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {tp: self.logs[tp].start for tp in partitions}

    def log_ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {tp: self.logs[tp].until for tp in partitions}

    high_watermarks = log_ends

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        assert not times_ms
        return {}

    def committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {tp: self.stored[tp] for tp in partitions if tp in self.stored}

    def members(self) -> tuple[Member, ...]:
        return self.present

    def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self.stored.update(offsets)
        if self.problem is not None:
            raise self.problem

    def close(self) -> None:
        """Do nothing."""


def logs(*sizes: int, topic: str = "t") -> dict[TopicPartition, OffsetRange]:
    """Return logs of the partitions of a topic, with so many records each."""
    return {TopicPartition(topic, n): OffsetRange(Offset(0), Offset(size)) for n, size in enumerate(sizes)}
