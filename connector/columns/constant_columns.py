"""Columns with one value for all records of a topic-partition.  Mostly the timestamp type is one of them."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("pyspark_kafka_group.reading")

MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
"""The longest time before or after 1970 that fits into Spark's 64-bit microseconds."""


class ConstantColumns:
    """Columns of equal values for batches of one topic-partition.

    Parameters
    ----------
    topic, partition
        The topic-partition.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._made: dict[tuple[str, int], pa.Array] = {}

    def topic(self, length: int) -> pa.Array:
        """Return the column ``topic``."""
        return self._column(("topic", 0), length, lambda: _text(self._topic))

    def partition(self, length: int) -> pa.Array:
        """Return the column ``partition``."""
        return self._column(("partition", 0), length, lambda: _number(self._partition))

    def timestamp_type(self, kafka_type: int, length: int) -> pa.Array:
        """Return the column ``timestampType`` for records that all have `kafka_type`, the id of a ``TimestampType``."""
        return self._column(("timestampType", kafka_type), length, lambda: _number(kafka_type))

    def _column(self, key: tuple[str, int], length: int, value: Callable[[], pa.Scalar]) -> pa.Array:
        """Return the value `length` times, as a slice of the longest column so far."""
        import pyarrow as pa

        made = self._made.get(key)
        if made is None or len(made) < length:
            made = self._made[key] = pa.repeat(value(), length)
        return made.slice(0, length)

    def warn_of_timestamps(self, count: int, first_offset: int) -> None:
        """Warn that the timestamps of `count` records have become null.

        This is a producer's mistake, for example nanoseconds.  Spark's own source fails with an arithmetic overflow,
        again after each restart.  Here the column is nullable, and Spark cannot represent such a time.
        """
        log.warning(
            "%s: %d records from offset %d on have a timestamp that Spark cannot represent. It becomes null.",
            f"{self._topic}-{self._partition}",
            count,
            first_offset,
        )


# Deliberate: from buffers.  pa.scalar and pa.array import pandas to check the type of the value (pyarrow 26.0.1).  That
# takes 0.3 s in each new worker, and nothing else needs it.


def _text(value: str) -> pa.Scalar:
    """Return a text as a scalar."""
    import pyarrow as pa

    encoded = value.encode()
    ends = pa.py_buffer(struct.pack("=ii", 0, len(encoded)))
    return pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(encoded)])[0]


def _number(value: int) -> pa.Scalar:
    """Return a number as a scalar of 32 bits."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(struct.pack("=i", value))])[0]
