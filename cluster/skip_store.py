"""Keeps skip markers as committed offsets of a companion group.  Each query has one; it never has members.

A Python source cannot store anything in Spark's checkpoint.  Brokers delete the offsets of a group without members
after ``offsets.retention.minutes`` (7 days).  The query needs the markers until the batch after the skip is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from itertools import repeat

from pyspark_kafka_group.cluster.channel import CONNECT_TIMEOUT_S
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.cluster.properties.client_config import Properties
from pyspark_kafka_group.offsets.errors import BrokerError, OffsetFormatError
from pyspark_kafka_group.offsets.notes import SkipNote, read
from pyspark_kafka_group.offsets.skip_markers import Markers, SkipMarker
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

# Pause before asking again.
_RETRY_S = 0.1

# How many hashes Java's strings can have, and how many letters give a string any of them.
_HASHES = 2**32
_END = 8


def companion_group(group_id: str, query_id: str) -> str:
    """Return the group that keeps the markers of a query.  A right on the prefix ``group_id`` covers it.

    The end of its name gives both groups the same coordinator, so a query can start as soon as its own group answers.
    """
    begin = f"{group_id}-skips-{query_id}-"
    return begin + _end_with_hash(begin, _java_hash(group_id))


def _java_hash(text: str) -> int:
    """Return Java's ``hashCode``, by which brokers choose the coordinator of a group."""
    units = text.encode("utf-16-be")
    found = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) % _HASHES
    return found


def _end_with_hash(begin: str, wanted: int) -> str:
    """Return letters after which ``begin`` has the wanted hash; there are some 50 such ends."""
    rest = wanted - _java_hash(begin) * 31**_END - sum(ord("a") * 31**n for n in range(_END))
    for distance in range(rest % _HASHES, 26 * 31 ** (_END - 1), _HASHES):
        digits = [distance // 31**n % 31 for n in reversed(range(_END))]
        if max(digits) < 26:
            return "".join(chr(ord("a") + digit) for digit in digits)
    return ""  # never seen; any coordinator would do


class SkipStore:
    """Reads and writes the markers of one query.  Belongs to one thread."""

    def __init__(self, properties: Properties, *, group_id: str, query_id: str) -> None:
        self._group = companion_group(group_id, query_id)
        self._cluster = connect(properties, client_id=f"{self._group}-offsets")

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def read(self, partitions: Collection[TopicPartition]) -> Markers:
        """Return the markers of ``partitions``.

        Raises
        ------
        TryAgainError
            If the cluster does not answer.
        AuthenticationError
            If the user may not describe the companion group.
        OffsetFormatError
            If a marker is damaged, or a newer version has written it.
        """
        found, failed = self._cluster.committed(self._group, partitions, require_stable=True)
        for tp, name in failed.items():
            raise TryAgainError(f"skip marker of {tp}: {name}")
        markers = {tp: _markers(tp, stored.metadata) for tp, stored in found.items()}
        return {tp: of_one for tp, of_one in markers.items() if of_one}

    def write(self, markers: Markers) -> None:
        """Make ``markers`` durable.

        Raises
        ------
        TryAgainError
            If the cluster does not answer.
        AuthenticationError
            If the user may not commit to the companion group.
        """
        offsets = {tp: (of_one[-1].range.start, None, SkipNote(of_one).encode()) for tp, of_one in markers.items()}
        for tp, name in self._cluster.commit(self._group, "", -1, None, offsets).items():
            raise TryAgainError(f"skip marker of {tp}: {name}")


def _markers(tp: TopicPartition, metadata: str | None) -> tuple[SkipMarker, ...]:
    note = read(metadata, tp)
    if not isinstance(note, SkipNote):
        # It must not count as "nothing was skipped": those records would be lost.
        raise OffsetFormatError("it is damaged.", what=f"The skip marker of {tp}")
    return note.markers


def read_markers(open_store: Callable[[], SkipStore], partitions: Collection[TopicPartition]) -> Markers:
    """Return the markers of a query's former runs.

    Raises
    ------
    BrokerError
        If the cluster does not answer within :data:`~pyspark_kafka_group.cluster.channel.CONNECT_TIMEOUT_S`.
    AuthenticationError
        If the user may not describe the companion group.  The user may have lost the right since a marker was
        written.
    """
    with closing(open_store()) as store:
        try:
            return patiently(lambda: store.read(partitions), Deadline.after(CONNECT_TIMEOUT_S), repeat(_RETRY_S))
        except TryAgainError as problem:
            raise BrokerError(
                f"The query could not find out within {CONNECT_TIMEOUT_S:g} s which ranges of its last batch it has "
                f"left to other queries: {problem}. Check the cluster, and start the query again."
            ) from None


def write_markers(open_store: Callable[[], SkipStore], markers: Markers) -> None:
    """Make ``markers`` durable; raises as :meth:`SkipStore.write` does."""
    with closing(open_store()) as store:
        store.write(markers)
