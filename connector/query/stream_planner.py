"""Plans the batches of a query that goes on and on: whatever is new since the last look."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.query.batch_delay import BatchDelay
from pyspark_kafka_group.query.log_inspection import change_logs
from pyspark_kafka_group.query.log_watch import LogWatch
from pyspark_kafka_group.query.planning import Plannable, PlannedRanges, backlog, plan
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# How long the first batch waits for the group.  A broker holds the first members of a new group back for
# group.initial.rebalance.delay.ms (3 s), and the members of a rebalancing group wait for the slowest of them.
_JOIN_PATIENCE_S = 60.0
_JOIN_PAUSE_S = 1.0

# How long a call looks for something to read.  Spark notices the end of its process, and asks the other sources of the
# query, only when the call returns; but calls cost, too: for a thousand partitions a millisecond of CPU each.
_CALL_S = 0.4

# The same while the query runs batches of its other sources, and for how long that is remembered.
_SHORT_CALL_S = 0.05
_OTHERS_S = 10.0

# How often topic ids are compared while nothing comes.  A topic that was created again may have as many records as the
# one before, and its first records then look like those that were read.
_COMPARE_S = 30.0


class StreamPlanner:
    """Looks where logs end, and plans what is new.

    Parameters
    ----------
    watch : LogWatch
        Looks.
    delay : BatchDelay, optional
        Says whether to wait for more.

    Attributes
    ----------
    ends : mapping of TopicPartition to Offset
        The log ends that were looked at last.
    """

    def __init__(self, watch: LogWatch, delay: BatchDelay | None = None) -> None:
        self.ends: Mapping[TopicPartition, Offset] = {}
        self._watch = watch
        self._delay = delay
        self._others_until = Deadline.after(0)
        # What was looked at last, if there was nothing to do about it: of which version the ends were, and whose.
        self._nothing: tuple[int, Plannable] | None = None
        self._compare_at = Deadline.after(_COMPARE_S)
        self._state: State | None = None
        self._plannable_now: Plannable = {}

    def begin(self, group: Membership) -> None:
        """Wait for the first partitions.

        Continue without them if the group takes long, or if no topic matches yet; and without those that are held back,
        which an event tells, if there are others.
        """
        deadline = Deadline.after(_JOIN_PATIENCE_S)
        while group.has_topics and not group.wait_for_assignment(min(_JOIN_PAUSE_S, deadline.left_s)):
            if group.held_back and group.state.plannable():
                return
            if deadline.passed:
                break
        else:
            return
        _log.warning(
            "%s: the group has not given this query its partitions within %g s; going on without them for now. "
            "Another member may be handing over, or be dead and not yet timed out.",
            group.client_id,
            _JOIN_PATIENCE_S,
        )

    def others_run(self) -> None:
        """Take note that the query has run a batch of its other sources only."""
        self._others_until = Deadline.after(_OTHERS_S)

    def next_batch(self, group: Membership, max_rows: int | None, *, always: bool) -> BatchOffset | None:
        """Look for something to read until there is; None if there is not for as long as a call may take.

        Parameters
        ----------
        group : Membership
            Whose partitions are read.
        max_rows : int or None
            About how many offsets to read at most.
        always : bool
            Whether to plan a batch also if there is nothing to read.
        """
        others_run = not self._others_until.passed
        deadline = Deadline.after(_SHORT_CALL_S if others_run else _CALL_S)
        while always or self._wait_for_look(group, deadline):
            end = self._look_and_plan(group, max_rows, always=always)
            if end is not None:
                return end
        # Deliberate: Spark's processAllAvailable takes this call's answer for that nothing is left, so what came before
        # it returns had better be seen.
        return self._look_and_plan(group, max_rows, always=False) if self._watch.pace.is_due_soon else None

    def _look_and_plan(self, group: Membership, max_rows: int | None, *, always: bool) -> BatchOffset | None:
        """Look once and put what there is in flight; None if there is nothing."""
        with self._watch.pace.look():
            ranges = self.look(group, max_rows)
        if not (ranges or always or group.state.batch is not None):
            return None
        end = group.plan(ranges, always=always)
        if end is not None:
            self._watch.pace.news()
        return end

    def look(self, group: Membership, max_rows: int | None) -> PlannedRanges:
        """Return what there is to read now."""
        plannable = self._plannable(group.state)
        if not plannable:
            group.note_logs({})
            return {}
        ends = self._watch.look(plannable.keys())
        self.ends = self._watch.known_ends
        held_back = self._delay is not None and self._delay.holds_back(lambda: backlog(plannable, ends))
        seen = (self._watch.version, plannable)
        compares = self._compare_at.passed
        if seen == self._nothing and not compares:
            return {}
        ranges = {} if held_back else plan(plannable, ends, self._watch.leader_epochs, max_rows)
        if ranges or compares:
            self._compare_at = Deadline.after(_COMPARE_S)
        changes = self._watch.inspect(plannable, news=bool(ranges) or compares)
        # Where the changed ones start is being decided now; they are not planned, nor are those that are not sure.
        left_out = change_logs(group, changes) | changes.unsure
        group.note_logs(self._watch.held_back(plannable, changes))
        if left_out:
            ranges = {tp: planned for tp, planned in ranges.items() if tp not in left_out}
        # Deliberate: not where anything was left out.  It may be read with the next look, though nothing is new then.
        self._nothing = None if ranges or left_out or held_back or self._watch.strange else seen
        return ranges

    def _wait_for_look(self, group: Membership, deadline: Deadline) -> bool:
        """Wait until the next look is due, or there are other partitions to look at; False if not before ``deadline``.

        Wakes up early when the assignment changes, but never just because a commit was answered.
        """
        known = self._plannable(group.state)
        due_at = self._watch.pace.due_at if known else Deadline.after(math.inf)
        wait_s = min(due_at, deadline).left_s

        def others(state: State) -> bool:
            now = self._plannable(state)
            return now is not known and now.keys() != known.keys()

        if wait_s > 0 and group.wait_until(others, wait_s):
            return True
        return due_at <= deadline

    def _plannable(self, state: State) -> Plannable:
        """Return what may be planned.

        It is the very same mapping while nothing has changed about it, which makes comparing cheap and means no more.
        """
        if state is not self._state:
            self._state, now = state, state.plannable()
            if now != self._plannable_now:
                self._plannable_now = now
        return self._plannable_now
