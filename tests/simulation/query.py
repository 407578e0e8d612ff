"""One Spark query: its durable logs and sink, Spark's engine, and the shell around the real state machine.

What the shell does is what :mod:`pyspark_kafka_group.coordinator.group_thread` does, one action at a time.  The
logs and the sink survive a crash; everything of the process is made anew by :meth:`Query.start`.

Each action returns whether it could happen.  Its ``arg`` (0 to 15) picks a variant; 0 is the plainest one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from pyspark_kafka_group.coordinator import assignment as core
from pyspark_kafka_group.coordinator import events
from pyspark_kafka_group.offsets.document import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.skips import SkipMarker
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition
from tests.simulation.cluster import Callback, Client, Transaction
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

Draft = dict[TopicPartition, tuple[OwnershipEpoch, OffsetRange]]
Epochs = dict[TopicPartition, OwnershipEpoch]


LATER = 4
"""Bit of the argument of ``facts``: the cluster answers now, the answer arrives later."""


class Stage(IntEnum):
    """Where Spark's engine stands."""

    REPLAY = 0  # a batch of the log is unfinished: `partitions` comes first
    IDLE = 1  # until the next trigger
    DRAFTED = 2  # `latestOffset` has read the state, and not yet planned
    PLANNED = 3  # `latestOffset` has returned
    LOGGED = 4  # offsets/N is written
    SUNK = 5  # the sink has the rows
    DONE = 6  # commits/N is written


class OutstandingCommit:
    """A commit on its way, with the credentials it was decided under."""

    __slots__ = ("batches", "generation", "landed", "member", "offsets", "transaction")

    def __init__(
        self, offsets: dict[TopicPartition, tuple[int, int]], member: int, generation: int, batches: int
    ) -> None:
        self.offsets = offsets
        self.member = member
        self.generation = generation
        self.batches = batches
        self.transaction: Transaction | None = None
        self.landed = False


class FactsRequest:
    """Facts that were asked for; ``answer`` is what the cluster said, on its way back."""

    __slots__ = ("answer", "epochs")

    def __init__(self, epochs: Epochs) -> None:
        self.epochs = epochs
        self.answer: core.Answer | None = None


class Query:
    """One query and, while it runs, its process."""

    def __init__(self, world: World, number: int, topics: frozenset[str]) -> None:
        self.world = world
        self.number = number
        self.topics = topics
        self.slow = world.config.slow[number]
        # Durable: Spark's offset log, how many of its batches the commit log has, and the rows by batch.
        self.log: list[BatchOffset] = []
        self.finished_batches = 0
        self.sink: dict[int, dict[TopicPartition, OffsetRange]] = {}
        self.markers: dict[TopicPartition, SkipMarker] = {}
        # For the judge: how often each partition had moved when this query last got it.
        self.acquired: dict[TopicPartition, int] = {}
        self.dead: list[Client] = []  # of processes that crashed; the group may still count on them
        self.running = False
        self.starts = 0

    # -------------------------------------------------------------------------------- the process

    def start(self) -> bool:
        """Start the process, from the checkpoint if there is one."""
        if self.running:
            return False
        world = self.world
        left_open = world.store.open_of(self.number)
        if left_open is not None:  # init_transactions ends it
            world.store.end_transaction(left_open, commit=False)
        self.running = True
        self.starts += 1
        self.state = core.State(policy=world.policy)
        self.client = Client(self.number, self.topics, world.config.static)
        self.draft: Draft = {}
        self.requests: list[FactsRequest] = []
        self.commit: OutstandingCommit | None = None
        self.retry = False
        self.waiting: frozenset[TopicPartition] = frozenset()
        self.member = 0
        self.unmarked: Mapping[TopicPartition, SkipMarker] = {}
        for batch in range(max(0, len(self.log) - 2), len(self.log)):
            self.log[batch] = _reread(self.log[batch])
        unfinished = len(self.log) > self.finished_batches
        self.stage = Stage.REPLAY if unfinished else Stage.IDLE
        start = self.log[self.finished_batches - 1] if self.finished_batches else INITIAL
        query_id = self.log[-1].query_id if self.log else None
        self.feed(core.Adopt(start, query_id or f"q{self.number}.{self.starts}", dict(self.markers)))
        world.group.join(self.client)
        return True

    def crash(self) -> bool:
        """The process dies; the group does not know."""
        if not self.running:
            return False
        self._declare_residue()
        self._end()
        self.dead.append(self.client)
        return True

    def restart(self, arg: int) -> bool:
        """The process dies, at any step of a batch, and another takes its place, before its session ends or after."""
        if not self.running:
            return False
        for _ in range(arg >> 1 & 3):
            self.engine(0)
        self.crash()
        if not arg & 1:
            self.evict()
        return self.start()

    def exit(self) -> bool:
        """Stop the query; asked again: the time to wait for its commit is over."""
        if not self.running:
            return False
        if self.state.exiting:
            if self.world.calm:
                return False
            self.leave()
            return True
        if self.world.calm and (self.stage is not Stage.IDLE or self.state.batch is not None):
            return False
        self.feed(core.Exit())
        return True

    def leave(self) -> None:
        self._declare_residue()
        self.waiting = frozenset()
        self.feed(core.Leave())
        if self.client.static:
            self.dead.append(self.client)
        else:
            self.world.group.remove(self.client)
        self._end()

    def _end(self) -> None:
        self.running = False
        if self.commit is not None and self.commit.transaction is not None:
            self.commit.transaction.abandoned = True

    def feed(self, given: core.Input) -> None:
        """Feed the state machine and carry out what it says."""
        world = self.world
        try:
            self.state, outputs = core.step(self.state, given)
        except core.IllegalTransitionError as problem:
            raise Violation("illegal transition", f"q{self.number}: {problem}") from problem
        if world.story is not None:
            world.tell(self, given, outputs)
        for output in outputs:
            match output:
                case core.FetchFacts():
                    self.requests.append(FactsRequest(dict(output.epochs)))
                case core.Commit():
                    self._pin(output)
                case core.MarkSkips():
                    self.unmarked = output.markers
                case core.ScheduleRetry():
                    self.retry = True
                case core.Fail():
                    raise Violation("the query failed", f"q{self.number}: {output.error}") from output.error
                case events.Expired() | events.Lost():
                    for tp, r in output.ranges.items():
                        world.declare(self, tp, r)
        if self.waiting and self.waiting.isdisjoint(self.state.owned):
            self._acknowledge()

    def _declare_residue(self) -> None:
        """Declare what the end of this process may repeat: finished and not committed, or in flight."""
        batch = self.state.batch
        for tp, p in self.state.owned.items():
            if p.finished is not None:
                end = p.finished
                if batch is not None and batch.epochs.get(tp) == p.epoch:
                    end = batch.running[tp].until
                start = p.finished if p.committed is None else p.committed
                self.world.declare(self, tp, OffsetRange(start, Offset(max(start, end))))
        if len(self.log) > self.finished_batches:
            for tp, r in self.log[-1].ranges().items():
                self.world.declare(self, tp, r)

    # ---------------------------------------------------------------------------------- the group

    def poll(self) -> bool:
        """Let librdkafka go on, and run the callback that is due."""
        if not self.running or self.waiting:
            return False
        if self.state.owned and self.client.member != self.member:  # the shell's check of its identity
            self.feed(core.Lose(tuple(self.state.owned)))
        due = self.world.group.poll(self.client)
        if isinstance(due, bool):
            return due
        self._run(due)
        return True

    def _run(self, callback: Callback) -> None:
        if callback.kind == "assign":
            self.member = self.client.member
            for tp in callback.partitions:
                self.acquired[tp] = self.world.group.moves[tp]
            self.feed(core.Assign(callback.partitions))
        elif callback.kind == "revoke":
            self.waiting = frozenset(callback.partitions)
            self.feed(core.Revoke(callback.partitions))
        else:
            self.feed(core.Lose(callback.partitions))
            self.world.group.join(self.client)

    def _acknowledge(self) -> None:
        self.waiting = frozenset()
        next_assigned = self.world.group.acknowledged(self.client)
        if next_assigned:
            self._run(Callback("assign", next_assigned))

    def expire(self) -> bool:
        """The time to drain is over."""
        if not self.running or not self.waiting:
            return False
        self.feed(core.Expire())
        if self.waiting:
            self._acknowledge()  # the shell does not look whether that helped
        return True

    def evict(self) -> bool:
        """The session of a member ends at the broker: of a dead process, or else of the one that runs."""
        group = self.world.group
        for client in [*self.dead, *([self.client] if self.running else [])]:
            if group.knows(client):
                group.remove(client)
                return True
        return False

    def tick(self, *, settling: bool = False) -> bool:
        """Everything but the engine goes on by one step, except for what this query is slow at."""
        slow = "" if settling else self.slow
        moved = slow != "poll" and self.poll()
        moved |= self.pause_is_over()
        moved |= slow != "commit" and self.send_commit(0)
        return moved | self.answer_facts(LATER if slow == "facts" else 0)

    # ---------------------------------------------------------------------------------- the facts

    def answer_facts(self, arg: int) -> bool:
        """The cluster tells where partitions stand, at once or later, all of them or one."""
        if not self.running or not self.requests:
            return False
        request = self.requests[-1 if arg & LATER else 0]
        if request.answer is not None:
            if arg & LATER:
                return False
            self.requests.remove(request)
            self.feed(request.answer)
            return True
        owned = self.state.owned
        wanted = {tp: e for tp, e in request.epochs.items() if tp in owned and owned[tp].epoch == e}
        if wanted and not self.world.store.stable({tp.topic for tp in wanted}):
            return False
        self.requests.remove(request)
        if not wanted:
            return True
        if arg & 8 and len(wanted) > 1:
            last = max(wanted)
            self.requests.append(FactsRequest({last: wanted.pop(last)}))
        answer = core.Answer({tp: (epoch, self.world.store.facts(tp)) for tp, epoch in wanted.items()})
        if arg & LATER:
            slow = FactsRequest(wanted)
            slow.answer = answer
            self.requests.append(slow)
        else:
            self.feed(answer)
        return True

    # -------------------------------------------------------------------------------- the commits

    def _pin(self, command: core.Commit) -> None:
        offsets: dict[TopicPartition, tuple[int, int]] = {}
        for tp, (epoch, offset, count) in command.offsets.items():
            if tp not in self.state.owned or self.state.owned[tp].epoch != epoch:
                raise Violation("commit without ownership", f"q{self.number} decided to commit {tp} at {offset}")
            offsets[tp] = (offset, count)
        if self.commit is not None:
            raise Violation("two commits", f"q{self.number} commits while a commit is outstanding")
        unbroken = self.client.member == self.member
        generation = self.client.generation if unbroken else -1
        self.commit = OutstandingCommit(offsets, self.client.member, generation, self.finished_batches)

    def send_commit(self, arg: int) -> bool:
        """The commit goes on: the broker accepts or refuses it, it lands, the answer arrives."""
        if not self.running or self.commit is None:
            return False
        commit = self.commit
        store, group = self.world.store, self.world.group
        if commit.landed:
            self._answer_commit(None)
        elif commit.transaction is not None:
            self._land(commit)
            if not arg & 1:
                self._answer_commit(None)
        else:
            left_open = store.open_of(self.number)
            if left_open is not None:  # the outcome of an earlier one is settled before the next one begins
                store.end_transaction(left_open, commit=bool(arg & 2))
            if not group.accepts(commit.member, commit.generation):
                evicted = commit.member not in group.members
                self._answer_commit("refused")
                if evicted:
                    draining = (tp for tp, p in self.state.owned.items() if p.phase is core.Phase.DRAINING)
                    self.feed(core.Lose(tuple(draining)))
                return True
            self.world.judge_accepted(self, commit)
            if self.world.transactions:
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

    def break_commit(self, arg: int) -> bool:
        """The commit fails: before the broker has it, or with its outcome in doubt."""
        if not self.running or self.commit is None:
            return False
        commit = self.commit
        if commit.transaction is not None and not commit.landed:
            commit.transaction.abandoned = True
            if arg & 1:
                self.world.store.end_transaction(commit.transaction, commit=False)
        self._answer_commit("in doubt")
        return True

    def pause_is_over(self) -> bool:
        if not self.running or not self.retry:
            return False
        self.retry = False
        self.feed(core.Retry())
        return True

    def _land(self, commit: OutstandingCommit) -> None:
        commit.landed = True
        if commit.transaction is None:
            self.world.store.land(commit.offsets)
        else:
            self.world.store.end_transaction(commit.transaction, commit=True)

    def _answer_commit(self, problem: str | None) -> None:
        self.commit = None
        self.feed(core.CommitDone(problem))

    # --------------------------------------------------------------------------------- the engine

    def engine(self, arg: int) -> bool:
        """Spark takes its next step."""
        if not self.running or self.state.exiting:
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
            self.log.append(self.state.batch.end)
            self.stage = Stage.LOGGED
            if arg & 3 == 3 and len(self.log) > 1:
                self.feed(core.Finish(self.log[-2]))  # Spark's commit(), long after latestOffset() has said it
        elif stage is Stage.LOGGED:
            self._write_rows()
            self.stage = Stage.SUNK
        elif stage is Stage.SUNK:
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
            self.feed(core.Finish(self.log[-1]))
            if arg & 8:
                return True  # said by the listener: the next trigger is far away
        limit = arg & 3
        self.draft = {}
        for tp, (epoch, position) in self.state.plannable().items():
            end = self.world.logs[tp].end
            if position < end:
                until = min(end, position + limit) if limit else end
                self.draft[tp] = (epoch, OffsetRange(position, Offset(until)))
        if not self.draft and self.log:
            return finished
        self.stage = Stage.DRAFTED
        if not arg & 4 and self.slow != "plan":
            self._plan()
        return True

    def _plan(self) -> None:
        self.feed(core.Plan(self.draft, always=not self.log))
        batch = self.state.batch
        if batch is None:
            self.stage = Stage.IDLE
        else:
            self.world.judge_planned(self, batch)
            self.stage = Stage.PLANNED

    def _replay(self, arg: int) -> bool:
        elsewhere = self.world.group.held_by_others(self.client)
        if elsewhere is None:
            return False
        if self.unmarked:
            self.markers.update(self.unmarked)
            if arg & 1:
                return True  # durable, and the process has not got the answer yet
            self.feed(core.Marked(self.unmarked))
            self.unmarked = {}
        self.feed(core.Replay(self.log[-1], elsewhere))
        if self.state.batch is not None:
            self.world.judge_replayed(self, self.state.batch)
            self.stage = Stage.LOGGED
        return self.state.batch is not None or bool(self.unmarked)

    def _write_rows(self) -> None:
        """Write the rows of the batch; a batch that is written already is not written again."""
        number = len(self.log) - 1
        if number not in self.sink:
            assert self.state.batch is not None
            self.sink[number] = self.world.readable(self.state.batch.running)
            self.world.judge_written(self.sink[number])


def _reread(end: BatchOffset) -> BatchOffset:
    """Return ``end`` as Spark gives it back after a restart."""
    return BatchOffset.from_json(json.loads(json.dumps(end.to_json())))
