"""One Spark query whose process runs the real shell: the query, its group thread, membership, commits and plans.

A schedule has the same effects as on :class:`~tests.simulation.query.Query`, so the same runs judge both.  That class
imitates the shell, which is fast enough for exhaustive exploration.  Here the shell is real.  In a step, one of its
threads continues until it waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_kafka_group.cluster import patience
from pyspark_kafka_group.coordinator import (
    absent_topics,
    commits,
    group_thread,
    membership,
    rebalances,
    start_requests,
    start_up,
)
from pyspark_kafka_group.coordinator.activity import Activity
from pyspark_kafka_group.coordinator.handover import events, inputs
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.membership import Membership, StoppingError
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.coordinator.start_requests import StartRequests
from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.errors import (
    AssignmentTimeoutError,
    AuthenticationError,
    KafkaGroupError,
    NoPartitionsError,
    UnknownTopicError,
)
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.query import available_now, log_watch, stream_planner
from pyspark_kafka_group.query import query as real_query
from pyspark_kafka_group.query.available_now import AvailableNow
from pyspark_kafka_group.query.log_watch import LogWatch
from pyspark_kafka_group.query.stream_planner import StreamPlanner
from pyspark_kafka_group.wire import deadline
from tests.simulation import routines, stand_ins
from tests.simulation.cluster import Client, Stored
from tests.simulation.query import LATER, UNKNOWN, WARMS_UP, OutstandingCommit, Query, Stage, Warm, reread
from tests.simulation.stand_ins import CLOCK, SCENE, Executor, SimulatedMember
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from pyspark_kafka_group.coordinator.handover.outputs import Commit, Output
    from tests.simulation.world import World

T = TypeVar("T")

TURN_S = 0.05
"""The duration of a turn of the group thread."""

TICK_S = 11.0
"""The time that passes with each tick: longer than any pause of the shell, shorter than its timeouts."""

LONG_S = 1e6
"""The drain timeout: so long that only the schedule ends it."""

_MOST_TURNS = 1000

STOP_S = 60.0
"""The timeout of ``pyspark_kafka_group.stop()``."""

SIGNAL = 2
"""Bit of the argument of ``exit``: a signal reaches only the source process, inside a call."""

_SETTINGS = parse({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "a"})


class ShellQuery(Query):
    """A query whose processes run the real shell."""

    def __init__(self, world: World, number: int, topics: frozenset[str]) -> None:
        super().__init__(world, number, topics)
        # Actions that the clock triggers may take some rounds in which nothing else moves.
        self.quiet_rounds = 8 if world.config.log_changes else 3
        self.now = 0.0
        self.spark: real_query.Query
        self.group_routine: routines.Routine | None = None
        self.commit_routine: routines.Routine | None = None
        self.call: routines.Routine | None = None  # a call of Spark that waits
        self.answers: list[Any] = []  # of that call
        self.asked_to_stop = False
        self.member_client: SimulatedMember

    @property
    def group(self) -> Membership | None:
        return self.spark._group

    @property
    def state(self) -> State:  # type: ignore[override]  # the shell keeps the state
        assert self.group is not None
        return self.group.state

    # -------------------------------------------------------------------------------- the process

    def start(self, arg: int = 0) -> bool:
        if self.running or self.ended:
            return False
        SCENE.query = self
        world = self.world
        left_open = world.store.open_of(self.number)
        if left_open is not None:  # init_transactions ends it
            world.store.end_transaction(left_open, commit=False)
        self.running = True
        self.starts += 1
        self.logged_before = len(self.log)
        self.planned_under = {}
        self.started_in = {}
        self.draft = {}
        self.report = None
        self.commit = None
        self.waiting = frozenset()
        self.violation: Violation | None = None
        self.executors: dict[str, Executor] = {}
        self.group_routine = self.commit_routine = self.call = None
        self.asked_to_stop = False
        self.commit_how = 0
        self.commit_breaks = self.commit_is_unknown = False
        self.dying = self.loses_answers = self.info_in_parts = self.leaders_are_silent = False
        for batch in range(max(0, len(self.log) - 2), len(self.log)):
            self.log[batch] = reread(self.log[batch])
        unfinished = self.log[-1] if len(self.log) > self.finished_batches else None
        self.stage = Stage.IDLE if unfinished is None else Stage.REPLAY
        query_id = (self.log[-1].query_id if self.log else None) or f"q{self.number}.{self.starts}"
        self.client = Client(self.number, self.topics, self.static, client_id=f"sim-{query_id}")
        settings = replace(_SETTINGS, group=self._settings(), client_id="sim")
        sources: Any = stand_ins.OnlySource()
        self.spark = real_query.Query(settings, sources)
        try:
            if self.runs:
                self.spark.fix_target()
                self.target = dict(self.planner._target) if isinstance(self.planner, AvailableNow) else {}
                self.cut = {}
            if unfinished is not None:
                end = unfinished.to_json()
                self._call(lambda: self.spark.running_ranges(self._start().to_json(), end))
            else:
                self.spark._join(self._start(), query_id, warms_up=bool(arg & WARMS_UP) and not self.runs)
        except UnknownTopicError:  # the topic does not exist at the moment
            self._end()
            return False
        except AuthenticationError:
            self._end()
            if not self.hides_markers:
                raise
            return False
        except KafkaGroupError as problem:
            self._failed(problem)
            return True
        assert self.group is not None
        self.warm = Warm.COLD if self.group.warming_tasks else Warm.YES
        self._judge_held()
        known = {tp.topic for tp in self.state.processed}
        self.untold &= known  # it cannot know other topics
        if known:  # a topic that the checkpoint lacks counts as added to `subscribe`
            world.anywhere |= {tp for tp in world.partitions if tp.topic in self.topics - known}
        self.turn()
        self._look_around()
        return True

    def _start(self) -> BatchOffset:
        """Return the end of the last finished batch."""
        return self.log[self.finished_batches - 1] if self.finished_batches else INITIAL

    @property
    def watch(self) -> LogWatch:
        return self.spark._watch

    @property
    def planner(self) -> StreamPlanner | AvailableNow:
        return self.spark._planner

    def _settings(self) -> GroupSettings:
        config = self.world.config
        assigned = config.protocol == "assign"
        properties = {
            "group.protocol": "classic" if assigned else config.protocol,
            "topic.metadata.refresh.interval.ms": "1000",
        }
        if self.static:
            properties["group.instance.id"] = str(self.number)
        topics = tuple(sorted(self.topics))
        return GroupSettings(
            properties=properties,
            group_id="g",
            topics=() if config.forgets else topics,
            partitions=tuple(tp for tp in self.world.logs if tp.topic in self.topics) if assigned else (),
            pattern=f"[{''.join(topics)}]" if config.forgets else None,
            commit_mode=CommitMode.TRANSACTION if self.transactional else CommitMode.PLAIN,
            drain_timeout_s=LONG_S,
            read_committed=True,
            start=self.policy,
        )

    def crash(self) -> bool:
        if not self.running:
            return False
        self.crashed = True
        self._die()
        self.dead.append(self.client)
        return True

    def exit(self, arg: int = 0) -> bool:
        if arg & SIGNAL and self.running and not self.state.ending and self.call is not None and not self.call.over:
            return not self.world.calm and self._signal()
        return super().exit(arg)

    def _signal(self) -> bool:
        """Let a signal reach only the source process, while a call of Spark waits."""
        assert self.call is not None
        self._enter()
        self.spark.interrupt()
        for _ in range(_MOST_TURNS):
            if self.call.over:
                break
            self.turn()
            self._enter()
            try:
                self.call.resume()
            except KafkaGroupError:  # the query ends with an error
                self.leave()
                return True
        else:
            raise Violation("stuck", f"q{self.number}: the call does not return")
        if self.stage is Stage.REPLAY:
            raise Violation("ran after the end", f"q{self.number} returns {self.answers}")
        self.stage = Stage.ENDED  # without a batch, Spark ends the run, which seems to be over
        self.leave()
        return True

    def _stop(self) -> None:
        assert self.group is not None
        self._enter()
        self.group.begin_stop(LONG_S)
        self.turn()
        self._look_around()

    def _finish_gracefully(self) -> None:
        self._enter()
        self.asked_to_stop = True
        self.spark._stop_gracefully(STOP_S)
        self.turn()
        self._look_around()

    @property
    def has_to_leave(self) -> bool:
        return super().has_to_leave and not self.asked_to_stop  # then the shell decides

    @property
    def _is_stopped(self) -> bool:
        return self.state.ending and not self.asked_to_stop

    def leave(self) -> None:
        if not self.running:
            return
        assert self.group is not None
        self._enter()
        self.group.begin_stop(0.0)
        self.now += 2 * LONG_S  # the end of a longer wait
        self._drive_out()
        self._die()

    def _drive_out(self) -> None:
        """Let the group thread continue until it has left the group."""
        assert self.group is not None
        for _ in range(_MOST_TURNS):
            if not self.group.alive:
                return
            self.now += 1
            self._requests.run()
            self.turn()
        raise Violation("stuck", f"q{self.number} does not leave the group")

    def _die(self) -> None:
        """End all threads of the process."""
        self._enter()
        self.dying = True
        for routine in (self.call, self.group_routine, self.commit_routine):
            if routine is not None:
                routine.abandon()
        self.waiting = frozenset()
        self._end()

    def drop(self) -> None:
        """End the threads at the end of a run."""
        if self.running:
            self.world.story = None
            self._die()

    def forgets(self) -> bool:
        return any(tp.topic in self.topics for tp in self.world.logs)  # otherwise it stays subscribed to deleted topics

    # ---------------------------------------------------------------------- the shell's surroundings

    def _enter(self) -> None:
        SCENE.query = self

    def turn(self, *, polls: bool = False) -> None:
        """Let the group thread continue until it waits."""
        routine = self.group_routine
        if routine is None or routine.over:
            return
        self._enter()
        self.now += TURN_S
        self.member_client.may_poll = polls
        routine.resume()

    def waits_in_a_call(self, seconds: float) -> None:
        """Let Spark's call wait for a change."""
        self.now += seconds
        if self.call is not None:
            routines.wait()
            self._enter()

    def blame(self, found: Violation) -> None:
        """Keep a violation until the step is over.  Here the shell would take it for its own error."""
        self.violation = self.violation or found

    def note_event(self, event: events.Event) -> None:
        if not self.dying:
            self.judge_event(event)

    def note_commit(self, command: Commit) -> None:
        """Note a commit that the shell sends."""
        offsets: dict[TopicPartition, Stored] = {}
        for tp, (epoch, offset, leader_epoch, note) in command.entries.items():
            if tp not in self.state.owned or self.state.owned[tp].epoch != epoch:
                self.blame(Violation("commit without ownership", f"q{self.number} decided to commit {tp} at {offset}"))
            offsets[tp] = Stored(offset, read_commit(note.encode()), leader_epoch)
        if self.commit is not None:
            self.blame(Violation("two commits", f"q{self.number} commits while a commit is outstanding"))
        self.commit = OutstandingCommit(offsets, self.client.member, self.client.generation, self.finished_batches)

    @property
    def _requests(self) -> Executor:
        return self.executors["kafka-group-requests"]

    def _call(self, call: Callable[[], object]) -> None:
        """Let Spark make a call that may wait.  Raise its error, if it fails at once."""
        self.answers = []
        self.call = routines.Routine(lambda: self.answers.append(call()))
        self._enter()
        self.call.resume()

    def _ask(self, call: Callable[[], T]) -> T | None:
        """Run a call of Spark's thread.  Return None if the query fails because of it, or is ending."""
        self._enter()
        try:
            return call()
        except StoppingError:
            return None
        except KafkaGroupError as problem:
            self._failed(problem)
            return None

    def _look_around(self) -> None:
        """Check the process after a step: raise a violation, and handle an error or its end."""
        if self.violation is not None:
            raise self.violation
        if not self.running or self.group is None:
            return
        error = self.group._group.error
        if error is not None:
            self._failed(error)
        elif not self.group.alive and not self.asked_to_stop:
            self._die()

    def _has_moved(self, before: State) -> bool:
        return self.running and self.state is not before and self.state != before

    def _failed(self, error: KafkaGroupError) -> None:
        if not self.running:
            return
        if self.group is not None and self.group_routine is not None:
            if self.group._group.error is None:  # a call has failed, so Spark stops the source
                self._enter()
                self.group.begin_stop(0.0)
                self.now += 2 * LONG_S
            self._drive_out()
        if self.violation is not None:
            raise self.violation
        self.judge_failure(error)

    # ---------------------------------------------------------------------------------- the steps

    def feed(self, given: inputs.Input) -> None:
        assert self.group is not None
        thread = self.group._group
        thread.post(lambda: thread.feed(given))
        self.turn()
        self._look_around()

    def poll(self) -> bool:
        if not self.running or self.warm is not Warm.YES:
            return False
        if self.waiting:
            self.turn()
            self._look_around()
            return False
        self.member_client.moved = False
        self.turn(polls=True)
        moved = self.member_client.moved
        self._look_around()
        return moved

    def expire(self) -> bool:
        if not self.running or not self.waiting:
            return False
        self.now += LONG_S
        self.turn()
        self._look_around()
        return True

    def tick(self, *, settling: bool = False) -> bool:
        if not self.running:
            return False
        before = self.state
        slow = "" if settling else self.slow
        polled = slow != "poll" and self.poll()
        self.pause_is_over()
        committed = slow != "commit" and self.send_commit(0)
        self.answer_info(LATER if slow == "info" else 0)
        # Deliberate: compares the whole state.  An action of the clock, such as a read-back, may change nothing.
        return polled or committed or self._has_failed() or self._has_moved(before)

    def pause_is_over(self) -> bool:
        if not self.running:
            return False
        before = self.state
        self.now += TICK_S
        self.turn()
        self._look_around()
        return self._has_moved(before)

    def answer_info(self, arg: int) -> bool:
        if not self.running or not self._requests.calls:
            return False
        self._enter()
        before = self.state
        self.info_in_parts = bool(arg & 8)
        self._requests.run()
        self.info_in_parts = False
        if not arg & LATER:
            self.turn()
        self._look_around()
        return self._has_failed() or self._has_moved(before)

    def _follow(self) -> bool:
        return False  # the clock decides when the shell lists its topics

    def send_commit(self, arg: int) -> bool:
        if not self.running:
            return False
        committing = self.commit is not None
        worker = self.executors["kafka-group-commits"]
        self._enter()
        self.commit_how = arg
        if self.commit_routine is None or self.commit_routine.over:
            if not worker.calls:
                return False
            self.commit_routine = routines.Routine(worker.run)
        self.commit_routine.resume()
        if committing:
            self.turn()
        self._look_around()
        return committing

    def break_commit(self, arg: int) -> bool:
        if not self.running or self.commit is None:
            return False
        self.commit_is_unknown = bool(arg & UNKNOWN)
        self.commit_breaks = not self.commit_is_unknown
        self.send_commit(arg)
        self.commit_breaks = self.commit_is_unknown = False
        return True

    # --------------------------------------------------------------------------------- the engine

    def engine(self, arg: int) -> bool:
        happened = super().engine(arg)
        if happened:
            self._look_around()
        return happened

    def _trigger(self, arg: int) -> bool:
        group = self.group
        assert group is not None
        finished = self.stage is Stage.DONE
        if finished:
            self.stage = Stage.IDLE
            self._ask(lambda: group.finish(self.log[-1]))
            if arg & 8 or not self.running:
                return True  # the listener has reported it: the next trigger is far away
        if self.state.ending and not self.runs:
            return finished  # it plans no batch
        if self.warm is Warm.COLD:
            self.warm, self.draft, self.stage = Warm.WARMING, {}, Stage.DRAFTED
            self._plan()
            return True
        if self.warm is Warm.WARMING:
            self.warm = Warm.YES
            self._ask(group.join_group)
            self.turn()
            return True
        planner = self.planner
        if isinstance(planner, AvailableNow):
            return self._run_on(arg & 3 or None) or finished
        before = self.state
        self.leaders_are_silent = bool(arg & 8)
        draft = self._ask(lambda: planner.readable_ranges(group, arg & 3 or None))
        self.leaders_are_silent = False
        if not self.running or draft is None:
            return True
        self.draft = draft
        if not self.draft and self.log:
            return finished or self._has_moved(before)
        self.stage = Stage.DRAFTED
        if not arg & 4 and self.slow != "plan":
            self._plan()
        return True

    def _run_on(self, max_rows: int | None) -> bool:
        """Continue the call that plans the next batch of a run with availableNow.  Return whether it is over."""
        start = self._start().to_json()
        try:
            if self.call is None or self.call.over:
                self._call(lambda: self.spark.latest_offset(start, max_rows))
            else:
                self._enter()
                self.call.resume()
        except StoppingError:
            return self.crash()  # stopped, but not by Spark
        except NoPartitionsError:
            return self._end_run()  # more members than partitions
        except AssignmentTimeoutError:
            return self.crash()  # the group has not settled; Spark starts the run again
        except KafkaGroupError as problem:
            self._failed(problem)
            return True
        if not self.answers:
            return False
        if self.answers == [start]:
            if self.asked_to_stop:
                self.leave()
                return True
            return self._end_run()
        assert self.state.batch is not None
        self.world.judge_planned(self, self.state.batch)
        self.stage = Stage.PLANNED
        return True

    def _end_run(self) -> bool:
        self.stage, self.left_to = Stage.ENDED, self.world.holders()
        self.leave()
        return True

    def _plan(self) -> None:
        group = self.group
        assert group is not None
        end = self._ask(lambda: group.plan(self.draft, always=not self.log or self.warm is Warm.WARMING))
        if not self.running:
            return
        batch = self.state.batch
        if end is None or batch is None:
            self.stage = Stage.IDLE
        else:
            if isinstance(self.planner, StreamPlanner):
                self.planner.interval.news()
            self.world.judge_planned(self, batch)
            self.stage = Stage.PLANNED

    def _replay(self, arg: int) -> bool:
        call = self.call
        assert call is not None
        before, markers = self.state, self.markers
        if not call.over:
            self._enter()
            self.loses_answers = bool(arg & 1)
            try:
                call.resume()
            except StoppingError:
                return self.crash()  # nobody has stopped it after stop()
            except AssignmentTimeoutError:
                return self.crash()  # Spark starts the query again
            except KafkaGroupError as problem:
                self._failed(problem)
                return True
            finally:
                self.loses_answers = False
        if self.answers:
            if self.state.batch is None:
                raise Violation("ran without a batch in flight", f"q{self.number} reads {self.answers}")
            self.world.judge_replayed(self, self.state.batch)
            self.stage = Stage.LOGGED
        return bool(self.answers) or self.markers is not markers or self._has_moved(before)

    def _running_ranges(self) -> Mapping[TopicPartition, OffsetRange]:
        start, end = self._start().to_json(), self.log[-1].to_json()
        return self._ask(lambda: self.spark.running_ranges(start, end)) or {}


class _Events:
    """Passes the events of one process to the judge."""

    def __init__(self, query: ShellQuery) -> None:
        self._query = query
        self.activity = Activity(CLOCK.monotonic, CLOCK.monotonic)

    def __call__(self, event: events.Event) -> None:
        self.activity.note(event)
        self._query.note_event(event)


def _told_step(state: State, given: inputs.Input) -> tuple[State, tuple[Output, ...]]:
    """Take a step, and show it to the judge."""
    query = SCENE.query
    if type(given) is inputs.Leave:
        query.declare_residue()
    after, said = step(state, given)
    if query.world.story is not None and not query.dying:
        query.world.tell(query, given, said)
    return after, said


_REPLACED: list[tuple[Any, dict[str, object]]] = [
    (deadline, {"time": CLOCK}),
    (patience, {"time": CLOCK}),
    (lasting, {"time": CLOCK}),
    (absent_topics, {"step": _told_step}),
    (start_requests, {"time": CLOCK, "new_lineage": stand_ins.new_lineage}),
    (log_watch, {"time": CLOCK, "LogEnds": stand_ins.SimulatedLogEnds}),
    (stream_planner, {"time": CLOCK}),
    (available_now, {"time": CLOCK, "DaemonExecutor": Executor, "GroupOffsets": stand_ins.SimulatedOffsets}),
    (rebalances, {"Member": SimulatedMember, "FixedMember": stand_ins.SimulatedFixedMember}),
    (commits, {"DaemonExecutor": Executor, "TransactionalCommitter": stand_ins.SimulatedCommitter}),
    (commits, {"wait": stand_ins.wait_for}),
    (commits, {"connect": lambda *_, **__: None, "PlainCommitter": stand_ins.SimulatedPlainCommitter}),
    (real_query, {"time": stand_ins.CALL_CLOCK, "ControlSocket": stand_ins.NoSocket}),
    (real_query, {"EventLog": lambda *_: _Events(SCENE.query)}),
    (membership, {"time": CLOCK, "threading": stand_ins.Threading}),
    (start_up, {"DaemonExecutor": Executor, "step": _told_step}),
    (start_up, {"GroupOffsets": stand_ins.SimulatedOffsets, "SkipStore": stand_ins.SimulatedSkipStore}),
    (group_thread, {"threading": stand_ins.Threading, "Mailbox": stand_ins.TurnMailbox}),
    (group_thread, {"StartRequests": partial(StartRequests, clock=CLOCK.monotonic, sleep=CLOCK.sleep)}),
    (group_thread, {"Commits": stand_ins.WatchedCommits, "step": _told_step}),
]


@contextmanager
def shell() -> Iterator[None]:
    """Connect the shell to the simulated world."""
    originals = [(vars(module), {name: vars(module)[name] for name in names}) for module, names in _REPLACED]
    logging.disable(logging.CRITICAL)  # the error of a query that fails is enough
    for module, names in _REPLACED:
        vars(module).update(names)
    try:
        yield
    finally:
        for module_names, names in originals:
            module_names.update(names)
        logging.disable(logging.NOTSET)
