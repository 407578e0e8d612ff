"""One Spark query: its durable logs and sink, Spark's engine, and the shell around the real state machine.

The shell imitates :mod:`pyspark_kafka_group.coordinator.group_thread`, one action at a time.
:mod:`tests.simulation.shell` runs the real one.  The logs and the sink survive a crash.  :meth:`Query.start` makes the
rest of the process anew.

Each action returns whether it could happen.  Its ``arg`` (0 to 15) picks a variant; 0 is the plainest one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

from pyspark_kafka_group.coordinator.assignment_stability import is_stable
from pyspark_kafka_group.coordinator.handover import events, inputs, outputs
from pyspark_kafka_group.coordinator.handover.lifecycle import Ending, Lifecycle
from pyspark_kafka_group.coordinator.handover.replay import is_own_commit
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.handover.transitions import IllegalTransitionError, Phase
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.errors import (
    DataLossError,
    KafkaGroupError,
    MemberFencedError,
    OffsetRewindError,
    OutdatedCheckpointError,
)
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.skip_markers import Markers
from pyspark_kafka_group.offsets.start_inputs import GroupOffset, PartitionInfo, RewindPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query.planning import PlannedRanges, below, cut_ranges, recreated_topics, suspects
from tests.simulation.cluster import Callback, Client, Record, Stored, Transaction
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

Epochs = dict[TopicPartition, OwnershipEpoch]


WARMS_UP = 8
"""Bit of the argument of ``start`` and ``restart``: the query warms up."""

MOST_FENCINGS = 3
"""The number of fencings that ends a run; see `TransactionalCommitter`."""

GRACEFUL = 1
"""Bit of the argument of ``exit``: the running batch may end, and the engine goes on."""

LATER = 4
"""Bit of the argument of ``info``: the cluster answers now, but the answer arrives later."""

UNKNOWN = 8
"""In the argument of a broken commit: the coordinator does not know the topics yet."""


class Stage(IntEnum):
    """The last step of Spark's engine."""

    REPLAY = 0  # a batch of the log is unfinished: Spark calls `partitions` first
    IDLE = 1  # until the next trigger
    DRAFTED = 2  # `latestOffset` has read the state, but not planned yet
    PLANNED = 3  # `latestOffset` has returned
    LOGGED = 4  # offsets/N is written
    SUNK = 5  # the sink has the rows
    DONE = 6  # commits/N is written
    ENDED = 7  # a run with availableNow has nothing left to read


class Warm(IntEnum):
    """The progress of the empty batch after which a query joins its group."""

    COLD = 0  # not planned yet
    WARMING = 1
    YES = 2  # finished, or not needed


class OutstandingCommit:
    """A commit under way, with the member and the generation under which the query decided it."""

    __slots__ = ("batches", "generation", "landed", "member", "offsets", "transaction")

    def __init__(self, offsets: dict[TopicPartition, Stored], member: int, generation: int, batches: int) -> None:
        self.offsets = offsets
        self.member = member
        self.generation = generation
        self.batches = batches
        self.transaction: Transaction | None = None
        self.landed = False


class InfoRequest:
    """A request for the info of partitions; ``answer`` is the cluster's answer on its way back."""

    __slots__ = ("answer", "epochs")

    def __init__(self, epochs: Epochs) -> None:
        self.epochs = epochs
        self.answer: inputs.PartitionInfoReceived | None = None


class Query:
    """One query and, while it runs, its process."""

    quiet_rounds: int = 1
    """The world is at rest after so many rounds in which nothing moves."""

    def __init__(self, world: World, number: int, topics: frozenset[str]) -> None:
        self.world = world
        self.number = number
        self.topics = topics
        self.slow = world.config.slow[number]
        own = world.config.own[number]
        self.transactional = world.config.transactions and own != "plain"
        self.static = world.config.static and own != "dynamic"
        self.runs = world.config.available_now or own == "run"  # with availableNow
        # Durable: Spark's offset log, the number of its batches in the commit log, and the rows of each batch.
        self.log: list[BatchOffset] = []
        self.finished_batches = 0
        self.sink: dict[int, dict[TopicPartition, list[Record]]] = {}
        self.markers: Markers = {}
        # For the judge: how often each partition had moved when this query last received it.
        self.acquired: dict[TopicPartition, int] = {}
        self.dead: list[Client] = []  # of crashed processes; the group may still have them as members
        self.hides_markers = False  # it has no access to its companion group
        self.twin: Query | None = None  # another run of the same query
        self.run = 0
        self.shares_checkpoint = self.given_up = False  # with the other run; stopped by its user for good
        self.fencings = 0
        self.outdated = False  # whether its checkpoint is an old copy, and the group shows that
        self.running = False
        self.starts = 0
        self.crashed = False
        self.left_to: Mapping[TopicPartition, int] = {}  # for the judge: who had each partition when its run ended
        self.logged_before = 0
        self.planned_under: dict[tuple[int, TopicPartition], OwnershipEpoch] = {}
        self.target: dict[TopicPartition, Offset] | None = None  # of a run with availableNow
        self.cut: dict[TopicPartition, int] = {}  # for the judge: where logs were cut off since the run began
        self.policy = world.policy
        self.was_new = True  # whether this process is the first
        self.gone: set[str] = set()  # topics that this process knows to be deleted
        self.untold: set[str] = set()  # for the judge: deleted topics that it has read and not reported

    # -------------------------------------------------------------------------------- the process

    def start(self, arg: int = 0) -> bool:
        """Start the process, from the checkpoint if there is one.

        With :data:`WARMS_UP`, it joins after an empty batch if it would take partitions from others.
        """
        if self.running or self.ended or self.given_up:
            return False
        markers = self._read_markers()
        if markers is None:
            self.world.note(f"q{self.number} cannot read its skip markers")
            return False  # it ends with an error, and its user starts it again
        world = self.world
        self._open_producer(commit=False)
        self.fencings = 0
        if self.twin is not None and self.shares_checkpoint:
            self.log = [*max(self.log, self.twin.log, key=len)]
            self.finished_batches = max(self.finished_batches, self.twin.finished_batches)
        self.running = True
        self.starts += 1
        # For the judge: the number of batches logged before, and the assignment under which each range was planned.
        self.logged_before = len(self.log)
        self.planned_under = {}
        self.was_new = not self.finished_batches
        self.gone = set()
        self.state = State(policy=self.policy)
        self.client = Client(self.number, self.topics, self.static, run=self.run)
        self.draft: PlannedRanges = {}
        self.report: dict[TopicPartition, ReadRange] | None = None  # of the last planned or replayed batch
        self.requests: list[InfoRequest] = []
        self.started_in: dict[TopicPartition, tuple[str, int]] = {}  # topic id and leader epoch in the cluster's answer
        self.commit: OutstandingCommit | None = None
        self.reads_back: tuple[TopicPartition, ...] = ()
        self.retry = False
        self.waiting: frozenset[TopicPartition] = frozenset()
        self.member = 0
        self.unmarked: Markers = {}
        for batch in range(max(0, len(self.log) - 2), len(self.log)):
            self.log[batch] = reread(self.log[batch])
        unfinished = len(self.log) > self.finished_batches
        self.stage = Stage.REPLAY if unfinished else Stage.IDLE
        start = self.log[self.finished_batches - 1] if self.finished_batches else INITIAL
        query_id = self.log[-1].query_id if self.log else None
        query_id = query_id or f"q{self.number}.{self.starts}"
        self.feed(inputs.Restored(start, query_id, markers, self.log[-1] if unfinished else None))
        if self.log and self.policy.keeps_offsets and not self._has_failed():
            self.feed(inputs.OffsetsAtStart(world.store.offsets()))
        if self._has_failed():
            return True
        self.untold &= {tp.topic for tp in self.state.processed}  # it cannot know other topics
        self._follow()
        if self._has_failed():
            return True
        if self.runs:
            self.cut = {}
            self.target = {tp: Offset(log.end) for tp, log in world.logs.items() if tp.topic in self.topics}
        self.warm = Warm.COLD if arg & WARMS_UP and self._takes_over() else Warm.YES
        self._judge_held()
        if self.warm is Warm.YES:
            world.group.join(self.client)
        return True

    def _read_markers(self) -> Markers | None:
        """Return the skip markers of former processes; None if the read fails.  Without a log, there are no markers."""
        return None if self.hides_markers and self.log else self.markers

    def lose_markers(self) -> bool:
        """Let the brokers forget the markers of ranges that others have committed meanwhile."""
        stored = self.world.store.committed
        old = {
            tp
            for tp, of_one in self.markers.items()
            if tp in stored and all(stored[tp].offset >= marker.range.until for marker in of_one)
        }
        if self.running or not old:
            return False
        self.markers = {tp: of_one for tp, of_one in self.markers.items() if tp not in old}
        self.world.note(f"q{self.number} has lost its skip markers of {sorted(old)}")
        return True

    def undecided(self) -> list[TopicPartition]:
        """Return the partitions whose start neither the checkpoint nor the group knows."""
        known = self.log[self.finished_batches - 1].entries if self.finished_batches else {}
        mine = [tp for tp in self.world.logs if tp.topic in self.topics]
        return [tp for tp in mine if tp not in known and tp not in self.world.store.committed]

    def _judge_held(self) -> None:
        """Raise if the query does not join at once, and so might decide too late what `latest` is."""
        if self.warm is Warm.COLD and self.undecided():
            raise Violation("latest is later", f"q{self.number} does not join, and {self.undecided()} may be its own")

    def _takes_over(self) -> bool:
        """Return whether the shell keeps a query that starts now out of the group until it is warm."""
        world = self.world
        started = not self.undecided()
        return (
            self.stage is Stage.IDLE
            and not self.static
            and self.target is None
            and bool(world.group.members)
            and started
        )

    def second_run(self, *, shares_checkpoint: bool) -> Query:
        """Return another run of this query, with the same checkpoint and sink, or with copies of both."""
        twin = Query(self.world, self.number, self.topics)
        twin.twin, self.twin, twin.run = self, twin, 1
        twin.shares_checkpoint = self.shares_checkpoint = shares_checkpoint
        twin.policy = self.policy
        twin.log, twin.finished_batches, twin.markers = [*self.log], self.finished_batches, self.markers
        twin.sink = self.sink
        if not shares_checkpoint:
            last = len(self.log) - 1
            twin.sink = {number: rows for number, rows in self.sink.items() if number == last}
            for rows in twin.sink.values():
                self.world.judge_written(rows)
        return twin

    def _open_producer(self, *, commit: bool) -> None:
        """Become the only producer with the transactional id of this query, as init_transactions does."""
        left_open = self.world.store.open_of(self.number)
        if left_open is not None:
            self.world.store.end_transaction(left_open, commit=commit)
        self.world.producers[self.number] = self

    def crash(self) -> bool:
        """Let the process die.  The group does not notice it."""
        if not self.running:
            return False
        self.crashed = True
        self.declare_residue()
        self._end()
        self.dead.append(self.client)
        return True

    def restart(self, arg: int) -> bool:
        """Let the process die at any step of a batch, and start another, before the session ends or after."""
        if not self.running:
            return False
        for _ in range(arg >> 1 & 3):
            self.engine(0)
        self.crash()
        if not arg & 1:
            self.evict()
        return self.start(arg)

    def exit(self, arg: int = 0) -> bool:
        """Stop the query; with :data:`GRACEFUL`, let its running batch end.  A second call ends the wait.

        With :data:`GRACEFUL` it is ``pyspark_kafka_group.stop()``: Spark's engine goes on until the query is stopped.
        """
        if not self.running:
            return False
        if self.state.ending:
            if self.world.calm:
                return False
            self.leave()
            return True
        if arg & GRACEFUL:
            self._finish_gracefully()
            return True
        if self.world.calm and (self.stage is not Stage.IDLE or self.state.batch is not None):
            return False
        self._stop()
        return True

    def _stop(self) -> None:
        self.feed(inputs.End(Ending.STOP))

    def _finish_gracefully(self) -> None:
        self.feed(inputs.End(Ending.FINISH))

    @property
    def has_to_leave(self) -> bool:
        """Whether nothing keeps the member of a query that is ending."""
        state = self.state
        waits = state.uncommitted or state.in_doubt
        waits |= state.lifecycle is Lifecycle.FINISHING and state.batch is not None
        return state.ending and not waits

    @property
    def _is_stopped(self) -> bool:
        """Whether Spark's engine has ended.  Until the query is stopped, it goes on."""
        return self.state.ending and self.state.lifecycle is not Lifecycle.FINISHING

    def leave(self) -> None:
        self.declare_residue()
        self.waiting = frozenset()
        before = self.state
        self.feed(inputs.Leave(evicted=bool(before.owned) and self.client.member != self.member))
        self.world.judge_left(self, before)
        if self.client.static:
            self.client.released = True
            self.dead.append(self.client)
        elif self.warm is Warm.YES:
            self.world.group.remove(self.client)
        self._end()

    def _end(self) -> None:
        self.running = False
        if self.commit is not None and self.commit.transaction is not None:
            self.commit.transaction.abandoned = True

    def feed(self, given: inputs.Input) -> None:
        """Feed the state machine, and carry out its outputs."""
        world = self.world
        try:
            self.state, said = step(self.state, given)
        except (IllegalTransitionError, AssertionError, LookupError) as problem:
            raise Violation("illegal transition", f"q{self.number}: {problem!r}") from problem
        if world.story is not None:
            world.tell(self, given, said)
        for output in said:
            match output:
                case outputs.FetchPartitionInfo():
                    self.requests.append(InfoRequest(dict(output.epochs)))
                case outputs.Commit():
                    self._pin(output)
                case outputs.FetchOffsets():
                    self.reads_back = output.partitions
                case outputs.StoreSkips():
                    self.unmarked = output.markers
                case outputs.ScheduleRetry():
                    self.retry = True
                case outputs.Fail():
                    self.judge_failure(output.error)
                    return
                case events.Event():
                    self.judge_event(output)
        if self.waiting and self.waiting.isdisjoint(self.state.owned):
            self._acknowledge()

    def judge_event(self, event: events.Event) -> None:
        """Note the ranges that the query declares."""
        match event:
            case events.Expired() | events.Lost():
                for tp, r in event.ranges.items():
                    self.world.declare(self, tp, r)
            case events.LogChanged():
                if event.change == inputs.LogChange.DELETED.value:
                    topics = {tp.topic for tp in event.partitions}
                    if topics - self.world.changed_topics:
                        raise Violation("reported as deleted", f"q{self.number}: nobody has deleted {topics}")
                    self.untold -= topics
                for tp, r in event.ranges.items():
                    self.world.declare_changed(tp, r)
            case events.Replayed():
                for tp, r in event.skipped.items():
                    self.world.declare_changed(tp, r)
                for tp in event.not_owned:
                    self.world.declare_changed(tp, event.ranges[tp])
            case events.RecordsLost():
                for tp, r in (self.log[-1].ranges() if self.log else {}).items():
                    if tp == event.partition:
                        self.world.declare_changed(tp, r)

    def judge_failure(self, error: KafkaGroupError) -> None:
        """Raise if the query had no reason to fail.  Otherwise follow the error message, as its user would."""
        if isinstance(error, DataLossError) and self.world.config.fails:
            self._tolerate()
        elif isinstance(error, OffsetRewindError) and self.world.config.asks:
            self._decide_rewind()
        elif isinstance(error, OffsetRewindError) and self._was_restored(error):
            # Another query has started the restored log anew, and this one does not know why (docs/guarantees.md).
            self.policy = replace(self.policy, on_rewind=RewindPolicy.GROUP)
            self.crash()
        elif self.twin is not None and isinstance(error, (MemberFencedError, OutdatedCheckpointError)):
            self.give_up(type(error).__name__)
        elif isinstance(error, OutdatedCheckpointError) and self.outdated:
            self._begin_anew()
        else:
            raise Violation("the query failed", f"q{self.number}: {error}") from error

    def give_up(self, why: str) -> None:
        """Let the user read that there are two runs, and stop this one.

        If the other run has ended before, this one starts again.  If both had copies of the checkpoint, it then gets a
        new one.
        """
        assert self.twin is not None
        self.world.note(f"q{self.number} run {self.run} ends: {why}")
        self.crash()
        if not self.twin.given_up:
            self.given_up = True
        elif not self.shares_checkpoint:
            self._forget_checkpoint()

    def times_out(self) -> bool:
        """End this run if it has waited too long for partitions of the other run.  Return whether it did."""
        if not self.running or self.twin is None or self.stage is not Stage.REPLAY:
            return False
        self.give_up("AssignmentTimeoutError")
        return True

    def _is_logged(self, batch: int) -> bool:
        """Return whether the other run has logged a batch under this number.  If so, Spark ends this run."""
        twin = self.twin
        if twin is None or not self.shares_checkpoint or len(twin.log) <= batch:
            return False
        self.give_up("Spark: concurrent update of the log")
        return True

    def _tolerate(self) -> None:
        """Let the user read that records may be lost, and set failOnDataLoss=false for the next start."""
        if not self.world.changed_topics:
            raise Violation("the query failed", f"q{self.number}: no log has changed")
        self.policy = replace(self.policy, fail_on_data_loss=False)
        self.crash()

    def _was_restored(self, error: OffsetRewindError) -> bool:
        log = self.world.logs.get(TopicPartition(error.topic, error.partition))
        return log is not None and log.replaced_from is not None

    def _decide_rewind(self) -> None:
        """Let the user read that the group's offset has gone back, and set onOffsetRewind."""
        if self.world.config.intended:
            raise Violation("the query failed", f"q{self.number}: the reset was intended")
        if not (self.world.rewound or self.world.lost_offsets):
            raise Violation("the query failed", f"q{self.number}: nobody has reset an offset")
        self.policy = replace(self.policy, on_rewind=RewindPolicy(self.world.config.on_rewind))
        self.crash()

    def _judge_resets(self, given: inputs.PartitionInfoReceived, before: State) -> None:
        """Raise if the query does not fail at a reset below its processed offset, although its policy is FAIL."""
        if not self.running or self.policy.on_rewind is not RewindPolicy.FAIL:
            return
        for tp, (epoch, info) in given.info.items():
            processed, p = before.processed.get(tp), before.owned.get(tp)
            asked = p is not None and p.epoch == epoch and p.phase is Phase.RESOLVING
            decided = info.note is None and info.reset is None
            if asked and processed is not None and decided and (info.committed or 0) < processed.offset:
                raise Violation("reset ignored", f"q{self.number}: {tp} is back at {info.committed}")

    def _judge_other_run(self, given: inputs.PartitionInfoReceived, before: State) -> None:
        """Raise if this run continues with a partition in which the other run has committed unknown batches."""
        if not self.running:
            return
        for tp, (epoch, info) in given.info.items():
            p, note, processed = before.owned.get(tp), info.note, before.processed.get(tp)
            if p is None or p.epoch != epoch or p.phase is not Phase.RESOLVING or note is None:
                continue
            known = [end.entries[tp].range.until for end in self.log[-1:] if tp in end.entries]
            known += [] if processed is None else [processed.offset]
            committed = info.committed or Offset(0)
            own = note.query_id == before.query_id and note.since < committed
            if own and committed > max(known, default=0):
                raise Violation("another run unnoticed", f"q{self.number} run {self.run} goes on with {tp} {note}")

    def _has_failed(self) -> bool:
        return not self.running

    def _begin_anew(self) -> None:
        """Let the user read the error, and start the query with a new checkpoint and a new sink."""
        if len(self.log) > self.logged_before or self.stage > Stage.IDLE:
            raise Violation("refused too late", f"q{self.number} has begun a batch with a checkpoint that is too old")
        self.outdated = False
        self.crash()
        self._forget_checkpoint()

    def _forget_checkpoint(self) -> None:
        self.log, self.sink, self.markers = [], {}, {}
        self.finished_batches = 0

    def lose_last_commit(self) -> bool:
        """Lose the newest file of Spark's commit log, as in a checkpoint that was restored from a copy."""
        if self.running or not self.log or self.finished_batches < len(self.log):
            return False
        self.finished_batches -= 1
        for tp, r in self.log[-1].ranges().items():
            self.world.declare(self, tp, r)
        return True

    def restore_checkpoint(self, batches: int) -> bool:
        """Restore a copy of the checkpoint that lacks some batches, if the group shows that the copy is old."""
        if self.running or self.ended or len(self.log) <= batches:
            return False
        lost = self.log[-batches:]
        if not any(self._has_committed(end, tp) for end in lost for tp in end.ranges()):
            return False  # nothing shows that these batches existed
        self.outdated = True
        for end in self.log:
            for tp, r in end.ranges().items():  # a query that refuses the copy starts anew at the group's offset
                found = self.world.store.committed.get(tp)
                done = 0 if found is None else found.offset
                self.world.declare_changed(tp, OffsetRange(Offset(min(max(r.start, done), r.until)), r.until))
        del self.log[-batches:]
        self.finished_batches = min(self.finished_batches, len(self.log))
        return True

    def _has_committed(self, end: BatchOffset, tp: TopicPartition) -> bool:
        """Return whether the group's offset shows that this query has committed a batch's range of ``tp``."""
        found, until = self.world.store.committed.get(tp), end.entries[tp].range.until
        if found is None or found.note is None or found.offset < until or not self.world.is_current(tp, end, until):
            return False
        note, name = found.note, str(end.query_id)[:12]
        mine = note.query_id == end.query_id and note.since < until
        return mine or any(former.query == name and former.until >= until for former in note.former)

    @property
    def ended(self) -> bool:
        """Whether a run with availableNow is over."""
        return self.target is not None and self.starts > 0 and self.stage is Stage.ENDED

    def declare_residue(self) -> None:
        """Declare the ranges that the end of this process may repeat: those in the sink that are not committed."""
        batch = self.state.batch
        written = self.stage is Stage.SUNK or self.stage is Stage.DONE
        for tp, p in self.state.owned.items():
            if p.finished is not None:
                end = p.finished
                if written and batch is not None and batch.epochs.get(tp) == p.epoch:
                    end = batch.running[tp].until
                start = p.finished if p.committed is None else p.committed
                start = min(start, self.state.doubted.get(tp, start))
                self.world.declare(self, tp, OffsetRange(start, Offset(max(start, end))))
        if written and len(self.log) > self.finished_batches:
            for tp, r in self.log[-1].ranges().items():
                self.world.declare(self, tp, r)

    def drop(self) -> None:
        """Release the resources of the process at the end of a run."""

    # ---------------------------------------------------------------------------------- the group

    def poll(self) -> bool:
        """Let librdkafka continue, and run the callback that is due."""
        if not self.running or self.waiting or self.warm is not Warm.YES:
            return False
        if self.state.owned and self.client.member != self.member:  # the shell checks its member id here
            self.feed(inputs.Lose(tuple(self.state.owned)))
        if self.client.refused:
            return self._join_again()
        due = self.world.group.poll(self.client)
        if isinstance(due, bool):
            return due
        self._run(due)
        return True

    def _join_again(self) -> bool:
        """Request the place of a former process once more; see `Member`."""
        self.world.group.join(self.client)
        if self.client.refused:
            self.world.note(f"q{self.number} is refused: the place of its former process is not free")
        return not self.client.refused

    def _run(self, callback: Callback) -> None:
        if callback.kind == "assign":
            self.member = self.client.member
            for tp in callback.partitions:
                self.acquired[tp] = self.world.group.moves[tp]
            self.feed(inputs.Assign(callback.partitions))
        elif callback.kind == "revoke":
            self.waiting = frozenset(callback.partitions)
            self.feed(inputs.Revoke(callback.partitions))
        else:
            self.feed(inputs.Lose(callback.partitions))
            self.world.group.join(self.client)

    def _acknowledge(self) -> None:
        self.waiting = frozenset()
        next_assigned = self.world.group.acknowledged(self.client)
        if next_assigned:
            self._run(Callback("assign", next_assigned))

    def expire(self) -> bool:
        """Let the drain deadline pass."""
        if not self.running or not self.waiting:
            return False
        self.feed(inputs.Expire())
        if self.waiting:
            self._acknowledge()  # the shell acknowledges in any case
        return True

    def evict(self) -> bool:
        """End the session of a member at the broker: of a dead process, or else of the running one."""
        group = self.world.group
        for client in [*self.dead, *([self.client] if self.running else [])]:
            if group.knows(client):
                group.remove(client)
                return True
        return False

    def tick(self, *, settling: bool = False) -> bool:
        """Take one step of everything except the engine and the step in which this query is slow."""
        slow = "" if settling else self.slow
        moved = slow != "poll" and self.poll()
        moved |= self.pause_is_over()
        moved |= slow != "commit" and self.send_commit(0)
        moved |= self._follow()
        return moved | self.answer_info(LATER if slow == "info" else 0)

    def _follow(self) -> bool:
        """List the topics, and handle those that were deleted."""
        if not self.running or not self.world.config.forgets:
            return False
        before = self.state
        there = {tp.topic for tp in self.world.logs}
        gone = {tp for tp in {*before.processed, *before.owned} if tp not in self.world.logs}
        gone = {tp for tp in gone if tp.topic not in there or tp not in before.deleted}
        if gone:
            self.feed(inputs.LogChangeFound(tuple(sorted(gone)), inputs.LogChange.DELETED))
        if gone and self.running:
            self.gone |= {tp.topic for tp in gone}
            self.feed(inputs.Forget(frozenset(tp.topic for tp in gone if tp.topic not in there)))
        return self.state is not before

    def forgets(self) -> bool:
        """Return whether the query drops the processed offsets of deleted topics."""
        return True

    def offsets_of(self, tp: TopicPartition) -> list[tuple[int, int | None]]:
        """Return the offsets of a partition that the query knows, each with its leader epoch."""
        known: list[tuple[int, int | None]] = [
            (end.entries[tp].range.until, end.entries[tp].leader_epoch) for end in self.log if tp in end.entries
        ]
        if self.running:
            p, processed, batch = self.state.owned.get(tp), self.state.processed.get(tp), self.state.batch
            known += [] if p is None or p.position is None else [(p.position, p.leader_epoch)]
            known += [] if processed is None else [(processed.offset, processed.leader_epoch)]
            ends = [] if batch is None or tp not in batch.running else [batch.end.entries[tp]]
            known += [(entry.range.until, entry.leader_epoch) for entry in ends]
            known += [(r.range.until, r.leader_epoch) for other, r in self.draft.items() if other == tp]
        return known

    def knows(self, topic: str) -> bool:
        """Return whether the checkpoint or the process has read a topic."""
        return self.has_logged(topic) or (self.running and any(tp.topic == topic for tp in self.state.processed))

    def has_logged(self, topic: str) -> bool:
        """Return whether each checkpoint that a process may find contains partitions of a topic."""
        ends = [self.log[self.finished_batches - 1], self.log[-1]] if self.finished_batches else []
        return bool(ends) and all(any(tp.topic == topic for tp in end.entries) for end in ends)

    # ---------------------------------------------------------------------------------- the info

    def answer_info(self, arg: int) -> bool:
        """Let the cluster answer a request for partition info: at once or later, for all partitions or all but one."""
        if not self.running or not self.requests:
            return False
        request = self.requests[-1 if arg & LATER else 0]
        if request.answer is not None:
            if arg & LATER:
                return False
            self.requests.remove(request)
            self._take_info(request.answer)
            return True
        owned = self.state.owned
        world = self.world
        wanted = {tp: e for tp, e in request.epochs.items() if tp in owned and owned[tp].epoch == e}
        # The cluster answers for partitions with a leader and no open transaction.  The query asks again for the rest.
        later = {tp for tp in wanted if tp not in world.logs or not (world.logs[tp].leader and world.store.stable(tp))}
        if wanted and later == wanted.keys():
            gone = tuple(tp for tp in later if tp not in world.logs and tp not in self.state.deleted)
            if gone:
                self.feed(inputs.LogChangeFound(gone, inputs.LogChange.DELETED))
            return bool(gone)
        self.requests.remove(request)
        if not wanted:
            return True
        if arg & 8 and len(wanted) - len(later) > 1:
            later.add(max(tp for tp in wanted if tp not in later))
        if later:
            self.requests.append(InfoRequest({tp: wanted.pop(tp) for tp in later}))
        first = {tp.topic: tp for tp in wanted}
        topics = {topic: world.store.beginning(tp) for topic, tp in first.items()}
        answer = inputs.PartitionInfoReceived(
            {
                tp: (
                    epoch,
                    self._came_later(
                        tp, world.store.partition_info(tp, self.state.known_leader_epochs(tp), topics[tp.topic])
                    ),
                )
                for tp, epoch in wanted.items()
            },
            world.new_lineage(),
        )
        self.started_in |= {tp: (world.logs[tp].topic_id, world.logs[tp].leader_epoch) for tp in wanted}
        if arg & LATER:
            slow = InfoRequest(wanted)
            slow.answer = answer
            self.requests.append(slow)
        else:
            self._take_info(answer)
        return True

    def _take_info(self, answer: inputs.PartitionInfoReceived) -> None:
        before = self.state
        self.feed(answer)
        if self.world.config.asks:
            self._judge_resets(answer, before)
        if self.twin is not None:
            self._judge_other_run(answer, before)

    def _came_later(self, tp: TopicPartition, info: PartitionInfo) -> PartitionInfo:
        """Mark ``info`` if the topic came later than the query; see `StartRequests`."""
        forgets = self.world.config.forgets  # the query subscribes with a pattern
        if tp.topic in self.gone or (forgets and not self.was_new and not info.topic_started):
            return replace(info, topic_started=True, initial_partition_count=0)
        return info

    # -------------------------------------------------------------------------------- the commits

    def _pin(self, command: outputs.Commit) -> None:
        offsets: dict[TopicPartition, Stored] = {}
        for tp, (epoch, offset, leader_epoch, note) in command.entries.items():
            if tp not in self.state.owned or self.state.owned[tp].epoch != epoch:
                raise Violation("commit without ownership", f"q{self.number} decided to commit {tp} at {offset}")
            offsets[tp] = Stored(offset, read_commit(note.encode()), leader_epoch)
        if self.commit is not None:
            raise Violation("two commits", f"q{self.number} commits while a commit is outstanding")
        unbroken = self.client.member == self.member
        generation = self.client.generation if unbroken else -1
        self.commit = OutstandingCommit(offsets, self.client.member, generation, self.finished_batches)

    def send_commit(self, arg: int) -> bool:
        """Continue the commit: the broker accepts or refuses it, it lands, the answer arrives."""
        if not self.running:
            return False
        if self.commit is None:
            return self._read_back()
        commit = self.commit
        store, group = self.world.store, self.world.group
        if commit.landed:
            self._answer_commit(None)
        elif self.transactional and self.world.producers.get(self.number) is not self:
            self._be_fenced(commit=bool(arg & 2))
        elif commit.transaction is not None:
            self._land(commit)
            if not arg & 1:
                self._answer_commit(None)
        else:
            left_open = store.open_of(self.number)
            if left_open is not None:  # an earlier transaction ends before the next one begins
                store.end_transaction(left_open, commit=bool(arg & 2))
            if not group.accepts(commit.member, commit.generation):
                evicted = commit.member not in group.members
                self._answer_commit("refused")
                if evicted:
                    draining = (tp for tp, p in self.state.owned.items() if p.phase is Phase.DRAINING)
                    self.feed(inputs.Lose(tuple(draining)))
                return True
            missing = tuple(tp for tp in commit.offsets if tp not in self.world.logs)
            if missing:
                self._answer_commit("unknown topic")
                self.feed(inputs.LogChangeFound(missing, inputs.LogChange.DELETED))
                return True
            self.world.judge_accepted(self, commit)
            if self.transactional:
                commit.transaction = Transaction(self.number, commit.offsets)
                store.open.append(commit.transaction)
                if not arg & 1:
                    self._land(commit)
                    self._answer_commit(None)
            else:
                self._land(commit)
                if not arg & 1:
                    self._answer_commit(None)
        return True

    def _be_fenced(self, *, commit: bool) -> None:
        """React to another run of this query that has begun to commit; see `TransactionalCommitter`."""
        self.fencings += 1
        if self.fencings == MOST_FENCINGS:
            self.judge_failure(MemberFencedError("Another run of this query commits"))
            return
        self._open_producer(commit=commit)
        self._answer_commit("fenced")

    def break_commit(self, arg: int) -> bool:
        """Let the commit fail before the broker has it, or with its outcome in doubt.

        Or let a coordinator refuse it that does not know its topics yet, although they exist.
        """
        if not self.running or self.commit is None:
            return False
        commit = self.commit
        if arg & UNKNOWN and commit.transaction is None and not commit.landed:
            self._answer_commit("unknown topic")
            return True
        if commit.transaction is not None and not commit.landed:
            commit.transaction.abandoned = True
            if arg & 1 and commit.transaction in self.world.store.open:  # another run of the query may have ended it
                self.world.store.end_transaction(commit.transaction, commit=False)
        elif not self.transactional and not commit.landed:
            self.world.late.append(commit)
        self._answer_commit("in doubt", unclear=not self.transactional and self.policy.keeps_offsets)
        return True

    def _read_back(self) -> bool:
        """Read the group's offsets back if they may have changed.  Return whether the state has changed."""
        before = self.state
        if not self.reads_back:
            self.feed(inputs.ReadBack(tuple(self.state.doubted)))
        if self.reads_back:
            asked, self.reads_back = self.reads_back, ()
            stored = self.world.store.committed
            found = {tp: stored.get(tp) for tp in asked}
            self.feed(
                inputs.OffsetsReadBack(
                    {tp: None if s is None else GroupOffset(Offset(s.offset), s.note) for tp, s in found.items()}
                )
            )
        state = self.state
        if self.running and state.ending and before.doubted and not (state.uncommitted or state.in_doubt):
            self.leave()  # before another late commit arrives
        return (state.owned, state.doubted) != (before.owned, before.doubted) or bool(self.reads_back)

    def pause_is_over(self) -> bool:
        if not self.running or not self.retry:
            return False
        self.retry = False
        self.feed(inputs.Retry())
        return True

    def _land(self, commit: OutstandingCommit) -> None:
        commit.landed = True
        if commit.transaction is None:
            self.world.store.land(commit.offsets)
        else:
            self.world.store.end_transaction(commit.transaction, commit=True)

    def _answer_commit(self, problem: str | None, *, unclear: bool = False) -> None:
        self.commit = None
        self.feed(inputs.CommitAnswered(problem, unclear))

    # --------------------------------------------------------------------------------- the engine

    def engine(self, arg: int) -> bool:
        """Take Spark's next step."""
        if not self.running or self._is_stopped or self.stage is Stage.ENDED:
            return False
        stage = self.stage
        if stage is Stage.IDLE or stage is Stage.DONE:
            return self._trigger(arg)
        if stage is Stage.DRAFTED:
            if arg & 3 and self.slow == "plan":
                return False
            self._plan()
        elif stage is Stage.PLANNED:
            assert self.state.batch is not None
            if self._is_logged(len(self.log)):
                return True
            self.log.append(self.state.batch.end)
            self.planned_under |= {(id(self.log[-1]), tp): e for tp, e in self.state.batch.epochs.items()}
            self.stage = Stage.LOGGED
            if arg & 3 == 3 and len(self.log) > 1:
                self.feed(inputs.Finish(self.log[-2]))  # Spark calls commit() long after latestOffset()
        elif stage is Stage.LOGGED:
            self._write_rows()
            self.stage = Stage.SUNK
        elif stage is Stage.SUNK:
            if self.twin is not None and self.shares_checkpoint and self.twin.finished_batches == len(self.log):
                self.give_up("Spark: concurrent update of the log")
                return True
            self.finished_batches = len(self.log)
            self.world.judge_finished(self.sink[len(self.log) - 1])
            self.stage = Stage.DONE
        else:
            return self._replay(arg)
        return True

    def _trigger(self, arg: int) -> bool:
        finished = self.stage is Stage.DONE
        if finished:
            self.stage = Stage.IDLE
            self.feed(inputs.Finish(self.log[-1]))
            if arg & 8:
                return True  # the listener has reported it: the next trigger is far away
        if self.state.ending:
            return finished  # it plans no batch
        if self.warm is Warm.COLD:
            self.warm, self.draft, self.stage = Warm.WARMING, {}, Stage.DRAFTED
            self._plan()
            return True
        if self.warm is Warm.WARMING:
            self.warm = Warm.YES
            self.world.group.join(self.client)
            return True
        if self.target is not None and not self._knows_its_share():
            return finished
        before = self.state
        self.draft = self._look(arg & 3, without_epochs=bool(arg & 8))
        if self._has_failed():
            return True
        finished |= self.state is not before
        if self.target is not None and not self.log and not self.state.owned:
            return self._end_run()  # more members than partitions: the run ends with an error
        if not self.draft and self.log:
            if self.target is None or not self.state.may_plan or arg & 8:
                return finished  # nothing to read, or the query does not know yet
            return self._end_run()
        self.stage = Stage.DRAFTED
        if not arg & 4 and self.slow != "plan":
            self._plan()
        return True

    def _look(self, limit: int, *, without_epochs: bool) -> PlannedRanges:
        """List the log ends, check whether the logs are still the same, and plan; see `LogWatch` and `StreamPlanner`.

        ``without_epochs``: the log ends come from librdkafka, without leader epochs, and the leaders answer again.
        """
        logs = self.world.logs
        plannable = self.state.plannable()
        gone = tuple(tp for tp in plannable if tp not in logs)
        if gone:
            self.feed(inputs.LogChangeFound(gone, inputs.LogChange.DELETED))
            plannable = self.state.plannable()
        if self._has_failed():
            return {}
        others = recreated_topics(plannable, {tp.topic: log.topic_id for tp, log in logs.items()})
        if others:
            mine = tuple(tp for tp in self.state.owned if tp.topic in others)
            self.feed(inputs.LogChangeFound(mine, inputs.LogChange.RECREATED))
            plannable = self.state.plannable()
        if self._has_failed():
            return {}
        leader_epochs = {} if without_epochs else {tp: logs[tp].leader_epoch for tp in plannable}
        of_old_logs = suspects(plannable, {}, leader_epochs).outdated
        if any(logs[tp].replaced_from is None for tp in of_old_logs):
            raise Violation("another log", f"q{self.number} plans with positions of a log that was there before")
        if of_old_logs:
            self.feed(inputs.LogChangeFound(tuple(sorted(of_old_logs)), inputs.LogChange.TRUNCATED))
            plannable = self.state.plannable()
        if self._has_failed():
            return {}
        ends = {tp: Offset(logs[tp].end) for tp in plannable if logs[tp].leader}
        leader_epochs = {tp: epoch for tp, epoch in leader_epochs.items() if tp in ends}
        _, shorter, _, asked = suspects(plannable, ends, leader_epochs)
        epoch_ends = {tp: logs[tp].epoch_end(epoch) for tp, epoch in asked.items()}
        shorter |= below(plannable, {tp: end for tp, end in epoch_ends.items() if end is not None})
        if shorter:
            self.feed(inputs.LogChangeFound(tuple(sorted(shorter)), inputs.LogChange.TRUNCATED))
            plannable = self.state.plannable()
        if self._has_failed():
            return {}
        if without_epochs:
            ends = {tp: end for tp, end in ends.items() if tp not in asked}  # the next call gets their epochs
        if self.target is not None:
            ends = {tp: min(end, self.target[tp]) for tp, end in ends.items() if tp in self.target}
        if limit:
            ends = {tp: min(ends[tp], Offset(plannable[tp].offset + limit)) for tp in plannable if tp in ends}
        return cut_ranges(plannable, ends, leader_epochs, None)

    def _knows_its_share(self) -> bool:
        """Return whether a run with availableNow knows the partitions that it must read; see `AvailableNow`."""
        group = self.world.group
        there = (self.target or {}).keys() & self.world.logs.keys()
        return (
            self.client.generation > 0
            and not self.state.unsettled
            and is_stable(group.shown(), self.client.member, self.state.owned.keys(), there)
        )

    def _end_run(self) -> bool:
        if self.state.uncommitted:
            return False
        self.stage, self.left_to = Stage.ENDED, self.world.holders()
        self.leave()
        return True

    def _plan(self) -> None:
        self.feed(inputs.PlanBatch(self.draft, always=not self.log or self.warm is Warm.WARMING))
        batch = self.state.batch
        if batch is None:
            self.stage = Stage.IDLE
        else:
            self.world.judge_planned(self, batch)
            self.stage = Stage.PLANNED

    def _replay(self, arg: int) -> bool:
        elsewhere = self.world.group.held_by_others(self.client)
        if elsewhere is None or self.state.ending:
            return False
        if self.unmarked:
            if self.hides_markers:
                return False
            self.markers = {**self.markers, **self.unmarked}
            if self.twin is not None:  # the brokers keep them under the query's id
                self.twin.markers = self.markers
            if arg & 1:
                return True  # durable, but the process has no answer yet
            self.feed(inputs.SkipsStored(self.unmarked))
            self.unmarked = {}
        end = self.log[-1]
        ranges, committed = end.ranges(), self.world.store.committed
        missing = frozenset(tp for tp in ranges if tp not in self.world.logs)
        not_subscribed = {tp for tp in ranges if tp.topic not in self.topics}
        group = self.world.group
        orphaned = frozenset(tp for tp in not_subscribed if not group.may_go_to_others(self.client, tp)) - missing
        if any(not self.world.store.stable(tp) for tp in (elsewhere | orphaned) & ranges.keys()):
            return False
        own = frozenset(tp for tp in elsewhere | orphaned if tp in end.entries and self._committed_it(end, tp))
        beyond = {tp for tp in orphaned - own if tp in committed and committed[tp].offset > ranges[tp].start}
        elsewhere |= beyond  # another query has owned it meanwhile
        self.feed(inputs.Replay(end, elsewhere, own, orphaned, missing))
        if self.state.batch is not None:
            self.world.judge_replayed(self, self.state.batch)
            self.stage = Stage.LOGGED
        return self.state.batch is not None or bool(self.unmarked)

    def _committed_it(self, end: BatchOffset, tp: TopicPartition) -> bool:
        found = self.world.store.committed.get(tp)
        return found is not None and is_own_commit(end, tp, Offset(found.offset), found.note)

    def _write_rows(self) -> None:
        """Write the rows of the batch, as a sink does that knows the numbers of its batches.

        One kind of sink replaces the rows of a repeated batch.  The other kind ignores a repeated batch.
        """
        number = len(self.log) - 1
        if number in self.sink and self.world.config.replaces:
            self.world.unwrite(self.sink.pop(number))
        if number not in self.sink:
            self.sink[number] = self.world.readable(self.log[-1], self._running_ranges())
            self.world.judge_written(self.sink[number])
        assert self.report is not None
        self.world.judge_table(self.report)

    def _running_ranges(self) -> Mapping[TopicPartition, OffsetRange]:
        """Return what the tasks of the running batch read."""
        assert self.state.batch is not None
        return self.state.batch.running


def reread(end: BatchOffset) -> BatchOffset:
    """Return ``end`` as Spark passes it after a restart."""
    return BatchOffset.from_json(json.loads(json.dumps(end.to_json())))
