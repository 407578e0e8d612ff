"""Finds two sources of one query that would be two members of one group, and refuses the second one.

Each member would get only some of the partitions.  A join would silently miss pairs, and two branches with different
filters would miss records.  Spark makes two sources if a stream is joined with itself and neither side is renamed
(4.3.0), and if two ``load()`` read the same.

Spark does not tell a source which query it belongs to.  But it creates all sources of a query before it asks one for a
batch, and calls to the sources of one query never overlap.  When Spark asks a source for its first batch, the source
looks for another one that has answered its own first call and has waited since (:meth:`Note.may_come_before`):

* If Spark calls the other source meanwhile, they belong to two queries.  This is certain.
* If Spark does not call it for ten seconds, they belong to one query.  A batch follows the first call of a source, so
  its next call comes as soon as Spark has written the checkpoint.

The second finding may be wrong if the driver stands still.  The query that it ends has read nothing.

Runs in the source process, on its main thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.source_notes import Note, Notes
from pyspark_kafka_group.wire.deadline import Deadline

# How long Spark must not call the first source.  Between its answer and its next call Spark writes to the checkpoint,
# which takes a second or two on an object store.
_SILENCE_S = 10.0
_PAUSE_S = 0.05

# The same if both have the id of one query.
_KNOWN_SILENCE_S = 0.5


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

    @contextmanager
    def call(self, query_id: str | None) -> Iterator[None]:
        """Note a call for a batch.  The first one looks for another source.

        Parameters
        ----------
        query_id : str or None
            The id of the query, from the offset that Spark has passed.

        Raises
        ------
        OptionError
            If another source of the same query reads the same topics in the same group.
        """
        notes = self._notes
        if not notes.usable:
            yield
            return
        first = notes.own.calls == 0
        notes.write(running=True, calls=notes.own.calls + 1)
        try:
            if first:
                notes.write(first_at=time.monotonic(), query_id=query_id)
                self._check_alone()
            else:
                # Spark calls all sources of the query before it calls this one again.  So all have looked by now.
                notes.close()
            yield
        finally:
            notes.write(running=False)

    def close(self) -> None:
        """Remove the notes, and stop writing."""
        self._notes.close()

    def _check_alone(self) -> None:
        notes, own = self._notes, self._notes.own
        for other in notes.others():
            shared = other.shared_topics(own)
            if not shared or not other.may_come_before(own):
                continue
            if self._stays_silent(other, _SILENCE_S if own.query_id is None else _KNOWN_SILENCE_S):
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

    def _stays_silent(self, other: Note, seconds: float) -> bool:
        """Wait, and return whether the source still runs and Spark has not called it in that time."""
        deadline = Deadline.after(seconds)
        while not deadline.passed:
            now = self._notes.of(other.pid)
            if now is None or now.running or now.calls != other.calls:
                return False
            time.sleep(_PAUSE_S)
        return True
