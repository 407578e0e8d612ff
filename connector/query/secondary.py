"""Finds two sources of one query that would be two members of one group.

Each member would get only some of the partitions.  A join would silently miss pairs, and two branches with different
filters would miss records.  The two would also wait for each other, because Spark asks the sources of a query one after
the other.  So only the first source, the *primary* one, joins the group:

* A second source with the same options is *secondary*: it reads the batches that the primary source plans.  Spark
  makes one if a stream is joined with itself and neither side is renamed (4.3.0).  Spark Connect makes one for each
  place where a query uses the stream.
* A second source with other options is refused.

Spark does not tell a source which query it belongs to.  But it creates all sources of a query before it asks one for a
batch, and calls to the sources of one query never overlap.  When Spark asks a source for its first batch, the source
looks for another one that has answered its own first call and has waited since (:meth:`Note.may_come_before`):

* If Spark calls the other source meanwhile, they belong to two queries.  This is certain.
* If Spark does not call it for ten seconds, they belong to one query.  A batch follows the first call of a source, so
  its next call comes as soon as Spark has written the checkpoint.

The second finding may be wrong if the driver stands still.  Then the next calls show it, and the query ends with an
error before it has read a record, because the first batch of such a query is empty.

Runs in the source process, on its main thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.source_notes import LATEST_OFFSET, Note, Notes, PlannedBatch
from pyspark_kafka_group.wire.deadline import Deadline

# How long the primary source must not be called.  Between its answer and its next call Spark writes to the checkpoint,
# which takes a second or two on an object store.
_SILENCE_S = 10.0
_PAUSE_S = 0.05

# The same if both have the id of one query, and for the next calls: Spark calls a running source all the time.
_NEXT_SILENCE_S = 0.5
_UNSURE_CALLS = 2

Json = dict[str, Any]


class Sources:
    """The sources of one query, as one of them sees them.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    fingerprint : str
        Identifies the options of this source.
    created_at : float
        When Spark created this source, in seconds of the monotonic clock.
    joins : bool
        Whether this source may be secondary.  If not, a second source of a query is refused in any case.
    folder : Path, optional
        Where sources leave notes for each other.
    """

    def __init__(
        self, settings: Settings, fingerprint: str, created_at: float, *, joins: bool = True, folder: Path | None = None
    ) -> None:
        self._notes = Notes(settings, fingerprint, created_at, folder)
        self._joins = joins
        self._first_call = True
        self._unsure_calls = _UNSURE_CALLS
        self._seen = 0  # the number of the primary source's calls when this source was last asked for a batch

    @property
    def secondary(self) -> bool:
        """Whether this source reads the batches of another one.  Known after the first call for a batch."""
        return self._notes.own.primary is not None

    @property
    def expects_secondary(self) -> bool:
        """Whether another source with the same options waits for its first call."""
        own = self._notes.own
        return any(
            other.fingerprint == own.fingerprint and other.first_at is None and own.may_be_in_one_query_with(other)
            for other in self._notes.others()
        )

    @contextmanager
    def call(self, asked: str | None = None, query_id: str | None = None) -> Iterator[bool]:
        """Note a call.  Yield whether it is the first one for a batch, which decides whether this source is secondary.

        Parameters
        ----------
        asked : str or None
            ``LATEST_OFFSET`` or ``PARTITIONS``; None if the call is not for a batch.
        query_id : str or None
            The id of the query, from the offset that Spark has passed.

        Raises
        ------
        OptionError
            If another source of the same query reads the same topics in the same group with other options.
        """
        first, notes = self._first_call and asked is not None, self._notes
        if self._first_call and not first:
            yield False
            return
        self._first_call = False
        if notes.usable and not self.secondary:
            notes.write(running=True, calls=notes.own.calls + 1, asked=asked or notes.own.asked)
            # Spark calls all sources of the query before it calls this one again.  So all of them have left notes now.
            if notes.own.calls == 2 and not any(other.primary == notes.own.pid for other in notes.others()):
                notes.close()
        try:
            if first:
                notes.write(first_at=time.monotonic(), query_id=query_id)
                self._find_primary()
            yield first
        finally:
            notes.write(running=False)

    def planned(self, start: Json, end: Json, ranges: Mapping[TopicPartition, OffsetRange] | None = None) -> None:
        """Note the batch that the running call will return."""
        if self._notes.own.calls == 1 or start != end:
            rows = None if ranges is None else [(*tp, *r) for tp, r in ranges.items()]
            self._notes.write(planned=PlannedBatch(start, end, rows))

    def close(self) -> None:
        """Remove the notes, and stop writing."""
        self._notes.close()

    # -- of a secondary source

    def end_after(self, start: Json) -> Json:
        """Return the end of the batch that the primary source has planned; ``start`` itself if it has planned none."""
        note, planned = self._primary()
        # The newest call to the primary source must be for this batch.
        if note.asked != LATEST_OFFSET or note.calls <= self._seen:
            raise self._not_one_query()
        self._seen = note.calls
        if self._unsure_calls:
            self._unsure_calls -= 1
            if not self._stays_silent(note, _NEXT_SILENCE_S):
                raise self._not_one_query()
        if start not in (planned.start, planned.end):
            raise self._not_one_query()
        return planned.end

    def ranges_of(self, end: Json) -> Mapping[TopicPartition, OffsetRange]:
        """Return the ranges of the batch that ends at ``end``."""
        _, planned = self._primary()
        if planned.end != end:
            raise self._not_one_query()
        if planned.ranges is None:
            return BatchOffset.from_json(end).ranges()
        return {TopicPartition(t, n): OffsetRange(start, until) for t, n, start, until in planned.ranges}

    def _primary(self) -> tuple[Note, PlannedBatch]:
        note = None if self._notes.own.primary is None else self._notes.of(self._notes.own.primary)
        if note is None or note.running or note.planned is None:
            raise self._not_one_query()
        return note, note.planned

    def _not_one_query(self) -> OptionError:
        return OptionError(
            "kafka.group.id",
            f"two sources of the group {self._notes.own.group!r} seemed to belong to one query, but they belong to two "
            f"queries, or one of them has ended.",
            "This query has committed nothing. Start it again, with a new checkpoint if this was its first run. Start "
            "queries that share a group one after the other.",
        )

    # -- the search for the primary source

    def _find_primary(self) -> None:
        """Note the primary source of the query, unless this source is the first or the only one."""
        notes, own = self._notes, self._notes.own
        for other in notes.others():
            shared = other.shared_topics(own)
            if not shared or other.primary is not None or not other.may_come_before(own):
                continue
            if not self._stays_silent(other, _SILENCE_S if own.query_id is None else _NEXT_SILENCE_S):
                continue
            if other.fingerprint != own.fingerprint:
                raise OptionError(
                    "kafka.group.id",
                    f"two load() of this query read the same topics ({', '.join(shared)}) in the group {own.group!r} "
                    f"with different options, so each would get only some of the partitions.",
                    "Give both the same options, or give each load() a group of its own.",
                )
            if not self._joins:
                raise OptionError(
                    "kafka.group.id",
                    f"this query has two equal sources of the group {own.group!r}, for example in a join of the stream "
                    f"with itself. This is not supported with Spark 4.0 and 4.1.",
                    "Use Spark 4.2 or newer, or a load() for each with a group of its own.",
                )
            notes.write(primary=other.pid)
            # The primary source looks for this note in its next call.  If that call has just come, the source may have
            # missed the note.
            if self._waits(other):
                return
            notes.write(primary=None)

    def _stays_silent(self, other: Note, seconds: float) -> bool:
        """Wait, and return whether the source still runs and Spark has not called it in that time."""
        deadline = Deadline.after(seconds)
        while not deadline.passed:
            if not self._waits(other):
                return False
            time.sleep(_PAUSE_S)
        return True

    def _waits(self, other: Note) -> bool:
        """Return whether Spark has not called a source since it wrote ``other``."""
        now = self._notes.of(other.pid)
        return now is not None and not now.running and now.calls == other.calls
