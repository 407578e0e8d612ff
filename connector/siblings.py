"""Refuses a query of which two sources are members of one group and read the same topics.

Each of them would get some of the partitions only.  Where both feed the same result nobody notices; in a join, or
behind two filters, records are silently missing.  And they wait for each other: Spark asks the sources of a query one
after the other, so the second one waits for partitions that leave the first one after a batch which Spark begins only
when the second one has answered.

Spark makes a process for each source and tells it nothing of the query.  What the processes can see is the order of
calls.  Spark asks all sources of a query for their read limit before it asks any for offsets, and has one thread for
each query, so calls to sources of one query never overlap.  The second source of a query therefore finds one that

* has the same parent, Spark's JVM;
* was asked for its first offsets after the second one was asked for its limit;
* answered just before the second one was asked for its first offsets;
* and is not called any more as long as the second one does not answer.

Two queries that start at the same time do not look like this for more than a moment: the batch that the first one has
planned begins, and that is a call.  Queries that may share a group, as those of one session, are therefore left alone.

Runs in the source process, on its main thread.  Each process has a file in a folder that nobody else may enter.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options import Settings

_log = logging.getLogger(__name__)

# How soon after the answer of one source Spark asks the next one: some milliseconds, longer on a busy machine.  Longer
# would find sources that have a slow one between them, and be wrong about queries that start at the same time.
_NEXT_S = 1.0

# How long to look whether the other source is called.  Between its answer and its next call Spark writes to the
# checkpoint, which takes a second or two where that is an object store.
_SILENCE_S = 10.0
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What one source tells the others: what it reads, and when Spark has called it, in seconds of the system's clock.

    Attributes
    ----------
    pid, parent : int
        Its process, and Spark's JVM.
    servers : list of str
        ``kafka.bootstrap.servers``.
    group : str
        ``kafka.group.id``.
    topics : list of str
        ``subscribe``.
    pattern : str or None
        ``subscribePattern``.
    checkpoint : str or None
        ``checkpointLocation``.
    limit_at : float
        When Spark asked for the read limit.
    first_at, answered_at : float or None
        When Spark asked for the first offsets of a new query, and when they were there.
    later_at : float or None
        When Spark called again.
    """

    pid: int
    parent: int
    servers: list[str]
    group: str
    topics: list[str]
    pattern: str | None
    checkpoint: str | None
    limit_at: float
    first_at: float | None = None
    answered_at: float | None = None
    later_at: float | None = None

    def competes_with(self, other: Calls) -> bool:
        """Tell whether both are members of one group and get partitions of the same topics."""
        return (self.servers, self.group) == (other.servers, other.group) and bool(self.shared_topics(other))

    def shared_topics(self, other: Calls) -> list[str]:
        """Return the topics, or the pattern, that both read; of two patterns only equal ones count."""
        if self.pattern is not None and other.pattern is not None:
            return [self.pattern] if self.pattern == other.pattern else []
        return sorted(
            {topic for topic in self.topics if other.reads(topic)}
            | {topic for topic in other.topics if self.reads(topic)}
        )

    def reads(self, topic: str) -> bool:
        """Tell whether ``topic`` is subscribed to."""
        return topic in self.topics if self.pattern is None else re.fullmatch(self.pattern, topic) is not None

    def may_come_before(self, other: Calls) -> bool:
        """Tell whether Spark may have asked this source and then ``other``, for the first batch of one query."""
        if self.parent != other.parent or self.pid == other.pid:
            return False
        if None not in (self.checkpoint, other.checkpoint) and self.checkpoint != other.checkpoint:
            return False
        if self.first_at is None or self.answered_at is None or other.first_at is None:
            return False
        return other.limit_at <= self.first_at and 0 <= other.first_at - self.answered_at <= _NEXT_S


class Siblings:
    """What this source tells the others of its JVM, and what it sees of them.

    Where the folder cannot be used nothing is told, and nothing is refused.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    folder : Path, optional
        Where the files are; by default in the folder for temporary files.
    """

    def __init__(self, settings: Settings, folder: Path | None = None) -> None:
        group = settings.group
        self._folder = folder or Path(tempfile.gettempdir()) / f"kafka-group-sources-{os.getuid()}"
        self._calls = Calls(
            pid=os.getpid(),
            parent=os.getppid(),
            servers=sorted(name.strip() for name in group.properties["bootstrap.servers"].split(",")),
            group=group.group_id,
            topics=sorted(group.topics),
            pattern=group.pattern,
            checkpoint=None if settings.checkpoint is None else str(settings.checkpoint),
            limit_at=time.monotonic(),
        )
        self._told = False

    def announce(self) -> None:
        """Note that Spark asks for the read limit."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            found = self._folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                return
            self._forget_the_dead()
            self._told = True
            self._tell(replace(self._calls, limit_at=time.monotonic()))
        except OSError as problem:
            self._told = False
            _log.debug("%s: %r", self._folder, problem)

    def begin_first(self) -> None:
        """Note that Spark asks for the first offsets of a new query.

        Raises
        ------
        OptionError
            If another source of the same query competes for the partitions.
        """
        if not self._told or self._calls.first_at is not None:
            return
        self._tell(replace(self._calls, first_at=time.monotonic()))
        for other in self._others():
            if other.may_come_before(self._calls) and other.competes_with(self._calls) and self._waits(other):
                raise OptionError(
                    "kafka.group.id",
                    f"two sources of this query are members of the group {self._calls.group!r} and read the same "
                    f"topics ({', '.join(self._calls.shared_topics(other))}), so each would get only some of the "
                    f"partitions.",
                    "Use one load() for both; if it is joined with itself, rename every column of one side before the "
                    "join, or Spark reads it twice. Or give each load() a group of its own.",
                )

    def end_first(self) -> None:
        """Note that the first offsets are there.  Comes before Spark gets them."""
        if self._told and self._calls.first_at is not None and self._calls.answered_at is None:
            self._tell(replace(self._calls, answered_at=time.monotonic()))

    def called(self) -> None:
        """Note that Spark calls, for anything but the read limit and the first offsets."""
        if self._calls.answered_at is not None and self._calls.later_at is None:
            self._tell(replace(self._calls, later_at=time.monotonic()))

    def close(self) -> None:
        """Tell nothing any more."""
        self._told = False
        with contextlib.suppress(OSError):
            self._file(self._calls.pid).unlink(missing_ok=True)

    def _waits(self, other: Calls) -> bool:
        """Look for a while; tell whether the other source was not called in all that time, and still runs."""
        deadline = time.monotonic() + _SILENCE_S
        while time.monotonic() < deadline:
            now = self._read(self._file(other.pid))
            if now is None or now.later_at is not None or not _runs(other.pid):
                return False
            time.sleep(_PAUSE_S)
        return True

    def _tell(self, calls: Calls) -> None:
        self._calls = calls
        file = self._file(calls.pid)
        new = file.with_suffix(".new")
        try:
            new.write_text(json.dumps(asdict(calls)))
            new.replace(file)
        except OSError as problem:
            self._told = False
            _log.debug("%s: %r", file, problem)

    def _others(self) -> list[Calls]:
        found = (self._read(file) for file in self._folder.glob("*.json"))
        return [calls for calls in found if calls is not None and calls.pid != self._calls.pid]

    def _forget_the_dead(self) -> None:
        for file in self._folder.glob("*.json"):
            if file.stem.isdecimal() and not _runs(int(file.stem)):
                file.unlink(missing_ok=True)

    def _file(self, pid: int) -> Path:
        return self._folder / f"{pid}.json"

    def _read(self, file: Path) -> Calls | None:
        """Return what a source tells; None if it is gone, or of another version."""
        try:
            return Calls(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
