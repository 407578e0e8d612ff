"""Partitions that the query cannot plan: since when, and why.

The group thread finds partitions whose start is unknown, or that wait for a commit.  Spark's thread reports partitions
whose log it cannot see, or does not trust.  Reasons that last become the events `heldBack` and `heldBackEnded`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.offsets.types import TopicPartition

# Longer than an election, a restart of a broker's process, or a commit takes.  Short enough for a person who waits.
HELD_BACK_S = 10.0


class Where(Enum):
    """The sources of reasons.  Each replaces the reasons that it noted before."""

    GROUP = "group"
    """The group does not answer, so the query does not know its partitions."""

    START = "start"
    """The starts of partitions are unknown, or a commit needs an answer first."""

    LOGS = "logs"
    """The log ends are unknown, or the logs may have changed."""


class HeldBackWatch:
    """Collects reasons, and emits an event for those that last.  On the group thread.

    Parameters
    ----------
    emit : callable
        Takes the events.
    clock : callable
        Returns the time in seconds.

    Attributes
    ----------
    told : mapping of TopicPartition to str
        The partitions that are held back for longer than :data:`HELD_BACK_S`, and why.  Replaced as a whole, so any
        thread may read it.
    group_problem : str or None
        Why the group has not answered for that long; None if it does.  Any thread may read it.
    """

    def __init__(self, emit: Callable[[events.Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._noted: dict[Where, dict[TopicPartition | None, str]] = {}
        self._since: dict[TopicPartition | None, float] = {}
        self._told: dict[TopicPartition | None, str] = {}
        self._closed = False
        self.group_problem: str | None = None
        self.told: Mapping[TopicPartition, str] = {}

    def close(self) -> None:
        """Stop emitting events, because the member is about to leave."""
        self._closed = True
        self.told, self.group_problem = {}, None

    def note(self, where: Where, reasons: Mapping[TopicPartition, str] | str) -> None:
        """Replace the reasons of ``where``, and emit the events that are due.

        Parameters
        ----------
        where : Where
            The source of the reasons.
        reasons : mapping of TopicPartition to str, or str
            Why each partition cannot be planned; empty if all can.  A text if the partitions are unknown.
        """
        given: dict[TopicPartition | None, str] = {}
        if not isinstance(reasons, str):
            given.update(reasons.items())
        elif reasons:
            given[None] = reasons
        if self._closed or not (given or self._noted.get(where)):
            return  # the most common case by far
        self._noted[where] = given
        self._emit_due(self._clock())

    def _emit_due(self, now: float) -> None:
        noted = {tp: reason for of_one in self._noted.values() for tp, reason in of_one.items()}
        ended: dict[float, list[TopicPartition | None]] = {}
        for tp in self._told.keys() - noted.keys():
            ended.setdefault(round(now - self._since[tp], 1), []).append(tp)
        self._since = {tp: self._since.get(tp, now) for tp in noted}
        last = {tp: reason for tp, reason in noted.items() if now - self._since[tp] >= HELD_BACK_S}
        new: dict[str, list[TopicPartition | None]] = {}
        for tp in last.keys() - self._told.keys():
            new.setdefault(last[tp], []).append(tp)
        self._told = last
        self.told = {tp: reason for tp, reason in last.items() if tp is not None}
        self.group_problem = last.get(None)
        for seconds, partitions in ended.items():
            self._emit(events.HeldBackEnded(partitions=_sorted(partitions), seconds=seconds))
        for reason, partitions in new.items():
            self._emit(events.HeldBack(partitions=_sorted(partitions), reason=reason))


def _sorted(partitions: list[TopicPartition | None]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(tp for tp in partitions if tp is not None))
