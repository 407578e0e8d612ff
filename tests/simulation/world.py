"""The whole simulated world, and its judge: the invariants of every run.

A run is a configuration and a list of actions.  Actions that cannot happen do nothing, so any part of a list
is a run too, which is what makes shrinking simple.  After the actions the world settles: no more faults, all
processes up, until nothing moves any more; then everything that was produced must be processed and committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark_kafka_group.coordinator import assignment as core
from pyspark_kafka_group.coordinator import events
from pyspark_kafka_group.offsets.start import RewindPolicy, StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from tests.simulation.cluster import ClassicGroup, ConsumerGroup, Group, Log, OffsetStore
from tests.simulation.query import OutstandingCommit, Query, Stage
from tests.simulation.violation import Violation

Ranges = Mapping[TopicPartition, OffsetRange]


class Config(NamedTuple):
    """What does not change in a run.

    ``topics`` has the partitions of each topic; ``queries`` has, for each query, the letters of its topics.
    ``known``: the group has committed offset 0 everywhere before.
    ``static``: members keep their place while their process is gone.
    ``on_rewind``: the policy of all queries; only with one that goes on are offsets reset and records deleted.
    ``slow``: what each query is slow at while the others go on.
    ``calm``: no fault may happen, so nothing may be processed twice.
    """

    protocol: str = "consumer"
    topics: tuple[int, ...] = (1,)
    queries: tuple[str, ...] = ("a", "a")
    records: int = 2
    latest: bool = False
    transactions: bool = True
    known: bool = False
    static: bool = False
    on_rewind: str = "fail"
    slow: tuple[str, ...] = ("", "", "", "")
    calm: bool = False


class Action(NamedTuple):
    """One thing that happens; ``who`` is a query, a partition or a topic."""

    kind: str
    who: int = 0
    arg: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.who} {self.arg}"


SETTLE_ROUNDS = 60
"""A healthy world settles in fewer rounds; in each, every query takes one step of each kind."""


class World:
    """Cluster, queries and judge of one run."""

    def __init__(self, config: Config, *, story: list[str] | None = None) -> None:
        self.config = config
        self.calm = config.calm
        self.transactions = config.transactions
        self.story = story
        self.partitions = [
            TopicPartition(letter, n) for letter, count in zip("abc", config.topics, strict=False) for n in range(count)
        ]
        self.logs = {tp: Log(config.records, config.records) for tp in self.partitions}
        self.store = OffsetStore(self.logs, self.judge_landed)
        self.group: Group = (
            ConsumerGroup(self.partitions) if config.protocol == "consumer" else ClassicGroup(self.partitions)
        )
        self.policy = StartPolicy(
            group_id="g",
            default=StartingOffset.LATEST if config.latest else StartingOffset.EARLIEST,
            explicit={},
            fail_on_data_loss=config.on_rewind == "fail",
            on_rewind=RewindPolicy(config.on_rewind),
        )
        self.queries = [Query(self, n, frozenset(letters)) for n, letters in enumerate(config.queries)]
        # The judge's books.  `finished` is the offset below which everything was finished by somebody.
        self.processed: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in self.partitions}
        self.done: dict[TopicPartition, set[int]] = {tp: set() for tp in self.partitions}
        self.base: dict[TopicPartition, int] = {}
        self.finished: dict[TopicPartition, int] = {}
        self.declared: dict[TopicPartition, list[tuple[int, int, int]]] = {tp: [] for tp in self.partitions}
        self.rewound: dict[TopicPartition, int] = {}
        self.added_late: set[TopicPartition] = set()
        if config.known:
            for tp in self.partitions:
                self.base[tp] = self.finished[tp] = 0
                self.store.committed[tp] = (0, config.topics["abc".index(tp.topic)])

    # ---------------------------------------------------------------------------------- running

    def run(self, actions: Iterable[Action]) -> list[Action]:
        """Do ``actions``, settle, and judge; return those that could happen.

        Raises
        ------
        Violation
            If an invariant does not hold.
        """
        happened = []
        for action in actions:
            if self.do(action):
                happened.append(action)
        self.settle()
        self.judge_end()
        return happened

    def do(self, action: Action) -> bool:
        """Do one action; return whether it could happen."""
        kind, who, arg = action
        if self.story is not None:
            self.story.append(f"> {action}")
        if kind in _CLUSTER_ACTIONS:
            return self._do_in_the_cluster(kind, who, arg)
        query = self.queries[who % len(self.queries)]
        happened: bool
        match kind:
            case "engine":
                happened = query.engine(arg)
            case "batch":
                happened = query.engine(arg)
                while happened and query.stage not in (Stage.IDLE, Stage.DONE) and query.engine(0):
                    pass
            case "tick":
                happened = query.tick()
            case "poll":
                happened = query.poll()
            case "facts":
                happened = query.answer_facts(arg)
            case "commit":
                happened = query.send_commit(arg)
            case "break":
                happened = query.break_commit(arg)
            case "retry":
                happened = query.pause_is_over()
            case "start":
                happened = query.start()
            case "exit":
                happened = query.exit()
            case "crash":
                happened = query.crash()
            case "restart":
                happened = query.restart(arg)
            case "evict":
                happened = query.evict()
            case "expire":
                happened = query.expire()
            case _:
                raise ValueError(kind)
        if happened and query.running and query.state.exiting and not query.state.uncommitted:
            query.leave()
        if self.story is not None and not happened:
            self.story.pop()
        return happened

    def _do_in_the_cluster(self, kind: str, who: int, arg: int) -> bool:
        match kind:
            case "produce":
                log = self.logs[self.partitions[who % len(self.partitions)]]
                log.high += 1 + arg % 2
                if not arg & 2:
                    log.end = log.high
            case "reshuffle":
                self.group.reshuffle(arg)
            case "hand_over":  # in the middle of a batch, if the query has anything to read
                query = self.queries[who % len(self.queries)]
                for _ in range(arg & 3):
                    query.engine(0)
                self.group.reshuffle(0)
                for query in [*self.queries, *self.queries]:
                    query.poll()
            case "succeed":
                return self._succeed(self.queries[who % len(self.queries)], arg)
            case "poll_all":
                for query in self.queries:
                    query.poll()
            case "tick_all":
                for query in self.queries:
                    query.tick()
            case "decide":
                undecided = [t for t in self.store.open if t.abandoned]
                for transaction in undecided[:1]:
                    self.store.end_transaction(transaction, commit=not arg & 1)
                return bool(undecided)
            case "reset":
                return self._reset(self.partitions[who % len(self.partitions)], arg)
            case "retention":
                log = self.logs[self.partitions[who % len(self.partitions)]]
                log.start = min(log.end, log.start + 1 + arg % 3)
            case "add":
                self._add_partition("abc"[who % len(self.config.topics)])
        return True

    def _succeed(self, query: Query, arg: int) -> bool:
        """A process dies in the middle of a batch, others take its partitions over, and it comes back.

        With bit 8 of the argument it then dies once more, further on in the batch that it replays, and takes the
        partitions back.
        """
        for _ in range(arg & 3):
            query.engine(0)
        if not self._die(query):
            return False
        others = [other for other in self.queries if other is not query]
        for _ in range(3):
            for other in others:
                other.tick()
        if arg & 4:
            for other in others:
                for _stage in Stage:
                    other.engine(0)
                other.tick()
        query.start()
        self._rounds(3)
        if arg & 8:
            for _ in range(2 + arg % 4):
                query.engine(0)
            self._die(query)
            query.start()
            self._rounds(2)
            self.group.reshuffle(0)
            self._rounds(3)
        return True

    def _die(self, query: Query) -> bool:
        """Crash ``query``, and let the session of its members end."""
        crashed = query.crash()
        for client in query.dead:
            self.group.remove(client)
        return crashed

    def _rounds(self, count: int) -> None:
        for _ in range(count):
            for query in self.queries:
                query.tick()

    def _reset(self, tp: TopicPartition, arg: int) -> bool:
        """All processes die and are forgotten, and somebody rewinds or deletes a committed offset."""
        found = self.store.committed.get(tp)
        if found is None or self.store.open:
            return False
        for query in self.queries:
            self._die(query)
        offset, count = found
        rewound = max(0, offset - 1 - arg % 4)
        if arg & 8 and not self.config.latest:
            del self.store.committed[tp]
            rewound = 0
        else:
            self.store.committed[tp] = (rewound, count)
        self.rewound[tp] = min(rewound, self.rewound.get(tp, rewound))
        # The policy decides who processes this again, and each query that follows the group may.
        self.declared[tp] += [(rewound, self.logs[tp].high, -1)] * len(self.queries)
        return True

    def _add_partition(self, topic: str) -> None:
        tp = TopicPartition(topic, sum(1 for other in self.partitions if other.topic == topic))
        self.partitions.append(tp)
        self.logs[tp] = Log(1, 1)
        self.processed[tp], self.done[tp], self.declared[tp] = {}, set(), []
        self.group.moves[tp] = 0
        if any(other.topic == topic for other in self.store.committed):
            self.added_late.add(tp)
        self.group.changed()

    def settle(self) -> None:
        """End all faults, start what is down, and go on until nothing moves any more."""
        self.calm = False  # what follows does not judge exits
        if self.story is not None:
            self.story.append("> settle")
        for log in self.logs.values():
            log.end = log.high
        for query in self.queries:
            if query.running and query.state.exiting:
                query.leave()
            for client in query.dead:
                self.group.remove(client)
        for transaction in [t for t in self.store.open if t.abandoned]:
            self.store.end_transaction(transaction, commit=True)
        for query in self.queries:
            query.start()
        for _ in range(SETTLE_ROUNDS):
            moved = False
            for query in self.queries:
                moved |= query.tick(settling=True)
                for _stage in Stage:  # a whole batch
                    if not query.engine(0):
                        break
                    moved = True
            if not moved:
                return
        raise Violation("stuck", "the world does not come to rest")

    # ---------------------------------------------------------------------------------- judging

    def declare(self, query: Query, tp: TopicPartition, r: OffsetRange) -> None:
        """Note that ``r`` may be processed once more, if ``tp`` has moved since ``query`` got it."""
        if len(r):
            self.declared[tp].append((r.start, r.until, query.acquired.get(tp, -1)))

    def judge_written(self, ranges: Ranges) -> None:
        for tp, r in ranges.items():
            counts = self.processed[tp]
            for offset in range(r.start, r.until):
                counts[offset] = counts.get(offset, 0) + 1

    def judge_finished(self, ranges: Ranges) -> None:
        for tp, r in ranges.items():
            self.done[tp].update(range(r.start, r.until))

    def judge_planned(self, query: Query, batch: core.Batch) -> None:
        end = batch.end
        if end.ranges() != batch.running:
            raise Violation("not a function of the end", f"q{query.number} reads {batch.running}, logs {end.ranges()}")
        if end in query.log:
            raise Violation("not new", f"q{query.number}: {end} was logged before")
        if query.log:
            for tp, mark in query.log[-1].marks.items():
                went_back = tp not in end.marks or end.marks[tp].range.until < mark.range.until
                if went_back and end.rewinds == query.log[-1].rewinds:
                    raise Violation("mark went back", f"q{query.number}: {tp} from {mark} to {end.marks.get(tp)}")
        if query.commit is not None and query.commit.batches < query.finished_batches:
            raise Violation("ran ahead", f"q{query.number} plans, the commit before the last batch has no answer")
        for tp, r in batch.running.items():
            if tp in query.waiting:
                raise Violation("planned while draining", f"q{query.number} plans {tp}, which it gives back")
            self._begin(tp, r.start)
            if r.start > self._finished(tp):
                raise Violation(
                    "position passed unfinished records",
                    f"q{query.number} plans {tp} {r}, finished is {self._finished(tp)}",
                )

    def judge_replayed(self, query: Query, batch: core.Batch) -> None:
        logged = batch.end.ranges()
        for tp, r in batch.running.items():
            if batch.epochs.get(tp) != query.state.owned[tp].epoch:
                raise Violation("replayed without ownership", f"q{query.number} reads {tp}")
            if r.start < logged[tp].start or r.until != logged[tp].until:
                raise Violation("replayed what was not logged", f"q{query.number} reads {tp} {r}, logged {logged[tp]}")
            if r.start < self.store.committed[tp][0]:
                raise Violation("replayed what is committed", f"q{query.number} reads {tp} {r}")

    def readable(self, ranges: Ranges) -> dict[TopicPartition, OffsetRange]:
        """What of ``ranges`` retention has left."""
        found = {}
        for tp, r in ranges.items():
            start = min(max(r.start, self.logs[tp].start), r.until)
            found[tp] = OffsetRange(Offset(start), r.until)
        return found

    def judge_accepted(self, query: Query, commit: OutstandingCommit) -> None:
        group = self.group
        for tp in commit.offsets:
            holder = group.holder.get(tp, group.last_member.get(tp))
            if holder != commit.member:
                raise Violation("moved by another", f"q{query.number} commits {tp}, which member {holder} holds")

    def judge_landed(self, tp: TopicPartition, offset: int, before: int | None) -> None:
        if before is not None and offset < before:
            raise Violation("committed offset went back", f"{tp} from {before} to {offset}")
        self._begin(tp, offset)
        if offset > self._finished(tp):
            raise Violation("committed beyond finished", f"{tp} at {offset}, finished is {self._finished(tp)}")

    def judge_end(self) -> None:
        for tp, log in self.logs.items():
            found = self.store.committed.get(tp)
            if found is None or found[0] != log.high:
                raise Violation("lag at rest", f"{tp}: committed {found}, log end {log.high}")
            counts = self.processed[tp]
            first = max(self.base[tp], log.start)
            lost = [offset for offset in range(first, log.high) if offset not in counts]
            if lost:
                raise Violation("lost", f"{tp}: {lost} were never processed")
            for offset, count in counts.items():
                if count > 1 and count - 1 > self._allowed(tp, offset):
                    raise Violation(
                        "processed twice", f"{tp}: {offset}, {count} times, {self._allowed(tp, offset)} allowed"
                    )
                if offset < min(self.base[tp], self.rewound.get(tp, self.base[tp])):
                    raise Violation("unwanted", f"{tp}: {offset} was processed, the group starts at {self.base[tp]}")

    def _allowed(self, tp: TopicPartition, offset: int) -> int:
        moves = self.group.moves[tp]
        return sum(start <= offset < until and moves > acquired for start, until, acquired in self.declared[tp])

    def _begin(self, tp: TopicPartition, position: int) -> None:
        """Note where the group starts ``tp``, the first time that somebody commits or reads it."""
        if tp in self.base:
            return
        from_beginning = not self.config.latest or tp in self.added_late
        there_from_the_start = tp.partition < self.config.topics["abc".index(tp.topic)]
        if self.config.latest and there_from_the_start and position < self.config.records:
            raise Violation("unwanted", f"{tp}: starts at {position}, `latest` was {self.config.records} or more")
        self.base[tp] = self.finished[tp] = 0 if from_beginning else position

    def _finished(self, tp: TopicPartition) -> int:
        done, upto = self.done[tp], self.finished[tp]
        deleted = self.logs[tp].start
        while upto in done or upto < deleted:
            upto += 1
        self.finished[tp] = upto
        return upto

    # ---------------------------------------------------------------------------------- telling

    def tell(self, query: Query, given: core.Input, outputs: tuple[core.Output, ...]) -> None:
        assert self.story is not None
        said = "; ".join(_short(output) for output in outputs)
        self.story.append(f"    q{query.number} {_short(given)}{' -> ' if said else ''}{said}")


_CLUSTER_ACTIONS = frozenset(
    {"produce", "reshuffle", "hand_over", "poll_all", "succeed", "tick_all", "decide", "add", "reset", "retention"}
)


def _short(value: core.Input | core.Output) -> str:
    """Render an input or output in a few characters."""
    if isinstance(value, events.Event):
        fields = value.to_json()
        return " ".join([str(fields.pop("event")), *(str(field) for field in fields.values())])
    text = repr(value)
    for noise in ("TopicPartition(topic=", "OffsetRange(start=", "partition=", "topic=", "until="):
        text = text.replace(noise, "(" if noise.endswith(("(topic=", "(start=")) else "")
    return text
