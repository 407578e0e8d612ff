"""Lets all planning processes of one ``load()`` agree on one plan.

Spark 4.3 keeps the first plan of a ``load()``.  But it plans the stages of one query in several threads, and
``PythonDataSourceV2`` has no lock.  If a self-join is the first query, Spark plans both sides at the same time, in two
processes.  So the first process writes its plan into a file, and the other one reads it.  Both run on the driver's
machine.

The file is needed only while such threads may still come.  Later processes remove it.  After that, only a query with
``spark.sql.python.filterPushdown.enabled`` asks for a plan again.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pyspark_kafka_group.offsets.task_ranges import Task
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.wire.private_folder import private_folder

_log = logging.getLogger(__name__)

_KEPT_S = 600.0
"""The maximum age of a plan, in seconds.  Two threads of one query plan within seconds, but a driver may stall for
minutes."""


def shared_plan(load: str, plan: Callable[[], list[Task]], folder: Path | None = None) -> list[Task]:
    """Return the plan of a ``load()``, either from another process or from ``plan``.

    Parameters
    ----------
    load : str
        The id of the ``load()``, which other users cannot guess.
    plan : callable
        Creates the plan.  Other processes wait meanwhile.
    folder : Path, optional
        The folder of the files; by default a private one.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(_locked(load, folder or private_folder("plans")))
            found = _read(file)
        except OSError as problem:
            _warn(problem)
            return plan()
        if found is None:
            found = plan()
            try:
                _write(file, found)
            except OSError as problem:
                _warn(problem)
    return found


def _warn(problem: OSError) -> None:
    _log.warning(
        "The temporary folder cannot be used (%s). If a query reads a DataFrame twice, as in a self-join, both sides "
        "may end at different records. Set TMPDIR to a folder that the driver may write to.",
        problem,
    )


@contextmanager
def _locked(load: str, folder: Path) -> Iterator[int]:
    """Yield the locked file of a plan.  The lock also ends with the process."""
    path = folder / load
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, path):
                _remove_old(folder, path)
                yield file
                return
        finally:
            os.close(file)


def _is_at(file: int, path: Path) -> bool:
    """Return whether the file still exists after this process has waited for its lock."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), path.stat())
    return False


def _remove_old(folder: Path, own: Path) -> None:
    oldest = time.time() - _KEPT_S
    for path in folder.iterdir():
        with suppress(OSError):  # another process has removed it
            if path != own and path.stat().st_mtime < oldest:
                path.unlink()


def _read(file: int) -> list[Task] | None:
    """Return the plan in a file; None if there is none, or an old one."""
    found = os.fstat(file)
    if found.st_mtime < time.time() - _KEPT_S:
        os.utime(file)  # marks the file as in use again
        return None
    try:
        tasks = json.loads(os.pread(file, found.st_size, 0))
    except ValueError:  # the file is new, or its writer has died while writing
        return None
    return [
        {
            TopicPartition(topic, number): OffsetRange(Offset(start), Offset(until))
            for topic, number, start, until in task
        }
        for task in tasks
    ]


def _write(file: int, tasks: list[Task]) -> None:
    document = [[(tp.topic, tp.partition, r.start, r.until) for tp, r in task.items()] for task in tasks]
    text = json.dumps(document).encode()
    os.truncate(file, 0)
    if os.pwrite(file, text, 0) < len(text):
        raise OSError("there is no room for the plan")
