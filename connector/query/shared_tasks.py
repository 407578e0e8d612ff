"""Warns if partitions share a task although reading is not what takes the time.

Small ranges share a task by default, because each task costs some milliseconds.  If the user's code takes long for each
record, the partitions are then processed one after the other, and not at the same time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark_kafka_group.offsets.task_ranges import Task, TaskSizes

_log = logging.getLogger(__name__)

# Far longer than it takes to read the records of a shared task, of which there are at most minRecordsPerTask.
_SLOW_S = 10.0

# Deliberate: no warning after one batch.  The first one starts Python workers, and one alone may have had a bad moment.
_SLOW_TIMES = 2

# Spark begins triggers at multiples of their interval since 1970.  So a call this soon after a full second may have
# waited for its trigger, and does not show how long the batch took.  Half a second is ample for a busy machine.  The
# other half of the calls is enough to find slow batches.
_MAY_HAVE_WAITED_S = 0.5


class SharedTasks:
    """Measures batches whose partitions share tasks.

    Parameters
    ----------
    sizes : TaskSizes
        The options that decide how batches are cut.
    """

    def __init__(self, sizes: TaskSizes) -> None:
        self._sizes = sizes
        self._batch: tuple[float, int, int] | None = None  # its begin, and how many partitions and tasks it has
        self._told: tuple[Any, float] | None = None  # written by threads of the control socket
        self._times = 0

    def planned(self, ranges: Sequence[object] | Mapping[Any, object], tasks: Sequence[Task]) -> None:
        """Note that a batch of these ranges begins with these tasks."""
        self._batch = None
        shared = self._sizes.shared_by_default and len(tasks) < len(ranges)
        if shared and all(_size(task) <= self._sizes.min_records for task in tasks):
            self._batch = time.monotonic(), len(ranges), len(tasks)

    def told(self, end: Any) -> None:
        """Note that the batch that ends at ``end`` is finished.  Any thread."""
        self._told = end, time.monotonic()

    def called(self, start: Any, client_id: str) -> None:
        """Note that Spark asks for the batch after ``start``.  Warn if the batches before were slow.

        Parameters
        ----------
        start : JSON value
            The end of the batch before.
        client_id : str
            The beginning of the log line.
        """
        batch, told, self._batch = self._batch, self._told, None
        if batch is None:
            return
        begin, partitions, tasks = batch
        if told is not None and told[0] == start:
            took_s = told[1] - begin
        elif time.time() % 1 < _MAY_HAVE_WAITED_S:
            return
        else:
            took_s = time.monotonic() - begin
        if took_s < _SLOW_S:
            return
        self._times += 1
        if self._times == _SLOW_TIMES:
            _log.warning(
                "%s: the last batch took %.0f s. Its %d partitions shared %d task%s, because they had few records "
                "(option minRecordsPerTask). If your code takes long for each record, set minRecordsPerTask to 1. Each "
                "partition then has a task of its own, and Spark runs them at the same time.",
                client_id,
                took_s,
                partitions,
                tasks,
                "" if tasks == 1 else "s",
            )


def _size(task: Task) -> int:
    return sum(r.size for r in task.values())
