"""Where a batch read begins and ends, as its options say.  Values only.

A bound describes a place in the log; :mod:`pyspark_kafka_group.batch.resolving` finds its offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark_kafka_group.offsets.start_inputs import StartingOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition


class NotCommitted(Enum):
    """The words of ``startingOffsetsIfNotCommitted``."""

    EARLIEST = "earliest"  # the beginning of the log
    LATEST = "latest"  # the end, for a topic of which the group has no offset: the read returns nothing
    FAIL = "fail"  # end the read with a named error


@dataclass(frozen=True, slots=True)
class AtCommitted:
    """The group's committed offset.

    Attributes
    ----------
    otherwise : NotCommitted or None
        The option ``startingOffsetsIfNotCommitted``; None if it is not set.
    """

    otherwise: NotCommitted | None


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of a time or later.

    Attributes
    ----------
    time_ms : int
        The time, in milliseconds since 1970.
    option : str
        The option that sets the time.
    """

    time_ms: int
    option: str


Bound = Offset | StartingOffset | AtTime | AtCommitted
"""The bound of one partition."""


class NamedBounds(NamedTuple):
    """A bound for each partition that is read.

    Attributes
    ----------
    partitions : mapping of TopicPartition to Bound
        The bounds of single partitions.
    topics : mapping of str to Bound
        The bounds of whole topics.
    """

    partitions: Mapping[TopicPartition, Bound]
    topics: Mapping[str, Bound]

    def of(self, tp: TopicPartition) -> Bound:
        """Return the bound of a partition."""
        return self.partitions[tp] if tp in self.partitions else self.topics[tp.topic]


Bounds = Bound | NamedBounds
"""The same bound for all partitions, or a bound for each."""


class Span(NamedTuple):
    """The part of one partition to read: from one bound (inclusive) to another (exclusive)."""

    start: Bound
    until: Bound
