"""One running query, in the source process: batches in, offsets out.

Everything here runs on the main thread of the source process, inside a call of Spark.  No call blocks for long:
Spark notices the end of its process, and the process that of Spark, only between calls.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from pyspark_kafka_group.completion import Completion
from pyspark_kafka_group.control import ControlSocket
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.group_thread import GroupThread, StoppingError, new_query_id
from pyspark_kafka_group.offsets.cluster import GroupOffsets, LogEnds, TryAgainError
from pyspark_kafka_group.offsets.document import BatchOffset
from pyspark_kafka_group.offsets.errors import AssignmentTimeoutError, BrokerError
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.offsets.worker import Worker
from pyspark_kafka_group.options import Settings
from pyspark_kafka_group.planning import Plannable, plan
from pyspark_kafka_group.progress import report
from pyspark_kafka_group.source_process import ENDED

_log = logging.getLogger(__name__)

# How long the first batch waits for the group.  A broker holds the first members of a new group back for
# group.initial.rebalance.delay.ms (3 s), and the members of a rebalancing group wait for the slowest of them.
_JOIN_PATIENCE_S = 60.0

# A run with availableNow would end at once if it took "not assigned yet" for "nothing to read", so it waits as long
# as a group may take at most: until the slowest member is thrown out (max.poll.interval.ms, 5 minutes).
_AVAILABLE_NOW_PATIENCE_S = 330.0

# How often the log ends that bound a run are asked for until all are known.
_TARGET_PAUSE_S = 0.2

# While there is nothing to read, log ends are asked for this often.  Spark itself asks every 10 ms.
_IDLE_PAUSE_S = 0.05

# With thousands of partitions a listing takes longer; then pause this many times as long.
_IDLE_SHARE = 10

# How often to ask, before a batch, whether the topics are still the same ones.
_TOPICS_PAUSE_S = 1.0

# How often to warn that log ends are not to be had.
_WARN_PAUSE_S = 10.0

# How long the end of the query may take.  Longer than a commit on a healthy cluster, shorter than what service
# managers grant before they kill.
_STOP_S = 5.0

# How long leaving the group may take after that: one request, and before it the end of a rebalance that goes on.
_LEAVE_S = 20.0

# Longer than one request may take.
_ENDS_TIMEOUT_S = 15.0

# A batch that is replayed waits for the group to decide who owns its partitions: until a killed process is thrown out,
# and the slowest hand-over is over, and this margin.
_REPLAY_MARGIN_S = 30.0
_REPLAY_PAUSE_S = 0.3

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
        self._group: GroupThread | None = None
        self._events: EventLog | None = None
        self._client_id = ""
        self._worker = Worker("kafka-group-log-ends")
        self._log_ends: LogEnds | None = None
        self._ends: Mapping[TopicPartition, Offset] = {}
        self._not_before = 0.0
        self._idle_pause_s = _IDLE_PAUSE_S
        self._warn_at = 0.0
        self._target: Mapping[TopicPartition, Offset] | None = None
        self._topic_ids: dict[str, str] = {}
        self._topics_at = 0.0
        self._control: ControlSocket | None = None
        self._completion: Completion | None = None
        self._interrupted = False

    def fix_target(self) -> None:
        """Note the log ends of all subscribed partitions: a run with ``availableNow`` reads no further."""
        topics = self._settings.group.topics
        cluster = self._worker.submit(
            GroupOffsets,
            self._settings.group.properties,
            group_id=self._settings.group.group_id,
            read_committed=self._settings.group.read_committed,
        ).result()
        counts = self._worker.submit(cluster.connect, topics).result()
        self._worker.submit(cluster.close)
        everything = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
        deadline = time.monotonic() + _JOIN_PATIENCE_S
        target = self._list_ends(everything)
        while len(target) < len(everything):
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(str(tp) for tp in set(everything) - target.keys()))
                raise BrokerError(
                    f"No log end of {missing} within {_JOIN_PATIENCE_S:g} s: the partition has no leader, or its "
                    f"broker does not answer."
                )
            time.sleep(_TARGET_PAUSE_S)
            target = self._list_ends(everything)
        self._target = target

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
            time.sleep(_IDLE_PAUSE_S)
            return start  # the query is being stopped: nothing new any more

    def _latest_offset(self, start: Json, max_rows: int | None) -> Json:
        begin = BatchOffset.from_json(start)
        first = self._group is None
        group = self._join(begin, begin.query_id)
        assert self._completion is not None
        self._completion.called()
        if not first:
            group.finish(begin)
        if self._target is not None:
            self._settle(group)
        elif first:
            self._wait_for_assignment(group)
        plannable = group.state.plannable()
        if self._target is None:
            self._ends = self._fresh_ends(group, plannable.keys())
            if self._other_logs(group, plannable):
                plannable = group.state.plannable()
        else:
            # Deliberate: not asked for again.  An answer that fails would look like the end of the run.
            self._ends = {tp: self._target[tp] for tp in plannable if tp in self._target}
        ranges = plan(plannable, self._ends, max_rows)
        # Batch 0 runs in any case, and it is the one that carries the new name of the query into Spark's log.
        end = group.plan(ranges, always=begin.query_id is None)
        if end is None:
            self._not_before = time.monotonic() + self._idle_pause_s
            if self._target is not None:
                self._settle_commits(group)
            return start
        self._completion.planned()
        return end.to_json()

    def running_ranges(self, start: Json, end: Json) -> Mapping[TopicPartition, OffsetRange]:
        """Return what the batch that ends at ``end`` reads.

        After a restart this is the first call: Spark runs the batch again that it had logged and not finished.
        """
        logged = BatchOffset.from_json(end)
        if self._group is not None:
            batch = self._group.state.batch
            return batch.running if batch is not None and batch.end == logged else logged.ranges()
        group = self._join(BatchOffset.from_json(start), logged.query_id, unfinished=logged)
        try:
            return self._replay(group, logged)
        except StoppingError:
            self.check_running()
            return logged.ranges()  # the query is being stopped and will not read them

    def finish(self, end: Json) -> None:
        """Take note that the batch that ends at ``end`` is finished."""
        if self._group is not None:
            with contextlib.suppress(StoppingError):
                self._group.finish(BatchOffset.from_json(end))

    def report(self) -> Json | None:
        """Return what the query's progress shows of the group; None before the group was joined."""
        if self._group is None or self._events is None:
            return None
        return report(
            self._group.state,
            self._ends,
            group_id=self._settings.group.group_id,
            client_id=self._client_id,
            member_id=self._group.member_id,
            counts=self._events.counts,
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
        if self._log_ends is not None:
            self._worker.submit(self._log_ends.close)
            self._log_ends = None
        if self._control is not None:
            self._control.close()

    def _replay(self, group: GroupThread, end: BatchOffset) -> Mapping[TopicPartition, OffsetRange]:
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

    def _join(self, start: BatchOffset, query_id: str | None, *, unfinished: BatchOffset | None = None) -> GroupThread:
        """Return the membership; begin it if this is the first call of the process."""
        if self._group is None:
            query_id = query_id or new_query_id()
            self._client_id = f"{self._settings.client_id}-{query_id[:8]}"
            self._events = EventLog(self._client_id, self._settings.event_log)
            group = GroupThread(
                self._settings.group,
                start=start,
                query_id=query_id,
                client_id=self._client_id,
                event_log=self._events,
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

    def _listen(self, group: GroupThread, completion: Completion) -> ControlSocket | None:
        try:
            return ControlSocket(group.drain, completion.tell)
        except OSError as problem:
            _log.warning(
                "%s: pyspark_kafka_group.stop and .register will not reach this query (%s). Set TMPDIR to a short, "
                "writable path.",
                self._client_id,
                problem,
            )
            return None

    def _wait_for_assignment(self, group: GroupThread) -> None:
        if group.wait_for_assignment(_JOIN_PATIENCE_S):
            return
        _log.warning(
            "%s: the group has not given this query its partitions within %g s; going on without them for now. "
            "Another member may be handing over, or be dead and not yet timed out.",
            self._client_id,
            _JOIN_PATIENCE_S,
        )

    def _settle(self, group: GroupThread) -> None:
        """Wait until it is certain what this run has to read: it ends when nothing is left."""
        patience_s = _AVAILABLE_NOW_PATIENCE_S
        if not (group.wait_for_assignment(patience_s) and group.wait_until(lambda state: state.may_plan, patience_s)):
            raise AssignmentTimeoutError(
                f"The group {self._settings.group.group_id!r} has not given this query any partition, or not said "
                f"where it starts, within {patience_s:g} s. Perhaps it has more members than partitions; look at them "
                f"with kafka-consumer-groups --describe --members."
            )

    def _settle_commits(self, group: GroupThread) -> None:
        """Wait until everything finished is committed: after a last batch Spark ends this process at once."""
        if not group.wait_until(lambda state: not state.uncommitted, _STOP_S):
            _log.warning("%s: the last batch is not committed yet", self._client_id)

    def _fresh_ends(
        self, group: GroupThread, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Offset]:
        """Return log ends that are newer than this call; paced while there is nothing to read."""
        pause_s = self._not_before - time.monotonic()
        if pause_s > 0:
            # Wakes up early when the assignment changes, but never just because a commit was answered.
            group.wait_until(lambda state: state.plannable().keys() != partitions, pause_s)
        begin = time.monotonic()
        ends = self._list_ends(partitions) if partitions else {}
        self._idle_pause_s = max(_IDLE_PAUSE_S, _IDLE_SHARE * (time.monotonic() - begin))
        return ends

    def _other_logs(self, group: GroupThread, plannable: Plannable) -> bool:
        """Tell whether a topic was deleted and created again; where its partitions start is being decided anew then.

        The group does not say so: on the classic protocol it may not even notice.  Asked before a batch is planned, and
        not more often than :data:`_TOPICS_PAUSE_S`, or when a log ends below a position.
        """
        ends = self._ends
        news = [tp for tp, (_, position) in plannable.items() if tp in ends and ends[tp] != position]
        below = any(ends[tp] < plannable[tp][1] for tp in news)
        now = time.monotonic()
        if not news or (now < self._topics_at and not below) or self._log_ends is None:
            return False
        self._topics_at = now + _TOPICS_PAUSE_S
        try:
            ids = self._worker.submit(self._log_ends.topic_ids, self._settings.group.topics).result(_ENDS_TIMEOUT_S)
        except (TryAgainError, TimeoutError):
            return False
        changed = {topic for topic, was in self._topic_ids.items() if ids.get(topic, was) != was}
        self._topic_ids.update(ids)
        if changed:
            _log.warning("%s: deleted and created again: %s", self._client_id, ", ".join(sorted(changed)))
            group.decide_anew(changed)
        return bool(changed)

    def _list_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """List log ends on the worker; empty if the cluster does not answer."""
        wanted = list(partitions)
        if self._log_ends is None:
            self._log_ends = self._worker.submit(
                LogEnds,
                self._settings.group.properties,
                group_id=self._settings.group.group_id,
                read_committed=self._settings.group.read_committed,
            ).result()
        try:
            return self._worker.submit(self._log_ends.list, wanted).result(timeout=_ENDS_TIMEOUT_S)
        except (TryAgainError, TimeoutError) as problem:
            if time.monotonic() > self._warn_at:
                self._warn_at = time.monotonic() + _WARN_PAUSE_S
                _log.warning("%s: no log ends just now: %s", self._client_id, str(problem) or "no answer")
            return {}
