"""Decides which records of a batch a table lacks, and whether it lacks earlier ones.  Pure.

A table stores the next offset of each topic-partition.  It has every record below, except those that a rollback has
removed, which its history shows (:mod:`pyspark_kafka_group.stores.lake_history`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores.lake_history import OffsetSpan


def missing(span: OffsetSpan, next_offset: int | None, lost: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    """Return the offsets of a batch whose records the table lacks, in order.

    Parameters
    ----------
    span : OffsetSpan
        The offsets that the batch reads.
    next_offset : int or None
        The next offset that the table stores; None if it stores none.
    lost : sequence of OffsetSpan
        The offsets that a rollback has removed.
    """
    if next_offset is None:
        return [span]
    removed = (OffsetSpan(s.start, min(s.until, next_offset)) for s in lost)
    parts = (_common(part, span) for part in (*removed, OffsetSpan(next_offset, max(next_offset, span.until))))
    return [part for part in parts if part.start < part.until]


def behind(
    ranges: Mapping[TopicPartition, ReadRange], next_offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int | None, int]]:
    """Return the partitions whose stored offset is below what the group has finished, with both offsets."""
    found: dict[TopicPartition, tuple[int | None, int]] = {}
    for tp, r in ranges.items():
        stored = next_offsets.get(tp)
        if r.begun if stored is None else stored < r.finished:
            found[tp] = (stored, r.finished)
    return found


def uncovered(span: OffsetSpan, parts: Iterable[OffsetSpan]) -> bool:
    """Return whether the parts that tasks have read are not exactly the offsets of a batch."""
    at = span.start
    for part in sorted(parts):
        if part.start != at:
            return True
        at = part.until
    return at != span.until


def holds(parts: Iterable[OffsetSpan], first: int, last: int) -> bool:
    """Return whether one of the parts contains all offsets from ``first`` to ``last``."""
    return any(part.start <= first and last < part.until for part in parts)


def touches(parts: Iterable[OffsetSpan], first: int, last: int) -> bool:
    """Return whether one of the parts contains an offset from ``first`` to ``last``."""
    return any(part.start <= last and first < part.until for part in parts)


def _common(one: OffsetSpan, other: OffsetSpan) -> OffsetSpan:
    return OffsetSpan(max(one.start, other.start), min(one.until, other.until))
