"""Replaces the clocks, threads, clients and brokers around the shell of the state machine.

Each stand-in belongs to the process that is running when it is made.  The rest of the shell is real, and makes all
decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.cluster.committer import CommitRefusedError, OffsetsToCommit, commit_error
from pyspark_kafka_group.cluster.daemon_executor import ClosedError
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupProtocol
from pyspark_kafka_group.cluster.group_description import GroupMember as DescribedMember
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.cluster.plain_committer import PlainCommitter
from pyspark_kafka_group.cluster.start_answers import StartAnswers, known_epoch
from pyspark_kafka_group.coordinator.commits import Commits
from pyspark_kafka_group.coordinator.group_thread import Mailbox
from pyspark_kafka_group.coordinator.handover.outputs import Commit
from pyspark_kafka_group.coordinator.member import Callbacks, Standing
from pyspark_kafka_group.coordinator.settings import GroupSettings
from pyspark_kafka_group.offsets.errors import AuthenticationError, UnknownTopicError
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.offsets.skip_markers import Markers
from pyspark_kafka_group.offsets.start_inputs import GroupOffset
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, TopicPartition
from pyspark_kafka_group.wire.threads import complete
from tests.simulation import routines
from tests.simulation.cluster import Callback, Stored, Transaction
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.query import OutstandingCommit
    from tests.simulation.shell import ShellQuery
    from tests.simulation.world import World

P = ParamSpec("P")
T = TypeVar("T")


class _Scene:
    """The query whose code is running."""

    query: ShellQuery


SCENE = _Scene()


class Clock:
    """Replaces the module :mod:`time`: each process has a clock, and the schedule moves it."""

    def monotonic(self) -> float:
        return SCENE.query.now

    def sleep(self, seconds: float) -> None:
        SCENE.query.now += seconds

    time = thread_time = process_time = monotonic


CLOCK = Clock()


class CallClock(Clock):
    """The same for calls of Spark: the schedule decides when a call that sleeps continues."""

    def sleep(self, seconds: float) -> None:
        SCENE.query.waits_in_a_call(seconds)


CALL_CLOCK = CallClock()


class NoSocket:
    """Replaces :class:`ControlSocket`: schedules call the query."""

    address = None

    def __init__(self, *_: object, **__: object) -> None: ...

    def keep_address(self) -> None: ...

    def close(self) -> None: ...


class OnlySource:
    """Replaces :class:`SourceCheck`: no query has a second source."""

    def asked(self) -> None: ...

    def answered(self, *, planned: bool) -> None: ...

    def batch_runs(self) -> None: ...

    def close(self) -> None: ...


def new_lineage() -> str:
    """Name a start, as :func:`pyspark_kafka_group.offsets.commit_metadata.new_lineage` does."""
    return SCENE.query.world.new_lineage()


class _Answer(Future[T]):
    """A future whose :meth:`result` lets the executor continue until there is a result."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor

    def result(self, timeout: float | None = None) -> T:
        while not self.done():
            if not self._executor.run_one():
                raise TimeoutError
        return super().result(0)


def wait_for(answers: Iterable[Future[Any]], timeout: float | None = None) -> None:
    """Wait, as :func:`concurrent.futures.wait` does."""
    for answer in answers:
        answer.result(timeout)


class Executor:
    """Replaces :class:`DaemonExecutor`: the schedule runs its calls."""

    def __init__(self, name: str) -> None:
        self.calls: deque[Callable[[], None]] = deque()
        self.closed = False
        SCENE.query.executors[name] = self

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: _Answer[T] = _Answer(self)
        if self.closed:
            future.set_exception(ClosedError("closed"))
        else:
            self.calls.append(lambda: complete(future, lambda: call(*args, **kwargs)))
        return future

    post = submit

    def close(self) -> None:
        self.closed = True

    def run_one(self) -> bool:
        if not self.calls:
            return False
        self.calls.popleft()()
        return True

    def run(self) -> None:
        """Run all waiting calls, but not those that they submit."""
        for _ in range(len(self.calls)):
            self.run_one()


class Threading:
    """Replaces the module :mod:`threading`."""

    class Thread:
        """The group thread: a routine of its process."""

        def __init__(self, *, target: Callable[[], None], **_: object) -> None:
            self._target = target

        def start(self) -> None:
            SCENE.query.group_routine = routines.Routine(self._target)

    class Condition:
        """A waiting call checks its condition once.  The schedule decides when it checks again."""

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

        def notify_all(self) -> None: ...

        def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
            if condition():
                return True
            SCENE.query.waits_in_a_call(timeout)
            return condition()

    class Event:
        """An event that is set once."""

        def __init__(self) -> None:
            self._is_set = False

        def set(self) -> None:
            self._is_set = True

        def is_set(self) -> bool:
            return self._is_set

        def wait(self, timeout: float) -> bool:
            return self._is_set

    TIMEOUT_MAX = float("inf")


class TurnMailbox(Mailbox):
    """A mailbox whose waits end the turn of the group thread."""

    def run(self, wait_s: float) -> None:
        if wait_s > 0:
            routines.wait()
        super().run(0.0)

    def call(self, command: Callable[[], T]) -> Future[T]:
        future = super().call(command)
        SCENE.query.turn()
        if not future.done():
            SCENE.query.turn()  # in its first turn, a thread subscribes
        if not future.done():  # the group thread has ended before
            future.set_exception(TimeoutError())
        return future


class SimulatedMember:
    """Replaces :class:`Member`: passes the callbacks of the simulated group to this process."""

    def __init__(self, _: GroupSettings, *, client_id: str, callbacks: Callbacks) -> None:
        self._query = SCENE.query
        self._client = self._query.client
        self._callbacks = callbacks
        self.standing = Standing.OUTSIDE
        self.may_poll = False
        self.moved = False
        self._query.member_client = self

    def subscribe(self, topics: Sequence[str]) -> None:
        group = self._query.world.group
        self._client.topics = frozenset(topics)
        if self.standing is not Standing.OUTSIDE:
            group.changed()
        else:
            self.standing = Standing.JOINING
            group.join(self._client)

    def poll(self) -> None:
        if not self.may_poll or self.standing is Standing.OUTSIDE:
            return
        self.may_poll = False
        if self._client.refused:
            self._query.world.group.join(self._client)
            self.moved = not self._client.refused
            return
        due = self._query.world.group.poll(self._client)
        self.moved = due is not False
        if isinstance(due, Callback):
            self._run(due)

    def _run(self, callback: Callback) -> None:
        query, group = self._query, self._query.world.group
        if callback.kind == "assign":
            for tp in callback.partitions:
                query.acquired[tp] = group.moves[tp]
            self._callbacks.assigned(callback.partitions)
            self.standing = Standing.MEMBER
        elif callback.kind == "revoke":
            query.waiting = frozenset(callback.partitions)
            self._callbacks.revoked(callback.partitions)
            query.waiting = frozenset()
            added = group.acknowledged(self._client)
            if added:
                self._run(Callback("assign", added))
        else:
            self.standing = Standing.LOST
            self._callbacks.lost(callback.partitions)
            group.join(self._client)

    def identity(self) -> str:
        return f"m{self._client.member}" if self._client.member else ""

    def generation(self) -> int:
        return self._client.generation

    def group_metadata(self) -> bytes:
        return f"\0{self.identity()}\0{self._client.generation}".encode()

    def close(self) -> None:
        query = self._query
        if query.dying or self.standing is Standing.OUTSIDE:
            return
        if self._client.static:
            self._client.released = True
            query.dead.append(self._client)
        else:
            query.world.group.remove(self._client)


class SimulatedFixedMember(SimulatedMember):
    """Replaces :class:`FixedMember`, which is in no group."""

    def __init__(self, settings: GroupSettings, *, callbacks: Callbacks) -> None:
        super().__init__(settings, client_id="", callbacks=callbacks)

    def identity(self) -> str:
        return ""

    def group_metadata(self) -> bytes:
        return f"\0m{self._client.member}\0{self._client.generation}".encode()


class WatchedCommits(Commits):
    """The real commits, which the judge watches."""

    def __init__(self, settings: GroupSettings, **others: Any) -> None:
        self._query = SCENE.query
        super().__init__(settings, clock=CLOCK.monotonic, **others)

    def send(self, commit: Commit) -> None:
        self._query.note_commit(commit)
        super().send(commit)

    def answered(self, problem: Exception | None) -> None:
        self._query.commit = None
        super().answered(problem)


class SimulatedCommitter:
    """Commits to the simulated cluster, in as many steps as the schedule takes."""

    def __init__(self, *_: object, **__: object) -> None:
        self._query = SCENE.query

    def prepare(self) -> None: ...

    def serve(self) -> None: ...

    def close(self) -> None: ...

    def commit(self, offsets: OffsetsToCommit, group_metadata: bytes) -> None:
        _, member, generation = group_metadata.decode().split("\0")
        stored = {
            tp: Stored(offset, read_commit(text), None if epoch is None else LeaderEpoch(epoch))
            for tp, (offset, epoch, text) in offsets.items()
        }
        try:
            self._commit(stored, int(member.removeprefix("m")), int(generation))
        except Violation as found:
            self._query.blame(found)

    def _commit(self, offsets: dict[TopicPartition, Stored], member: int, generation: int) -> None:
        query = self._query
        world, store, group = query.world, query.world.store, query.world.group
        commit = query.commit
        assert commit is not None
        self._fail_if_told(commit)
        left_open = store.open_of(query.number)
        if left_open is not None:  # an earlier transaction ends before the next one begins
            store.end_transaction(left_open, commit=bool(query.commit_how & 2))
        if not group.accepts(member, generation):
            name = "ILLEGAL_GENERATION" if member in group.members else "UNKNOWN_MEMBER_ID"
            taken = [c for c in group.members.values() if c.static and c.query == query.client.query]
            if query.client.static and name == "UNKNOWN_MEMBER_ID" and taken:
                name = "FENCED_INSTANCE_ID"
            raise commit_error(name, "the group has moved on", group_id="g", properties={})
        missing = frozenset(tp for tp in offsets if tp not in world.logs or query.commit_is_unknown)
        if missing:
            raise CommitRefusedError("UNKNOWN_TOPIC_OR_PART", "these topics do not exist", missing=missing)
        world.judge_accepted(query, commit)
        waits = query.commit_how & 1
        if query.transactional:
            transaction = commit.transaction = Transaction(query.number, offsets)
            store.open.append(transaction)
            if waits:
                routines.wait()
                waits = query.commit_how & 1
                if query.commit_breaks:
                    transaction.abandoned = True
                    if waits:
                        store.end_transaction(transaction, commit=False)
                self._fail_if_told(commit)
            store.end_transaction(transaction, commit=True)
        else:
            store.land(offsets)
        commit.landed = True
        if waits:
            routines.wait()
            self._fail_if_told(commit)

    def _fail_if_told(self, commit: OutstandingCommit) -> None:
        if self._query.commit_breaks:
            self._query.commit_breaks = False
            world = self._query.world
            if not (self._query.transactional or commit.landed):
                world.late.append(commit)
            raise CommitRefusedError("_TIMED_OUT", "no answer", unclear=not self._query.transactional)


class SimulatedPlainCommitter(SimulatedCommitter, PlainCommitter):
    """A committer that can also read offsets back."""

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        return {tp: _committed(self._query.world, tp) for tp in partitions}


def _committed(world: World, tp: TopicPartition) -> CommittedOffset | None:
    stored = world.store.committed.get(tp)
    if stored is None:
        return None
    note = stored.note or stored.reset
    text = "" if note is None else note.encode()
    return CommittedOffset(Offset(stored.offset), stored.leader_epoch, text)


class SimulatedOffsets(GroupOffsets):
    """Returns the answers of the simulated cluster.  The real class combines several answers."""

    def __init__(self, *_: object, **__: object) -> None:
        self._query = SCENE.query

    @property
    def _world(self) -> World:
        return self._query.world

    def close(self) -> None: ...

    def check_consumer_protocol(self) -> None: ...

    def connect(self, topics: Sequence[str], pattern: str | None = None, option: str = "subscribe") -> dict[str, int]:
        if pattern is not None:
            return self.matching(pattern)
        counts = {topic: self.partition_count(topic) for topic in topics}
        missing = [topic for topic, count in counts.items() if not count]
        if missing:
            raise UnknownTopicError(missing, option=option)
        return counts

    def matching(self, pattern: str, *, timeout_s: float = 0.0) -> dict[str, int]:
        names = sorted({tp.topic for tp in self._world.logs})
        return {name: self.partition_count(name) for name in names if name in pattern}

    def partition_count(self, topic: str) -> int:
        return sum(tp.topic == topic for tp in self._world.logs)

    def known_offsets(self, partitions: Collection[TopicPartition], *, require_stable: bool) -> Answers[GroupOffset]:
        logs = self._world.logs
        answers = self.committed_offsets([tp for tp in partitions if tp in logs], require_stable=require_stable)
        found = {
            tp: GroupOffset(
                stored.offset, read_commit(stored.metadata), logs[tp].topic_id, known_epoch(stored.leader_epoch)
            )
            for tp, stored in answers.found.items()
        }
        return Answers(found, answers.failed)

    def missing_topics(self, names: Collection[str]) -> frozenset[str]:
        return frozenset(name for name in names if not self.partition_count(name))

    def missing_partitions(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(tp for tp in partitions if tp not in self._world.logs)

    def partition_info(
        self,
        wanted: Mapping[TopicPartition, Collection[LeaderEpoch]],
        times_ms: Mapping[TopicPartition, int] | None = None,
    ) -> StartAnswers:
        world, query = self._world, self._query
        known = [tp for tp in wanted if tp in world.logs and world.logs[tp].leader and world.store.stable(tp)]
        if query.info_in_parts and len(known) > 1:
            known.remove(max(known))
        topics = {tp.topic: tp for tp in known}
        beginnings = {topic: world.store.beginning(tp) for topic, tp in topics.items()}
        query.started_in |= {tp: (world.logs[tp].topic_id, world.logs[tp].leader_epoch) for tp in known}
        info = {tp: world.store.partition_info(tp, wanted[tp], beginnings[tp.topic]) for tp in known}
        return StartAnswers(info, self.missing_partitions(wanted.keys()), "not yet")

    def committed_offsets(
        self, partitions: Collection[TopicPartition], *, require_stable: bool
    ) -> Answers[CommittedOffset]:
        store = self._world.store
        failed = {tp: "UNSTABLE_OFFSET_COMMIT" for tp in partitions if require_stable and not store.stable(tp)}
        found = {tp: _committed(self._world, tp) for tp in partitions if tp not in failed}
        return Answers({tp: stored for tp, stored in found.items() if stored is not None}, failed)

    def describe(self) -> GroupDescription:
        group = self._world.group
        if self._world.config.protocol == "assign":
            return GroupDescription(state="Empty", protocol=GroupProtocol.CLASSIC, members=())
        assigned = group.described()
        members = tuple(
            DescribedMember(
                member_id=f"m{number}",
                instance_id=None,
                client_id=client.client_id,
                host="",
                assignment=frozenset(() if assigned is None else assigned.get(number, ())),
                target=None if (target := group.target_of(number)) is None else frozenset(target),
                subscription=client.topics,
            )
            for number, client in group.members.items()
        )
        protocol = GroupProtocol(self._world.config.protocol)
        return GroupDescription(
            state="PreparingRebalance" if assigned is None else "Stable", protocol=protocol, members=members
        )


class SimulatedSkipStore:
    """Keeps skip markers beyond the life of the process."""

    def __init__(self, *_: object, **__: object) -> None:
        self._query = SCENE.query

    def read(self, partitions: Collection[TopicPartition]) -> Markers:
        if self._query.hides_markers:
            raise AuthenticationError("the user may not describe the companion group")
        return {tp: of_one for tp, of_one in self._query.markers.items() if tp in partitions}

    def write(self, markers: Markers) -> None:
        if self._query.hides_markers:
            raise TryAgainError("no answer")
        self._query.markers = {**self._query.markers, **markers}
        if self._query.loses_answers:
            raise TryAgainError("the answer is lost")

    def close(self) -> None: ...


class SimulatedLogEnds:
    """Replaces :class:`LogEnds`."""

    def __init__(self, *_: object, **__: object) -> None:
        self._query = SCENE.query
        self.leader_epochs: dict[TopicPartition, LeaderEpoch] = {}
        self.leaders: dict[TopicPartition, Any] = {}
        self.epoch_errors: dict[TopicPartition, str] = {}
        self.reasons: dict[TopicPartition, str] = {}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        if self._query.leaders_are_silent:
            raise TryAgainError("no answer")
        logs = self._query.world.logs
        led = [tp for tp in partitions if tp in logs and logs[tp].leader]
        self.leader_epochs = {tp: logs[tp].leader_epoch for tp in led}
        return {tp: Offset(logs[tp].end) for tp in led}

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        logs = self._query.world.logs
        return {tp: Offset(logs[tp].start) for tp in partitions if tp in logs and logs[tp].leader}

    def refind_leaders(self) -> None: ...

    def topic_ids(self, topics: Collection[str]) -> dict[str, str | None]:
        return {tp.topic: log.topic_id for tp, log in self._query.world.logs.items() if tp.topic in topics}

    def epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> dict[TopicPartition, Offset]:
        logs = self._query.world.logs
        ends = {tp: logs[tp].epoch_end(epoch) for tp, epoch in epochs.items() if tp in logs and logs[tp].leader}
        return {tp: end for tp, end in ends.items() if end is not None}

    def close(self) -> None: ...
