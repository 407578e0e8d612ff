"""One running query, in the source process: batches in, offsets out.

Everything here runs on the main thread of the source process, inside a call of Spark.  No call blocks for long:
Spark notices the end of its process, and the process that of Spark, only between calls.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from pyspark_kafka_group.completion import Completion
from pyspark_kafka_group.control import ControlSocket
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover.inputs import LogChange
from pyspark_kafka_group.coordinator.handover.state import NO_EPOCH, State
from pyspark_kafka_group.coordinator.membership import Membership, StoppingError, new_query_id
from pyspark_kafka_group.log_inspection import Changes
from pyspark_kafka_group.offsets.document import BatchOffset, OffsetTexts
from pyspark_kafka_group.offsets.errors import AssignmentTimeoutError, BrokerError, NoPartitionsError
from pyspark_kafka_group.offsets.group_offsets import GroupOffsets
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.offsets.worker import Worker
from pyspark_kafka_group.options import Settings
from pyspark_kafka_group.planning import Plannable, PlannedRanges, plan
from pyspark_kafka_group.progress import Reporter
from pyspark_kafka_group.source_process import ENDED
from pyspark_kafka_group.watch import LogWatch

_log = logging.getLogger(__name__)

# How long the first batch waits for the group.  A broker holds the first members of a new group back for
# group.initial.rebalance.delay.ms (3 s), and the members of a rebalancing group wait for the slowest of them.
_JOIN_PATIENCE_S = 60.0

# A run with availableNow would end at once if it took "not assigned yet" for "nothing to read", so it waits as long
# as a group may take at most: until the slowest member is thrown out (max.poll.interval.ms, 5 minutes).
_AVAILABLE_NOW_PATIENCE_S = 330.0

# How often the log ends that bound a run are asked for until all are known.
_TARGET_PAUSE_S = 0.2

# How often a run with availableNow asks whether the group has settled, and for how long it must have given all
# partitions to others before that is an error: a member that has just left leaves room.
_SETTLED_PAUSE_S = 0.1
_NO_PARTITIONS_S = 5.0

# How long a call looks for something to read.  Spark notices the end of its process, and asks the other sources of the
# query, only when the call returns; but calls cost, too: for a thousand partitions a millisecond of CPU each.
_CALL_S = 0.4

# The same while the query runs batches of its other sources, and for how long that is remembered.
_SHORT_CALL_S = 0.05
_OTHERS_S = 10.0

# How long a call of a query that is being stopped takes.
_STOPPING_PAUSE_S = 0.05

# How long the end of the query may take.  Longer than a commit on a healthy cluster, shorter than what service
# managers grant before they kill.
_STOP_S = 5.0

# How long leaving the group may take after that: one request, and before it the end of a rebalance that goes on.
_LEAVE_S = 20.0

# A batch that is replayed waits for the group to decide who owns its partitions: until a killed process is thrown out,
# and the slowest hand-over is over, and this margin.
_REPLAY_MARGIN_S = 30.0
_REPLAY_PAUSE_S = 0.3

# Deliberate: the default is 700.  A plan for thousands of partitions makes tens of thousands of small objects, none of
# them in a cycle; with 10,000 partitions half of its time went into looking for cycles.
_OBJECTS_BEFORE_GC = 100_000

Json = dict[str, Any]


class Query:
    """One run of a query.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._group: Membership | None = None
        self._reporter: Reporter | None = None
        self._client_id = ""
        self._texts = OffsetTexts()
        self._watch = LogWatch(settings.group)
        self._ends: Mapping[TopicPartition, Offset] = {}
        self._target: dict[TopicPartition, Offset] | None = None
        self._others_until = 0.0
        # What was looked at last, if there was nothing to read.
        self._nothing: tuple[Plannable, Mapping[TopicPartition, Offset]] | None = None
        self._state: State | None = None
        self._plannable_now: Plannable = {}
        self._control: ControlSocket | None = None
        self._completion: Completion | None = None
        self._interrupted = False

    def fix_target(self) -> None:
        """Note the log ends of all subscribed partitions: a run with ``availableNow`` reads no further."""
        settings = self._settings.group
        worker = Worker("kafka-group-target")
        cluster = worker.submit(
            GroupOffsets,
            settings.properties,
            group_id=settings.group_id,
            read_committed=settings.read_committed,
        ).result()
        counts = worker.submit(cluster.connect, settings.topics, settings.pattern).result()
        worker.submit(cluster.close)
        everything = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
        deadline = time.monotonic() + _JOIN_PATIENCE_S
        target = self._watch.look(everything)
        while len(target) < len(everything):
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(str(tp) for tp in set(everything) - target.keys()))
                raise BrokerError(
                    f"No log end of {missing} within {_JOIN_PATIENCE_S:g} s: the partition has no leader, or its "
                    f"broker does not answer."
                )
            time.sleep(_TARGET_PAUSE_S)
            target = self._watch.look(everything)
        self._target = dict(target)

    def latest_offset(self, start: Json, max_rows: int | None) -> Json:
        """Take note that everything up to ``start`` is finished, and plan the next batch.

        Parameters
        ----------
        start : dict
            The end of the last finished batch, or the initial offset.
        max_rows : int or None
            About how many offsets to read at most.

        Returns
        -------
        dict
            The end of the next batch; ``start`` itself if there is nothing to read.

        Raises
        ------
        KafkaGroupError
            If the query cannot go on.
        """
        try:
            return self._latest_offset(start, max_rows)
        except StoppingError:
            time.sleep(_STOPPING_PAUSE_S)
            return start  # the query is being stopped: nothing new any more

    def _latest_offset(self, start: Json, max_rows: int | None) -> Json:
        begin = self._texts.read(start)
        first = self._group is None
        group = self._join(begin, begin.query_id)
        assert self._completion is not None
        self._completion.called()
        if not first:
            group.finish(begin)
        # Batch 0 runs in any case, and it is the one that carries the new name of the query into Spark's log.
        always = begin.query_id is None
        if self._target is not None:
            end = self._plan_to(self._target, group, max_rows, always=always)
        else:
            if first:
                self._wait_for_assignment(group)
            end = self._next_batch(group, max_rows, always=always)
        if end is None:
            return start
        self._completion.planned()
        return self._texts.write(end)

    def running_ranges(self, start: Json, end: Json) -> Mapping[TopicPartition, OffsetRange]:
        """Return what the batch that ends at ``end`` reads.

        After a restart this is the first call: Spark runs the batch again that it had logged and not finished.
        """
        logged = self._texts.read(end)
        if self._group is not None:
            batch = self._group.state.batch
            return batch.running if batch is not None and batch.end == logged else logged.ranges()
        group = self._join(self._texts.read(start), logged.query_id, unfinished=logged)
        try:
            return self._replay(group, logged)
        except StoppingError:
            self.check_running()
            return logged.ranges()  # the query is being stopped and will not read them

    def finish(self, end: Json) -> None:
        """Take note that the batch that ends at ``end`` is finished; Spark says so when the next one is logged."""
        if self._group is None:
            return
        if self._group.state.batch is None:
            self._others_until = time.monotonic() + _OTHERS_S  # the next batch has nothing of this source
        with contextlib.suppress(StoppingError):
            self._group.finish(self._texts.read(end))

    def report(self) -> Json | None:
        """Return what the query's progress shows of the group; None before the group was joined."""
        if self._group is None or self._reporter is None:
            return None
        return self._reporter.report(
            self._group.state,
            self._ends,
            member_id=self._group.member_id,
            control=None if self._control is None else self._control.address,
        )

    def check_running(self) -> None:
        """Raise if the source process was told to stop before this call: the query must not seem to be idle."""
        if self._interrupted:
            raise StoppingError(ENDED)

    def interrupt(self) -> bool:
        """Begin to leave the group, so that the running call ends soon; from a signal handler.

        Returns False if the group was not joined yet: then nothing is lost by an exception in the middle.
        """
        if self._group is None or not self._group.alive:
            return False
        self._interrupted = True
        self._group.begin_stop(_STOP_S)
        return True

    def stop(self) -> None:
        """Let the outstanding commit end and leave the group."""
        if self._completion is not None:
            self._completion.look()  # what Spark has finished since its last call would be repeated
            self._completion.close()
        if self._group is not None:
            self._group.begin_stop(_STOP_S)
            self._group.join(_STOP_S + _LEAVE_S)
        self._watch.close()
        if self._control is not None:
            self._control.close()

    def _replay(self, group: Membership, end: BatchOffset) -> Mapping[TopicPartition, OffsetRange]:
        """Return what the batch reads, once the group has decided who owns it."""
        settings = self._settings.group
        patience_s = settings.session_timeout_s + settings.drain_timeout_s + _REPLAY_MARGIN_S
        deadline = time.monotonic() + patience_s
        while True:
            ranges = group.replay(end)
            if ranges is not None:
                return ranges
            if time.monotonic() > deadline:
                names = ", ".join(f"{tp} {r}" for tp, r in end.ranges().items())
                raise AssignmentTimeoutError(
                    f"Spark runs the last batch again, and within {patience_s:g} s the group {settings.group_id!r} has "
                    f"not decided who owns what it reads: {names}. Perhaps another run of the same query is still a "
                    f"member, or a member does not give partitions back; look at them with kafka-consumer-groups "
                    f"--describe --members, and start the query again."
                )
            group.wait_until(lambda state: False, _REPLAY_PAUSE_S)

    def _join(self, start: BatchOffset, query_id: str | None, *, unfinished: BatchOffset | None = None) -> Membership:
        """Return the membership; begin it if this is the first call of the process."""
        if self._group is None:
            gc.set_threshold(_OBJECTS_BEFORE_GC, *gc.get_threshold()[1:])
            query_id = query_id or new_query_id()
            self._client_id = f"{self._settings.client_id}-{query_id[:8]}"
            events = EventLog(self._client_id, self._settings.event_log)
            self._reporter = Reporter(
                group_id=self._settings.group.group_id, client_id=self._client_id, counts=events.counts
            )
            group = Membership(
                self._settings.group,
                start=start,
                query_id=query_id,
                client_id=self._client_id,
                event_log=events,
            )
            self._group = group  # before it starts: a signal must find what has to leave
            try:
                group.start(unfinished)
            except BaseException:
                if not group.alive:
                    self._group = None
                raise
            self._completion = Completion(group, client_id=self._client_id, checkpoint=self._settings.checkpoint)
            self._control = self._listen(group, self._completion)
        return self._group

    def _listen(self, group: Membership, completion: Completion) -> ControlSocket | None:
        try:
            return ControlSocket(group.stop_gracefully, completion.tell)
        except OSError as problem:
            _log.warning(
                "%s: pyspark_kafka_group.stop and .register will not reach this query (%s). Set TMPDIR to a short, "
                "writable path.",
                self._client_id,
                problem,
            )
            return None

    def _wait_for_assignment(self, group: Membership) -> None:
        if group.wait_for_assignment(_JOIN_PATIENCE_S):
            return
        _log.warning(
            "%s: the group has not given this query its partitions within %g s; going on without them for now. "
            "Another member may be handing over, or be dead and not yet timed out.",
            self._client_id,
            _JOIN_PATIENCE_S,
        )

    def _settle(self, group: Membership, target: Mapping[TopicPartition, Offset]) -> None:
        """Wait until it is certain what this run has to read: it ends when nothing is left."""
        deadline = time.monotonic() + _AVAILABLE_NOW_PATIENCE_S
        while not group.wait_for_assignment(_SETTLED_PAUSE_S):
            # Under KIP-848 a member that is given nothing is told nothing.
            if not group.state.owned and group.is_settled((), target.keys()):
                return
            if time.monotonic() > deadline:
                raise self._not_settled()
        if not group.wait_until(lambda state: state.may_plan, _AVAILABLE_NOW_PATIENCE_S):
            raise self._not_settled()

    def _not_settled(self) -> AssignmentTimeoutError:
        return AssignmentTimeoutError(
            f"The group {self._settings.group.group_id!r} has not given each partition to a member, or not said where "
            f"this query starts, within {_AVAILABLE_NOW_PATIENCE_S:g} s. Perhaps a member does not give partitions "
            f"back; look at them with kafka-consumer-groups --describe --members."
        )

    def _settle_commits(self, group: Membership) -> None:
        """Wait until everything finished is committed: after a last batch Spark ends this process at once."""
        if not group.wait_until(lambda state: not state.uncommitted, _STOP_S):
            _log.warning("%s: the last batch is not committed yet", self._client_id)

    def _plan_to(
        self, target: dict[TopicPartition, Offset], group: Membership, max_rows: int | None, *, always: bool
    ) -> BatchOffset | None:
        """Plan the next batch of a run that ends at ``target``; None if nothing is left."""
        deadline = time.monotonic() + _AVAILABLE_NOW_PATIENCE_S
        nothing_since: float | None = None
        while True:
            self._settle(group, target)
            state = group.state
            plannable = state.plannable()
            ends, changed, unsure = self._look_for_changes(plannable, target, group)
            if time.monotonic() > deadline:
                raise self._not_settled()
            if changed:
                continue
            # Deliberate: the ends of the beginning.  An answer that fails would look like the end of the run.
            readable = [tp for tp in plannable if tp in target and tp not in unsure]
            self._ends = {tp: min(target[tp], ends.get(tp, target[tp])) for tp in readable}
            ranges = plan(plannable, self._ends, self._watch.leader_epochs, max_rows)
            if ranges or (plannable and always):
                return group.plan(ranges, always=always)
            if group.state.batch is not None:
                return group.state.batch.end
            # What its share is, is asked only where it decides: a run that has something to read goes on.
            # Deliberate: of the state that was looked at.  While the group is asked it may give the first partitions.
            if not (unsure or state.unsettled) and group.is_settled(state.owned.keys(), target.keys()):
                if state.last_epoch > NO_EPOCH:  # it has, or had, something to read
                    break
                nothing_since = nothing_since or time.monotonic()
                if time.monotonic() - nothing_since > _NO_PARTITIONS_S:
                    raise NoPartitionsError(self._settings.group.group_id)
            else:
                nothing_since = None
            if time.monotonic() > deadline:
                raise self._not_settled()
            self._wait_for_others(group, plannable)
        if always:
            return group.plan({}, always=True)
        self._settle_commits(group)
        return None

    def _wait_for_others(self, group: Membership, known: Plannable) -> None:
        """Wait a moment for other partitions than those that are known."""
        group.wait_until(lambda state: state.plannable().keys() != known.keys(), _SETTLED_PAUSE_S)

    def _look_for_changes(
        self, plannable: Plannable, target: dict[TopicPartition, Offset], group: Membership
    ) -> tuple[Mapping[TopicPartition, Offset], set[TopicPartition], set[TopicPartition]]:
        """Return where logs end now, the partitions whose logs are others, and those of which that is not known.

        The part of ``target`` that belongs to a changed log is then where the log ends now.
        """
        if not plannable:
            return {}, set(), set()
        ends = self._watch.look(plannable.keys())
        changes = self._watch.inspect(plannable, news=True)
        changed = self._change_logs(group, changes)
        for tp in changed:
            target.pop(tp, None)
            if tp in ends:
                target[tp] = ends[tp]
        return ends, changed, changes.unsure

    def _next_batch(self, group: Membership, max_rows: int | None, *, always: bool) -> BatchOffset | None:
        """Look for something to read until there is; None if there is not for as long as a call may take."""
        others_run = time.monotonic() < self._others_until
        deadline = time.monotonic() + (_SHORT_CALL_S if others_run else _CALL_S)
        while always or self._wait_for_look(group, deadline):
            with self._watch.pace.look():
                ranges = self._look(group, max_rows)
            if ranges or always or group.state.batch is not None:
                end = group.plan(ranges, always=always)
                if end is not None:
                    self._watch.pace.news()
                    return end
        return None

    def _wait_for_look(self, group: Membership, deadline: float) -> bool:
        """Wait until the next look is due, or there are other partitions to look at; False if not before ``deadline``.

        Wakes up early when the assignment changes, but never just because a commit was answered.
        """
        known = self._plannable(group.state)
        due_at = self._watch.pace.due_at if known else math.inf
        wait_s = min(due_at, deadline) - time.monotonic()

        def others(state: State) -> bool:
            now = self._plannable(state)
            return now is not known and now.keys() != known.keys()

        if wait_s > 0 and group.wait_until(others, wait_s):
            return True
        return due_at <= deadline

    def _plannable(self, state: State) -> Plannable:
        """Return what may be planned; the very same mapping while the state is the same."""
        if state is not self._state:
            self._state, self._plannable_now = state, state.plannable()
        return self._plannable_now

    def _look(self, group: Membership, max_rows: int | None) -> PlannedRanges:
        """Return what there is to read now."""
        plannable = self._plannable(group.state)
        if not plannable:
            return {}
        self._ends = self._watch.look(plannable.keys())
        if self._nothing is not None and self._nothing[0] is plannable and self._nothing[1] is self._ends:
            return {}
        ranges = plan(plannable, self._ends, self._watch.leader_epochs, max_rows)
        changes = self._watch.inspect(plannable, news=bool(ranges))
        # Where the changed ones start is being decided now; they are not planned, nor are those that are not sure.
        left_out = self._change_logs(group, changes) | changes.unsure
        if left_out:
            ranges = {tp: planned for tp, planned in ranges.items() if tp not in left_out}
        self._nothing = None if ranges or self._watch.strange else (plannable, self._ends)
        return ranges

    def _change_logs(self, group: Membership, changes: Changes) -> set[TopicPartition]:
        """Have it decided anew where changed logs start; return their partitions."""
        owned = group.state.owned
        of_change = {
            LogChange.RECREATED: {tp for tp in owned if tp.topic in changes.recreated},
            LogChange.DELETED: {tp for tp in owned if tp.topic in changes.deleted},
            LogChange.TRUNCATED: changes.truncated,
        }
        for change, partitions in of_change.items():
            if partitions:
                group.change_logs(partitions, change)
        return set().union(*of_change.values())
