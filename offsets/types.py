"""The values that all layers share: topic-partitions, which `wire` defines, and half-open offset ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from pyspark_kafka_group.wire.types import TopicPartition

__all__ = ["Offset", "OffsetRange", "OwnershipEpoch", "TopicPartition"]

Offset = NewType("Offset", int)
"""Offset of a record; as a position or a committed offset, that of the *next* record to read."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition (KIP-101); beside an offset, one under which the log had everything below it."""

OwnershipEpoch = NewType("OwnershipEpoch", int)
"""Counts the assignments of this process: a partition that comes back has a new one."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The half-open range ``[start, until)`` of one partition; may be empty."""

    start: Offset
    until: Offset

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.until:
            raise ValueError(f"not an offset range: [{self.start}, {self.until})")

    def __len__(self) -> int:
        return self.until - self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.until})"
