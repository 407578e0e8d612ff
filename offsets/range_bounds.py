"""Where a batch read begins and ends, as its options say it: values only, and what they mean together.

A bound says what to look for in the log; :mod:`pyspark_kafka_group.batch.resolving` finds the offset.
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
    LATEST = "latest"  # its end, for a topic of which the group has no offset: nothing is read
    FAIL = "fail"  # end the read with a named error


@dataclass(frozen=True, slots=True)
class AtCommitted:
    """The group's committed offset.

    Attributes
    ----------
    otherwise : NotCommitted or None
        ``startingOffsetsIfNotCommitted``; None if it is not given.
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
        The option that says so.
    """

    time_ms: int
    option: str


Bound = Offset | StartingOffset | AtTime | AtCommitted
"""Of one partition."""


class NamedBounds(NamedTuple):
    """One for each partition that is read.

    Attributes
    ----------
    partitions : mapping of TopicPartition to Bound
        Those of single partitions.
    topics : mapping of str to Bound
        Those of whole topics.
    """

    partitions: Mapping[TopicPartition, Bound]
    topics: Mapping[str, Bound]

    def of(self, tp: TopicPartition) -> Bound:
        """Return that of a partition."""
        return self.partitions[tp] if tp in self.partitions else self.topics[tp.topic]


Bounds = Bound | NamedBounds
"""The same for all partitions, or one for each."""


class Span(NamedTuple):
    """What to read of one partition: from one bound (inclusive) to another (exclusive)."""

    start: Bound
    until: Bound
