"""One running query in the source process.

Everything here runs on the main thread of the source process, inside a call of Spark, unless it says otherwise.  A call
should not block for long: Spark and the source process can notice each other's end only between calls.  Only the first
batch waits longer: for the group, and for the owners of a batch that runs again.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark_kafka_group.cluster.dead_letter_topic import require_dead_letter_topic
from pyspark_kafka_group.control.messages import ranges_to_json
from pyspark_kafka_group.control.server import ControlSocket
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.membership import Membership, StoppingError
from pyspark_kafka_group.coordinator.start_up import start_up
from pyspark_kafka_group.offsets.batch_offset import BatchOffset, OffsetTexts
from pyspark_kafka_group.offsets.errors import AssignmentTimeoutError, ConfigurationError
from pyspark_kafka_group.offsets.spark_commit_log import shortest_gap_s
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import Settings
from pyspark_kafka_group.query.batch_report import batch_report
from pyspark_kafka_group.query.batch_tracker import BatchTracker
from pyspark_kafka_group.query.log_watch import LogWatch
from pyspark_kafka_group.query.process import ENDED
from pyspark_kafka_group.query.progress_report import Reporter
from pyspark_kafka_group.query.second_source import SourceCheck
from pyspark_kafka_group.query.stream_planner import BatchDelay, StreamPlanner
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import Address

if TYPE_CHECKING:
    from pyspark_kafka_group.query.available_now import AvailableNow

_log = logging.getLogger(__name__)

# How long a call takes while the query is being stopped.
_STOPPING_PAUSE_S = 0.05

# How long the end of the query may take.  Longer than a commit on a healthy cluster, shorter than what service
# managers grant before they kill.
_STOP_S = 5.0

# How long leaving the group may take after that: one request, after a running rebalance has ended.
_LEAVE_S = 20.0

# How long a query may idle after pyspark_kafka_group.stop() has let its member leave.  The caller stops the query at
# once, so this only has to be longer than a request through Spark Connect.
_ABANDONED_S = 45.0

ABANDONED = (
    "pyspark_kafka_group.stop() let this query leave its group, but did not stop the query. The program that called it "
    "has probably ended. No record was lost. Start the query again."
)
"""The error of such a query: without a member it would never read again."""

# A warm-up with triggers this far apart costs more than it saves.  It saves the start of Python workers and the
# compilation, some seconds on a busy machine.
_FAR_APART_S = 30.0

# The shortest pause between two lag events.  One with each batch would double the event log.
_LAG_PAUSE_S = 5.0

# A replayed batch waits until the group has decided who owns its partitions.  This takes at most until a killed process
# has timed out and the slowest hand-over has ended.  This margin comes on top.  A busy broker that was restarted may
# take a minute to end the transactions that were open.
_REPLAY_MARGIN_S = 60.0
_REPLAY_PAUSE_S = 0.3

Json = dict[str, Any]


class Query:
    """One run of a query.

    Parameters
    ----------
    settings : Settings
        The parsed options.
    source_check : SourceCheck
        Refuses a second source of the query that would be another member of its group.
    patient : bool
        Whether the first batch also waits for partitions that other members may still give to this query.

    Raises
    ------
    OptionError
        If the topic for dead letters does not exist.
    """

    def __init__(self, settings: Settings, source_check: SourceCheck, *, patient: bool = False) -> None:
        if settings.formats is not None and settings.formats.dead_letter_topic is not None:
            require_dead_letter_topic(settings.group.properties, settings.formats.dead_letter_topic)
        self._settings = settings
        self._source_check = source_check
        self._group: Membership | None = None
        self._reporter: Reporter | None = None
        self._client_id = ""
        self._group_id: str | None = None  # None also if the offsets are not those of a group
        self._texts = OffsetTexts()
        self._watch = LogWatch(settings.group)
        delay = BatchDelay(settings.min_offsets_per_trigger, settings.max_trigger_delay_s)
        self._planner: StreamPlanner | AvailableNow = StreamPlanner(self._watch, delay, patient=patient)
        self._control: ControlSocket | None = None
        self._tracker: BatchTracker | None = None
        self._batch: tuple[BatchOffset, State] | None = None  # the newest batch, and the state when it was planned
        self._has_target = self._interrupted = False
        self._stop_expected_by: Deadline | None = None  # set by a thread of the control socket
        self._warm_up_began = 0.0
        self._event_log = EventLog("", None)
        self._lag: dict[str, int] = {}
        self._lag_due_at = Deadline.after(0)

    def fix_target(self) -> None:
        """List the log ends: a run with ``availableNow`` reads up to them."""
        # Deliberate: not at the top.  Other queries start sooner without it.
        from pyspark_kafka_group.query.available_now import AvailableNow, log_ends_now

        settings = self._settings.group
        self._has_target = True
        self._planner = AvailableNow(settings, self._watch, log_ends_now(settings, self._watch))

    def latest_offset(self, start: Json, max_rows: int | None) -> Json:
        """Note that everything up to ``start`` is finished, and plan the next batch.

        Parameters
        ----------
        start : dict
            The end of the last finished batch, or the initial offset.
        max_rows : int or None
            The approximate maximum number of offsets.

        Returns
        -------
        dict
            The end of the next batch; ``start`` itself if there is nothing to read.

        Raises
        ------
        KafkaGroupError
            If the query cannot continue.
        """
        self._source_check.asked()
        try:
            end = self._latest_offset(start, max_rows)
        except StoppingError:
            if self._has_target:
                self.check_running()  # Spark would take the answer for the end of the run
            self._check_not_abandoned()
            time.sleep(_STOPPING_PAUSE_S)
            end = start  # the query is being stopped and plans no batch
        self._source_check.answered(planned=end is not start)
        return end

    def _latest_offset(self, start: Json, max_rows: int | None) -> Json:
        self._event_log.activity.note_call()
        begin = self._texts.read(start)
        is_first = self._group is None
        group = self._join(begin, begin.query_id, warms_up=is_first and self._may_warm_up())
        is_warm_now = not is_first and group.warming_tasks > 0
        assert self._tracker is not None
        self._tracker.called()
        if not is_first:
            group.finish(begin)
        # Batch 0 always runs: its offset brings the new id of the query into Spark's log.
        always = begin.query_id is None
        with self._event_log.activity.planning():
            if is_warm_now:
                self._warn_of_long_warm_up()
                group.join_group()
            if group.warming_tasks:
                end = group.plan({}, always=True)
            else:
                if is_first or is_warm_now:
                    self._planner.begin(group)
                end = self._planner.next_batch(group, max_rows, always=always)
        self._watch.list_starts(group.state.owned)
        self._emit_lag(group)
        if end is None:
            return start
        self._tracker.planned()
        return self._texts.write(end)

    def _may_warm_up(self) -> bool:
        return self._settings.warm_up and not self._has_target and not self._triggers_are_far_apart()

    def _triggers_are_far_apart(self) -> bool:
        """Return whether the last runs of this query show that a warm-up would cost a long trigger.

        Spark does not tell a source its trigger.  Idle times of the topic also look like this.  A query that then joins
        at once lets its partitions wait for its first batch, a few seconds.
        """
        checkpoint = self._settings.checkpoint
        try:
            gap_s = None if checkpoint is None else shortest_gap_s(checkpoint)
        except (OSError, ValueError) as problem:
            _log.debug("%s: offset log: %r", self._settings.client_id, problem)  # a damaged log is Spark's to report
            return False
        return gap_s is not None and gap_s >= _FAR_APART_S

    def _warn_of_long_warm_up(self) -> None:
        """Warn if the trigger after the warm-up came late, because the query has read nothing until then."""
        waited_s = time.monotonic() - self._warm_up_began
        if waited_s >= _FAR_APART_S:
            _log.warning(
                "%s: this query warmed up, and joins its group only with this trigger, %.0f s later. If triggers are "
                "far apart, set the option warmUp to false, or the option checkpointLocation. With the latter, the "
                "source knows the triggers of former runs.",
                self._client_id,
                waited_s,
            )

    def _emit_lag(self, group: Membership) -> None:
        """Emit the lag event if the lag has changed."""
        if self._settings.event_log is None or self._reporter is None or not self._lag_due_at.passed:
            return
        found = self._reporter.partitions(group.state, self._planner.ends, self._watch.known_starts)["lag"]
        lag = {topic: sum(partitions.values()) for topic, partitions in found.items()}
        if lag != self._lag:
            self._lag, self._lag_due_at = lag, Deadline.after(_LAG_PAUSE_S)
            self._event_log(events.Lag(topics=lag))

    def running_ranges(self, start: Json, end: Json) -> Mapping[TopicPartition, OffsetRange]:
        """Return the ranges of the batch that ends at ``end``.

        After a restart, this may be the first call: Spark repeats the batch that it has logged but not finished.
        """
        self._source_check.batch_runs()
        logged = self._texts.read(end)
        ranges = self._running_ranges(start, logged)
        if self._group is not None and (self._batch is None or self._batch[0] != logged):
            # Not the state when the sink asks: a partition may have moved, or start anew, while the batch runs.
            self._batch = logged, self._group.state
            if self._control is not None:
                self._control.keep_address()
        return ranges

    def _running_ranges(self, start: Json, logged: BatchOffset) -> Mapping[TopicPartition, OffsetRange]:
        try:
            if self._group is None:
                group = self._join(self._texts.read(start), logged.query_id, unfinished=logged)
                with self._event_log.activity.planning():
                    return self._replay(group, logged)
            self._group.check()
            batch = self._group.state.batch
            if batch is not None and batch.end == logged:
                return batch.running
        except StoppingError:
            # Deliberate: no ranges, not even none.  Spark would run the batch and record it as finished, although this
            # query owns nothing any more.
            self._wait_for_end()
        raise ConfigurationError(
            "Spark asks for the records of a batch that is not running. A DataFrame of foreachBatch can be used only "
            "until its function returns: write it, or collect its rows, inside the function."
        )

    def _wait_for_end(self) -> NoReturn:
        """Wait until a query that has left its group is stopped, or raise if nobody stops it."""
        while True:
            self.check_running()
            self._check_not_abandoned()
            time.sleep(_STOPPING_PAUSE_S)

    @property
    def leaders(self) -> Mapping[TopicPartition, Address]:
        """The leader of each partition, if known."""
        return self._watch.leaders

    @property
    def warming_tasks(self) -> int:
        """The number of tasks of a warm-up batch, which reads nothing; 0 for all other batches."""
        return 0 if self._group is None else self._group.warming_tasks

    def finish(self, end: Json) -> None:
        """Note that the batch that ends at ``end`` is finished.  Spark calls this when it logs the next batch."""
        with contextlib.suppress(StoppingError):
            if self._group is None:
                return
            if self._group.state.batch is None:
                self._planner.others_run()
            self._group.finish(self._texts.read(end))

    def report(self) -> Json | None:
        """Return the report for the query's progress; None before the group was joined.  Any thread."""
        if self._group is None or self._reporter is None:
            return None
        listed_at = self._watch.listed_at
        return self._reporter.report(
            self._group.state,
            self._planner.ends,
            self._watch.known_starts,
            listed_at=None if listed_at is None else time.time() - (time.monotonic() - listed_at),
            member_id=self._group.member_id,
            held_back=self._group.held_back,
            group_problem=self._group.group_problem,
            alive=self._group.alive,
            control=None if self._control is None else self._control.address,
        )

    def check_running(self) -> None:
        """Raise if a signal has told the source process to stop: the query must not seem to be idle."""
        if self._interrupted:
            raise StoppingError(ENDED)

    def _check_not_abandoned(self) -> None:
        """Raise if the query still runs long after ``pyspark_kafka_group.stop`` has let its member leave."""
        if self._stop_expected_by is not None and self._stop_expected_by.passed and not self._interrupted:
            raise StoppingError(ABANDONED)

    def interrupt(self) -> bool:
        """Begin to leave the group, so that the running call ends soon.  A signal handler calls it.

        Returns False if the query has not joined the group yet.  An exception may then interrupt it safely.
        """
        if self._group is None or not self._group.alive:
            return False
        self._interrupted = True
        if self._tracker is not None:
            # Before the member leaves: a batch may have been finished since the last call.
            self._tracker.read_commit_log()
        self._group.begin_stop(_STOP_S)
        return True

    def stop(self) -> None:
        """Let the outstanding commit end and leave the group.  May be called more than once."""
        self._source_check.close()
        try:
            if self._tracker is not None:
                # Without this, other members would repeat a batch finished since the last call.
                self._tracker.read_commit_log()
                self._tracker.close()
        finally:
            if self._group is not None:
                self._group.begin_stop(_STOP_S)
                self._group.join(_STOP_S + _LEAVE_S)
            self._event_log.close()
        self._watch.close()
        if self._control is not None:
            self._control.close()

    def _replay(self, group: Membership, end: BatchOffset) -> Mapping[TopicPartition, OffsetRange]:
        """Return the ranges of the batch, once the group has decided who owns its partitions."""
        settings = self._settings.group
        patience_s = settings.session_timeout_s + settings.drain_timeout_s + _REPLAY_MARGIN_S
        deadline = Deadline.after(patience_s)
        while True:
            ranges = group.replay(end)
            if ranges is not None:
                group.check()  # a query that is told to end may have left since, and then has given up this batch
                return ranges
            if deadline.passed:
                names = ", ".join(f"{tp} {r}" for tp, r in end.ranges().items())
                if group.replay_waits_for:
                    raise AssignmentTimeoutError(
                        f"Spark repeats the last batch, but within {patience_s:g} s the query could not find out which "
                        f"of its ranges it still owns: {names}. The last reason: {group.replay_waits_for}. Correct "
                        f"this, and start the query again."
                    )
                raise AssignmentTimeoutError(
                    f"Spark repeats the last batch, but within {patience_s:g} s the group {settings.group_id!r} has "
                    f"not decided who owns the ranges of that batch: {names}. Another run of the same query may still "
                    f"be a member, or a member may not give partitions back. List the members with "
                    f"kafka-consumer-groups --describe --members, and start the query again."
                )
            group.wait_until(lambda state: False, _REPLAY_PAUSE_S)

    def _join(
        self,
        start: BatchOffset,
        query_id: str | None,
        *,
        unfinished: BatchOffset | None = None,
        warms_up: bool = False,
    ) -> Membership:
        """Return the membership; join the group first if this is the first call of the process."""
        if self._group is None:
            query_id = query_id or str(uuid.uuid4())
            self._client_id = f"{self._settings.client_id}-{query_id[:8]}"
            event_log = EventLog(self._client_id, self._settings.event_log)
            settings = self._settings.group.for_query(query_id)
            self._group_id = settings.group_id if settings.commits else None
            self._reporter = Reporter(
                group_id=self._group_id,
                client_id=self._client_id,
                activity=event_log.activity,
            )
            self._event_log = event_log
            group = start_up(
                settings,
                start=start,
                query_id=query_id,
                client_id=self._client_id,
                event_log=event_log,
                unfinished=unfinished,
                warms_up=warms_up,
            )
            self._group = group  # before it starts: a signal handler must find the member that has to leave
            try:
                group.start()
            except BaseException:
                if not group.alive:
                    self._group = None
                raise
            self._warm_up_began = time.monotonic()
            self._tracker = BatchTracker(group, client_id=self._client_id, checkpoint=self._settings.checkpoint)
            self._control = self._listen(self._tracker, query_id)
        return self._group

    def _stop_gracefully(self, timeout_s: float) -> bool:
        """Leave the group between two batches, for a caller that will stop the query.  Any thread."""
        assert self._group is not None
        until = Deadline.after(timeout_s)
        stopped = self._group.stop_gracefully(timeout_s)
        # Deliberate: from the caller's own deadline on.  Until then it may wait for another source of the query.
        self._stop_expected_by = Deadline.after(until.left_s + _ABANDONED_S)
        return stopped

    def _batch_report(self, end: Json) -> Json | None:
        """Return the ranges of the newest batch if it ends at ``end``.  Any thread."""
        if self._batch is None:
            return None
        newest, state = self._batch
        # Only if the sink asks: this takes about 3 microseconds for each partition.
        found = batch_report(state, newest, self._group_id) if newest == BatchOffset.from_json(end) else None
        return None if found is None else ranges_to_json(found)

    def _listen(self, tracker: BatchTracker, query_id: str) -> ControlSocket | None:
        try:
            return ControlSocket(self._stop_gracefully, tracker.report, self.report, query_id, batch=self._batch_report)
        except OSError as problem:
            _log.warning(
                "%s: pyspark_kafka_group.stop and .register cannot reach this query (%s). Set TMPDIR to a short, "
                "writable path.",
                self._client_id,
                problem,
            )
            return None
