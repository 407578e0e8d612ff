"""Tells which sources are those of one query, from the order of Spark's calls.

Two sources of one query that are members of one group would each get some of the partitions only.  Where both feed the
same result nobody notices; in a join, or behind two filters, records are silently missing.  And they wait for each
other: Spark asks the sources of a query one after the other, so the second one waits for partitions that leave the
first one after a batch which Spark begins only when the second one has answered.  So the second one does not join: it
is a *guest*, which reads what the first one, its *host*, has planned.  Spark makes two sources of a stream that is
joined with itself, and of two ``load()``.

Spark asks all sources of a query for their read limit before it asks any for a batch, and has one thread for each
query, so calls to sources of one query never overlap.  The second source of a query therefore finds one that

* has the same parent, Spark's JVM;
* was first asked for a batch after the second one was asked for its limit;
* answered before the second one was asked: just before it, or, after a restart, under the same name of the query;
* and is not called any more as long as the second one does not answer.

Two queries that start at the same time do not look like this for more than a moment: the batch that the first one has
planned begins, and that is a call.  Queries that may share a group, as those of one session, are therefore left alone.
Should the first one be held up for all that time all the same, then nothing is read twice: the first batch of a query
that may have a guest is empty, and before the second one the guest looks again.

Runs in the source process, on its main thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.source_calls import LATEST_OFFSET, CallFiles, Calls, Planned, runs
from pyspark_kafka_group.wire.deadline import Deadline

# How long to look whether the other source is called.  Between its answer and its next call Spark writes to the
# checkpoint, which takes a second or two where that is an object store.
_SILENCE_S = 10.0
_PAUSE_S = 0.05

# The same for each of the next calls, and how many those are: a source that runs is called all the time.
_NEXT_SILENCE_S = 0.5
_UNSURE_CALLS = 2

Json = dict[str, Any]


class Siblings:
    """What this source tells the others of its JVM, and what it sees of them.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    folder : Path, optional
        Where the files are; by default in the folder for temporary files.
    """

    def __init__(self, settings: Settings, folder: Path | None = None) -> None:
        self._files = CallFiles(settings, folder)
        # Who may be, or is, a guest of this source.
        self._guests: list[int] = []

    @property
    def may_have_guests(self) -> bool:
        """Whether another source may read what this one plans."""
        return bool(self._guests)

    def announce(self) -> None:
        """Note that Spark asks for the read limit."""
        self._files.begin()

    def find_host(self, query_id: str | None) -> Host | None:
        """Return the source of the same query that is a member already; to be called by the first call for a batch.

        Parameters
        ----------
        query_id : str or None
            The query's name; None if the query is new.

        Raises
        ------
        OptionError
            If there is one that competes for the partitions, and would plan other batches.
        """
        if not self._files.usable:
            return None
        self._files.tell(first_at=time.monotonic(), query_id=query_id)
        own = self._files.own
        others = self._files.others()
        for other in others:
            if not (other.may_come_before(own) and other.competes_with(own)):
                continue
            host = other if other.guest_of is None else self._files.of(other.guest_of)
            # A query that has a name is known by it.
            if host is None or not _is_silent(self._files, host, _SILENCE_S if query_id is None else _NEXT_SILENCE_S):
                continue
            if not host.plans_like(own):
                raise _two_members(own, host)
            self._files.tell(guest_of=host.pid)
            return Host(self._files, host.pid)
        self._guests = [o.pid for o in others if o.first_at is None and own.may_be_followed_by(o) and own.plans_like(o)]
        return None

    @contextmanager
    def call(self, name: str | None = None) -> Iterator[None]:
        """Note that a call runs; ``name`` if it asks for a batch."""
        if not self._guests:
            yield
            return
        own = self._files.own
        self._files.tell(running=True, last=name or own.last, count=own.count + 1)
        try:
            yield
        finally:
            self._files.tell(running=False)

    def answer(self, start: Json, end: Json, ranges: Mapping[TopicPartition, OffsetRange] | None = None) -> None:
        """Tell which batch was planned.  Comes before Spark gets it.

        Parameters
        ----------
        start, end : dict
            Its offsets; the same ones if there is nothing to read.
        ranges : mapping, optional
            What it reads, if that is not just what ``end`` says.
        """
        first = self._files.own.answered_at is None
        if self._guests and (first or start != end):
            self._files.tell_planned(Planned(start, end, ranges))
            self._guests = [pid for pid in self._guests if first or self._is_guest(pid)]
        if first and self._files.usable:
            self._files.tell(answered_at=time.monotonic())

    def close(self) -> None:
        """Tell nothing any more."""
        self._guests = []
        self._files.close()

    def _is_guest(self, pid: int) -> bool:
        """Tell whether a source is a guest of this one, or may be one yet."""
        other = self._files.of(pid)
        if other is None:
            return runs(pid)  # its file may be gone, as folders for temporary files are tidied up
        return other.first_at is None or other.guest_of == self._files.own.pid


class Host:
    """The source that is a member, seen from its guest.

    Parameters
    ----------
    files : CallFiles
        Of the guest.
    pid : int
        The host's process.
    """

    def __init__(self, files: CallFiles, pid: int) -> None:
        self._files = files
        self._pid = pid
        self._unsure_calls = _UNSURE_CALLS
        self._seen = -1  # the count of the host's calls when the guest was asked last

    def planned(self, asked: str) -> Planned:
        """Return the newest batch.

        Parameters
        ----------
        asked : str
            What Spark asks the guest for.  It has asked the host for the same, and for nothing after it.

        Raises
        ------
        OptionError
            If the host is a source of another query, or has ended.
        """
        calls = self._files.of(self._pid)
        planned = self._files.planned_of(self._pid)
        if calls is None or calls.running or planned is None:
            raise self.not_one_query()
        if asked == LATEST_OFFSET:
            # A batch of the host that runs is one that the guest should have been asked for.
            # And what it has told before it was asked again is old: to believe it would skip its new batch.
            if calls.last not in (None, LATEST_OFFSET) or calls.count <= self._seen:
                raise self.not_one_query()
            self._seen = calls.count
            if self._unsure_calls:
                self._unsure_calls -= 1
                if not _is_silent(self._files, calls, _NEXT_SILENCE_S):
                    raise self.not_one_query()
        return planned

    def not_one_query(self) -> OptionError:
        """Return the error of a guest that is asked for what its host has not planned."""
        return OptionError(
            "kafka.group.id",
            f"two sources of the group {self._files.own.group!r} looked like two of one query, and it turns out that "
            f"they are not, or one of them has ended.",
            "Nothing was committed for this one. Start the query again, with a new checkpoint if this was its first "
            "run; start queries that share a group one after the other.",
        )


def _is_silent(files: CallFiles, other: Calls, seconds: float) -> bool:
    """Look for a while; tell whether a source was not called in all that time, and still runs."""
    deadline = Deadline.after(seconds)
    while not deadline.passed:
        now = files.of(other.pid)
        if now is None or now.running or now.count != other.count:
            return False
        time.sleep(_PAUSE_S)
    return True


def _two_members(own: Calls, other: Calls) -> OptionError:
    return OptionError(
        "kafka.group.id",
        f"two sources of this query are members of the group {own.group!r} and read the same topics "
        f"({', '.join(own.shared_topics(other))}) with different options, so each would get only some of the "
        f"partitions.",
        "Give both the same topics, starting offsets and limits, and they read the same batches; use one load() for "
        "both; or give each load() a group of its own.",
    )
