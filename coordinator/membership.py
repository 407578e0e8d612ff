"""One query's membership in a group, for the thread that Spark calls."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import repeat
from typing import TypeVar

from pyspark_kafka_group.cluster.channel import CONNECT_TIMEOUT_S
from pyspark_kafka_group.cluster.daemon_executor import ClosedError, DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import ASSIGNING
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.cluster.properties.client_config import value_of
from pyspark_kafka_group.cluster.skip_store import SkipStore, read_markers, write_markers
from pyspark_kafka_group.coordinator import warm_up
from pyspark_kafka_group.coordinator.absent_topics import (
    added_partitions,
    first_topics,
    gone_partitions,
    tell_of_deleted,
)
from pyspark_kafka_group.coordinator.activity import Time
from pyspark_kafka_group.coordinator.assignment_stability import Share, is_stable
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.group_thread import GroupThread
from pyspark_kafka_group.coordinator.handover import events, inputs, outputs
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending, Lifecycle
from pyspark_kafka_group.coordinator.handover.replay import is_own_commit
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.held_back import Where
from pyspark_kafka_group.coordinator.member import Standing
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import (
    ActiveGroupError,
    AuthenticationError,
    BrokerError,
    GroupError,
    KafkaGroupError,
)
from pyspark_kafka_group.offsets.lasting import Lasting
from pyspark_kafka_group.offsets.skip_markers import Markers
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Pause before asking again for the offsets of the group.
_RETRY_S = 0.1


class StoppingError(KafkaGroupError):
    """The query is stopping, so its calls have no effect.

    The query catches it.  Spark sees it only with a text that says how the query ended.
    """


class Membership:
    """One member of a group and its state.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    start : BatchOffset
        The offset with which Spark starts the query: the end of its last finished batch, or
        :data:`~pyspark_kafka_group.offsets.batch_offset.INITIAL`.
    query_id : str
        The id of the query, for its whole life.
    client_id : str
        The client id of this member, as Kafka's tools show it.
    event_log : EventLog
        Takes the events.
    """

    def __init__(
        self, settings: GroupSettings, *, start: BatchOffset, query_id: str, client_id: str, event_log: EventLog
    ) -> None:
        self._settings = settings
        self._start = start
        self._query_id = query_id
        self.client_id = client_id
        self._event_log = event_log
        self._worker = DaemonExecutor("kafka-group-requests")
        self._offsets: GroupOffsets | None = None
        self._group: GroupThread | None = None
        self.warming_tasks = 0  # number of tasks of the batch that runs before the query joins
        self._begun = False  # whether the group thread runs, or is just about to
        self._absence: Lasting[TopicPartition] = Lasting(lasting.GONE_S)  # requests thread only
        self.replay_waits_for = ""  # why replay() has returned None; empty if only the group is not ready
        self.partitions_at_start: list[TopicPartition] = []  # those of the subscribed topics

    def start(self, unfinished: BatchOffset | None = None, *, warms_up: bool = False) -> None:
        """Connect to the cluster and join the group; returns before the group has assigned anything.

        Parameters
        ----------
        unfinished : BatchOffset, optional
            The end of the batch of Spark's log that will be replayed.
        warms_up : bool
            Whether to stay out of the group until :meth:`join_group`, if this query would take partitions from
            others.

        Raises
        ------
        OutdatedCheckpointError
            If this query has committed batches that its checkpoint does not contain.
        KafkaGroupError
            If the cluster cannot be reached, refuses the credentials, or lacks a topic.
        """
        try:
            self._group = self._begin(unfinished, warms_up)
            self._check_checkpoint(self._group)
        except BaseException:
            self._discard()
            raise
        # Deliberate: before the thread starts.  The thread may join the group even if this call does not return.  A
        # signal that arrives meanwhile must find a membership that it can end.
        self._begun = True
        try:
            self._group.thread.start()
        except RuntimeError:  # the system has no thread for it
            self._begun = False
            self._discard()
            raise
        self._group.forget_old_topics()

    def _begin(self, unfinished: BatchOffset | None, warms_up: bool) -> GroupThread:
        settings = self._settings
        offsets = self._offsets = self._worker.submit(
            GroupOffsets,
            settings.properties,
            group_id=settings.group_id,
            read_committed=settings.read_committed,
            keeps_offsets=settings.commits,
        ).result()
        counts = self._worker.submit(offsets.connect, settings.topics, settings.pattern, settings.asks_for).result()
        self.partitions_at_start = settings.partitions_of(counts)  # raises if one does not exist
        if self._start.query_id is None and unfinished is None:
            settings.check_starts(counts)
        topics = frozenset(counts)
        self._check_no_members(offsets)
        self._check_protocol(offsets)
        end = unfinished or self._start
        markers: Markers = {}
        if end.entries and settings.start.keeps_offsets:
            markers = self._worker.submit(read_markers, self._skip_store, end.entries).result()
        state, _ = step(State(policy=settings.start), inputs.Restored(self._start, self._query_id, markers, unfinished))
        if self._start.query_id is None and unfinished is None:
            state = replace(state, first_topics=tuple(sorted(topics)))
        state = tell_of_deleted(
            settings,
            state,
            topics,
            client_id=self.client_id,
            offsets=offsets,
            worker=self._worker,
            emit=self._event_log,
        )
        others = 0
        if warms_up:
            undecided = [tp for tp in settings.partitions_of(counts) if tp not in self._start.entries]
            others = warm_up.ask_for_others(
                settings, offsets, self._worker, topics, undecided, client_id=self.client_id
            )
        if others:
            self.warming_tasks = warm_up.tasks(sum(counts.values()), others)
            self._event_log(events.Warming(others=others))
        return GroupThread(
            settings,
            client_id=self.client_id,
            query_id=self._query_id,
            state=state,
            topics=topics,
            first_topics=first_topics(settings, topics, self._start, unfinished),
            added=added_partitions(settings, self._start, unfinished),
            offsets=offsets,
            worker=self._worker,
            emit=self._event_log,
            held=others > 0,
        )

    def _check_checkpoint(self, group: GroupThread) -> None:
        """Raise if the checkpoint is an old copy.

        This must happen before any batch: a sink would take the batch for one that it already has.
        """
        state = group.state
        if not self._settings.start.keeps_offsets or not (state.start.query_id or state.unfinished):
            return
        logged = {} if state.unfinished is None else state.unfinished.entries
        partitions = sorted({*self.partitions_at_start, *state.processed, *logged})
        found = self._group_offsets([tp for tp in partitions if tp.topic in group.topics])
        rest = [tp for tp in partitions if tp.topic not in group.topics]
        try:
            found |= self._group_offsets(rest) if rest else {}
        except AuthenticationError as problem:
            # Deliberate: a query that no longer reads these topics needs no right on them.
            _log.info(
                "%s: the group's offsets in topics that only former runs have read are not known: %s",
                self.client_id,
                problem,
            )
        _, said = step(state, inputs.OffsetsAtStart(found))
        for output in said:
            if isinstance(output, outputs.Fail):
                raise output.error

    def _group_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, GroupOffset]:
        """Return the group's offsets, including all commits of former processes of this query."""
        stable = True

        def ask() -> dict[TopicPartition, GroupOffset]:
            nonlocal stable
            known_offsets = self._known_offsets.known_offsets
            found, failed = self._worker.submit(known_offsets, partitions, require_stable=stable).result()
            for problem in failed.values():
                if stable:
                    # Only a transaction of this query can still change the result.  After it, others do not matter.
                    self._thread.await_own_transaction()
                    stable = False
                raise TryAgainError(problem)
            return found

        try:
            return patiently(ask, Deadline.after(CONNECT_TIMEOUT_S), repeat(_RETRY_S))
        except TryAgainError as problem:
            raise BrokerError(
                f"The query could not read the offsets of the group {self._settings.group_id!r} within "
                f"{CONNECT_TIMEOUT_S:g} s: {problem}. Check the cluster, and start the query again."
            ) from None

    def _check_no_members(self, offsets: GroupOffsets) -> None:
        """Raise if the group of a query with ``assign`` has members, because its first commit would fail."""
        if not (self._settings.partitions and self._settings.commits):
            return
        try:
            members = self._worker.submit(offsets.describe).result().members
        except TryAgainError as problem:
            _log.debug("%s: whether the group has members is not known: %s", self.client_id, problem)
            return  # the first commit shows it
        if members:
            raise ActiveGroupError(self._settings.group_id)

    def _check_protocol(self, offsets: GroupOffsets) -> None:
        """Raise if the cluster does not support the group protocol: librdkafka would wait for ever."""
        if not self.under_kip_848:
            return
        with contextlib.suppress(TryAgainError):  # then it is not known
            self._worker.submit(offsets.check_consumer_protocol).result()

    def _discard(self) -> None:
        """Begin to close the connections and threads, if no group thread runs."""
        if self._group is not None:
            self._group.discard()
        if self._offsets is not None:
            self._worker.post(self._offsets.close)
        self._worker.close()

    @property
    def has_state(self) -> bool:
        """Whether the group thread exists.  Before, a start asks the cluster."""
        return self._group is not None

    @property
    def state(self) -> State:
        """The newest state; never changed in place."""
        assert self._group is not None
        return self._group.state

    @property
    def member_id(self) -> str:
        """The member id, as Kafka's tools show it; empty before the first assignment."""
        return "" if self._group is None else self._group.member_id

    @property
    def has_topics(self) -> bool:
        """Whether there is a topic to subscribe to.  Without one, this query has not joined the group."""
        return bool(self._thread.topics)

    @property
    def held(self) -> bool:
        """Whether the query has not joined the group yet, because it is not warm."""
        return self.warming_tasks > 0

    def join_group(self) -> None:
        """Join the group, if :meth:`start` has not; returns before the group has assigned anything."""
        self.warming_tasks = 0
        self._thread.join_group()

    def check(self) -> None:
        """Raise the error that has ended the membership, or :class:`StoppingError` if it is ending."""
        assert self._group is not None
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
        assert self._group is not None
        group = self._group
        idle = group.state.plans and any(p.plannable for p in group.state.owned.values())
        return self._wait(condition, timeout_s, Time.IDLE if idle else Time.WAITING)

    def wait_for_assignment(self, timeout_s: float) -> bool:
        """Wait until the group has answered and every partition has its start; return whether that was in time."""
        assert self._group is not None
        group = self._group
        return self._wait(
            lambda state: group.standing is Standing.MEMBER and not state.unsettled, timeout_s, Time.WAITING
        )

    @property
    def under_kip_848(self) -> bool:
        """Whether the member joins with KIP-848's protocol.  Such a group tells a member without partitions nothing."""
        return not self._settings.partitions and value_of("group.protocol", self._settings.properties) == "consumer"

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
            return set(owned) >= {tp for tp in partitions if tp.topic not in self.state.deleted}
        member_id = self._call(self._thread.identity)
        try:
            group = self._ask(self._known_offsets.describe)
        except TryAgainError as problem:
            _log.debug("%s: whether the group has settled is not known: %s", self.client_id, problem)
            return False
        shares = {member.member_id: Share(member.assignment, member.target) for member in group.members}
        there = [tp for tp in partitions if tp.topic not in self.state.deleted]
        settles = group.is_rebalancing or group.state == ASSIGNING
        if is_stable(None if settles else shares, member_id, owned, there):
            return True
        given = {tp for member in group.members for tp in member.assignment | (member.target or frozenset())}
        self._note_deleted([tp for tp in there if tp not in given])
        return False

    def _note_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """Note which of these partitions no longer exist.  That may be why no member has them."""
        try:
            deleted = self._ask(lambda: gone_partitions(self._absence, partitions, self._known_offsets))
        except TryAgainError as problem:
            _log.debug("%s: whether partitions exist is not known: %s", self.client_id, problem)
            return
        if deleted:
            given = inputs.LogChangeFound(tuple(sorted(deleted)), inputs.LogChange.DELETED, awaited=True)
            self._call(lambda: self._thread.feed(given))

    def note_finished(self, end: BatchOffset) -> None:
        """Report the same as :meth:`finish`, also while the member leaves, and return at once.  Any thread."""
        thread = self._thread
        thread.post(lambda: thread.feed(inputs.Finish(end)))

    def finish(self, end: BatchOffset) -> None:
        """Report that Spark has durably finished the batch that ends at ``end``.  May be called more than once."""
        self.check()
        if self.state.batch is not None:  # Spark calls this many times a second while the query is idle
            self._call(lambda: self._thread.feed(inputs.Finish(end)))

    def plan(self, ranges: Mapping[TopicPartition, inputs.PlannedRange], *, always: bool) -> BatchOffset | None:
        """Put a batch in flight and return its end offset; None if nothing of ``ranges`` is left to plan."""
        self._call(lambda: self._thread.plan(inputs.PlanBatch(ranges, always)))
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
        member_id = self._call(self._thread.identity)
        try:
            given = self._ask(lambda: self._owners_of_replay(end, member_id))
            unstored = self._call(lambda: self._thread.replay(given))
            if unstored is not None:
                markers = unstored.markers
                if self._settings.start.keeps_offsets:  # otherwise the query may not commit, and reads no markers
                    self._ask(lambda: write_markers(self._skip_store, markers))
                self._call(lambda: self._thread.feed(inputs.SkipsStored(markers)))
                self._call(lambda: self._thread.replay(given))
        except TryAgainError as problem:
            _log.debug("%s: the owners of the partitions to replay are not known yet: %s", self.client_id, problem)
            self.replay_waits_for = str(problem)
            return None
        batch = self.state.batch
        self.replay_waits_for = "; ".join(f"{tp}: {reason}" for tp, reason in self.held_back.items())
        return None if batch is None else batch.running

    def change_logs(self, partitions: Collection[TopicPartition], change: inputs.LogChange) -> None:
        """Decide again where partitions start, because their logs have changed."""
        given = inputs.LogChangeFound(tuple(sorted(partitions)), change)
        self._call(lambda: self._thread.feed(given))

    def begin_stop(self, timeout_s: float) -> None:
        """Begin to leave the group, after the outstanding commit or ``timeout_s``.  Safe in a signal handler."""
        if self._group is not None:
            self._group.end(Ending.STOP, timeout_s)

    def stop_gracefully(self, timeout_s: float) -> bool:
        """Stop planning, wait until the running batch is finished and committed, and leave the group.  Any thread.

        Returns whether that was done in time.  If not, the member continues to wait.
        """
        self._thread.end(Ending.FINISH)
        self._thread.ended.wait(min(timeout_s, threading.TIMEOUT_MAX))
        return self.state.lifecycle is Lifecycle.LEFT and self.state.clean

    def join(self, timeout_s: float) -> None:
        """Wait until the member has left, at most ``timeout_s``."""
        if self._group is not None and self._begun:
            self._group.ended.wait(timeout_s)

    @property
    def held_back(self) -> Mapping[TopicPartition, str]:
        """The partitions that are held back, and why."""
        return {} if self._group is None else self._group.held_back.told

    @property
    def group_problem(self) -> str | None:
        """Why the group has not answered for a while; None if it does."""
        return None if self._group is None else self._group.held_back.group_problem

    def note_logs(self, reasons: Mapping[TopicPartition, str]) -> None:
        """Note which partitions cannot be planned because of their logs, and why.  All others can."""
        self._thread.held_back.note(Where.LOGS, reasons)

    @property
    def alive(self) -> bool:
        """Whether the group thread runs, or is just about to."""
        return self._group is not None and self._begun and not self._group.ended.is_set()

    def _wait(self, condition: Callable[[State], bool], timeout_s: float, what: Time) -> bool:
        group, begin = self._thread, time.monotonic()
        try:
            with group.changed:
                met = group.changed.wait_for(lambda: group.stopping or condition(group.state), timeout_s)
        finally:
            self._event_log.activity.add(what, time.monotonic() - begin)
        self.check()
        return met

    @property
    def _thread(self) -> GroupThread:
        assert self._group is not None
        return self._group

    @property
    def _known_offsets(self) -> GroupOffsets:
        assert self._offsets is not None
        return self._offsets

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
        future = self._thread.call(command)
        while True:
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                self.check()  # the thread may have ended with the command still in its mailbox
                if self._thread.ended.is_set() and not future.done():
                    raise GroupError(
                        f"The membership of {self.client_id} has ended without a reason. This is a bug. Start the "
                        f"query again."
                    ) from None

    def _skip_store(self) -> SkipStore:
        return SkipStore(self._settings.properties, group_id=self._settings.group_id, query_id=self._query_id)

    def _matches(self, topic: str) -> bool:
        """Return whether a pattern matches a topic.  The query will get it, even if it was just created again."""
        pattern = self._settings.pattern
        return pattern is not None and re.fullmatch(pattern, topic) is not None

    def _owners_of_replay(self, end: BatchOffset, member_id: str) -> inputs.Replay:
        """Find the owners of the partitions that a logged batch reads.  On the requests thread."""
        ranges = end.ranges()
        if not ranges:
            return inputs.Replay(end)  # it reads nothing, so owners do not matter
        offsets = self._known_offsets
        if self._settings.partitions or not self.has_topics:  # the query is in no group, so there are no other owners
            gone = gone_partitions(self._absence, ranges.keys() - self.state.owned.keys(), offsets)
            not_given = ranges.keys() - set(self._settings.partitions) - gone
            orphaned = frozenset(tp for tp in not_given if not self._matches(tp.topic))
            return inputs.Replay(end, frozenset(), frozenset(), orphaned, gone)
        elsewhere = offsets.held_by_others(client_id=self.client_id, member_id=member_id) & ranges.keys()
        orphaned = frozenset(tp for tp in ranges if tp.topic not in self._thread.topics and not self._matches(tp.topic))
        committed = offsets.committed_offsets(elsewhere | orphaned, require_stable=True)
        if committed.failed:
            raise TryAgainError(next(iter(committed.failed.values())))
        own_commits = frozenset(
            tp
            for tp, stored in committed.found.items()
            if is_own_commit(end, tp, stored.offset, CommitNote.decode(stored.metadata))
        )
        # Another query had it meanwhile: whoever gets it next continues there.
        found = committed.found
        elsewhere |= {tp for tp in orphaned - own_commits if tp in found and found[tp].offset > ranges[tp].start}
        missing = gone_partitions(self._absence, ranges.keys() - self.state.owned.keys() - elsewhere, offsets)
        return inputs.Replay(end, elsewhere, own_commits, orphaned - missing, missing)


def new_query_id() -> str:
    """Return an id for a new query."""
    return str(uuid.uuid4())
