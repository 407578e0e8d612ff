"""One query's membership in a group, for the thread that Spark calls."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from pyspark_kafka_group.cluster.daemon_executor import ClosedError, DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import ASSIGNING
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.skip_store import SkipStore, write_markers
from pyspark_kafka_group.coordinator.absent_topics import gone_partitions
from pyspark_kafka_group.coordinator.activity import Time
from pyspark_kafka_group.coordinator.assignment_stability import Share, is_stable
from pyspark_kafka_group.coordinator.group_thread import GroupThread
from pyspark_kafka_group.coordinator.handover import inputs
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending, Lifecycle
from pyspark_kafka_group.coordinator.handover.replay import is_own_commit
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.member import Standing
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.errors import GroupError, KafkaGroupError
from pyspark_kafka_group.offsets.lasting import Lasting
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition

_log = logging.getLogger(__name__)

T = TypeVar("T")


class StoppingError(KafkaGroupError):
    """The query is stopping, so its calls have no effect.

    The query catches it.  Spark sees it only with a text that says how the query ended.
    """


class Membership:
    """One member of a group and its state, for the thread that Spark calls.

    :func:`~pyspark_kafka_group.coordinator.start_up.start_up` makes it.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    client_id : str
        The client id of this member, as Kafka's tools show it.
    group : GroupThread
        The group thread, which does not run yet.
    offsets : GroupOffsets
        The requests to the cluster.
    worker : DaemonExecutor
        The thread that ``offsets`` belongs to.
    skip_store : callable
        Opens the store of the skips of this query.
    partitions_at_start : collection of TopicPartition
        The partitions of the subscribed topics.
    warming_tasks : int
        The number of tasks of the batch that runs before the query joins its group; 0 if it joins at once.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        client_id: str,
        group: GroupThread,
        offsets: GroupOffsets,
        worker: DaemonExecutor,
        skip_store: Callable[[], SkipStore],
        partitions_at_start: Collection[TopicPartition],
        warming_tasks: int,
    ) -> None:
        self._settings = settings
        self.client_id = client_id
        self._group = group
        self._offsets = offsets
        self._worker = worker
        self._skip_store = skip_store
        self.partitions_at_start = partitions_at_start
        self._warming_tasks = warming_tasks
        self._begun = False  # whether the group thread runs, or is just about to
        self._absence: Lasting[TopicPartition] = Lasting(lasting.GONE_S)  # requests thread only
        self._unreadable = False  # whether the last report contained reasons; Spark's thread only
        self.replay_waits_for = ""  # why replay() has returned None; empty if only the group is not ready

    def start(self) -> None:
        """Run the group thread, which joins the group; returns before the group has assigned anything."""
        # Deliberate: before the thread starts.  The thread may join the group even if this call does not return.  A
        # signal that arrives meanwhile must find a membership that it can end.
        self._begun = True
        try:
            self._group.thread.start()
        except RuntimeError:  # the system has no thread for it
            self._begun = False
            self._group.discard()
            raise
        self._group.forget_old_topics()

    @property
    def state(self) -> State:
        """The newest state; never changed in place."""
        return self._group.state

    @property
    def member_id(self) -> str:
        """The member id, as Kafka's tools show it; empty before the first assignment."""
        return self._group.member_id

    @property
    def has_topics(self) -> bool:
        """Whether there is a topic to subscribe to.  Without one, this query has not joined the group."""
        return bool(self._group.topics)

    @property
    def warming_tasks(self) -> int:
        """The number of tasks of the batch that runs before the query joins its group; 0 once it may join."""
        return self._warming_tasks if self._group.standing is Standing.WARMING else 0

    def join_group(self) -> None:
        """Join the group, if :meth:`start` has not; returns before the group has assigned anything."""
        self._call(self._group.join_group)

    def check(self) -> None:
        """Raise the error that has ended the membership, or :class:`StoppingError` if it is ending."""
        if self._group.error is not None:
            raise self._group.error
        if self._group.stopping:
            raise StoppingError("The query is stopping.")

    def wait_until(self, condition: Callable[[State], bool], timeout_s: float) -> bool:
        """Wait until the state fulfils ``condition``; return whether it did in time.

        Raises
        ------
        StoppingError
            If the member is leaving.
        KafkaGroupError
            If the membership has ended.
        """
        group = self._group
        idle = group.state.plans and any(p.plannable for p in group.state.owned.values())
        return self._wait(condition, timeout_s, Time.IDLE if idle else Time.WAITING)

    def wait_for_assignment(self, timeout_s: float) -> bool:
        """Wait until the group has answered and every partition has its start; return whether that was in time."""
        group = self._group
        return self._wait(
            lambda state: group.standing is Standing.MEMBER and not state.unsettled, timeout_s, Time.WAITING
        )

    @property
    def under_kip_848(self) -> bool:
        """Whether the member joins with KIP-848's protocol.  Such a group tells a member without partitions nothing."""
        return self._settings.under_kip_848

    def is_stable(self, owned: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> bool:
        """Return whether ``owned`` is all that this member will get unless the group changes.

        Parameters
        ----------
        owned : collection of TopicPartition
            The partitions that this member had when the query listed what there is to read.
        partitions : collection of TopicPartition
            All partitions of the subscribed topics.
        """
        if self._settings.partitions:
            return set(owned) >= set(partitions) - self.state.deleted
        member_id = self._call(self._group.identity)
        try:
            group = self._ask(self._offsets.describe)
        except TryAgainError as problem:
            _log.debug("%s: whether the group has settled is not known: %s", self.client_id, problem)
            return False
        shares = {member.member_id: Share(member.assignment, member.target) for member in group.members}
        there = [tp for tp in partitions if tp not in self.state.deleted]
        settles = group.is_rebalancing or group.state == ASSIGNING
        if is_stable(None if settles else shares, member_id, owned, there):
            return True
        given = {tp for member in group.members for tp in member.assignment | (member.target or frozenset())}
        self._note_deleted([tp for tp in there if tp not in given])
        return False

    def _note_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """Note which of these partitions no longer exist.  That may be why no member has them."""
        try:
            deleted = self._ask(lambda: gone_partitions(self._absence, partitions, self._offsets))
        except TryAgainError as problem:
            _log.debug("%s: whether partitions exist is not known: %s", self.client_id, problem)
            return
        if deleted:
            given = inputs.LogChangeFound(tuple(sorted(deleted)), inputs.LogChange.DELETED, awaited=True)
            self._call(lambda: self._group.feed(given))

    def note_finished(self, end: BatchOffset) -> None:
        """Report the same as :meth:`finish`, also while the member leaves, and return at once.  Any thread."""
        thread = self._group
        thread.post(lambda: thread.feed(inputs.Finish(end)))

    def finish(self, end: BatchOffset) -> None:
        """Report that Spark has durably finished the batch that ends at ``end``.  May be called more than once."""
        self.check()
        if self.state.batch is not None:  # Spark calls this many times a second while the query is idle
            self._call(lambda: self._group.feed(inputs.Finish(end)))

    def plan(self, ranges: Mapping[TopicPartition, inputs.PlannedRange], *, always: bool) -> BatchOffset | None:
        """Put a batch in flight and return its end offset; None if nothing of ``ranges`` is left to plan."""
        self._call(lambda: self._group.plan(inputs.PlanBatch(ranges, always)))
        batch = self.state.batch
        return None if batch is None else batch.end

    def replay(self, end: BatchOffset) -> Mapping[TopicPartition, OffsetRange] | None:
        """Put a batch of Spark's log in flight again and return the ranges that it reads now.

        Returns
        -------
        mapping or None
            None while the group has not decided who owns these partitions; call again.

        Raises
        ------
        KafkaGroupError
            If the membership has ended, or the skips cannot be stored durably.
        """
        member_id = self._call(self._group.identity)
        try:
            given = self._ask(lambda: self._owners_of_replay(end, member_id))
            unstored = self._call(lambda: self._group.replay(given))
            if unstored is not None:
                markers = unstored.markers
                if self._settings.start.keeps_offsets:  # otherwise the query may not commit, and reads no markers
                    self._ask(lambda: write_markers(self._skip_store, markers))
                self._call(lambda: self._group.feed(inputs.SkipsStored(markers)))
                self._call(lambda: self._group.replay(given))
        except TryAgainError as problem:
            _log.debug("%s: the owners of the partitions to replay are not known yet: %s", self.client_id, problem)
            self.replay_waits_for = str(problem)
            return None
        batch = self.state.batch
        self.replay_waits_for = "; ".join(f"{tp}: {reason}" for tp, reason in self.held_back.items())
        return None if batch is None else batch.running

    def report_logs(
        self,
        changed: Mapping[inputs.LogChange, Collection[TopicPartition]],
        reasons: Mapping[TopicPartition, str],
    ) -> None:
        """Report logs that have changed, and logs that the query cannot read now.  Mostly there is nothing to report.

        Parameters
        ----------
        changed : mapping of LogChange to collection of TopicPartition
            The partitions whose starts the group has to decide again.
        reasons : mapping of TopicPartition to str
            Why partitions cannot be planned because of their logs.  All others can.
        """
        if not (changed or reasons or self._unreadable):
            return
        # Deliberate: the same reasons again and again.  Nothing else shows that they still hold.
        self._unreadable = bool(reasons)
        found = [inputs.LogChangeFound(tuple(sorted(partitions)), change) for change, partitions in changed.items()]
        self._call(lambda: self._group.take_logs(found, reasons))

    def begin_stop(self, timeout_s: float) -> None:
        """Begin to leave the group, after the outstanding commit or ``timeout_s``.  Safe in a signal handler."""
        self._group.end(Ending.STOP, timeout_s)

    def stop_gracefully(self, timeout_s: float) -> bool:
        """Stop planning, wait until the running batch is finished and committed, and leave the group.  Any thread.

        Returns whether that was done in time.  If not, the member continues to wait.
        """
        self._group.end(Ending.FINISH)
        self._group.ended.wait(min(timeout_s, threading.TIMEOUT_MAX))
        return self.state.lifecycle is Lifecycle.LEFT and self.state.clean

    def join(self, timeout_s: float) -> None:
        """Wait until the member has left, at most ``timeout_s``."""
        if self._begun:
            self._group.ended.wait(timeout_s)

    @property
    def held_back(self) -> Mapping[TopicPartition, str]:
        """The partitions that are held back, and why."""
        return self._group.held_back.partitions

    @property
    def group_problem(self) -> str | None:
        """Why the group has not answered for a while; None if it does."""
        return self._group.held_back.group_problem

    @property
    def alive(self) -> bool:
        """Whether the group thread runs, or is just about to."""
        return self._begun and not self._group.ended.is_set()

    def _wait(self, condition: Callable[[State], bool], timeout_s: float, what: Time) -> bool:
        group, begin = self._group, time.monotonic()
        try:
            with group.changed:
                met = group.changed.wait_for(lambda: group.stopping or condition(group.state), timeout_s)
        finally:
            self._group.emit.activity.add(what, time.monotonic() - begin)
        self.check()
        return met

    def _ask(self, question: Callable[[], T]) -> T:
        """Run ``question`` on the requests thread and return its result."""
        try:
            return self._worker.submit(question).result()
        except ClosedError:
            self.check()  # the member has left
            raise

    def _call(self, command: Callable[[], T]) -> T:
        """Run ``command`` on the group thread and return its result."""
        self.check()
        future = self._group.call(command)
        while True:
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                self.check()  # the thread may have ended with the command still in its mailbox
                if self._group.ended.is_set() and not future.done():
                    raise GroupError(
                        f"The membership of {self.client_id} has ended without a reason. This is a bug. Start the "
                        f"query again."
                    ) from None

    def _matches(self, topic: str) -> bool:
        """Return whether a pattern matches a topic.  The query will get it, even if it was just created again."""
        pattern = self._settings.pattern
        return pattern is not None and re.fullmatch(pattern, topic) is not None

    def _owners_of_replay(self, end: BatchOffset, member_id: str) -> inputs.Replay:
        """Find the owners of the partitions that a logged batch reads.  On the requests thread."""
        ranges = end.ranges()
        if not ranges:
            return inputs.Replay(end)  # it reads nothing, so owners do not matter
        offsets = self._offsets
        if self._settings.partitions or not self.has_topics:  # the query is in no group, so there are no other owners
            gone = gone_partitions(self._absence, ranges.keys() - self.state.owned.keys(), offsets)
            not_given = ranges.keys() - set(self._settings.partitions) - gone
            orphaned = frozenset(tp for tp in not_given if not self._matches(tp.topic))
            return inputs.Replay(end, frozenset(), frozenset(), orphaned, gone)
        others = offsets.members_of_others(client_id=self.client_id, member_id=member_id)
        elsewhere = frozenset(tp for member in others for tp in member.assignment) & ranges.keys()
        not_subscribed = {tp for tp in ranges if tp.topic not in self._group.topics and not self._matches(tp.topic)}
        orphaned = frozenset(tp for tp in not_subscribed if not any(member.may_get(tp) for member in others))
        committed = offsets.committed_offsets(elsewhere | orphaned, require_stable=True)
        if committed.failed:
            raise TryAgainError(next(iter(committed.failed.values())))
        own_commits = frozenset(
            tp
            for tp, stored in committed.found.items()
            if is_own_commit(end, tp, stored.offset, read_commit(stored.metadata, tp))
        )
        # Another query had it meanwhile: whoever gets it next continues there.
        found = committed.found
        elsewhere |= {tp for tp in orphaned - own_commits if tp in found and found[tp].offset > ranges[tp].start}
        missing = gone_partitions(self._absence, ranges.keys() - self.state.owned.keys() - elsewhere, offsets)
        return inputs.Replay(end, elsewhere, own_commits, orphaned - missing, missing)
