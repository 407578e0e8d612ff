"""Finds two sources of one query that would be two members of one group.

Each member would get only some of the partitions.  A join would miss pairs, and two branches with filters of their own
would miss records, without a word.  The two would also wait for each other, because Spark asks the sources of a query
one after the other.  So only the first source, the *primary* one, joins the group:

* A second source of the same ``load()`` is *secondary*: it reads the batches that the primary source plans.  Spark
  makes one if a stream is joined with itself and neither side is renamed (4.3.0).
* A second source of another ``load()`` is refused.

Spark does not tell a source which query it belongs to.  But it creates all sources of a query before it asks one for a
batch, and calls to the sources of one query never overlap.  When Spark asks a source for its first batch, the source
looks for another one that has answered its own first call and waits since (:meth:`Note.may_come_before`):

* If Spark calls the other source meanwhile, they belong to two queries.  This is certain.
* If Spark does not call it for ten seconds, they belong to one query.  A batch follows the first call of a source, so
  its next call comes as soon as Spark has written the checkpoint.

The second finding may be wrong if the driver stands still.  Then the next calls show it, and the query ends with an
error before it has read a record, because the first batch of such a query is empty.

Runs in the source process, on its main thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.query.source_notes import LATEST_OFFSET, Note, Notes, Planned
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import Address

# How long the primary source must not be called.  Between its answer and its next call Spark writes to the checkpoint,
# which takes a second or two on an object store.
_SILENCE_S = 10.0
_PAUSE_S = 0.05

# The same if both have the name of one query, and for the next calls: a source that runs is called all the time.
_NEXT_SILENCE_S = 0.5
_UNSURE_CALLS = 2

Json = dict[str, Any]


def find_primary(notes: Notes) -> SecondaryQuery | None:
    """Return this source as the secondary one of its query; None if it is the first, or the only one.

    Parameters
    ----------
    notes : Notes
        The notes of this source.  Its first call for a batch is noted, and runs.

    Raises
    ------
    OptionError
        If another ``load()`` of the same query reads the same topics in the same group.
    """
    own = notes.own
    for other in notes.others():
        shared = other.shared_topics(own)
        if not shared or other.primary is not None or not other.may_come_before(own):
            continue
        if not _stays_silent(notes, other, _SILENCE_S if own.query_id is None else _NEXT_SILENCE_S):
            continue
        if other.load != own.load:
            raise _two_members(own.group, shared)
        notes.write(primary=other.pid)
        # The primary source looks for this note when it is called again.  If that was just now, it may have missed it.
        if _waits(notes, other):
            return SecondaryQuery(notes, other.pid)
        notes.write(primary=None)
    return None


class SecondaryQuery:
    """One run of a query, seen from its second source; in place of :class:`~pyspark_kafka_group.query.query.Query`.

    Parameters
    ----------
    notes : Notes
        The notes of this source.
    primary : int
        The process of the primary source.
    """

    leaders: Mapping[TopicPartition, Address] = {}
    warming_tasks = 0  # those of the primary source make the query warm

    def __init__(self, notes: Notes, primary: int) -> None:
        self._notes = notes
        self._primary = primary
        self._unsure_calls = _UNSURE_CALLS
        self._seen = 0  # the number of the primary source's calls when this source was last asked for a batch

    def fix_target(self) -> None:
        """Do nothing: the primary source ends where it has to."""

    def read_all(self) -> None:
        """Do nothing: Spark calls the primary source as well."""

    def latest_offset(self, start: Json, _max_rows: int | None) -> Json:
        """Return the end of the batch that the primary source has planned; ``start`` itself if it has planned none."""
        note, planned = self._read()
        # Spark has just asked the primary source for the same, and for nothing since.
        if note.asked != LATEST_OFFSET or note.calls <= self._seen:
            raise self._not_one_query()
        self._seen = note.calls
        if self._unsure_calls:
            self._unsure_calls -= 1
            if not _stays_silent(self._notes, note, _NEXT_SILENCE_S):
                raise self._not_one_query()
        if planned.start == start:
            return planned.end
        if planned.end == start:
            return start
        raise self._not_one_query()

    def running_ranges(self, _start: Json, end: Json) -> Mapping[TopicPartition, OffsetRange]:
        """Return what the batch that ends at ``end`` reads."""
        _, planned = self._read()
        if planned.end != end:
            raise self._not_one_query()
        return BatchOffset.from_json(end).ranges() if planned.ranges is None else planned.ranges

    def finish(self, _end: Json) -> None:
        """Do nothing: Spark calls the primary source as well."""

    def report(self) -> Json | None:
        """Return None: the progress shows the group with the primary source."""
        return None

    def check_running(self) -> None:
        """Do nothing: the primary source raises if the query is being stopped."""

    def interrupt(self) -> bool:
        """Return False: nothing is lost by an exception in the middle of a call."""
        return False

    def stop(self) -> None:
        """Do nothing: there is no membership to end."""

    def _read(self) -> tuple[Note, Planned]:
        note, planned = self._notes.of(self._primary), self._notes.planned_of(self._primary)
        if note is None or note.running or planned is None:
            raise self._not_one_query()
        return note, planned

    def _not_one_query(self) -> OptionError:
        return OptionError(
            "kafka.group.id",
            f"two sources of the group {self._notes.own.group!r} looked like two of one query, but they belong to two "
            f"queries, or one of them has ended.",
            "Nothing was committed for this one. Start the query again, with a new checkpoint if this was its first "
            "run. Start queries that share a group one after the other.",
        )


class PrimarySource:
    """Keeps the notes of a source that may have secondary ones, as long as it may have some.

    Parameters
    ----------
    notes : Notes
        The notes of this source.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def expects_secondary(self) -> bool:
        """Return whether another source of the same ``load()`` waits for its first call."""
        own = self._notes.own
        return any(
            other.load == own.load and other.first_at is None and own.may_be_in_one_query_with(other)
            for other in self._notes.others()
        )

    def called(self, asked: str | None = None) -> None:
        """Note that a call begins; ``asked`` if it asks for a batch."""
        notes = self._notes
        if not notes.usable or notes.own.primary is not None:
            return
        notes.write(running=True, calls=notes.own.calls + 1, asked=asked or notes.own.asked)
        # Spark calls all sources of the query before it calls this one again.  So now they are known.
        if notes.own.calls == 2 and not any(other.primary == notes.own.pid for other in notes.others()):
            notes.close()

    def answered(self) -> None:
        """Note that the call has ended."""
        self._notes.write(running=False)

    def planned(self, planned: Planned) -> None:
        """Note the batch that the running call returns.  Comes before Spark gets it."""
        own = self._notes.own
        if own.primary is None and (own.calls == 1 or planned.start != planned.end):
            self._notes.write_planned(planned)


def _stays_silent(notes: Notes, other: Note, seconds: float) -> bool:
    """Wait; return whether a source was not called in all that time, and still runs."""
    deadline = Deadline.after(seconds)
    while not deadline.passed:
        if not _waits(notes, other):
            return False
        time.sleep(_PAUSE_S)
    return True


def _waits(notes: Notes, other: Note) -> bool:
    """Return whether a source has not been called since it wrote ``other``."""
    now = notes.of(other.pid)
    return now is not None and not now.running and now.calls == other.calls


def _two_members(group: str, shared: list[str]) -> OptionError:
    return OptionError(
        "kafka.group.id",
        f"two load() of this query read the same topics ({', '.join(shared)}) in the group {group!r}, so each would "
        f"get only some of the partitions.",
        "Use one load() for both, or give each load() a group of its own.",
    )
