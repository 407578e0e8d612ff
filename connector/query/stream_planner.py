"""Plans the batches of a continuously running query: when to poll the log ends, and what to read.

Listing the log ends of thousands of partitions takes milliseconds of CPU.  So its cost decides how often it runs.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.query.log_watch import LogWatch, report_changes
from pyspark_kafka_group.query.planning import Plannable, PlannedRanges, backlog, cut_ranges
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# How long the first batch waits for the group.  A broker holds the first members of a new group back for
# group.initial.rebalance.delay.ms (3 s), and the members of a rebalancing group wait for the slowest of them.
_JOIN_PATIENCE_S = 60.0
_JOIN_PAUSE_S = 1.0

# How long a call waits for something to read.  Only after the call has returned can Spark notice the end of its process
# and ask the other sources of the query.  But each call costs about 1 ms of CPU per thousand partitions.
_CALL_S = 0.4

# The same for `_OTHERS_S` after the query has run a batch of its other sources only.
_SHORT_CALL_S = 0.05
_OTHERS_S = 10.0

# How often topic ids are compared while no records come.  A topic that was created again may have as many records as
# the old one.  Its log end then looks like that of the old topic.
_COMPARE_S = 30.0

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


class PollInterval:
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
    def measured(self) -> Iterator[None]:
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


class BatchDelay:
    """Decides like Spark's own source: the delay begins with the last batch, or when there was nothing to read.

    Parameters
    ----------
    min_offsets : int or None
        ``minOffsetsPerTrigger``.  None delays no batch.
    max_delay_s : float
        ``maxTriggerDelay``, in seconds.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self, min_offsets: int | None, max_delay_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._min_offsets = min_offsets
        self._max_delay_s = max_delay_s
        self._clock = clock
        self._begun_at: float | None = None  # None: the first batch does not wait

    def delays(self, backlog: Callable[[], int]) -> bool:
        """Return whether to wait for more records.

        Parameters
        ----------
        backlog : callable
            Returns how many offsets there are to read.
        """
        if self._min_offsets is None:
            return False
        waits = self._begun_at is not None and self._clock() - self._begun_at < self._max_delay_s
        return waits and backlog() < self._min_offsets

    def begin(self) -> None:
        """Begin the delay anew: a batch was planned, or there was nothing to read."""
        self._begun_at = self._clock()


class StreamPlanner:
    """Lists log ends and plans batches of the new records.

    Parameters
    ----------
    watch : LogWatch
        Lists the log ends and inspects the logs.
    delay : BatchDelay, optional
        Decides whether a batch waits for more records.
    patient : bool
        Whether the first batch also waits for partitions that other members may still give to this query.

    Attributes
    ----------
    ends : mapping of TopicPartition to Offset
        The newest known log ends.
    """

    def __init__(self, watch: LogWatch, delay: BatchDelay | None = None, *, patient: bool = False) -> None:
        self.ends: Mapping[TopicPartition, Offset] = {}
        self.interval = PollInterval()
        self._watch = watch
        self._delay = delay or BatchDelay(None, 0.0)
        self._patient = patient
        self._others_until = Deadline.after(0)
        # Version of the log ends and positions of the last poll, if that poll found nothing to do.
        self._nothing: tuple[int, Plannable] | None = None
        self._compare_at = Deadline.after(_COMPARE_S)
        self._state: State | None = None
        self._plannable_now: Plannable = {}

    def begin(self, group: Membership) -> None:
        """Wait for the first partitions.

        Does not wait for partitions that are held back (an event reports them) if there are others.  Continues without
        partitions if the group takes long, or if no topic matches yet.
        """
        deadline = Deadline.after(_JOIN_PATIENCE_S)
        while group.has_topics and not self._can_begin(group, min(_JOIN_PAUSE_S, deadline.left_s)):
            if group.held_back and group.state.plannable():
                return
            if deadline.passed:
                break
        else:
            return
        _log.warning(
            "%s: the group has not assigned partitions to this query within %g s. The query continues without them "
            "for now. Another member may still hand over, or be dead and not yet timed out.",
            group.client_id,
            _JOIN_PATIENCE_S,
        )

    def _can_begin(self, group: Membership, pause_s: float) -> bool:
        """Wait a moment for the assignment.  Return whether the first batch can be planned."""
        assigned = group.wait_for_assignment(pause_s)
        if group.state.owned or not (self._patient or (group.under_kip_848 and not assigned)):
            return assigned
        if group.is_stable((), group.partitions_at_start):
            _log.info("%s: other members of the group have all partitions. This query has none.", group.client_id)
            return True
        if assigned:  # a cooperative join begins with an empty assignment
            group.wait_until(lambda state: bool(state.owned), pause_s)
        return False

    def others_run(self) -> None:
        """Note that the query has run a batch of its other sources only."""
        self._others_until = Deadline.after(_OTHERS_S)

    def next_batch(self, group: Membership, max_rows: int | None, *, always: bool) -> BatchOffset | None:
        """Wait for something to read and plan a batch; None if nothing comes while a call may last.

        Parameters
        ----------
        group : Membership
            The membership of this query.
        max_rows : int or None
            The approximate maximum number of offsets.
        always : bool
            Whether to plan a batch even if there is nothing to read.
        """
        others_run = not self._others_until.passed
        deadline = Deadline.after(_SHORT_CALL_S if others_run else _CALL_S)
        while always or self._wait_for_poll(group, deadline):
            end = self._poll(group, max_rows, always=always)
            if end is not None:
                return end
        # Deliberate: after an answer without a batch, Spark's processAllAvailable believes that nothing is left.  So
        # records that came while this call waited must be found.
        return self._poll(group, max_rows, always=False) if self.interval.is_due_soon else None

    def _poll(self, group: Membership, max_rows: int | None, *, always: bool) -> BatchOffset | None:
        """Poll once and put the planned batch in flight; None if there is nothing to read."""
        with self.interval.measured():
            ranges = self.readable_ranges(group, max_rows)
        if not (ranges or always or group.state.batch is not None):
            return None
        end = group.plan(ranges, always=always)
        if end is not None:
            self.interval.news()
            if ranges:
                self._delay.begin()
        return end

    def readable_ranges(self, group: Membership, max_rows: int | None) -> PlannedRanges:
        """Return the ranges that can be read now."""
        plannable = self._plannable(group.state)
        if not plannable:
            group.report_logs({}, {})
            return {}
        ends = self._watch.list_ends(plannable.keys())
        self.ends = self._watch.known_ends
        delayed = self._delay.delays(lambda: backlog(plannable, ends))
        seen = (self._watch.version, plannable)
        compares = self._compare_at.passed
        if seen == self._nothing and not compares:
            if not delayed:
                self._delay.begin()
            return {}
        ranges = {} if delayed else cut_ranges(plannable, ends, self._watch.leader_epochs, max_rows)
        if ranges or compares:
            self._compare_at = Deadline.after(_COMPARE_S)
        changes = self._watch.check(plannable, news=bool(ranges) or compares)
        # The group decides where to start in the changed logs.  So do not plan them, nor those that may have changed.
        left_out = report_changes(group, changes) | changes.unsure
        if left_out:
            ranges = {tp: planned for tp, planned in ranges.items() if tp not in left_out}
        # Deliberate: not if anything was left out.  The next poll may read it, although it finds nothing new.
        self._nothing = None if ranges or left_out or delayed or changes.needs_recheck else seen
        if self._nothing is not None:
            self._delay.begin()
        return ranges

    def _wait_for_poll(self, group: Membership, deadline: Deadline) -> bool:
        """Wait until the next poll is due or other partitions can be planned; False if neither before ``deadline``.

        Wakes up early when the assignment changes, but not because a commit was answered.
        """
        known = self._plannable(group.state)
        due_at = self.interval.due_at if known else Deadline.after(math.inf)
        wait_s = min(due_at, deadline).left_s

        def others(state: State) -> bool:
            now = self._plannable(state)
            return now is not known and now.keys() != known.keys()

        if wait_s > 0 and group.wait_until(others, wait_s):
            return True
        return due_at <= deadline

    def _plannable(self, state: State) -> Plannable:
        """Return the position of each partition that may be planned.

        Returns the same mapping while its values stay the same.  This only makes comparisons cheap.
        """
        if state is not self._state:
            self._state, now = state, state.plannable()
            if now != self._plannable_now:
                self._plannable_now = now
        return self._plannable_now
