"""The values that all rooms share: topic-partitions, which `wire` defines, and half-open offset ranges."""

from __future__ import annotations

from typing import NamedTuple, NewType

from pyspark_kafka_group.wire.types import TopicPartition

__all__ = ["Offset", "OffsetRange", "OwnershipEpoch", "TopicPartition"]

Offset = NewType("Offset", int)
"""The offset of a record.  A position or a committed offset is the offset of the *next* record to read."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition (KIP-101).  Beside an offset: an epoch under which the log had everything
below it.
"""

OwnershipEpoch = NewType("OwnershipEpoch", int)
"""Counts the assignments of this process: a partition that comes back has a new one."""


LARGEST_OFFSET = 2**63 - 1
LARGEST_NUMBER = 2**31 - 1
"""The largest number of a partition, or of a leader epoch, in Kafka's protocol."""


def is_name(text: str) -> bool:
    """Return whether Kafka's protocol can carry a name.  JSON may contain half of a surrogate pair, UTF-8 may not."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


def printable(text: str) -> str:
    """Return a text without characters that control a terminal or begin a line, for names that others have chosen."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


class OffsetRange(NamedTuple):
    """The half-open range ``[start, until)`` of one partition; may be empty.

    Deliberate: not a dataclass that checks itself.  Each batch makes one for every partition, and checks would take
    four times as long.  Values from outside are checked where they come in.
    """

    start: Offset
    until: Offset

    @classmethod
    def checked(cls, start: int, until: int) -> OffsetRange:
        """Return a range from values that come from outside.

        Raises
        ------
        ValueError
            If they are not a range.
        """
        if not 0 <= start <= until <= LARGEST_OFFSET:
            raise ValueError(f"not an offset range: [{start}, {until})")
        return cls(Offset(start), Offset(until))

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.until - self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.until})"
