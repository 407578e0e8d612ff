"""Finds two sources of one query that would be two members of one group, and refuses the second one.

Each member would get only some of the partitions.  A join would silently miss pairs, and two branches with different
filters would miss records.  Spark makes two sources if a stream is joined with itself and neither side is renamed
(4.3.0), and if two ``load()`` read the same.

Spark does not tell a source which query it belongs to.  But it creates all sources of a query before it asks one for a
batch, asks them one after the other, and calls to the sources of one query never overlap.  When Spark asks a source for
the end of a batch, the source looks for another one that has planned its first batch, and has waited since
(:meth:`Note.may_come_before`):

* If Spark calls the other source meanwhile, they belong to two queries.  This is certain.
* If Spark does not call it for ten seconds, they belong to one query.  The other one has planned a batch, so its next
  call comes as soon as Spark has written the checkpoint.

A source looks until it has planned its first batch.  A new query plans one at once.  After a restart, Spark may first
repeat a batch, which the last run has planned, or there is nothing to read.

The second finding may be wrong if the driver stands still.  The query that it ends has planned nothing.

Runs in the source process, on its main thread.
"""

from __future__ import annotations

import time
from pathlib import Path

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.source_notes import Note, Notes
from pyspark_kafka_group.wire.deadline import Deadline

# How long Spark must not call the first source.  Between its answer and its next call Spark writes to the checkpoint,
# which takes a second or two on an object store.
_SILENCE_S = 10.0
_PAUSE_S = 0.05


class SourceCheck:
    """The search of one source for another source of its query.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    created_at : float
        When Spark created this source, in seconds of the monotonic clock.
    folder : Path, optional
        Where sources leave notes for each other.
    """

    def __init__(self, settings: Settings, created_at: float, *, folder: Path | None = None) -> None:
        self._notes = Notes(settings, created_at, folder)

    def asked(self) -> None:
        """Note that Spark asks for the end of a batch, and look for another source.

        Raises
        ------
        OptionError
            If another source of the same query reads the same topics in the same group.
        """
        if self._notes.own.planned:
            # Spark has asked all sources of the query before it asks this one again.  So all have looked by now.
            self.close()
        if self._notes.usable:
            now = time.monotonic()
            self._notes.write(asked_at=now, first_at=self._notes.own.first_at or now)
            self._check_alone()

    def answered(self, *, planned: bool) -> None:
        """Note the answer, and whether it plans a batch."""
        if self._notes.usable:
            self._notes.write(planned=planned, waits_since=time.monotonic())

    def batch_runs(self) -> None:
        """Note that Spark runs a batch.  After a restart, it may be one of the last run."""
        if self._notes.own.planned:
            self.close()

    def close(self) -> None:
        """Remove the notes, and stop writing."""
        self._notes.close()

    def _check_alone(self) -> None:
        notes, own = self._notes, self._notes.own
        for other in notes.others():
            shared = other.shared_topics(own)
            if not shared or not other.may_come_before(own):
                continue
            if self._stays_silent(other):
                notes.close()
                raise OptionError(
                    "kafka.group.id",
                    f"two sources of this query read the same topics ({', '.join(shared)}) in the group "
                    f"{own.group!r}, so each would get only some of the partitions. Spark makes two sources of a "
                    f"stream that is joined with itself. If these are two queries, the driver has stood still, and you "
                    f"can start this one again.",
                    "Use two load(), each with a group of its own, or rename the columns of one side of the join with "
                    "toDF.",
                )

    def _stays_silent(self, other: Note) -> bool:
        """Wait, and return whether the source still runs and Spark has not called it in that time."""
        deadline = Deadline.after(_SILENCE_S)
        while not deadline.passed:
            if self._notes.of(other.pid) != other:
                return False
            time.sleep(_PAUSE_S)
        return True
