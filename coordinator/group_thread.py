"""The group thread: the only user of the member, and the only place where the state changes.

Everything is an input to the state machine, and every input is fed on this thread: callbacks of the member, which
arrive inside ``poll``, and commands of other threads, which arrive in a mailbox.  While a callback waits for a
batch it keeps emptying the mailbox, so the batch's end gets through.  Because states are never changed in place,
other threads read the newest one without a lock.

Blocking requests run elsewhere: what decides where a partition starts on the facts thread, transactions on the
commit thread.  Their answers come back through the mailbox.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from pyspark_kafka_group.coordinator import assignment as core
from pyspark_kafka_group.coordinator import events
from pyspark_kafka_group.coordinator.commits import Commits
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.member import Callbacks, Member
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.cluster import GroupOffsets, TryAgainError
from pyspark_kafka_group.offsets.committer import CommitRefusedError
from pyspark_kafka_group.offsets.document import BatchOffset
from pyspark_kafka_group.offsets.errors import GroupError, KafkaGroupError
from pyspark_kafka_group.offsets.skip_store import Markers, SkipStore, read_markers, write_markers
from pyspark_kafka_group.offsets.start import Facts
from pyspark_kafka_group.offsets.types import OffsetRange, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.offsets.worker import Worker, settle

_log = logging.getLogger(__name__)

T = TypeVar("T")


# How long the thread sleeps in its mailbox between two polls of the member.  It bounds how late a callback is
# served; 20 wake-ups a second cost 0.3 % of a core.
_TURN_S = 0.05

# The same while the group has not answered yet, and the first batch waits; a brief time, most often.
_JOINING_TURN_S = 0.01

# Pause after a failed commit: short first, because most failures are a rebalance that is just ending.
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 1.0

# How long to wait, when leaving, for the end of a rebalance: for another member's running batch, most often.
_LEAVE_PATIENCE_S = 15.0

# A commit of more partitions than this is sent when the next batch is planned, or after this pause: to put it together
# takes Python time that the plan would have to wait for.
_LARGE_COMMIT = 1000
_LARGE_COMMIT_PAUSE_S = 0.2

# How often the queues of clients that have nothing to do are emptied.
_SERVE_PAUSE_S = 10.0

# How long an outstanding commit may take when Spark has died.
_ORPHAN_STOP_S = 5.0

# Pause before asking again for facts that the cluster could not give.
_FACTS_RETRY_S = 0.1
_FACTS_WARN_S = 5.0


class StoppingError(KafkaGroupError):
    """The query is being stopped; its calls come to nothing.  Never leaves the source process by itself."""


class GroupThread:
    """One member of a group and its state.

    Parameters
    ----------
    settings : GroupSettings
        The group and the options.
    start : BatchOffset
        The offset with which Spark starts the query: the end of its last finished batch, or
        :data:`~pyspark_kafka_group.offsets.document.INITIAL`.
    query_id : str
        Names the query for its whole life.
    client_id : str
        What Kafka's tools show for this member.
    event_log : EventLog
        Takes what happens.
    """

    def __init__(
        self, settings: GroupSettings, *, start: BatchOffset, query_id: str, client_id: str, event_log: EventLog
    ) -> None:
        self._settings = settings
        self._query_id = query_id
        self._client_id = client_id
        self._emit = event_log
        self._mailbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._facts_worker = Worker("kafka-group-facts")
        self._commits = Commits(
            settings,
            query_id=query_id,
            client_id=client_id,
            answered=lambda problem: self._mailbox.put(lambda: self._commit_answered(problem)),
        )
        self._changed = threading.Condition()  # notified after each input; guards nothing
        self._error: KafkaGroupError | None = None  # written by the group thread, once
        self._joined = False
        self._member_id = ""
        self._retry_at: float | None = None
        self._retry_pause_s = _FIRST_RETRY_S
        self._stop_by: float | None = None
        self._unmarked: Markers = {}
        self._in_command = False
        # Decided inside a command whose caller still waits, or large, and not yet sent; when to send it at the latest.
        self._held: core.Commit | None = None
        self._held_until = 0.0
        self._draining = False
        self._left = False
        self._left_clean = False
        self._facts_warn_at = 0.0  # facts thread only
        self._serve_at = time.monotonic() + _SERVE_PAUSE_S
        # The driver's JVM.  Spark's calls tell of its end only when they return.
        self._parent = os.getppid()
        self._start = start
        self._topics: frozenset[str] = frozenset()
        # Those that were there when the query was started for the first time; all others came later.
        self._first_topics: frozenset[str] = frozenset()
        self._matching: frozenset[str] = frozenset()  # as of the last look; written by the facts thread
        self._look_for_topics_at = time.monotonic() + settings.topics_refresh_s
        # Written by the group thread only (by start() before it runs); read by all.
        self._state = core.State(policy=settings.start)
        self._thread = threading.Thread(target=self._run, name="kafka-group", daemon=True)

    # ------------------------------------------------------------------ for the thread that Spark calls

    def start(self, unfinished: BatchOffset | None = None) -> None:
        """Reach the cluster and join the group; returns before the group has assigned anything.

        Parameters
        ----------
        unfinished : BatchOffset, optional
            The end of the batch of Spark's log that will be replayed.

        Raises
        ------
        KafkaGroupError
            If the cluster cannot be reached, refuses the credentials, or does not have a topic.
        """
        self._offsets = self._facts_worker.submit(
            GroupOffsets,
            self._settings.properties,
            group_id=self._settings.group_id,
            read_committed=self._settings.read_committed,
        ).result()
        found = self._facts_worker.submit(self._offsets.connect, self._settings.topics, self._settings.pattern).result()
        self._topics = frozenset(found)
        if self._start.query_id is None:
            self._first_topics = self._topics
        end = unfinished or self._start
        markers = self._facts_worker.submit(read_markers, self._skip_store, end.marks).result() if end.marks else {}
        self._state, _ = core.step(self._state, core.Adopt(self._start, self._query_id, markers))
        self._commits.prepare()
        self._member = Member(
            self._settings,
            client_id=self._client_id,
            callbacks=Callbacks(assigned=self._on_assigned, revoked=self._on_revoked, lost=self._on_lost),
        )
        self._thread.start()

    @property
    def state(self) -> core.State:
        """The newest state; never changed in place."""
        return self._state

    @property
    def member_id(self) -> str:
        """The member id, as Kafka's tools show it; empty before the first assignment."""
        return self._member_id

    def check(self) -> None:
        """Raise what ended the membership, if it has ended or is about to."""
        if self._error is not None:
            raise self._error
        if self._stop_by is not None:
            raise StoppingError("The source process was told to stop.")

    def wait_until(self, condition: Callable[[core.State], bool], timeout_s: float) -> bool:
        """Wait until the state fulfils ``condition``; tell whether it did in time.

        Raises
        ------
        StoppingError
            If the member is leaving.
        KafkaGroupError
            If the membership has ended.
        """
        with self._changed:
            met = self._changed.wait_for(lambda: self._stop_by is not None or condition(self._state), timeout_s)
        self.check()
        return met

    def wait_for_assignment(self, timeout_s: float) -> bool:
        """Wait until the group has answered and every partition has its start; tell whether it did in time."""
        return self.wait_until(lambda state: self._joined and not state.unsettled, timeout_s)

    def finish(self, end: BatchOffset) -> None:
        """Say that Spark has durably finished the batch that ends at ``end``.  May be said more than once."""
        self.check()
        if self._state.batch is not None:  # idle, Spark says so many times a second
            self._call(lambda: self._feed(core.Finish(end)))

    def plan(
        self, ranges: Mapping[TopicPartition, tuple[OwnershipEpoch, OffsetRange]], *, always: bool
    ) -> BatchOffset | None:
        """Put a batch in flight and return its end offset; None if nothing of ``ranges`` is left to plan."""
        return self._call(lambda: self._plan(core.Plan(ranges, always)))

    def replay(self, end: BatchOffset) -> Mapping[TopicPartition, OffsetRange] | None:
        """Put a batch of Spark's log in flight again and return what it reads now.

        Returns
        -------
        mapping or None
            None while the group has not decided who owns what the batch reads: ask again.

        Raises
        ------
        KafkaGroupError
            If the membership has ended, or what has to be skipped cannot be noted durably.
        """
        member_id = self._call(self._member.identity)
        try:
            elsewhere = self._facts_worker.submit(
                self._offsets.held_by_others, client_id=self._client_id, member_id=member_id
            ).result()
            batch, unmarked = self._call(lambda: self._replay(end, elsewhere, {}))
            if unmarked:
                self._facts_worker.submit(write_markers, self._skip_store, unmarked).result()
                batch, _ = self._call(lambda: self._replay(end, elsewhere, unmarked))
        except TryAgainError as problem:
            _log.debug("%s: who owns what the last batch reads is not known yet: %s", self._client_id, problem)
            return None
        return None if batch is None else batch.running

    def decide_anew(self, topics: Collection[str]) -> None:
        """Decide anew where the partitions of ``topics`` start: these are other logs than before."""

        def anew() -> None:
            mine = tuple(tp for tp in self._state.owned if tp.topic in topics)
            self._feed(core.Lose(mine))
            self._feed(core.Assign(mine))

        self._call(anew)

    def begin_stop(self, timeout_s: float) -> None:
        """Let the outstanding commit end, for at most ``timeout_s``, and leave the group.  Safe in a signal handler."""
        self._mailbox.put(lambda: self._begin_stop(timeout_s))

    def drain(self, timeout_s: float) -> bool:
        """Plan nothing more, wait until the running batch is finished and committed, and leave the group.

        Returns whether that was done in time; if not, the member goes on draining.  Any thread.
        """
        self._mailbox.put(self._begin_drain)
        self._thread.join(min(timeout_s, threading.TIMEOUT_MAX))
        return self._left_clean

    def join(self, timeout_s: float) -> None:
        """Wait until the member has left."""
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether the group thread runs."""
        return self._thread.is_alive()

    def _call(self, command: Callable[[], T]) -> T:
        """Run ``command`` on the group thread and return its result."""
        self.check()
        future: Future[T] = Future()
        self._mailbox.put(lambda: self._answer(future, command))
        while True:
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                self.check()  # the thread may have ended with the command still in its mailbox

    # --------------------------------------------------------------------------------- the thread itself

    def _run(self) -> None:
        try:
            self._member.subscribe(sorted(self._topics))
            while self._stop_by is None and not self._drained():
                self._turn(_TURN_S if self._joined else _JOINING_TURN_S)
            self._stop_by = self._stop_by or time.monotonic()
            while self._state.uncommitted and time.monotonic() < self._stop_by:
                self._turn(0.01)
            self._await_rebalance()
        except KafkaGroupError as problem:
            self._fail(problem)
        except Exception as problem:
            _log.exception("%s: the group thread ends", self._client_id)
            self._fail(GroupError(f"The group thread of {self._client_id} failed: {problem!r}. This is a bug."))
        finally:
            self._leave()

    def _await_rebalance(self) -> None:
        """Stay until the group has ended the rebalance that goes on, or for as long as one may hope.

        Classic protocol: the request to leave goes over the connection on which the broker still owes the answer to
        our JoinGroup, and is not read before that.  Who closes the connection meanwhile stays in the group as a ghost,
        and is given partitions, until its session times out.
        """
        if not self._settings.leaves_with_a_request or isinstance(self._error, GroupError):
            return  # nothing to wait for, or the cluster itself is the problem
        deadline = time.monotonic() + _LEAVE_PATIENCE_S
        try:
            while time.monotonic() < deadline:
                asked = self._facts_worker.submit(self._offsets.rebalancing)
                while not asked.done() and time.monotonic() < deadline:
                    self._turn(0.01)
                if not (asked.done() and asked.result()):
                    return
                self._turn(_TURN_S)
        except TryAgainError:
            return

    def _skip_store(self) -> SkipStore:
        return SkipStore(self._settings.properties, group_id=self._settings.group_id, query_id=self._query_id)

    def _drained(self) -> bool:
        return self._draining and self._state.batch is None and not self._state.uncommitted

    def _turn(self, wait_s: float) -> None:
        self._empty_mailbox(wait_s)
        self._member.poll()
        self._check_identity()
        self._check_parent()
        self._follow_pattern()
        if self._settings.pattern is not None and time.monotonic() > self._look_for_topics_at:
            self._look_for_topics_at = time.monotonic() + self._settings.topics_refresh_s
            self._facts_worker.submit(self._look_for_topics, self._settings.pattern)
        if time.monotonic() > self._serve_at:
            self._serve_at = time.monotonic() + _SERVE_PAUSE_S
            self._facts_worker.submit(self._offsets.serve)
            self._commits.serve()

    def _empty_mailbox(self, wait_s: float) -> None:
        """Run the commands that have arrived; wait for a first one, but not past a retry that is due."""
        if self._retry_at is not None:
            wait_s = max(0.0, min(wait_s, self._retry_at - time.monotonic()))
        self._run_commands(wait_s)
        # Deliberate: not held any longer than this.  The member is polled next, and may lose what would be committed.
        while self._held is not None and (left_s := self._held_until - time.monotonic()) > 0:
            self._run_commands(left_s)
        self._send_held()
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self._retry_at = None
            self._feed(core.Retry())

    def _run_commands(self, wait_s: float) -> None:
        try:
            command = self._mailbox.get(timeout=wait_s) if wait_s > 0 else self._mailbox.get_nowait()
            while True:
                command()
                command = self._mailbox.get_nowait()
        except queue.Empty:
            pass

    def _feed(self, given: core.Input) -> None:
        """Feed the state machine and carry out what it says."""
        self._state, outputs = core.step(self._state, given)
        for output in outputs:
            match output:
                case events.Event():
                    self._emit(output)
                case core.FetchFacts():
                    self._facts_worker.submit(self._fetch_facts, output.epochs)
                case core.Commit():
                    self._held = output  # at most one is outstanding
                    large = self._in_command and len(output.offsets) > _LARGE_COMMIT
                    self._held_until = time.monotonic() + _LARGE_COMMIT_PAUSE_S if large else 0.0
                    if not self._in_command:
                        self._send_held()
                case core.MarkSkips():
                    self._unmarked = output.markers
                case core.ScheduleRetry():
                    self._retry_at = time.monotonic() + self._retry_pause_s
                    self._retry_pause_s = min(2 * self._retry_pause_s, _LAST_RETRY_S)
                case core.Fail():
                    self._fail(output.error)
        self._notify()

    def _notify(self) -> None:
        """Let those who wait look at the state."""
        with self._changed:
            self._changed.notify_all()

    def _fail(self, error: KafkaGroupError) -> None:
        """Remember why the query must end, and leave."""
        if self._error is None:
            self._error = error
        if self._stop_by is None:
            self._stop_by = time.monotonic()
        self._notify()

    def _fail_later(self, error: KafkaGroupError) -> None:
        """Let the group thread fail.  Any thread."""
        self._mailbox.put(lambda: self._fail(error))

    # -- commands

    def _answer(self, future: Future[T], command: Callable[[], T]) -> None:
        """Run ``command`` and answer; what it decides to commit is sent after that, so nobody waits for it."""
        self._in_command = True
        settle(future, command)
        self._in_command = False
        if self._held_until == 0.0:
            self._send_held()

    def _send_held(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._commits.send(held, self._member, self._member_id)

    def _plan(self, given: core.Plan) -> BatchOffset | None:
        self._held_until = 0.0  # what is held need not wait any more
        if self._state.batch is None:
            self._feed(given)
        # Deliberate: asked again while a batch is in flight, answer with its end.  It may be in Spark's log.
        return None if self._state.batch is None else self._state.batch.end

    def _replay(
        self, end: BatchOffset, elsewhere: frozenset[TopicPartition], marked: Markers
    ) -> tuple[core.Batch | None, Markers]:
        """Feed the replay; return the batch if it runs, and the markers that must be written before it can."""
        if marked:
            self._feed(core.Marked(marked))
        orphaned = frozenset(tp for tp in end.ranges() if tp.topic not in self._topics)
        self._unmarked = {}
        self._feed(core.Replay(end, elsewhere, orphaned))
        return self._state.batch, self._unmarked

    def _begin_drain(self) -> None:
        self._draining = True
        self._feed(core.Exit())

    def _begin_stop(self, timeout_s: float) -> None:
        if self._stop_by is None:
            self._stop_by = time.monotonic() + timeout_s
            self._feed(core.Exit())

    def _leave(self) -> None:
        """Give everything back and leave the group.  Nothing waits any more."""
        expired = self._emit.counts[events.Expired.name]
        try:
            lost = self._emit.counts[events.Lost.name]
            self._check_identity()
            self._feed(core.Leave())
            self._left = True
            self._left_clean = self._error is None and (
                (expired, lost) == (self._emit.counts[events.Expired.name], self._emit.counts[events.Lost.name])
            )
            self._member.close()
            self._facts_worker.submit(self._offsets.close)
            self._commits.close()
        except Exception:
            _log.exception("%s: could not leave the group cleanly", self._client_id)
        self._emit(events.Left(clean=self._left_clean))

    # -- callbacks of the member, inside poll

    def _on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._check_identity()
        self._member_id = self._member.identity()
        if not self._joined:
            self._emit(events.Joined(member_id=self._member_id))
        # Whatever is given anew was lost before, even if nobody said so.
        self._feed(core.Lose(tuple(tp for tp in partitions if tp in self._state.owned)))
        self._feed(core.Assign(partitions))
        # Last: who waits for the group's answer must not see it without the partitions, and take them for none.
        self._joined = True
        self._notify()

    def _on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Hand over: return, which acknowledges, when the partitions have left, or when the time is over."""
        if self._left:
            return
        self._check_identity()
        self._feed(core.Revoke(partitions))
        deadline = time.monotonic() + self._settings.drain_timeout_s
        while any(tp in self._state.owned for tp in partitions):
            # Once the query stops its batch will not finish any more; only commits are worth waiting for.
            hopeless = self._stop_by is not None and not self._state.uncommitted
            if hopeless or time.monotonic() > min(deadline, self._stop_by or deadline):
                self._feed(core.Expire())
                break
            self._empty_mailbox(_TURN_S)
            self._check_parent()

    def _on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._joined = False
        self._feed(core.Lose(partitions))

    def _check_identity(self) -> None:
        """Treat a changed member id as the loss of everything assigned under the old one.

        On the classic protocol librdkafka may report partitions as revoked that it has lost, if the session ended
        inside another rebalance (librdkafka pull request 5604, not merged as of 2.16).  A new id gives it away.
        """
        if self._state.owned and self._member.identity() != self._member_id:
            self._joined = False
            self._feed(core.Lose(tuple(self._state.owned)))

    def _check_parent(self) -> None:
        """Leave when the process that Spark runs in has died."""
        if self._stop_by is None and os.getppid() != self._parent:
            self._begin_stop(_ORPHAN_STOP_S)

    # -- requests, and their answers

    def _commit_answered(self, problem: Exception | None) -> None:
        if problem is None:
            self._retry_pause_s = _FIRST_RETRY_S
        self._feed(core.CommitDone(None if problem is None else str(problem)))
        if isinstance(problem, CommitRefusedError):
            if problem.evicted:
                # The group gave up on this member while it drained.  It will say so when the callback has returned;
                # waiting for the deadline would only keep the next owners waiting for the others.
                draining = (tp for tp, p in self._state.owned.items() if p.phase is core.Phase.DRAINING)
                self._feed(core.Lose(tuple(draining)))
        elif isinstance(problem, KafkaGroupError):
            self._fail(problem)

    def _look_for_topics(self, pattern: str) -> None:
        """Look which topics match now.  On the facts thread."""
        try:
            found = frozenset(self._offsets.matching(pattern))
        except TryAgainError:
            return  # the next look will tell
        except KafkaGroupError as problem:
            self._fail_later(problem)
            return
        self._matching = found

    def _follow_pattern(self) -> None:
        """Subscribe to what matches now.  If nothing does, stay: a member without a subscription is none."""
        found = self._matching
        if found and found != self._topics:
            _log.info("%s: subscribePattern matches %s now", self._client_id, ", ".join(sorted(found)))
            self._topics = found
            self._member.subscribe(sorted(found))

    def _came_later(self, tp: TopicPartition, facts: Facts) -> Facts:
        """Note if the topic was created under a running query: it is read from its beginning, like new partitions."""
        later = self._settings.pattern is not None and tp.topic not in self._first_topics
        return replace(facts, topic_started=True, first_partitions=0) if later and not facts.topic_started else facts

    def _fetch_facts(self, epochs: Mapping[TopicPartition, OwnershipEpoch]) -> None:
        """Ask until there is an answer, or the partitions have left.  On the facts thread."""
        owned = self._state.owned
        wanted = {tp: epoch for tp, epoch in epochs.items() if tp in owned and owned[tp].epoch == epoch}
        if not wanted:
            return
        reason = "the partition's broker does not answer"
        try:
            found = self._offsets.facts(wanted)
        except TryAgainError as problem:
            found, reason = {}, str(problem)
        except KafkaGroupError as problem:
            self._fail_later(problem)
            return
        except Exception as problem:
            _log.exception("%s: asking where partitions start failed", self._client_id)
            self._fail_later(GroupError(f"Asking where partitions start failed: {problem!r}. This is a bug."))
            return
        if found:
            answer = core.Answer({tp: (wanted[tp], self._came_later(tp, facts)) for tp, facts in found.items()})
            self._mailbox.put(lambda: self._feed(answer))
        missing = {tp: epoch for tp, epoch in wanted.items() if tp not in found}
        if missing:
            if time.monotonic() > self._facts_warn_at:
                self._facts_warn_at = time.monotonic() + _FACTS_WARN_S
                names = ", ".join(sorted(map(str, missing)))
                _log.info("%s: where to start is not known yet: %s: %s", self._client_id, names, reason)
            time.sleep(_FACTS_RETRY_S)
            self._facts_worker.submit(self._fetch_facts, missing)


def new_query_id() -> str:
    """Return a name for a new query."""
    return str(uuid.uuid4())
