"""The digest of a batch: the number of its rows, and a sum over their content.  No Kafka, no Spark.

If Spark repeats a batch, it may spread the rows over other tasks, in another order.  So the digest is a sum, for which
neither matters.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from pyspark_kafka_group.columns.native_library import POINTER, NativePart
from pyspark_kafka_group.writing.native_rows import NativeColumn, NativeRows, layout_of
from pyspark_kafka_group.writing.record_rows import Rows

_BITS_64 = 2**64 - 1
_NULL = b"\xff\xff\xff\xff"
_POLYNOMIAL = 0xEDB88320  # of zlib's CRC-32


ROW_DIGEST = NativePart(
    "kg_digest_shared",
    (NativeColumn, NativeRows),
    {"kg_digest": (ctypes.c_uint64, (POINTER, POINTER, ctypes.c_int64))},
)
"""`_row_digest.c`."""


class RowDigest(NamedTuple):
    """The number of rows, and the sum of a 64-bit number for each row, computed from its topic, key and value."""

    rows: int = 0
    sum: int = 0


NO_ROWS = RowDigest()


def total(digests: Iterable[RowDigest]) -> RowDigest:
    """Return the digest of all rows together."""
    found = [*digests]
    return RowDigest(sum(one.rows for one in found), sum(one.sum for one in found) & _BITS_64)


def digest_of(rows: Rows) -> RowDigest:
    """Return the digest of some rows, computed in C if the C code is loaded."""
    seeds = [zlib.crc32(topic.encode()) for topic in rows.topics]
    library = ROW_DIGEST.library
    return RowDigest(rows.count, python_sum(rows, seeds) if library is None else _native_sum(library, rows, seeds))


def python_sum(rows: Rows, seeds: list[int]) -> int:
    """Return the sum, computed in Python; ``seeds`` are the checksums of the topics."""
    topic_of = [0] * rows.count if rows.topic is None else rows.topic.to_pylist()
    keys = [None] * rows.count if rows.key is None else rows.key.to_pylist()
    crc32 = zlib.crc32
    found = 0
    for topic, key, value in zip(topic_of, keys, rows.value.to_pylist(), strict=True):
        # The length of the key comes first: otherwise bytes could move from the key to the value with the same sum.
        size = _NULL if key is None else len(key).to_bytes(4, "little")
        code = crc32(key or b"", crc32(size, seeds[topic]))
        code = crc32(_NULL, code) if value is None else crc32(value, crc32(b".", code))
        # Squared, because a CRC is linear: otherwise rows that have exchanged their values would have the same sum.
        found += code * (2 * code + 1)
    return found & _BITS_64


def _native_sum(library: ctypes.CDLL, rows: Rows, seeds: list[int]) -> int:
    of_topics = (ctypes.c_uint32 * len(seeds))(*seeds)
    layout, alive = layout_of(rows, ctypes.addressof(of_topics))
    found: int = library.kg_digest(_tables(), ctypes.byref(layout), rows.count)
    del alive
    return found


@cache
def _tables() -> ctypes.Array[ctypes.c_uint32]:
    """Return the tables of the CRC: the effect of a byte before 0 to 7 zero bytes."""
    first = []
    for byte in range(256):
        code = byte
        for _ in range(8):
            code = code >> 1 ^ (_POLYNOMIAL if code & 1 else 0)
        first.append(code)
    tables = [first]
    for _ in range(7):
        tables.append([code >> 8 ^ first[code & 0xFF] for code in tables[-1]])
    return (ctypes.c_uint32 * (8 * 256))(*(code for table in tables for code in table))
