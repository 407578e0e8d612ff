"""Looks where the logs end, and whether they are still the logs that the query has read.

A look costs little for a few partitions and milliseconds of CPU for many thousands, so what a look costs decides how
often to look.  All of it belongs to the thread that Spark calls.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.log_ends import LogEnds
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.redaction import redact
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.query.log_inspection import Changes, LogInspection
from pyspark_kafka_group.query.planning import LeaderEpochs, Plannable
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import Address

_log = logging.getLogger(__name__)

# The shortest pause between two looks.  Spark's own source looks every 10 ms.
_SHORTEST_PAUSE_S = 0.005

# The longest: what comes to very many partitions is seen at least this soon.
_LONGEST_PAUSE_S = 1.0

# A pause is this share of the time for which nothing has come ...
_LATER_SHARE = 0.1

# ... until looks, and the calls of Spark between them, take no more than this share of a core.  After a pause a look
# costs 0.3 to 0.5 ms, right after another one 0.05: most of it is waking up.  For the sake of latency it may come this
# often in any case.
_CPU_SHARE = 0.01
_CHEAP_PAUSE_S = 0.05

# What the last look cost counts for this much: the cost of one is a matter of chance.
_NEWEST_SHARE = 0.25

_UNCONFIRMED = "its leader has not confirmed that the log is still the same"

# How often to warn that log ends are not to be had.
_WARN_PAUSE_S = 10.0


def pause_s(idle_s: float, cost_s: float) -> float:
    """Return how long to pause before the next look.

    Parameters
    ----------
    idle_s : float
        For how long nothing has come.
    cost_s : float
        CPU time of one look, and of the calls of Spark since the one before.
    """
    longest_s = min(max(_CHEAP_PAUSE_S, cost_s / _CPU_SHARE), _LONGEST_PAUSE_S)
    return min(max(_SHORTEST_PAUSE_S, cost_s, _LATER_SHARE * idle_s), longest_s)


class Pace:
    """Says when to look again.

    Attributes
    ----------
    due_at : Deadline
        When the next look is due.
    """

    def __init__(self) -> None:
        self.due_at = Deadline.after(0)
        self._news_at = time.monotonic()
        self._cost_s = 0.0
        self._calls_cpu_s = time.thread_time()

    @property
    def is_due_soon(self) -> bool:
        """Whether looks cost so little that one more does not matter."""
        return self.due_at.left_s <= _CHEAP_PAUSE_S

    @contextmanager
    def look(self) -> Iterator[None]:
        """Measure the look that goes on inside; the next one is due after a pause."""
        calls_s = time.thread_time() - self._calls_cpu_s
        begin_s = time.process_time()
        try:
            yield
        finally:
            cost_s = calls_s + time.process_time() - begin_s
            self._cost_s += _NEWEST_SHARE * (cost_s - self._cost_s)
            self.due_at = Deadline.after(pause_s(time.monotonic() - self._news_at, self._cost_s))
            self._calls_cpu_s = time.thread_time()

    def news(self) -> None:
        """Note that something has come: the next look is due at once, and those after it soon."""
        self._news_at = time.monotonic()
        self.due_at = Deadline.after(0)


class LogWatch:
    """Where the logs of a query's partitions end, and whether they are still the same logs.

    Parameters
    ----------
    settings : GroupSettings
        The group, its topics and its properties.

    Attributes
    ----------
    version : int
        Rises with each look that finds anything else than the one before: other ends, other leader epochs, or other
        partitions that were asked for.  While it stays, whoever has seen that there
        is nothing to do need not look at the ends again.
    looked_at : float or None
        When it was looked last, by the monotonic clock.
    known_ends : mapping of TopicPartition to Offset
        The log ends of the last look; where it found none, those of an earlier one.  Replaced as a whole.
    """

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._logs = LogEnds(
            settings.properties, client_id=f"{settings.group_id}-offsets", read_committed=settings.read_committed
        )
        self._warn_at = Deadline.after(0)
        self._ends: Mapping[TopicPartition, Offset] = {}
        self._leader_epochs: LeaderEpochs = {}
        self._inspection = LogInspection(
            self._logs.topic_ids, self._logs.epoch_ends, lambda tp: self._logs.epoch_errors.get(tp, "no answer")
        )
        self._problem = ""  # why the last look has found nothing
        self.known_ends: Mapping[TopicPartition, Offset] = {}
        self._found: object = None  # by the last look, all that tells it from another one
        self.version = 0
        self.pace = Pace()
        self.looked_at: float | None = None

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The epochs of the leaders that answered the last look."""
        return self._leader_epochs

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """Who leads the partitions, as of the last look; without those that have no leader."""
        return self._logs.leaders

    @property
    def strange(self) -> bool:
        """Whether the last inspection has seen something that calls for another one."""
        return self._inspection.strange

    def look(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Return where the logs end now, without those of brokers that do not answer; see :attr:`version`."""
        self._ends = self._list(partitions)
        self.looked_at = time.monotonic()
        missing = {} if len(self._ends) >= len(partitions) else {tp for tp in partitions if tp not in self._ends}
        old = {tp: self.known_ends[tp] for tp in missing if tp in self.known_ends}
        known = {**old, **self._ends} if old else self._ends
        if not old or known != self.known_ends:  # the same mapping as long as it says the same
            self.known_ends = known
        # Compared by value.  It costs little where nothing is new: the clients return the mappings that they returned
        # before, and Python compares no object with itself.
        found = (self._ends, self._leader_epochs, [*partitions])
        if found != self._found:
            self._found = found
            self.version += 1
        return self._ends

    def inspect(self, plannable: Plannable, *, news: bool) -> Changes:
        """Return what has happened to the logs since their partitions got their positions; after :meth:`look`.

        Parameters
        ----------
        plannable : Plannable
            The partitions of the last look and their positions.
        news : bool
            Whether a batch is about to be planned.
        """
        changes = self._inspection.inspect(plannable, self._ends, self._leader_epochs, news=news)
        if changes.unsure:
            self._logs.refind_leaders()
        return changes

    def held_back(self, plannable: Plannable, changes: Changes) -> dict[TopicPartition, str]:
        """Return the partitions that cannot be planned after the last look and inspection, and why."""
        if not (self._inspection.strange or changes.unsure):
            return {}
        silent = {
            tp: self._problem or self._logs.reasons.get(tp, "no answer") for tp in plannable if tp not in self._ends
        }
        return {**{tp: self._inspection.reasons.get(tp, _UNCONFIRMED) for tp in changes.unsure}, **silent}

    def close(self) -> None:
        """Close the connections and end the threads; returns before that is done."""
        self._logs.close()

    def _list(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """List log ends; empty if the cluster does not answer."""
        try:
            ends = self._logs.ends(partitions)
        except TryAgainError as problem:
            self._leader_epochs = {}
            self._problem = redact(str(problem), self._settings.properties)
            if self._warn_at.passed:
                self._warn_at = Deadline.after(_WARN_PAUSE_S)
                _log.warning("group %s: no log ends just now: %s", self._settings.group_id, self._problem)
            return {}
        self._leader_epochs, self._problem = self._logs.leader_epochs, ""
        return ends
