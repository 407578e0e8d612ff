"""What the sources of one JVM tell each other, in files: what each reads, and when Spark calls it.

Spark makes a process for each source of a query and tells it nothing of the query.  What the processes can see is the
order of calls; what follows from it says :mod:`~pyspark_kafka_group.query.siblings`.  Each process has a file of its
own, named after its process id, in a folder that nobody else may enter.
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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import Settings

_log = logging.getLogger(__name__)

# How soon after the answer of one source Spark asks the next one: some milliseconds, longer on a busy machine.  Longer
# would find sources that have a slow one between them, and be wrong about queries that start at the same time.
_NEXT_S = 1.0

LATEST_OFFSET = "latestOffset"
PARTITIONS = "partitions"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What one source reads, and what Spark has called, in seconds of the system's clock.

    Attributes
    ----------
    pid, parent : int
        Its process, and Spark's JVM.
    servers : list of str
        ``kafka.bootstrap.servers``.
    group : str
        ``kafka.group.id``.
    topics : list of str
        ``subscribe``, or the partitions of ``assign``.
    pattern : str or None
        ``subscribePattern``.
    plans : str
        The other options that decide what a batch reads.
    checkpoint : str or None
        ``checkpointLocation``.
    limit_at : float
        When Spark asked for the read limit.
    first_at, answered_at : float or None
        When Spark asked first for a batch, its end or what it reads, and when that was answered.
    query_id : str or None
        The query's name, from the offset that Spark came with; None if the query is new.
    guest_of : int or None
        The process of the source whose plans this one reads; see :mod:`~pyspark_kafka_group.query.guest_query`.
    running : bool
        Whether a call is running now.
    last : str or None
        The last call that asked for a batch.
    count : int
        How many calls there were.
    """

    pid: int
    parent: int
    servers: list[str]
    group: str
    topics: list[str]
    pattern: str | None
    plans: str
    checkpoint: str | None
    limit_at: float
    first_at: float | None = None
    answered_at: float | None = None
    query_id: str | None = None
    guest_of: int | None = None
    running: bool = False
    last: str | None = None
    count: int = 0

    def competes_with(self, other: Calls) -> bool:
        """Tell whether both are members of one group and get partitions of the same topics."""
        return (self.servers, self.group) == (other.servers, other.group) and bool(self.shared_topics(other))

    def plans_like(self, other: Calls) -> bool:
        """Tell whether both, alone in the group, would plan the same batches."""
        return (self.servers, self.group, self.topics, self.pattern, self.plans) == (
            other.servers,
            other.group,
            other.topics,
            other.pattern,
            other.plans,
        )

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

    def may_be_followed_by(self, other: Calls) -> bool:
        """Tell whether Spark may ask ``other`` for a batch of the same query, after this one.

        Spark asks all sources of a query for their read limit before it asks any for a batch.
        """
        if self.parent != other.parent or self.pid == other.pid:
            return False
        if None not in (self.checkpoint, other.checkpoint) and self.checkpoint != other.checkpoint:
            return False
        return self.first_at is not None and other.limit_at <= self.first_at

    def may_come_before(self, other: Calls) -> bool:
        """Tell whether Spark may have asked this source and then ``other``, for the first batch of one query.

        A query has one thread, so that calls to its sources never overlap.  A new one has no name yet: then ``other``
        must have been asked at once.
        """
        if not self.may_be_followed_by(other):
            return False
        if self.answered_at is None or other.first_at is None or other.first_at < self.answered_at:
            return False
        if self.query_id != other.query_id:
            return False
        return self.query_id is not None or other.first_at - self.answered_at <= _NEXT_S


class Planned(NamedTuple):
    """The newest batch of a source.

    Attributes
    ----------
    start, end : dict
        Its offsets, as Spark has them.
    ranges : mapping or None
        What it reads, if that is not just what ``end`` says: a batch that runs again.
    """

    start: Json
    end: Json
    ranges: Mapping[TopicPartition, OffsetRange] | None = None


class CallFiles:
    """The files.  Where the folder cannot be used nothing is told.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    folder : Path, optional
        Where the files are; by default in the folder for temporary files.

    Attributes
    ----------
    own : Calls
        What this source tells.
    usable : bool
        Whether it does.
    """

    def __init__(self, settings: Settings, folder: Path | None = None) -> None:
        group = settings.group
        # Partitions that are given compete with the same ones only.
        topics = [str(tp) for tp in group.partitions] or sorted(group.topics)
        limits = (
            settings.max_offsets_per_trigger,
            settings.min_offsets_per_trigger,
            settings.max_trigger_delay_s,
        )
        self._folder = folder or Path(tempfile.gettempdir()) / f"kafka-group-sources-{os.getuid()}{_pid_namespace()}"
        self.usable = False
        self.own = Calls(
            pid=os.getpid(),
            parent=os.getppid(),
            servers=sorted(name.strip() for name in group.properties["bootstrap.servers"].split(",")),
            # Without a name that the user has given each source has a group of its own, or none, and reads everything.
            group=f"{group.group_id}-{os.getpid()}" if group.made_up else group.group_id,
            topics=topics,
            pattern=group.pattern,
            plans=repr((replace(group, topics=()), limits)),
            checkpoint=None if settings.checkpoint is None else str(settings.checkpoint),
            limit_at=time.monotonic(),
        )

    def begin(self) -> None:
        """Tell from now on."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            found = self._folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                return
            self._forget_the_dead()
            self.usable = True
            self.tell(limit_at=time.monotonic())
        except OSError as problem:
            self.usable = False
            _log.debug("%s: %r", self._folder, problem)

    def tell(self, **changes: Any) -> None:
        """Tell that something of :class:`Calls` has changed."""
        self.own = replace(self.own, **changes)
        self._write(self._file(self.own.pid), asdict(self.own))

    def others(self) -> list[Calls]:
        """Return what other sources tell that still run."""
        if not self.usable:
            return []
        pids = [int(file.stem) for file in self._folder.glob("*.json") if file.stem.isdecimal()]
        return [calls for pid in pids if pid != self.own.pid and (calls := self.of(pid)) is not None]

    def of(self, pid: int) -> Calls | None:
        """Return what a source tells; None if it has ended, or is of another version."""
        try:
            calls = Calls(**json.loads(self._file(pid).read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return calls if runs(pid) else None

    def tell_planned(self, planned: Planned) -> None:
        """Tell what the newest batch is."""
        ranges = None if planned.ranges is None else [[*tp, *r] for tp, r in planned.ranges.items()]
        self._write(self._plan_file(self.own.pid), [planned.start, planned.end, ranges])

    def planned_of(self, pid: int) -> Planned | None:
        """Return the newest batch of a source; None if it tells of none."""
        try:
            start, end, ranges = json.loads(self._plan_file(pid).read_text())
        except (OSError, ValueError):
            return None
        if ranges is None:
            return Planned(start, end)
        return Planned(start, end, {TopicPartition(t, n): OffsetRange(begin, until) for t, n, begin, until in ranges})

    def close(self) -> None:
        """Tell nothing any more."""
        self.usable = False
        self._forget(self.own.pid)

    def _write(self, file: Path, content: Any) -> None:
        if not self.usable:
            return
        new = file.with_suffix(".new")
        try:
            new.write_text(json.dumps(content))
            new.replace(file)
        except OSError as problem:
            self.usable = False
            _log.debug("%s: %r", file, problem)

    def _forget_the_dead(self) -> None:
        for file in self._folder.iterdir():
            if file.stem.isdecimal() and not runs(int(file.stem)):
                file.unlink(missing_ok=True)

    def _forget(self, pid: int) -> None:
        for file in (self._file(pid), self._plan_file(pid)):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def _file(self, pid: int) -> Path:
        return self._folder / f"{pid}.json"

    def _plan_file(self, pid: int) -> Path:
        return self._folder / f"{pid}.plan"


def _pid_namespace() -> str:
    """Return what tells containers apart that share a folder for temporary files: their process ids mean nothing."""
    try:
        return f"-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""  # not Linux


def runs(pid: int) -> bool:
    """Tell whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
