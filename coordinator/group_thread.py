"""The group thread: the only user of the member, and the only place where the state changes.

Everything is an input to the state machine, and this thread feeds every input.  Callbacks of the member arrive inside
``poll``, and commands of other threads arrive in a mailbox.  While a callback waits for a batch, it keeps emptying
the mailbox, so the end of the batch gets through.  States are never changed in place, so other threads read the
newest one without a lock.

Blocking requests run elsewhere.  The requests thread asks where partitions start, and the commit thread commits.
Their answers come back through the mailbox.  A table says how the membership ends:
:mod:`pyspark_kafka_group.coordinator.handover.lifecycle`.

This module is longer than others, because it is one loop over one state.  Decisions that do not need the loop are in
other modules.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import TypeVar

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator.commits import Commits
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover import events, inputs, outputs
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending, Lifecycle
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.held_back import HeldBackCheck, HeldBackWatch, Where
from pyspark_kafka_group.coordinator.leaving import await_rebalance, give_back
from pyspark_kafka_group.coordinator.member import Standing
from pyspark_kafka_group.coordinator.rebalances import Rebalances
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.coordinator.start_requests import StartRequests
from pyspark_kafka_group.coordinator.topic_pattern import pattern_of
from pyspark_kafka_group.offsets.errors import GroupError, KafkaGroupError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.threads import complete

_log = logging.getLogger(__name__)

T = TypeVar("T")

# How long the thread sleeps in its mailbox between two polls of the member.  It bounds how late a callback is
# served; 20 wake-ups a second cost 0.3 % of a core.
_TURN_S = 0.05

# The same until the group has answered, because the first batch waits for it.
_JOINING_TURN_S = 0.01

# How often to empty the queues of idle clients.
_SERVE_PAUSE_S = 10.0

# Errors of a group that refuses a member because of the others, how long to wait for their names, and how many to name.
_BECAUSE_OF_OTHERS = ("INCONSISTENT_GROUP_PROTOCOL", "UNSUPPORTED_ASSIGNOR")
_NAMES_PATIENCE_S = 3.0
_NAMED = 4

# How often to read back committed offsets that may have changed: as often as a member sends a heartbeat.
_READ_BACK_PAUSE_S = 3.0

# How long an outstanding commit may take when Spark has died.
_ORPHAN_STOP_S = 5.0


class Mailbox:
    """Takes commands from any thread and runs them on one."""

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def post(self, command: Callable[[], None]) -> None:
        """Queue ``command``, and return at once.  Any thread, also in a signal handler."""
        self._commands.put(command)

    def call(self, command: Callable[[], T]) -> Future[T]:
        """Queue ``command``, and return the future of its result.  Any thread."""
        future: Future[T] = Future()
        self.post(lambda: complete(future, command))
        return future

    def run(self, wait_s: float) -> None:
        """Run the commands that have arrived.  If there is none, wait for one, at most ``wait_s``."""
        try:
            command = self._commands.get(timeout=wait_s) if wait_s > 0 else self._commands.get_nowait()
            while True:
                command()
                command = self._commands.get_nowait()
        except queue.Empty:
            pass


class GroupThread:
    """The thread of one member: its loop, and the inputs of the state machine.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    client_id : str
        The client id of this member, as Kafka's tools show it.
    query_id : str
        The id of the query, for its whole life.
    state : State
        The state from the checkpoint.
    topics : frozenset of str
        The topics to subscribe to.
    first_topics : frozenset of str
        The topics that existed when the query was started for the first time; all others came later.
    added : frozenset of TopicPartition
        The partitions that were added to `assign` since then.
    offsets : GroupOffsets
        The requests to the cluster.
    worker : DaemonExecutor
        The thread that ``offsets`` belongs to.
    emit : EventLog
        Takes the events.
    may_join : bool
        Whether to join at once, or to stay out of the group until :meth:`join_group`.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        client_id: str,
        query_id: str,
        state: State,
        topics: frozenset[str],
        first_topics: frozenset[str],
        added: frozenset[TopicPartition],
        offsets: GroupOffsets,
        worker: DaemonExecutor,
        emit: EventLog,
        may_join: bool = True,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self.emit = emit
        self._offsets = offsets
        self._worker = worker
        self.state = state  # written by the group thread only; read by all
        self.topics = topics
        self.error: KafkaGroupError | None = None  # written by the group thread, once
        self.changed = threading.Condition()  # notified after each input; guards nothing
        self.ended = threading.Event()  # set when the member has left, by the thread's last act
        self._absent: frozenset[str] = frozenset()  # those of `topics` that no longer match the pattern
        self._mailbox = Mailbox()
        self._unstored: outputs.StoreSkips | None = None
        self._stop_by: Deadline | None = None  # how long LEAVING may take
        self._serve_at = Deadline.after(_SERVE_PAUSE_S)
        self._read_back_at = Deadline.after(_READ_BACK_PAUSE_S)
        self._parent = os.getppid()  # the driver's JVM; the main thread notices its end only after the running call
        self._start_requests = StartRequests(
            settings,
            client_id=client_id,
            worker=worker,
            offsets=offsets,
            loop=self,
            first_topics=first_topics,
            added=added,
        )
        self._pattern = pattern_of(settings, worker=worker, offsets=offsets, loop=self)
        self._rebalances = Rebalances(settings, client_id=client_id, loop=self, start_requests=self._start_requests)
        self._member = self._rebalances.member
        if not may_join:
            self._member.standing = Standing.WARMING
        self.held_back = HeldBackWatch(emit)
        self._held_back_check = HeldBackCheck(
            self.held_back, self, self._start_requests, offsets, worker, client_id=client_id
        )
        self._commits = Commits(
            settings,
            query_id=query_id,
            client_id=client_id,
            loop=self,
            rebalances=self._rebalances,
            start_requests=self._start_requests,
        )
        self._commits.prepare()
        self.thread = threading.Thread(target=self._run, name="kafka-group", daemon=True)

    # ------------------------------------------------------------------------------------ any thread

    @property
    def stopping(self) -> bool:
        """Whether the query was stopped or has failed, so that its calls have no effect."""
        return self.state.lifecycle in (Lifecycle.LEAVING, Lifecycle.FAILED, Lifecycle.LEFT)

    @property
    def standing(self) -> Standing:
        """Whether the query is in its group."""
        return self._member.standing

    @property
    def member_id(self) -> str:
        """The member id, as Kafka's tools show it; empty before the first assignment."""
        return self._rebalances.member_id

    def post(self, command: Callable[[], None]) -> None:
        """Run ``command`` on the group thread; returns at once."""
        self._mailbox.post(command)

    def fail_later(self, error: KafkaGroupError) -> None:
        """Remember why the query must end, and leave; returns at once."""
        self.post(lambda: self.fail(error))

    def call(self, command: Callable[[], T]) -> Future[T]:
        """Run ``command`` on the group thread.  A commit that it decides is sent after its answer."""

        def run() -> T:
            result = command()
            self._commits.delay()
            return result

        return self._mailbox.call(run)

    def forget_old_topics(self) -> None:
        """Drop the processed offsets of topics that are no longer subscribed and do not exist."""
        self.post(lambda: self._forget(frozenset(tp.topic for tp in self.state.processed) - self.topics))

    def discard(self) -> None:
        """Close the clients of a thread that was never started."""
        steps = (self._member.close, lambda: self._worker.post(self._offsets.close), self._worker.close)
        give_back((*steps, self._commits.close), client_id=self._client_id)

    def await_own_transaction(self) -> None:
        """Wait until a transaction that a former process of this query has left open is over."""
        self._commits.await_prepared()

    def end(self, ending: Ending, timeout_s: float | None = None) -> None:
        """End the membership.  Safe in a signal handler.

        Parameters
        ----------
        ending : Ending
            Why it ends.
        timeout_s : float, optional
            How long the outstanding commit may take, in seconds, if the query is stopped.
        """
        self.post(lambda: self._end(ending, timeout_s))

    # ------------------------------------------------------------------- commands, on the group thread

    def feed(self, given: inputs.Input) -> None:
        """Feed the state machine and carry out its outputs.

        Deliberate: the commit that the input before has decided is sent first.  This input may take its partitions.  A
        large commit may be delayed: until it is sent, only commands are fed.  The member is not polled, and so loses
        nothing.
        """
        self._commits.send_due()
        self.state, said = step(self.state, given)
        for output in said:
            match output:
                case events.Event():
                    self.emit(output)
                case outputs.FetchPartitionInfo():
                    self._start_requests.fetch(output.epochs)
                case outputs.Commit():
                    self._commits.take(output)
                case outputs.FetchOffsets():
                    self._commits.read_back(output.partitions)
                case outputs.StoreSkips():
                    self._unstored = output
                case outputs.ScheduleRetry():
                    self._commits.retry_later()
                case outputs.Fail():
                    self.fail(output.error)
        self._notify()

    def plan(self, given: inputs.PlanBatch) -> None:
        """Put a batch in flight, unless one is: Spark may have logged that one already."""
        if self.state.batch is None:
            self.feed(given)

    def take_logs(self, changes: Collection[inputs.LogChangeFound], reasons: Mapping[TopicPartition, str]) -> None:
        """Take changes of logs, and the reasons why partitions cannot be planned because of their logs."""
        for given in changes:
            if self.error is None:
                self.feed(given)
        self.held_back.set_reasons(Where.LOGS, reasons)

    def replay(self, given: inputs.Replay) -> outputs.StoreSkips | None:
        """Put a batch of Spark's log in flight again; return the skips that must be stored first."""
        self._unstored = None
        self.feed(given)
        return self._unstored

    def identity(self) -> str:
        """Return the member id as the client knows it now."""
        return self._member.identity()

    def join_group(self) -> None:
        """Join the group, if the query has stayed out of it to warm up."""
        if self.standing is Standing.WARMING:
            self._member.standing = Standing.OUTSIDE
            self._subscribe()

    def _subscribe(self) -> None:
        """Join the group or change the subscription, unless the query must stay out or no topic has matched yet.

        Deliberate: not if the query is finishing.  It is about to leave, and would only disturb the others.
        """
        warms_up = self.standing is Standing.WARMING
        if self.topics and not warms_up and self.state.lifecycle is Lifecycle.RUNNING:
            self._member.subscribe(sorted(self.topics))

    def _end(self, ending: Ending, timeout_s: float | None) -> None:
        if ending is Ending.STOP and not self.stopping:
            self._stop_by = Deadline.after(timeout_s or 0.0)
        self.feed(inputs.End(ending))

    # --------------------------------------------------------------------------------- the thread itself

    def _run(self) -> None:
        try:
            self._subscribe()
            while self.state.lifecycle is Lifecycle.RUNNING or (
                self.state.lifecycle is Lifecycle.FINISHING and not self._is_finished()
            ):
                self._turn(_JOINING_TURN_S if self.standing.changes_soon else _TURN_S)
            while self.state.lifecycle is Lifecycle.LEAVING and self._awaits_commits() and not self._is_late():
                self._turn(0.01)
            has_asked = self.standing not in (Standing.WARMING, Standing.OUTSIDE)
            asks_to_leave = self._settings.leaves_with_a_request and has_asked
            if asks_to_leave and not isinstance(self.error, GroupError):
                # Otherwise there is nothing to wait for, or the cluster itself is the problem.
                await_rebalance(lambda: self._worker.submit(self._offsets.rebalancing), self._turn)
        except KafkaGroupError as problem:
            self.fail(self._with_members(problem))
        except Exception as problem:
            _log.exception("%s: the group thread has failed", self._client_id)
            self.fail(GroupError(f"The group thread of {self._client_id} failed: {problem!r}. This is a bug."))
        finally:
            self._leave()

    def _is_finished(self) -> bool:
        return self.state.batch is None and not self._awaits_commits()

    def _awaits_commits(self) -> bool:
        return self.state.uncommitted or self.state.in_doubt

    def _is_late(self) -> bool:
        return self._stop_by is not None and self._stop_by.passed

    def _turn(self, wait_s: float) -> None:
        self._empty_mailbox(wait_s)
        standing = self.standing
        self._member.poll()
        self._rebalances.check_identity()
        if self.standing is not standing:
            self._notify()
        self._commits.send_due()
        self._check_parent()
        if self._pattern is not None and (matching := self._pattern.matching()) is not None:
            self._follow(matching)
        if self._serve_at.passed:
            self._serve_at = Deadline.after(_SERVE_PAUSE_S)
            self._commits.serve()
            self._forget(frozenset(tp.topic for tp in self.state.deleted) - self.topics)
        self._held_back_check.run(self.standing)
        if self._read_back_at.passed:
            self._read_back_at = Deadline.after(_READ_BACK_PAUSE_S)
            self.feed(inputs.ReadBack(tuple(self.state.doubted)))

    def _empty_mailbox(self, wait_s: float) -> None:
        """Run the commands that have arrived.  Wait for the first one, but not past a retry that is due."""
        self._commits.send_due()
        self._mailbox.run(self._commits.until_retry_s(wait_s))
        # Deliberate: not delayed longer than this.  The next poll may take away the partitions of this commit.
        while (left_s := self._commits.delayed_s) > 0:
            self._mailbox.run(left_s)
        self._commits.retry_due()
        self._commits.send_due()

    def _notify(self) -> None:
        """Wake the threads that wait for a state."""
        with self.changed:
            self.changed.notify_all()

    def fail(self, error: KafkaGroupError) -> None:
        """Remember why the query must end, and leave."""
        if self.error is None:
            self.error = error
        self.feed(inputs.End(Ending.FAIL))

    def _with_members(self, problem: KafkaGroupError) -> KafkaGroupError:
        """Return the error with the names of the other members, if the group has refused this one because of them."""
        if getattr(problem, "code", "") not in _BECAUSE_OF_OTHERS:
            return problem
        try:
            group = self._worker.submit(self._offsets.describe).result(_NAMES_PATIENCE_S)
        except (TryAgainError, KafkaGroupError, TimeoutError):
            return problem
        names = ", ".join(f"{member.client_id} at {member.host.lstrip('/')}" for member in group.members[:_NAMED])
        more = f" and {len(group.members) - _NAMED} more" if len(group.members) > _NAMED else ""
        who = f"{names}{more}" + (f", with the assignor {group.assignor!r}" if group.assignor else "")
        return type(problem)(problem.message.replace("its other members use", f"its other members ({who}) use"))

    def _leave(self) -> None:
        """Give everything back and leave the group, without waiting."""
        steps: tuple[Callable[[], object], ...] = (
            lambda: self.feed(inputs.Leave(evicted=self._rebalances.is_another())),
            self._member.close,
            # The requests thread ends with the membership: no thread needs further answers.
            lambda: self._worker.post(self._offsets.close),
            self._worker.close,
            self._commits.close,
            self.held_back.close,
            lambda: self.emit(events.Left(clean=self.state.clean)),
        )
        give_back(steps, client_id=self._client_id)
        self.ended.set()

    def drain(self) -> bool:
        """Let a turn pass without a poll; return whether draining partitions may still be finished and committed."""
        # The running batch of a stopped query will never finish.  Only commits are worth waiting for.
        hopeless = self.stopping and (self.state.lifecycle is Lifecycle.FAILED or not self._awaits_commits())
        if hopeless or self._is_late():
            return False
        self._empty_mailbox(_TURN_S)
        self._held_back_check.run(self.standing)
        self._check_parent()
        return True

    def _check_parent(self) -> None:
        """Leave if the process that Spark runs in has died."""
        if not self.stopping and os.getppid() != self._parent:
            self._end(Ending.STOP, _ORPHAN_STOP_S)

    def _follow(self, matching: frozenset[str]) -> None:
        """Subscribe to the topics that match now.  If none does, keep the subscription, or this member would leave."""
        absent = self.topics - matching
        if absent != self._absent:
            # Each topic has a partition 0.  The query need not have read it.
            self._start_requests.check({TopicPartition(topic, 0) for topic in absent - self._absent})
            self._absent = absent
        if matching and matching != self.topics:
            _log.info("%s: subscribePattern matches %s now", self._client_id, ", ".join(sorted(matching)))
            self.topics = matching
            self._absent = frozenset()
            self._subscribe()

    def _forget(self, topics: frozenset[str]) -> None:
        """Drop the processed offsets of those topics that do not exist, once nothing needs them."""
        known = {tp.topic for tp in self.state.processed} & topics if topics else topics
        if known:
            self._start_requests.forget(known)
