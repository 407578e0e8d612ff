"""A source of a query of which another source is the group's member: it reads what that one plans.

Spark makes a second source where a stream is joined with itself, or loaded twice.  See
:mod:`~pyspark_kafka_group.query.siblings` for how the two find each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.query.siblings import Host
from pyspark_kafka_group.query.source_calls import LATEST_OFFSET, PARTITIONS
from pyspark_kafka_group.wire.types import Address

Json = dict[str, Any]


class GuestQuery:
    """One run of a query, seen from its second source; in place of :class:`~pyspark_kafka_group.query.query.Query`.

    Parameters
    ----------
    host : Host
        The source that is the member.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    def fix_target(self) -> None:
        """Do nothing: the host ends where it has to."""

    def read_all(self) -> None:
        """Do nothing: the host is told the same."""

    def latest_offset(self, start: Json, _max_rows: int | None) -> Json:
        """Return the end of the batch that the host has planned; ``start`` itself if it has planned none."""
        planned = self._host.planned(LATEST_OFFSET)
        if planned.start == start:
            return planned.end
        if planned.end == start:
            return start
        raise self._host.not_one_query()

    def running_ranges(self, _start: Json, end: Json) -> Mapping[TopicPartition, OffsetRange]:
        """Return what the batch that ends at ``end`` reads."""
        planned = self._host.planned(PARTITIONS)
        if planned.end != end:
            raise self._host.not_one_query()
        return BatchOffset.from_json(end).ranges() if planned.ranges is None else planned.ranges

    @property
    def warming_tasks(self) -> int:
        """None: those of the host make the query warm."""
        return 0

    def finish(self, _end: Json) -> None:
        """Do nothing: the host is told the same."""

    def report(self) -> Json | None:
        """Return None: the progress shows the group where it shows the host."""
        return None

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """Return nothing: the host knows."""
        return {}

    def check_running(self) -> None:
        """Do nothing: the host says when the query is being stopped."""

    def interrupt(self) -> bool:
        """Return False: nothing is lost by an exception in the middle of a call."""
        return False

    def stop(self) -> None:
        """Do nothing: there is no membership to end."""
