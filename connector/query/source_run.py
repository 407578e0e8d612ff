"""One source of a running query: a member of the group, or a secondary source that reads what another one plans."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.cluster.dead_letter_topic import require_dead_letter_topic
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.query import Query
from pyspark_kafka_group.query.secondary import PrimarySource, SecondaryQuery, find_primary
from pyspark_kafka_group.query.source_notes import LATEST_OFFSET, PARTITIONS, Notes, Planned

Json = dict[str, Any]


class SourceRun:
    """The calls of Spark that tell whether this source is a member; all others go to :attr:`query`.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    load : str
        Identifies the ``load()`` of this source.
    created_at : float
        When Spark created this source, in seconds of the monotonic clock.
    folder : Path, optional
        Where sources leave notes for each other.

    Attributes
    ----------
    query : Query or SecondaryQuery
        What Spark calls; the first call for a batch decides which of the two it is.

    Raises
    ------
    OptionError
        If the topic for dead letters does not exist.
    """

    def __init__(self, settings: Settings, load: str, created_at: float, folder: Path | None = None) -> None:
        if settings.formats is not None and settings.formats.dead_letter_topic is not None:
            require_dead_letter_topic(settings.group.properties, settings.formats.dead_letter_topic)
        self.query: Query | SecondaryQuery = Query(settings)
        self._notes = Notes(settings, load, created_at, folder)
        self._notes.open()
        self._primary = PrimarySource(self._notes)
        self._decided = False

    def latest_offset(self, start: Json, max_rows: int | None) -> Json:
        """See :meth:`~pyspark_kafka_group.query.query.Query.latest_offset`."""
        with self._call(LATEST_OFFSET, start):
            end = self.query.latest_offset(start, max_rows)
            self._primary.planned(Planned(start, end))
        return end

    def running_ranges(self, start: Json, end: Json) -> Mapping[TopicPartition, OffsetRange]:
        """See :meth:`~pyspark_kafka_group.query.query.Query.running_ranges`."""
        again = not self._decided
        with self._call(PARTITIONS, end):
            ranges = self.query.running_ranges(start, end)
            if again:
                self._primary.planned(Planned(start, end, ranges))
        return ranges

    def finish(self, end: Json) -> None:
        """See :meth:`~pyspark_kafka_group.query.query.Query.finish`."""
        with self._call():
            self.query.finish(end)

    def stop(self) -> None:
        """See :meth:`~pyspark_kafka_group.query.query.Query.stop`."""
        try:
            self._notes.close()
        finally:
            self.query.stop()

    @contextmanager
    def _call(self, asked: str | None = None, offset: Json | None = None) -> Iterator[None]:
        """Note a call; the first one for a batch, with its offset, decides whether this source is the primary one."""
        if asked is None and not self._decided:
            yield
            return
        self._primary.called(asked)
        try:
            if not self._decided:
                self._decided = True
                assert offset is not None
                self._decide(BatchOffset.from_json(offset).query_id)
            yield
        finally:
            self._primary.answered()

    def _decide(self, query_id: str | None) -> None:
        self._notes.write(first_at=time.monotonic(), query_id=query_id)
        secondary = find_primary(self._notes)
        if secondary is not None:
            self.query.stop()
            self.query = secondary
        elif isinstance(self.query, Query) and self._primary.expects_secondary():
            self.query.begin_empty()
