"""One source of a running query: a member of the group, or the guest of another source that is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.cluster.dead_letter_topic import require_dead_letter_topic
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.guest_query import GuestQuery
from pyspark_kafka_group.query.query import Query
from pyspark_kafka_group.query.siblings import Siblings
from pyspark_kafka_group.query.source_calls import LATEST_OFFSET, PARTITIONS
from pyspark_kafka_group.wire.types import Address

Json = dict[str, Any]


class SourceRun:
    """What Spark calls, in the order of its calls; the first call for a batch decides which of the two it is.

    Parameters
    ----------
    settings : Settings
        The parsed options.

    Raises
    ------
    OptionError
        There is no topic for dead letters.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.formats is not None and settings.formats.dead_letter_topic is not None:
            require_dead_letter_topic(settings.group.properties, settings.formats.dead_letter_topic)
        self._siblings = Siblings(settings)
        self._query: Query | GuestQuery = Query(settings)
        self._decided = False

    def announce(self) -> None:
        """Note that Spark asks for the read limit."""
        self._siblings.announce()

    def note_call(self) -> None:
        """Note a call that asks for nothing."""
        with self._siblings.call():
            pass

    def fix_target(self) -> None:
        """See :meth:`~pyspark_kafka_group.query.query.Query.fix_target`."""
        self._query.fix_target()

    def read_all(self) -> None:
        """See :meth:`~pyspark_kafka_group.query.query.Query.read_all`."""
        self._query.read_all()

    def latest_offset(self, start: Json, max_rows: int | None) -> Json:
        """See :meth:`~pyspark_kafka_group.query.query.Query.latest_offset`."""
        with self._siblings.call(LATEST_OFFSET):
            self._decide(start)
            end = self._query.latest_offset(start, max_rows)
            self._siblings.answer(start, end)
        return end

    def running_ranges(self, start: Json, end: Json) -> Mapping[TopicPartition, OffsetRange]:
        """See :meth:`~pyspark_kafka_group.query.query.Query.running_ranges`."""
        with self._siblings.call(PARTITIONS):
            again = self._decide(end)
            ranges = self._query.running_ranges(start, end)
            if again:
                self._siblings.answer(start, end, ranges)
        return ranges

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """Who leads the partitions, as far as it is known."""
        return self._query.leaders

    @property
    def warming_tasks(self) -> int:
        """See :attr:`~pyspark_kafka_group.query.query.Query.warming_tasks`."""
        return self._query.warming_tasks

    def finish(self, end: Json) -> None:
        """See :meth:`~pyspark_kafka_group.query.query.Query.finish`."""
        with self._siblings.call():
            self._query.finish(end)

    def report(self) -> Json | None:
        """See :meth:`~pyspark_kafka_group.query.query.Query.report`."""
        return self._query.report()

    def check_running(self) -> None:
        """See :meth:`~pyspark_kafka_group.query.query.Query.check_running`."""
        self._query.check_running()

    def interrupt(self) -> bool:
        """See :meth:`~pyspark_kafka_group.query.query.Query.interrupt`."""
        return self._query.interrupt()

    def stop(self) -> None:
        """See :meth:`~pyspark_kafka_group.query.query.Query.stop`."""
        try:
            self._siblings.close()
        finally:
            self._query.stop()

    def _decide(self, offset: Json) -> bool:
        """Find out, with the first call for a batch, who is the member; tell whether this was that call."""
        if self._decided:
            return False
        self._decided = True
        host = self._siblings.find_host(BatchOffset.from_json(offset).query_id)
        if host is not None:
            self._query.stop()
            self._query = GuestQuery(host)
        elif self._siblings.may_have_guests and isinstance(self._query, Query):
            self._query.begin_empty()
        return True
