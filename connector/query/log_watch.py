"""Lists log ends and inspects the logs, as often as the cost allows.

Listing the log ends of thousands of partitions takes milliseconds of CPU.  So its cost decides how often it runs.
Everything here belongs to the thread that Spark calls.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.log_ends import LogEnds
from pyspark_kafka_group.cluster.properties.redaction import redact
from pyspark_kafka_group.coordinator.handover.state import Partition
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.query.log_inspection import Changes, LogInspection
from pyspark_kafka_group.query.planning import LeaderEpochs, Plannable
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import Address

_log = logging.getLogger(__name__)

# The shortest pause between two polls of the log ends.  Spark's own source polls every 10 ms.
_SHORTEST_PAUSE_S = 0.005

# The longest pause: new records wait no longer for a poll, however many partitions there are.
_LONGEST_PAUSE_S = 1.0

# The pause is this share of the time without new records ...
_LATER_SHARE = 0.1

# ... until polls, and Spark's calls between them, take no more than this share of a core.  A poll costs 0.3 to 0.5 ms
# after a pause, and 0.05 ms right after another poll: most of it is waking up.  For latency, the pause does not grow
# beyond `_CHEAP_PAUSE_S` unless this share demands it.
_CPU_SHARE = 0.01
_CHEAP_PAUSE_S = 0.05

# Smoothing factor of the moving average of the cost: single costs vary.
_NEWEST_SHARE = 0.25

# The shortest pause between two requests for the log starts.  Brokers delete old records every 5 minutes by default.
_STARTS_PAUSE_S = 60.0

# The shortest pause between two warnings that no log ends can be listed.
_WARN_PAUSE_S = 10.0


def pause_s(idle_s: float, cost_s: float) -> float:
    """Return how long to pause before the next poll, in seconds.

    Parameters
    ----------
    idle_s : float
        Time without new records, in seconds.
    cost_s : float
        CPU time of one poll, and of Spark's calls since the poll before, in seconds.
    """
    longest_s = min(max(_CHEAP_PAUSE_S, cost_s / _CPU_SHARE), _LONGEST_PAUSE_S)
    return min(max(_SHORTEST_PAUSE_S, cost_s, _LATER_SHARE * idle_s), longest_s)


class Pace:
    """Decides when the next poll of the log ends is due.

    Attributes
    ----------
    due_at : Deadline
        When the next poll is due.
    """

    def __init__(self) -> None:
        self.due_at = Deadline.after(0)
        self._news_at = time.monotonic()
        self._cost_s = 0.0
        self._calls_cpu_s = time.thread_time()

    @property
    def is_due_soon(self) -> bool:
        """Whether polls cost so little that one more does not matter."""
        return self.due_at.left_s <= _CHEAP_PAUSE_S

    @contextmanager
    def look(self) -> Iterator[None]:
        """Measure the poll in this context.  The next poll is due after a pause."""
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
        """Note new records: the next poll is due at once, and the polls after it soon."""
        self._news_at = time.monotonic()
        self.due_at = Deadline.after(0)


class LogWatch:
    """The log ends of a query's partitions, and the changes of their logs.

    Parameters
    ----------
    settings : GroupSettings
        The group, its topics and its properties.

    Attributes
    ----------
    version : int
        Rises with each poll whose partitions, log ends or leader epochs differ from the poll before.  While it stays
        the same, a caller that found nothing to do need not check the ends again.
    looked_at : float or None
        Time of the last poll that a leader has answered, by the monotonic clock.
    known_ends : mapping of TopicPartition to Offset
        The newest known log end of each partition of the last poll.  Replaced as a whole.
    known_starts : mapping of TopicPartition to Offset
        The log starts of the partitions that had a lag at the last :meth:`list_starts`.  Replaced as a whole.
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
        self._problem = ""  # why the last poll failed
        self.known_ends: Mapping[TopicPartition, Offset] = {}
        self.known_starts: Mapping[TopicPartition, Offset] = {}
        self._starts_due_at = Deadline.after(0)
        self._found: object = None  # partitions, log ends and leader epochs of the last poll
        self.version = 0
        self.pace = Pace()
        self.looked_at: float | None = None

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The epochs of the leaders that answered the last poll."""
        return self._leader_epochs

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """The leader of each partition that had one in the last poll."""
        return self._logs.leaders

    def look(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Return the log ends from the brokers that answer."""
        self._ends = self._list(partitions)
        if self._ends:
            self.looked_at = time.monotonic()
        missing = {} if len(self._ends) >= len(partitions) else {tp for tp in partitions if tp not in self._ends}
        old = {tp: self.known_ends[tp] for tp in missing if tp in self.known_ends}
        known = {**old, **self._ends} if old else self._ends
        if not old or known != self.known_ends:  # keep the mapping while its values are the same
            self.known_ends = known
        # Compared by value.  This costs little if nothing is new: the clients then return the same mappings, and Python
        # does not compare an object with itself.
        found = (self._ends, self._leader_epochs, [*partitions])
        if found != self._found:
            self._found = found
            self.version += 1
        return self._ends

    def check(self, plannable: Plannable, *, news: bool) -> Changes:
        """Return the changes of the logs.  Call :meth:`look` first.

        Parameters
        ----------
        plannable : Plannable
            The partitions of the last poll and their positions.
        news : bool
            Whether a batch is about to be planned.
        """
        changes = self._inspection.inspect(plannable, self._ends, self._leader_epochs, news=news)
        if changes.unsure:
            self._logs.refind_leaders()
        if changes.recreated or changes.truncated:
            self.known_starts, self._starts_due_at = {}, Deadline.after(0)
        if not changes.strange:
            return changes
        silent = {
            tp: self._problem or self._logs.reasons.get(tp, "no answer") for tp in plannable if tp not in self._ends
        }
        return replace(changes, reasons={**changes.reasons, **silent})

    def list_starts(self, owned: Mapping[TopicPartition, Partition]) -> None:
        """List the log starts of the partitions that have a lag, once a minute: the group cannot read below them."""
        if not (owned and self._starts_due_at.passed):
            return
        self._starts_due_at = Deadline.after(_STARTS_PAUSE_S)
        ends = self.known_ends
        behind = [tp for tp, p in owned.items() if p.committed is not None and tp in ends and p.committed < ends[tp]]
        self.known_starts = self._logs.log_starts(behind) if behind else {}

    def close(self) -> None:
        """Close the connections and end the threads, without waiting for them."""
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
                _log.warning("group %s: cannot list log ends: %s", self._settings.group_id, self._problem)
            return {}
        self._leader_epochs, self._problem = self._logs.leader_epochs, ""
        return ends
