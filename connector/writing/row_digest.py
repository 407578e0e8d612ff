"""What tells one batch from another: the number of its rows, and a sum over what is in them; no Kafka, no Spark.

Spark may spread the rows of a batch over other tasks, in another order, when it runs the batch again.  So the digest is
a sum: neither the order of rows nor the tasks matter.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from pyspark_kafka_group.writing.record_rows import Rows

_BITS_64 = 2**64 - 1
_NULL = b"\xff\xff\xff\xff"


class RowDigest(NamedTuple):
    """How many rows there are, and the sum of a 64-bit number for each, made of its topic, key and value."""

    rows: int = 0
    sum: int = 0


NO_ROWS = RowDigest()


def total(digests: Iterable[RowDigest]) -> RowDigest:
    """Return the digest of the rows of all of these."""
    found = [*digests]
    return RowDigest(sum(one.rows for one in found), sum(one.sum for one in found) & _BITS_64)


def digest_of(rows: Rows) -> RowDigest:
    """Return the digest of some rows."""
    seeds = [zlib.crc32(topic.encode()) for topic in rows.topics]
    topic_of = [0] * rows.count if rows.topic is None else rows.topic.to_pylist()
    keys = [None] * rows.count if rows.key is None else rows.key.to_pylist()
    crc32 = zlib.crc32
    found = 0
    for topic, key, value in zip(topic_of, keys, rows.value.to_pylist(), strict=True):
        # The length of the key comes first: else the bytes between key and value could move.
        code = crc32(_NULL, seeds[topic]) if key is None else crc32(key, crc32(b"%d." % len(key), seeds[topic]))
        code = crc32(_NULL, code) if value is None else crc32(value, crc32(b".", code))
        # Squared: a CRC is linear, and rows whose values have changed places would have the same sum.
        found += code * (2 * code + 1)
    return RowDigest(rows.count, found & _BITS_64)
