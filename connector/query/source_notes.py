"""Notes that the source processes of one JVM leave for each other, one small file per process.

Spark makes a process for each source of a query and does not say which query it belongs to.  The processes only know
when Spark calls them.  :mod:`~pyspark_kafka_group.query.second_source` uses these notes to find two sources of one
query.  The files are in a folder that only this user may enter.  The name of each file is the id of the process that
writes it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
import tempfile
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_kafka_group.options.settings import Settings

_log = logging.getLogger(__name__)


class Note(NamedTuple):
    """The topics of one source, and Spark's calls to it.  Times are seconds of the system's monotonic clock.

    Attributes
    ----------
    pid, parent : int
        The ids of the source process and of Spark's JVM.
    servers : list of str
        The option ``kafka.bootstrap.servers``.
    group : str or None
        The option ``kafka.group.id``.  None if the user has named no group: then each source has a group of its own,
        or none, and reads everything.
    topics : list of str
        The topics of ``subscribe``, or the partitions of ``assign``.
    pattern : str or None
        The option ``subscribePattern``.
    checkpoint : str or None
        The option ``checkpointLocation``.
    waits_since : float
        When Spark created the source, or got its last answer.
    created_at : float
        When Spark created the source.
    first_at, asked_at : float or None
        When Spark first, and when it last, asked for the end of a batch.
    planned : bool
        Whether the answer has planned a batch.  Then Spark's next call to this source comes at once, and not only with
        the next trigger.
    """

    pid: int
    parent: int
    servers: list[str]
    group: str | None
    topics: list[str]
    pattern: str | None
    checkpoint: str | None
    waits_since: float
    created_at: float
    first_at: float | None = None
    asked_at: float | None = None
    planned: bool = False

    def shared_topics(self, other: Note) -> list[str]:
        """Return the topics, or the pattern, that both read as members of one group.  Two patterns must be equal."""
        if self.group is None or self.group != other.group or not set(self.servers) & set(other.servers):
            return []
        if self.pattern is not None and other.pattern is not None:
            return [self.pattern] if self.pattern == other.pattern else []
        return sorted(
            {topic for topic in self.topics if other.reads(topic)}
            | {topic for topic in other.topics if self.reads(topic)}
        )

    def reads(self, topic: str) -> bool:
        """Return whether the source subscribes to ``topic``."""
        return topic in self.topics if self.pattern is None else re.fullmatch(self.pattern, topic) is not None

    def may_come_before(self, other: Note) -> bool:
        """Return whether Spark may have asked this source, and now asks ``other``, for one batch of one query.

        A query has one thread.  It creates all sources before it asks one, and then asks each of them once for each
        batch.
        """
        return (
            self.parent == other.parent
            and self.pid != other.pid
            and (None in (self.checkpoint, other.checkpoint) or self.checkpoint == other.checkpoint)
            and self.planned
            and self.asked_at is not None
            and self.asked_at >= other.waits_since
            and max(self.created_at, other.created_at) <= min(self.first_at or inf, other.first_at or inf)
        )


class Notes:
    """The notes of this source and of others.  Does nothing if the folder is not usable.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    created_at : float
        When Spark created this source, in seconds of the monotonic clock.
    folder : Path, optional
        The folder of the files; by default one in the folder for temporary files.

    Attributes
    ----------
    own : Note
        The note of this source.
    usable : bool
        Whether this source can leave notes.
    """

    def __init__(self, settings: Settings, created_at: float, folder: Path | None = None) -> None:
        group = settings.group
        self.usable = True
        self.own = Note(
            pid=os.getpid(),
            parent=os.getppid(),
            servers=sorted(name.strip() for name in group.properties["bootstrap.servers"].split(",")),
            group=None if group.made_up else group.group_id,
            # Partitions that the user assigns compete with the same partitions only.
            topics=[str(tp) for tp in group.partitions] or sorted(group.topics),
            pattern=group.pattern,
            checkpoint=None if settings.checkpoint is None else str(settings.checkpoint),
            waits_since=created_at,
            created_at=created_at,
        )
        self._folder = folder or Path()
        try:
            if folder is None:
                self._folder = Path(tempfile.gettempdir()) / f"kafka-group-sources-{os.getuid()}{_pid_namespace()}"
            self._folder.mkdir(mode=0o700, exist_ok=True)
            found = self._folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise PermissionError("it belongs to another user")
            for file in self._folder.iterdir():
                if file.stem.isdecimal() and not runs(int(file.stem)):
                    file.unlink(missing_ok=True)
        except OSError as problem:
            self._disable(problem)
        self.write()

    def write(self, **changes: Any) -> None:
        """Change the note of this source."""
        self.own = self.own._replace(**changes)
        if not self.usable:
            return
        new = self._file(self.own.pid).with_suffix(".new")
        try:
            new.write_text(json.dumps(self.own))
            new.replace(self._file(self.own.pid))
        except OSError as problem:
            self._disable(problem)

    def others(self) -> list[Note]:
        """Return the notes of the other sources that still run."""
        if not self.usable:
            return []
        pids = [int(file.stem) for file in self._folder.glob("*.json") if file.stem.isdecimal()]
        return [note for pid in pids if pid != self.own.pid and (note := self.of(pid)) is not None]

    def of(self, pid: int) -> Note | None:
        """Return the note of a source; None if there is no note of a running process."""
        try:
            note = Note(*json.loads(self._file(pid).read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return note if runs(pid) else None

    def close(self) -> None:
        """Remove the file of this source, and stop writing."""
        self.usable = False
        with contextlib.suppress(OSError):
            self._file(self.own.pid).unlink(missing_ok=True)

    def _disable(self, problem: OSError) -> None:
        self.usable = False
        _log.warning(
            "Cannot write to %s (%s). So the source cannot find a second source of the same group and topics in this "
            "query: each of them would read only some of the partitions. Set TMPDIR to a folder that you may write to.",
            self._folder,
            problem,
        )

    def _file(self, pid: int) -> Path:
        return self._folder / f"{pid}.json"


def _pid_namespace() -> str:
    """Return the id of the process id namespace: containers may share a folder, but not their process ids."""
    try:
        return f"-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""  # not Linux


def runs(pid: int) -> bool:
    """Return whether a process with this id runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
