"""Since when partitions cannot be planned, and why: the one place that notes it, whoever finds it out.

The group thread notes partitions whose start is not known, or that wait for a commit.  The thread that Spark calls
notes those whose log it does not see, or does not trust.  What lasts becomes the events `heldBack` and `heldBackEnded`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.offsets.types import TopicPartition

# Longer than an election, a restart of a broker's process, or a commit takes; short enough for a person who waits.
HELD_BACK_S = 10.0


class Where(Enum):
    """Who notes reasons; each replaces what it has noted before."""

    GROUP = "group"
    """The group does not answer, so that it is not known which partitions the query has."""

    START = "start"
    """Where partitions start is not known, or a commit has to be answered first."""

    LOGS = "logs"
    """Where logs end, or whether they are still the same logs."""


class HeldBackWatch:
    """Notes reasons.  Any thread.

    Parameters
    ----------
    emit : callable
        Takes the events.
    clock : callable
        Tells the time in seconds.

    Attributes
    ----------
    told : mapping of TopicPartition to str
        The partitions that are held back for longer than :data:`HELD_BACK_S`, and why; replaced as a whole.
    """

    def __init__(self, emit: Callable[[events.Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._lock = threading.Lock()  # guards all below; `told` is read without it
        self._noted: dict[Where, dict[TopicPartition | None, str]] = {}
        self._since: dict[TopicPartition | None, float] = {}
        self._told: dict[TopicPartition | None, str] = {}
        self._closed = False
        self.told: Mapping[TopicPartition, str] = {}

    def close(self) -> None:
        """Emit nothing any more: the member is about to leave."""
        with self._lock:
            self._closed = True
            self.told = {}

    def note(self, where: Where, reasons: Mapping[TopicPartition, str] | str) -> None:
        """Replace what was noted ``where``, and emit what is due.

        Parameters
        ----------
        where : Where
            Who has found it out.
        reasons : mapping of TopicPartition to str, or str
            Why each partition cannot be planned; a text if it is not known of which partitions; empty if all can.
        """
        given: dict[TopicPartition | None, str] = {}
        if not isinstance(reasons, str):
            given.update(reasons.items())
        elif reasons:
            given[None] = reasons
        if not given and not self._noted.get(where):
            return  # the most common case by far
        with self._lock:
            if self._closed:
                return
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
        for seconds, partitions in ended.items():
            self._emit(events.HeldBackEnded(partitions=_sorted(partitions), seconds=seconds))
        for reason, partitions in new.items():
            self._emit(events.HeldBack(partitions=_sorted(partitions), reason=reason))


def _sorted(partitions: list[TopicPartition | None]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(tp for tp in partitions if tp is not None))
