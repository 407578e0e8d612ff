"""Counts and times of one member: how often each event happened, how many partitions moved, and where the time went.

Times are sums since the query started, so a reader can subtract two values.  Several threads write, each its own
activity or event.  All threads read.  Only the time of batches needs a lock: it also grows while a batch runs, and must
not go back when the batch ends.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

from pyspark_kafka_group.coordinator.handover import events


class Time(Enum):
    """The activities of a query.  All but the last one exclude each other."""

    WAITING = "waiting"
    """Waiting for the group, for the starts of partitions, or for a commit that blocks planning."""

    IDLE = "idle"
    """Waiting for new records: there are partitions, and nothing to read."""

    PLANNING = "planning"
    """Listing the log ends, and deciding what a batch reads."""

    RUNNING = "running"
    """Batches, from the plan until Spark reports that it has finished: reading, your code and the sink."""

    COMMITTING = "committing"
    """Commits, from the request to its answer.  Usually the next batch is planned and runs meanwhile."""


class Activity:
    """Counts and times of one member.

    Parameters
    ----------
    clock : callable
        Returns the time in seconds, for durations.
    calendar : callable
        Returns the time in seconds since 1970.

    Attributes
    ----------
    counts : Counter
        How often each event has happened.
    moved : Counter
        How many partitions have come (``assigned``) and left (``released``, ``expired``, ``lost``).
    generation : int or None
        The generation or member epoch under which the newest partitions were assigned.  None before the first, or if
        the client does not report it.
    consumed : int
        The number of offsets in the batches that Spark has finished.
    committed_at, assigned_at : float or None
        When the last commit succeeded, and when partitions last came or left, in seconds since 1970.
    finished_at, called_at : float or None
        When Spark last finished a batch with records, and when it last asked for one, in seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, calendar: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._calendar = calendar
        self._spent: dict[Time, float] = dict.fromkeys(Time, 0.0)
        self._batch_since: float | None = None
        self._batches = threading.Lock()  # guards the field above and the time of RUNNING
        self.counts: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.generation: int | None = None
        self.consumed = 0
        self.committed_at: float | None = None
        self.finished_at: float | None = None
        self.called_at: float | None = None
        self.assigned_at: float | None = None

    def note(self, event: events.Event) -> None:
        """Count an event.  On the group thread."""
        self.counts[event.name] += 1
        match event:
            case events.Planned(ranges=ranges) | events.Replayed(ranges=ranges):
                self._end_batch(begins_next=bool(ranges))  # nothing reports the end of an empty replay
            case events.Finished(ranges=ranges):
                self._end_batch(begins_next=False)
                self.consumed += sum(read.until - read.start for read in ranges.values())
                self.finished_at = self._calendar()
            case events.Committed():
                self.committed_at = self._calendar()
            case events.Assigned(partitions=partitions):
                self._move("assigned", len(partitions))
            case events.Released(partitions=partitions):
                self._move("released", len(partitions))
            case events.Expired(ranges=ranges):
                self._move("expired", len(ranges))
            case events.Lost(partitions=partitions):
                self._move("lost", len(partitions))
            case _:
                pass

    def note_call(self) -> None:
        """Note that Spark asks for a batch.  On the main thread."""
        self.called_at = self._calendar()

    def add(self, what: Time, seconds: float) -> None:
        """Add ``seconds`` to the time of ``what``."""
        self._spent[what] += seconds

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Count the time of the block as planning, except for the waiting inside it.  On the main thread."""
        begin, waited = self._clock(), self._waited
        try:
            yield
        finally:
            self.add(Time.PLANNING, max(0.0, self._clock() - begin - (self._waited - waited)))

    def spent(self) -> Mapping[Time, float]:
        """Return the seconds of each activity, including the batch that is running."""
        with self._batches:
            running = self._spent[Time.RUNNING] + (self.batch_s or 0.0)
        return {**self._spent, Time.RUNNING: running}

    @property
    def batch_s(self) -> float | None:
        """How long the running batch has run, in seconds; None if none runs."""
        since = self._batch_since
        return None if since is None else self._clock() - since

    @property
    def _waited(self) -> float:
        return self._spent[Time.WAITING] + self._spent[Time.IDLE]

    def _end_batch(self, *, begins_next: bool) -> None:
        with self._batches:
            now, since = self._clock(), self._batch_since
            self._spent[Time.RUNNING] += 0.0 if since is None else now - since
            self._batch_since = now if begins_next else None

    def _move(self, how: str, count: int) -> None:
        self.moved[how] += count
        self.assigned_at = self._calendar()
