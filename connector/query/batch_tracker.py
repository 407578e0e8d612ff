"""Finds out that a batch is durably finished before the next trigger, when Spark reports it.

There are two ways:

* The listener in the user's process reports it over the control socket.
* Spark's commit log shows it, if the option ``checkpointLocation`` names the checkpoint.  The source reads this log
  only while a member waits for the end of a batch.

If neither way is set up, and triggers are far apart, the source logs one warning.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.spark_commit_log import last_finished

_log = logging.getLogger(__name__)

# The pause between two reads of the commit log while a member waits.  A read takes two system calls for each file in
# the log, of which Spark keeps 100.
_READ_PAUSE_S = 0.2

# Longer than most batches, and shorter than triggers that are far apart to save resources.
_FAR_APART_S = 10.0

# Deliberate: no warning after the first batch.  It often takes long, because it reads the backlog.
_FAR_APART_TIMES = 2


class BatchTracker:
    """Finds out which batches are finished, and reports them to the group thread.

    Parameters
    ----------
    group : Membership
        The membership, already begun.
    client_id : str
        The beginning of each log line.
    checkpoint : Path or None
        The checkpoint of the query.
    """

    def __init__(self, group: Membership, *, client_id: str, checkpoint: Path | None) -> None:
        self._group = group
        self._client_id = client_id
        self._checkpoint = checkpoint
        self._was_reported = False  # written by threads of the control socket; read by Spark's thread
        self._planned_at: float | None = None  # this and the next two: Spark's thread only
        self._times_far_apart = 0
        self._checked = False
        self._closed = threading.Event()
        if checkpoint is not None:
            # A daemon: nothing here may keep the process alive.
            threading.Thread(target=self._watch, name="kafka-group-commit-log", daemon=True).start()

    def report(self, end: Any) -> None:
        """Report that the batch that ends at ``end`` is finished.  Any thread.

        Raises
        ------
        KafkaGroupError
            If the membership has ended, or if ``end`` is not an offset.
        """
        self._was_reported = True
        self._group.finish(BatchOffset.from_json(end))

    def read_commit_log(self) -> None:
        """Read the commit log, if a batch is in flight and the option names the checkpoint.

        Never raises, and does not wait for the group thread: a signal handler may call it.
        """
        batch = self._group.state.batch
        if batch is None or self._checkpoint is None:
            return
        try:
            if batch.end.to_json() in last_finished(self._checkpoint):
                self._group.note_finished(batch.end)
        except (OSError, ValueError) as problem:
            _log.debug("%s: commit log: %r", self._client_id, problem)

    def close(self) -> None:
        """Stop reading the commit log."""
        self._closed.set()

    # -- on the thread that Spark calls

    def planned(self) -> None:
        """Note that this call returns a batch to Spark."""
        self._planned_at = time.monotonic()

    def called(self) -> None:
        """Note that Spark asks for the next batch.  Warn if it does so rarely and there is no other signal."""
        planned_at, self._planned_at = self._planned_at, None
        if planned_at is None:
            return
        if self._checkpoint is not None:
            self._check_checkpoint(self._checkpoint)
        elif not self._was_reported:
            self._note_gap(time.monotonic() - planned_at)

    def _note_gap(self, since_s: float) -> None:
        if since_s <= _FAR_APART_S:
            return
        self._times_far_apart += 1
        if self._times_far_apart == _FAR_APART_TIMES:
            _log.warning(
                "%s: Spark reported the last batch as finished only with this trigger, %.0f s after the batch was "
                "planned. Until then partitions cannot move to other members, and after a stop they repeat the batch. "
                "Call pyspark_kafka_group.register(spark) before you start the query, or set the option "
                "checkpointLocation.",
                self._client_id,
                since_s,
            )

    def _check_checkpoint(self, checkpoint: Path) -> None:
        """Warn once if a batch is finished and there is no log."""
        if not self._checked:
            self._checked = True
            if not (checkpoint / "offsets").is_dir():
                _log.warning(
                    "%s: there is no checkpoint of this query at %s (option checkpointLocation). Set the same path as "
                    "for writeStream, as seen from the driver's machine.",
                    self._client_id,
                    checkpoint,
                )

    # -- on a thread of its own

    def _watch(self) -> None:
        while not self._closed.wait(_READ_PAUSE_S) and self._group.alive:
            if _awaited(self._group.state):
                self.read_commit_log()


def _awaited(state: State) -> bool:
    """Return whether a draining partition, or the end of the query, waits for the batch in flight."""
    return state.batch is not None and (state.ending or any(p.phase is Phase.DRAINING for p in state.owned.values()))
