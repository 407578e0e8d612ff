"""The whole simulated world, and its judge: the invariants of every run.

A run is a configuration and a list of actions.  Actions that cannot happen do nothing.  So any part of a list is also
a run, and shrinking is simple.  After the actions the world settles: faults end, all processes run, and they continue
until nothing moves.  Then the queries must have processed and committed all produced records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.handover.inputs import Input
from pyspark_kafka_group.coordinator.handover.lifecycle import Lifecycle
from pyspark_kafka_group.coordinator.handover.outputs import Output
from pyspark_kafka_group.coordinator.handover.state import Batch, State
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.start_inputs import RewindPolicy, StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.query.batch_report import batch_report
from tests.simulation.cluster import ClassicGroup, ConsumerGroup, Group, Log, NoGroup, OffsetStore, Record, Stored
from tests.simulation.foreigner import QUERY, Foreigner
from tests.simulation.query import OutstandingCommit, Query, Stage
from tests.simulation.violation import Violation

Rows = Mapping[TopicPartition, list[Record]]


class Config(NamedTuple):
    """The configuration of a run, which does not change.

    ``protocol``: the protocol of the group.  With ``assign``, no group exists, and other programs may set its offsets
    without an effect on the query.
    ``topics``: the number of partitions of each topic.  ``queries``: the letters of each query's topics.
    ``known``: the group has committed offset 0 in every partition before.
    ``static``: members keep their place while their process is down.
    ``asks``: queries start with onOffsetRewind=fail.  If a query fails because of that, its user sets ``on_rewind``.
    ``intended``: resets say that they are intended, so no query fails because of one.
    ``on_rewind``: the policy of all queries.  Schedules reset offsets and delete records only if queries then continue.
    ``log_changes``: topics are deleted and created again, logs are truncated, and no query fails because of it.
    ``forgets``: no query subscribes to a topic by name, so queries drop the processed offsets of deleted topics.
    ``fails``: a query fails when logs change, until its user has read that records may be lost.
    ``replaces``: sinks replace the rows of a batch that runs again.  Other sinks ignore such a batch.
    ``available_now``: each query reads up to the log ends at its start, and ends.
    ``slow``: the step in which each query is slow while the others continue.
    ``own``: an option that one query has and the others have not: it commits plainly (``plain``), it is a run with
    availableNow beside streams (``run``), or it is not static (``dynamic``).
    ``calm``: no fault may happen, so queries may process no record twice.
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
    asks: bool = False
    intended: bool = False
    log_changes: bool = False
    forgets: bool = False
    fails: bool = False
    replaces: bool = False
    available_now: bool = False
    slow: tuple[str, ...] = ("", "", "", "")
    own: tuple[str, ...] = ("", "", "", "")
    calm: bool = False


class Action(NamedTuple):
    """One action; ``who`` is the number of a query, a partition or a topic."""

    kind: str
    who: int = 0
    arg: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.who} {self.arg}"


GROUPS: Mapping[str, type[Group]] = {"consumer": ConsumerGroup, "classic": ClassicGroup, "assign": NoGroup}

SETTLE_ROUNDS = 60
"""A healthy world settles in fewer rounds.  In each round, every query takes one step of each kind."""


class World:
    """Cluster, queries and judge of one run."""

    def __init__(self, config: Config, *, story: list[str] | None = None, make: type[Query] = Query) -> None:
        self.config = config
        self.calm = config.calm
        self.story = story
        self.partitions = [
            TopicPartition(letter, n) for letter, count in zip("abc", config.topics, strict=False) for n in range(count)
        ]
        self.topic_ids = dict.fromkeys("abc", 1)  # how often each topic was created
        self.logs = {tp: Log(config.records, config.records, f"{tp.topic}1") for tp in self.partitions}
        self.store = OffsetStore(self.logs, self.judge_landed)
        self.group: Group = GROUPS[config.protocol](self.partitions)
        self.policy = StartPolicy(
            group_id="g",
            default=StartingOffset.LATEST if config.latest else StartingOffset.EARLIEST,
            explicit={},
            fail_on_data_loss=config.on_rewind == "fail" and (config.fails or not config.log_changes),
            on_rewind=RewindPolicy.FAIL if config.asks else RewindPolicy(config.on_rewind),
            keeps_offsets=config.protocol != "assign",
        )
        self.queries = [make(self, n, frozenset(letters)) for n, letters in enumerate(config.queries)]
        self.foreigner = Foreigner(self)
        # The judge's notes.  `finished` is the offset below which queries have finished all records.
        self.processed: dict[TopicPartition, dict[Record, int]] = {tp: {} for tp in self.partitions}
        self.done: dict[TopicPartition, set[Record]] = {tp: set() for tp in self.partitions}
        self.base: dict[TopicPartition, int] = {}
        self.finished: dict[TopicPartition, int] = {}
        self.declared: dict[TopicPartition, list[tuple[int, int, int]]] = {tp: [] for tp in self.partitions}
        self.committers: dict[TopicPartition, dict[str, int]] = {tp: {} for tp in self.partitions}
        self.rewound: dict[TopicPartition, int] = {}
        self.table: dict[TopicPartition, tuple[str | None, int]] = {}
        self.added_late: set[TopicPartition] = set()
        self.anywhere: set[TopicPartition] = set()  # may start at any offset
        self.lost_offsets: set[str] = set()  # topics
        self.again: dict[TopicPartition, dict[Record, int]] = {}  # must be processed more often than this
        self.landing_late = False
        self.put_back: set[TopicPartition] = set()  # lowered by a late commit, and not committed again yet
        self.late: list[OutstandingCommit] = []  # plain commits without an answer, which may still arrive
        self.producers: dict[int, Query] = {}  # the run that may commit in transactions, by query
        self.changed_topics: set[str] = set()
        self.lineages = 0
        if config.known:
            for tp in self.partitions:
                self.base[tp] = self.finished[tp] = 0
                note = CommitNote("before", f"{tp.topic}1", config.topics["abc".index(tp.topic)], Offset(0), "l0")
                self.store.committed[tp] = Stored(0, note)

    # ---------------------------------------------------------------------------------- running

    def run(self, actions: Iterable[Action]) -> list[Action]:
        """Do ``actions``, settle, and judge.  Return the actions that could happen.

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
        """Do one action.  Return whether it could happen."""
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
            case "info":
                happened = query.answer_info(arg)
            case "commit":
                happened = query.send_commit(arg)
            case "break":
                happened = query.break_commit(arg)
            case "retry":
                happened = query.pause_is_over()
            case "start":
                happened = query.start(arg)
            case "exit":
                happened = query.exit(arg)
            case "crash":
                happened = query.crash()
            case "restart":
                happened = query.restart(arg)
            case "evict":
                happened = query.evict()
            case "expire":
                happened = query.expire()
            case "uncommit":
                happened = self._die(query) and query.lose_last_commit()
            case "subscribe":
                happened = self._subscribe(query, arg)
            case "hide":
                query.hides_markers, happened = not query.hides_markers, True
            case "unmark":
                happened = self._die(query) and query.lose_markers()
            case "twin":
                happened = self._start_twice(query, arg)
            case "restore":
                happened = self._restore(query, arg)
            case _:
                raise ValueError(kind)
        if happened and query.running and query.has_to_leave:
            query.leave()
        if self.story is not None and not happened:
            self.story.pop()
        return happened

    def new_lineage(self) -> str:
        self.lineages += 1
        return f"l{self.lineages:04}"

    def _do_in_the_cluster(self, kind: str, who: int, arg: int) -> bool:
        match kind:
            case "produce":
                log = self.logs.get(self.partitions[who % len(self.partitions)])
                if log is None or not log.leader:
                    return False
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
            case "pass_on":
                return self._pass_on(self.queries[who % len(self.queries)], arg)
            case "overtake":
                return self._overtake(self.queries[who % len(self.queries)], arg)
            case "lapse":
                return self._lapse(self.queries[who % len(self.queries)], arg)
            case "relapse":
                return self._relapse(self.queries[who % len(self.queries)], arg)
            case "foreign":
                return self.foreigner.act(arg)
            case "poll_all":
                for query in self.queries:
                    query.poll()
                if self.foreigner.is_member:
                    self.foreigner.poll()
            case "tick_all":
                for query in self.queries:
                    query.tick()
            case "decide":
                undecided = [t for t in self.store.open if t.abandoned]
                for transaction in undecided[:1]:
                    self.store.end_transaction(transaction, commit=not arg & 1)
                return self._arrive(self.late[:1]) or bool(undecided)
            case "disturb":
                return self._disturb(self.partitions[who % len(self.partitions)], arg)
            case "reset":
                tp = self.partitions[who % len(self.partitions)]
                return self._lose_offsets(tp.topic) if arg & 12 == 12 else self._reset(tp, arg)
            case "retention":
                log = self.logs.get(self.partitions[who % len(self.partitions)])
                if log is None:
                    return False
                log.start = min(log.end, log.start + 1 + arg % 3)
            case "add":
                self._add_partition("abc"[who % len(self.config.topics)])
            case "recreate":
                topic = "abc"[who % len(self.config.topics)]
                if arg & 1 and self._delete(topic):
                    return True
                self._create(topic, arg >> 1 & 3, partitions=-1 if arg & 14 == 14 else arg >> 3)
            case "lead":  # the leader of a partition stops, or is back
                log = self.logs.get(self.partitions[who % len(self.partitions)])
                if log is None or (log.leader and any(query.runs for query in self.queries)):
                    return False
                log.leader = not log.leader
            case "truncate":
                return self._truncate(self.partitions[who % len(self.partitions)], arg)
            case "go_back":
                return self._go_back(self.partitions[who % len(self.partitions)], arg)
        return True

    def _arrive(self, late: list[OutstandingCommit]) -> bool:
        """Deliver plain commits that have timed out.  The broker accepts those of the current generation."""
        for commit in late:
            self.late.remove(commit)
            if any(tp in self.logs and self.logs[tp].is_behind(o.leader_epoch) for tp, o in commit.offsets.items()):
                continue  # the query sent it before it noticed that the log was restored: docs/guarantees.md
            if self.group.accepts(commit.member, commit.generation):
                self._declare_if_unseen(commit)
                self.landing_late = True
                self.store.land(commit.offsets)
                self.landing_late = False
        return bool(late)

    def _declare_if_unseen(self, commit: OutstandingCommit) -> None:
        """Declare the range of a commit that arrives between the last check and the release (docs/guarantees.md)."""
        client = self.group.members.get(commit.member)
        if client is None:
            return
        for tp, stored in commit.offsets.items():
            before, state = self.store.committed.get(tp), self.queries[client.query].state
            unseen = state.reading or tp not in state.owned
            if unseen and before is not None and stored.offset < before.offset:
                self.declare_changed(tp, OffsetRange(Offset(stored.offset), Offset(before.offset)))

    def _overtake(self, query: Query, arg: int) -> bool:
        """Let a commit without an answer arrive after its successor; if ``arg & 1``, after a rebalance."""
        if not query.break_commit(0) or not self.late:
            return False
        for _ in range(1 + (arg & 2)):
            for _stage in Stage:
                query.engine(0)
            query.pause_is_over()
            query.tick()
        if arg & 4:
            self._arrive(self.late[:1])
        if arg & 1:
            self.group.reshuffle(0)
            self._rounds(2)
        self._arrive(self.late[:1])
        if arg & 8:
            query.exit()
            self._rounds(2)
        return True

    def _succeed(self, query: Query, arg: int) -> bool:
        """Let a process die in a batch, let others take over its partitions, and start it again.

        If ``arg & 8``, it then dies once more, at a later step of the batch that it replays, and takes the
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

    def _pass_on(self, query: Query, arg: int) -> bool:
        """Let a process die in a batch, let two others in turn read and commit its partitions, and start it again."""
        for _ in range(2 + (arg & 1)):
            query.engine(0)
        if not self._die(query):
            return False
        others = [other for other in self.queries if other is not query]
        self._rounds(3)
        for moves in (False, True):
            if moves:
                self.group.reshuffle(0)
                self._rounds(4)
                for log in self.logs.values():
                    log.high += 1
                    log.end = log.high
            for _ in range(2 + (arg >> 1 & 1)):
                for other in others:
                    for _stage in Stage:
                        other.engine(0)
                    other.tick()
        query.start()
        self._rounds(3)
        query.engine(0)
        return True

    def _lapse(self, query: Query, arg: int) -> bool:
        """Let a process die in a batch, change its log, and start it again; if ``arg & 1``, do this twice."""
        for _ in range(1 + (arg & 1)):
            for _ in range(3 + (arg & 2)):
                query.engine(0)
            if not self._die(query) or not query.log:
                return False
            read = sorted(tp for tp in query.log[-1].ranges() if tp in self.logs)
            if read and arg & 4:
                self._create(read[0].topic, 1 + arg % 3)
            elif read:
                self._truncate(read[0], arg | 8)
            query.start()
            self._rounds(3)
            query.engine(0)
        return True

    def _relapse(self, query: Query, arg: int) -> bool:
        """Let a process die in a batch, let others read a part, give it the rest back, and let it die again.

        If ``arg & 8``, it then dies once more, after it has left that batch to others as well.
        """
        others = [other for other in self.queries if other is not query]
        for again in (False, True):
            for _ in range(3):
                if query.running and query.stage is not Stage.LOGGED:
                    query.engine(0)
            if not self._die(query):
                return again
            for _ in range(3):
                for other in others:
                    other.tick()
            if not again:
                for other in others:
                    for _ in range(5 + (arg & 1)):
                        other.engine(1)
                    other.tick()
            query.start()
            self._rounds(3)
            for _ in range(2):
                query.engine(0)  # decides which part of the batch it reads
            if again and arg & 8:
                self._die(query)
                query.start()
                self._rounds(2)
            if not again:
                for _ in range(4):
                    query.engine(0)
            self.group.reshuffle(0)
            self._rounds(4)
        return True

    def _subscribe(self, query: Query, arg: int) -> bool:
        """Let a process die, and start it with other topics.  Some query stays subscribed to each topic."""
        letters = [letter for n, letter in enumerate("abc"[: len(self.config.topics)]) if arg >> n & 1]
        others = [other.topics for other in self.queries if other is not query]
        everything = frozenset("abc"[: len(self.config.topics)])
        if not letters or everything.difference(letters, *others) or not self._die(query):
            return False
        if query.log:  # it reads added topics from their beginning, unless another query begins them elsewhere
            self.anywhere |= {tp for tp in self.logs if tp.topic in letters and tp.topic not in query.topics}
        query.topics = frozenset(letters)
        for _ in range(arg >> 3):
            self._rounds(3)
        return query.start(arg)

    def _start_twice(self, query: Query, arg: int) -> bool:
        """Start a second run of a query while the first one runs, from the same checkpoint or from a copy."""
        if (
            not (query.running and query.log)
            or type(query) is not Query
            or any(other.twin is not None for other in self.queries)
        ):
            return False
        twin = query.second_run(shares_checkpoint=bool(arg & 1))
        self.queries.append(twin)
        return twin.start()

    def _restore(self, query: Query, arg: int) -> bool:
        """Let a process die, perhaps let others continue, and start it with a checkpoint that lacks batches."""
        if not self._die(query):
            return False
        others = [other for other in self.queries if other is not query]
        for _ in range(3 if arg & 4 else 0):
            self._rounds(2)
            for other in others:
                for _stage in Stage:
                    other.engine(0)
        if query.restore_checkpoint(1 + (arg & 3) % 3):
            query.start(arg)
            if query.outdated:
                raise Violation("old checkpoint accepted", f"q{query.number} goes on from a copy that is too old")
        return True

    def _die(self, query: Query) -> bool:
        """Crash ``query``, and end the sessions of its members."""
        crashed = query.crash()
        for client in query.dead:
            self.group.remove(client)
        return crashed

    def _rounds(self, count: int) -> None:
        for _ in range(count):
            for query in self.queries:
                query.tick()

    def _disturb(self, tp: TopicPartition, arg: int) -> bool:
        """Set or delete the group's offset of a partition that the checkpoint of a query with `assign` has."""
        (query,) = self.queries
        if not query.log or tp not in query.log[-1].entries or tp not in self.logs:
            return False
        if arg & 8:
            self.store.committed.pop(tp, None)
        else:
            self.store.committed[tp] = Stored(arg & 7, None)
        return True

    def _reset(self, tp: TopicPartition, arg: int) -> bool:
        """Let all processes die, and then rewind or delete a committed offset."""
        found = self.store.committed.get(tp)
        if found is None or self.store.open or tp not in self.logs:
            return False
        if self.config.latest and any(t.topic == tp.topic and t not in self.store.committed for t in self.logs):
            return False  # a reset deletes the metadata, which shows with which partitions the group started
        rewound = max(0, found.offset - 1 - arg % 4)
        high = self.logs[tp].high
        for query in self.queries:
            self._die(query)
        if arg & 8 and not self.config.latest and not self.config.intended:
            del self.store.committed[tp]
            rewound = 0
        else:
            # Kafka's tools write no metadata.
            note = ResetNote("alice", 0, Offset(found.offset), intended=True) if self.config.intended else None
            self.store.committed[tp] = Stored(rewound, None, reset=note)
            if self.config.on_rewind == "group":
                self._note_again(tp, rewound, found.offset)
        self.rewound[tp] = min(rewound, self.rewound.get(tp, rewound))
        # The policy decides which queries process this again.  Each query that follows the group may.
        self.declared[tp] += [(rewound, high, -1)] * len(self.queries)
        return True

    def _lose_offsets(self, topic: str) -> bool:
        """Let all processes die, and let the group lose its offsets of a topic, for example because they expire."""
        mine = [tp for tp in self.logs if tp.topic == topic]
        # Otherwise a query starts the topic as in a new group, and nothing shows that this is wrong.
        known = self.config.on_rewind == "checkpoint" and self._is_known(topic)
        if self.store.open or not known or not any(tp in self.store.committed for tp in mine):
            return False
        for query in self.queries:
            self._die(query)
        for tp in mine:
            self.store.committed.pop(tp, None)
            self.rewound[tp] = 0
            self.declared[tp] += [(0, self.logs[tp].high, -1)] * len(self.queries)
            if tp not in self.base:
                self.base[tp] = self.finished[tp] = 0
        self.lost_offsets.add(topic)
        return True

    def _note_again(self, tp: TopicPartition, start: int, until: int) -> None:
        """Note that queries which follow the group must process this once more, except for ranges that they replay."""
        log, counts = self.logs[tp], self.processed[tp]
        left_out: set[int] = set()
        for query in self.queries:
            if len(query.log) > query.finished_batches and tp in query.log[-1].entries:
                r = query.log[-1].entries[tp].range
                left_out |= set(range(r.start, r.until))
        mine = [log.record(offset) for offset in range(max(start, log.start), min(until, log.end))]
        self.again[tp] = {record: counts.get(record, 0) for record in mine if record[2] not in left_out}

    def _delete(self, topic: str) -> bool:
        """Delete a topic, and all its committed offsets."""
        mine = [tp for tp in self.partitions if tp.topic == topic and tp in self.logs]
        for tp in mine:
            del self.logs[tp]
            self.store.committed.pop(tp, None)
            for query in self.queries:
                query.markers = {other: of_one for other, of_one in query.markers.items() if other != tp}
        if mine:
            self.changed_topics.add(topic)
            for query in self.queries:
                # A query that has reported this already has read nothing of the topic that was created since.
                has_said_so = query.running and any(tp.topic == topic for tp in query.state.deleted)
                if query.knows(topic) and not has_said_so:
                    query.untold.add(topic)
            self.group.partitions = [tp for tp in self.group.partitions if tp.topic != topic]
            self.group.changed()
        return bool(mine)

    def _create(self, topic: str, records: int, *, partitions: int = 0) -> None:
        """Create a topic again, with as many partitions as before, or one more, or one less."""
        known = self._is_known(topic)
        self._delete(topic)
        self.topic_ids[topic] += 1
        if partitions > 0:
            self._new_partition(topic)
        last = max(tp for tp in self.partitions if tp.topic == topic)
        if partitions < 0 and last.partition:
            self.partitions.remove(last)
            for of_last in (self.base, self.finished, self.rewound, self.again):
                of_last.pop(last, None)
            self.anywhere.add(last)  # if it is added again
        for query in self.queries:
            query.untold.discard(topic)  # a new owner of its partitions notices that it is another topic
        for tp in self.partitions:
            if tp.topic == topic:
                self.logs[tp] = Log(records, records, f"{topic}{self.topic_ids[topic]}")
                self.done[tp], self.processed[tp] = set(), {}
                self.again.pop(tp, None)
                self._begin_anew(tp, known=known)
        self.group.partitions = [tp for tp in self.partitions if tp in self.logs]
        self.group.changed()

    def _is_known(self, topic: str) -> bool:
        """Return whether no query can take a topic for one that the group has never read."""
        return all(query.has_logged(topic) for query in self.queries if topic in query.topics)

    def _begin_anew(self, tp: TopicPartition, *, known: bool) -> None:
        """Note where a new log starts for the group: at its beginning, if the queries can know that it is new."""
        self._cut(tp, 0)
        if known or (tp in self.base and not self.config.latest):
            self.base[tp] = self.finished[tp] = 0
        elif self.config.latest:
            self.base.pop(tp, None)
            self.finished.pop(tp, None)
            self.anywhere.add(tp)

    def _cut(self, tp: TopicPartition, until: int) -> None:
        """Note that a log has lost its records from ``until`` on.  Records that follow are others."""
        for query in self.queries:
            query.cut[tp] = min(query.cut.get(tp, until), until)

    def _new_partition(self, topic: str) -> TopicPartition:
        tp = TopicPartition(topic, sum(1 for other in self.partitions if other.topic == topic))
        self.partitions.append(tp)
        self.processed[tp], self.done[tp], self.declared[tp], self.committers[tp] = {}, set(), [], {}
        self.group.moves[tp] = 0
        return tp

    def _truncate(self, tp: TopicPartition, arg: int) -> bool:
        """Elect a leader that lacks the newest records.  New records may follow at once."""
        log = self.logs.get(tp)
        if log is None or log.high <= log.start or log.replaced_from is not None:
            return False  # after a restore, the epochs of new leaders would repeat known ones
        lost = min(log.high - log.start, 1 + arg % 3)
        log.truncate(log.high - lost)
        self._cut(tp, log.high)
        self.changed_topics.add(tp.topic)
        if tp in self.base or not self.config.latest:
            self.finished[tp] = min(self.finished.get(tp, 0), log.high)
            self.base[tp] = min(self.base.get(tp, 0), log.high)
        else:
            self.anywhere.add(tp)  # its end has moved
        if tp in self.again:
            self.again[tp] = {record: n for record, n in self.again[tp].items() if record[2] < log.high}
        log.high += arg >> 2
        log.end = log.high
        return True

    def _go_back(self, tp: TopicPartition, arg: int) -> bool:
        """Restore the cluster from an older copy: a log loses its newest leader epoch, and then gets new records.

        A log with a single leader epoch gets a second one instead.
        """
        log = self.logs.get(tp)
        if log is None or log.replaced_from is not None:
            return False
        if len(log.epochs) == 1:
            log.epochs.append((log.leader_epoch + 1, log.high))
            log.high += arg >> 2
            log.end = log.high
            return True
        if self._hides_a_restore(tp, log):
            return False
        log.restore()
        self._cut(tp, log.high)
        self.changed_topics.add(tp.topic)
        if tp in self.base or not self.config.latest:
            self.finished[tp] = min(self.finished.get(tp, 0), log.high)
            self.base[tp] = min(self.base.get(tp, 0), log.high)
        self.anywhere.add(tp)  # a query that knew the newer epoch reads from the beginning
        self.declared[tp] += [(0, log.high, -1)] * len(self.queries)
        log.high += arg >> 2
        log.end = log.high
        return True

    def _hides_a_restore(self, tp: TopicPartition, log: Log) -> bool:
        """Return whether a known offset above the restore point has no leader epoch, or one older than the newest."""
        newest, begin = log.epochs[-1]
        stored = self.store.committed.get(tp)
        known: list[tuple[int, int | None]] = [] if stored is None else [(stored.offset, stored.leader_epoch)]
        known += [(c.offsets[tp].offset, c.offsets[tp].leader_epoch) for c in self.late if tp in c.offsets]
        known += [(t.offsets[tp].offset, t.offsets[tp].leader_epoch) for t in self.store.open if tp in t.offsets]
        for query in self.queries:
            known += query.offsets_of(tp)
        return any(offset > begin and (epoch is None or epoch < newest) for offset, epoch in known)

    def _add_partition(self, topic: str) -> None:
        if not any(tp.topic == topic for tp in self.logs):
            return  # the topic is deleted
        tp = self._new_partition(topic)
        self.logs[tp] = Log(1, 1, f"{topic}{self.topic_ids[topic]}")
        self.group.partitions = [other for other in self.partitions if other in self.logs]
        if topic in self.lost_offsets:
            self.base[tp] = self.finished[tp] = 0
        if self.store.beginning(tp).started:  # a late commit of the former topic does not start this one
            self.added_late.add(tp)
        self.group.changed()

    def settle(self) -> None:
        """End all faults, start all processes, and continue until nothing moves."""
        self.calm = False  # the judge ignores exits from here on
        self.foreigner.leave()
        for log in self.logs.values():
            log.leader = True
        for query in self.queries:
            query.hides_markers = False
            if query.running and query.state.lifecycle is Lifecycle.LEFT:
                query.leave()  # after pyspark_kafka_group.stop(), its user stops it
        if self.story is not None:
            self.story.append("> settle")
        if any(query.runs for query in self.queries):
            for transaction in [t for t in self.store.open if t.abandoned]:
                self.store.end_transaction(transaction, commit=True)
            self._run_on()
            self._judge_ended_runs()
            for query in self.queries:  # streams read the rest
                query.runs, query.target = False, None
        gone = sorted({tp.topic for tp in self.partitions if tp not in self.logs})
        if gone and self.config.forgets:
            for query in self.queries:
                if query.running and query.state.ending:
                    query.leave()  # the stop has a deadline, and what belongs to a deleted topic is never committed
            self._run_on()
            self._judge_marks()
        for topic in gone:
            self._create(topic, 1)
        for log in self.logs.values():
            log.end = log.high
        self._arrive([*self.late])
        for query in self.queries:
            if query.running and query.state.ending:
                query.leave()
            for client in query.dead:
                self.group.remove(client)
        for transaction in [t for t in self.store.open if t.abandoned]:
            self.store.end_transaction(transaction, commit=True)
        self._run_on()

    def _run_on(self) -> None:
        """Continue until nothing moves."""
        quiet = 0
        for _ in range(SETTLE_ROUNDS):
            moved = False
            for client in [client for query in self.queries for client in query.dead]:
                self.group.remove(client)
            for query in self.queries:
                if query.target is None:
                    moved |= query.start()  # a query whose checkpoint was refused starts with a new one
                moved |= query.tick(settling=True)
                for _stage in Stage:  # a whole batch
                    if not query.engine(0):
                        break
                    moved = True
            quiet = 0 if moved else quiet + 1
            if quiet == self.queries[0].quiet_rounds:
                if not any(query.times_out() for query in self.queries):
                    return
                quiet = 0
        raise Violation("stuck", "the world does not come to rest")

    # ---------------------------------------------------------------------------------- judging

    def declare(self, query: Query, tp: TopicPartition, r: OffsetRange) -> None:
        """Note that ``r`` may be processed once more, if ``tp`` has moved since ``query`` got it."""
        if r.size:
            self.declared[tp].append((r.start, r.until, query.acquired.get(tp, -1)))

    def declare_changed(self, tp: TopicPartition, r: OffsetRange) -> None:
        """Note that ``r`` may be processed once more, even if ``tp`` has not moved."""
        self.declared[tp].append((r.start, r.until, -1))

    def judge_written(self, rows: Rows) -> None:
        for tp, records in rows.items():
            counts = self.processed[tp]
            for record in records:
                counts[record] = counts.get(record, 0) + 1

    def unwrite(self, rows: Rows) -> None:
        """Take back the rows that a sink replaces."""
        for tp, records in rows.items():
            counts = self.processed[tp]
            for record in records:
                if record in counts:
                    counts[record] -= 1

    def judge_table(self, ranges: Mapping[TopicPartition, ReadRange]) -> None:
        """Keep offsets beside the rows, as an offset table does.  Raise if a batch claims that they have gone back."""
        for tp, r in ranges.items():
            topic_id, stored = self.table.get(tp, (None, None))
            if topic_id is not None and r.topic_id not in (None, topic_id):
                stored = None  # the user had to call forget()
            # After a restart with `assign`, only the checkpoint tells what was finished, and it does not tell that from
            # what retention deleted before.  So an alarm about deleted records is right: docs/exactly-once.md.
            log = self.logs.get(tp)
            deleted = self.config.protocol == "assign" and log is not None and r.finished <= log.start
            if (r.begun if stored is None else stored < r.finished) and not deleted:
                raise Violation("table behind", f"{tp} has {stored} in the table, and the batch says {r}")
            self.table[tp] = (r.topic_id, max(r.until, stored or 0))

    def judge_foreign(self, tp: TopicPartition, start: int, until: int) -> None:
        """Count the records that another program has processed before it commits ``until``."""
        rows = {tp: [self.logs[tp].record(offset) for offset in range(start, until)]}
        self.judge_written(rows)
        self.judge_finished(rows)

    def judge_finished(self, rows: Rows) -> None:
        for tp, records in rows.items():
            self.done[tp].update(records)

    def judge_planned(self, query: Query, batch: Batch) -> None:
        end = batch.end
        if end.ranges() != batch.running:
            raise Violation("not a function of the end", f"q{query.number} reads {batch.running}, logs {end.ranges()}")
        query.report = batch_report(query.state, end)
        if end in query.log:
            raise Violation("not new", f"q{query.number}: {end} was logged before")
        if query.log:
            for tp, entry in query.log[-1].entries.items():
                went_back = tp not in end.entries or end.entries[tp].range.until < entry.range.until
                if went_back and end.rewinds == query.log[-1].rewinds:
                    raise Violation(
                        "processed offset went back", f"q{query.number}: {tp} from {entry} to {end.entries.get(tp)}"
                    )
        self._judge_bound(query)
        for tp, r in batch.running.items():
            if tp in query.waiting:
                raise Violation("planned while draining", f"q{query.number} plans {tp}, which it gives back")
            if not self.is_current(tp, end, r.until):
                continue
            self._begin(tp, r.start)
            if r.start > self._finished(tp):
                raise Violation(
                    "position passed unfinished records",
                    f"q{query.number} plans {tp} {r}, finished is {self._finished(tp)}",
                )

    def _judge_bound(self, query: Query) -> None:
        """Raise if more than two batches are finished or running, and not committed."""
        for end in query.log[query.logged_before : -1]:
            for tp, r in end.ranges().items():
                p, stored = query.state.owned.get(tp), self.store.committed.get(tp)
                known = p is not None and p.committed is not None and p.epoch == query.planned_under.get((id(end), tp))
                # A late commit may have lowered it for a moment.  With `assign`, it may be anywhere.
                known = known and tp not in query.state.doubted and tp not in self.put_back
                known = known and self.config.protocol != "assign"
                if known and self.is_current(tp, end, r.until) and (stored is None or stored.offset < r.until):
                    raise Violation("ran ahead", f"q{query.number} plans, and {tp} {r} of two batches before is open")

    def is_current(self, tp: TopicPartition, end: BatchOffset, offset: int) -> bool:
        """Return whether the entry of ``tp`` in ``end`` belongs to the current log."""
        entry, log = end.entries[tp], self.logs.get(tp)
        return log is not None and log.has(offset, entry.topic_id, entry.leader_epoch)

    def judge_replayed(self, query: Query, batch: Batch) -> None:
        logged = batch.end.ranges()
        query.report = batch_report(query.state, batch.end)
        for tp, r in batch.running.items():
            p, stored = query.state.owned.get(tp), self.store.committed.get(tp)
            note = None if stored is None else stored.note
            own = self.committers[tp].get(batch.end.query_id or "", 0) >= logged[tp].until
            if self.config.on_rewind != "fail" or self.config.log_changes:
                own |= note is not None and note.query_id == batch.end.query_id
                # Or of a query that resumed at the end of the batch: after a reset, no note shows who processed it.
                own |= note is not None and note.since >= logged[tp].until
                # Or of a query that put the group's offset back, and so overwrote the metadata about others.
                own |= note is not None and note.formerly_committed_by("") >= logged[tp].until
            own |= self.config.protocol == "assign"  # there is no other query
            free = tp.topic not in query.topics and not self.group.may_go_to_others(query.client, tp)
            if (p is None or batch.epochs.get(tp) != p.epoch) and tp in self.logs and not own and not free:
                raise Violation("replayed without ownership", f"q{query.number} reads {tp}")
            if r.start < logged[tp].start or r.until != logged[tp].until:
                raise Violation("replayed what was not logged", f"q{query.number} reads {tp} {r}, logged {logged[tp]}")
            if not self.is_current(tp, batch.end, r.until):
                log = self.logs.get(tp)
                if tp in batch.epochs and log and query.started_in[tp] == (log.topic_id, log.leader_epoch):
                    raise Violation("replayed other records", f"q{query.number} reads {tp} {r}, which is gone")
                continue
            if stored is None:
                continue
            if not own and r.start < stored.offset:
                raise Violation("replayed what others have committed", f"q{query.number} reads {tp} {r}")

    def readable(
        self, end: BatchOffset, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, list[Record]]:
        """Return the records that readers get for a batch: they find topics by name, and skip deleted records."""
        found: dict[TopicPartition, list[Record]] = {}
        for tp, r in ranges.items():
            log = self.logs.get(tp)
            if log is None:
                continue
            start, until = max(r.start, log.start), min(r.until, log.end)
            found[tp] = [log.record(offset) for offset in range(start, until)]
            if not self.is_current(tp, end, r.until):
                self.declare_changed(tp, r)  # the batch reads other records than it was planned for
        return found

    def judge_left(self, query: Query, before: State) -> None:
        """Raise if a member reports that it has left cleanly, but others have to repeat something.

        With `assign`, commits are only information: one of a killed process may arrive at any time.
        """
        if not query.state.clean or self.config.log_changes:
            return
        for tp, p in before.owned.items():
            stored = self.store.committed.get(tp)
            behind = p.finished is not None and (stored is None or stored.offset < p.finished)
            excused = self.config.protocol == "assign"
            running = before.batch is not None and before.batch.epochs.get(tp) == p.epoch
            if running or (behind and not excused):
                raise Violation("not clean", f"q{query.number} leaves {tp} at {p.finished}, committed is {stored}")

    def judge_accepted(self, query: Query, commit: OutstandingCommit) -> None:
        group = self.group
        for tp in commit.offsets:
            holder = group.holder.get(tp, group.last_member.get(tp))
            if holder != commit.member:
                raise Violation("moved by another", f"q{query.number} commits {tp}, which member {holder} holds")

    def judge_landed(self, tp: TopicPartition, stored: Stored, before: Stored | None) -> None:
        log, note = self.logs[tp], stored.note
        if not log.has(stored.offset, None if note is None else note.topic_id, stored.leader_epoch):
            return  # too late: it belongs to a former log
        stale = before is not None and not log.has(
            before.offset, None if before.note is None else before.note.topic_id, before.leader_epoch
        )
        if not self.landing_late:  # a second late commit does not undo the first
            self.put_back.discard(tp)
        if before is not None and not stale and stored.offset < before.offset:
            if not self.landing_late and self.config.protocol != "assign":
                raise Violation("committed offset went back", f"{tp} from {before} to {stored}")
            self.put_back.add(tp)
        self._begin(tp, stored.offset)
        if note is not None and stored.offset != note.since:
            self.committers[tp][note.query_id] = stored.offset
        if stored.offset > self._finished(tp):
            raise Violation("committed beyond finished", f"{tp} at {stored}, finished is {self._finished(tp)}")

    def judge_end(self) -> None:
        for tp, log in self.logs.items():
            found = self.store.committed.get(tp)
            if self.config.protocol != "assign" and (found is None or found.offset != log.high):
                raise Violation("lag at rest", f"{tp}: committed {found}, log end {log.high}")
            counts = self.processed[tp]
            first = max(self.base.get(tp, 0), log.start)
            lost = [offset for offset in range(first, log.high) if not counts.get(log.record(offset))]
            if lost:
                raise Violation("lost", f"{tp}: {lost} were never processed")
            for record, count in counts.items():
                offset = record[2]
                if count > 1 and count - 1 > self._allowed(tp, offset):
                    raise Violation(
                        "processed twice", f"{tp}: {record}, {count} times, {self._allowed(tp, offset)} allowed"
                    )
                base = self.base.get(tp, 0)
                if count and tp not in self.anywhere and offset < min(base, self.rewound.get(tp, base)):
                    raise Violation("unwanted", f"{tp}: {offset} was processed, the group starts at {base}")
            ignored = [record for record, n in self.again.get(tp, {}).items() if counts.get(record, 0) <= n]
            if [record for record in ignored if record[2] >= log.start]:
                raise Violation("reset ignored", f"{tp}: {ignored} were to be processed again")

    def _judge_marks(self) -> None:
        """Raise if a query has not reported a deleted topic that it knows, or still has its processed offsets."""
        for query in self.queries:
            if query.running and not query.state.ending:
                there = {tp.topic for tp in self.logs}
                left = {tp for tp in query.state.deleted & query.state.processed.keys() if tp.topic not in there}
                if query.untold:
                    raise Violation("lost silently", f"q{query.number}: {sorted(query.untold)} are gone")
                if left and query.forgets():
                    raise Violation("processed offsets stay", f"q{query.number}: {sorted(left)} are gone")

    def holders(self) -> Mapping[TopicPartition, int]:
        """Return the number of the query that has each partition, or will have it; that of the other program, too."""
        shares = (self.group.shown() or {}).items()
        held = {tp: self.group.members[m].query for m, s in shares for tp in (*s.assignment, *(s.target or ()))}
        return held | dict.fromkeys(self.foreigner.partitions, QUERY)

    def _judge_ended_runs(self) -> None:
        """If all queries were runs that have ended normally, raise if records below all their targets are unread."""
        for tp, log in self.logs.items():
            runs = [query for query in self.queries if query.starts and tp.topic in query.topics]
            if not all(query.stage is Stage.ENDED and not query.crashed for query in runs):
                continue  # among them streams, which may still have partitions
            if any(tp in query.left_to and self._may_leave(query.left_to[tp], tp.topic) for query in runs):
                continue
            targets = [min(end.get(tp, 0), q.cut.get(tp, log.end)) for q in runs if (end := q.target) is not None]
            for offset in range(max(self.base.get(tp, 0), log.start), min(targets, default=0)):
                if not self.processed[tp].get(log.record(offset)):
                    raise Violation("run ended early", f"{tp}: {offset} was there, and no run has read it")

    def _may_leave(self, number: int, topic: str) -> bool:
        """Return whether a query need not read a partition that it had: it is no run, or has given up the topic."""
        return number < 0 or not self.queries[number].runs or topic not in self.queries[number].topics

    def _allowed(self, tp: TopicPartition, offset: int) -> int:
        moves = self.group.moves[tp]
        of_two_runs = any(query.run and tp.topic in query.topics for query in self.queries)
        return of_two_runs + sum(
            start <= offset < until and moves > acquired for start, until, acquired in self.declared[tp]
        )

    def _begin(self, tp: TopicPartition, position: int) -> None:
        """Note where the group starts ``tp``, when a query commits or reads it for the first time."""
        if tp in self.base:
            return
        from_beginning = not self.config.latest or tp in self.added_late
        there_from_the_start = tp.partition < self.config.topics["abc".index(tp.topic)]
        if tp in self.anywhere or self.config.forgets:  # with a pattern, an unread partition may have come later
            from_beginning = there_from_the_start = False
        if self.config.latest and there_from_the_start and position < self.config.records:
            raise Violation("unwanted", f"{tp}: starts at {position}, `latest` was {self.config.records} or more")
        self.base[tp] = self.finished[tp] = 0 if from_beginning else position

    def _finished(self, tp: TopicPartition) -> int:
        done, upto, log = self.done[tp], self.finished[tp], self.logs[tp]
        while upto < log.start or (upto < log.high and log.record(upto) in done):
            upto += 1
        self.finished[tp] = upto
        return upto

    # ---------------------------------------------------------------------------------- telling

    def note(self, text: str) -> None:
        if self.story is not None:
            self.story.append(f"    {text}")

    def tell(self, query: Query, given: Input, outputs: tuple[Output, ...]) -> None:
        assert self.story is not None
        said = "; ".join(_short(output) for output in outputs)
        self.story.append(f"    q{query.number} {_short(given)}{' -> ' if said else ''}{said}")


_CLUSTER_ACTIONS = frozenset(
    {
        *(
            "produce",
            "reshuffle",
            "hand_over",
            "poll_all",
            "succeed",
            "tick_all",
            "decide",
            "add",
            "reset",
            "disturb",
            "retention",
        ),
        *("recreate", "truncate", "lapse", "relapse", "pass_on", "overtake", "lead", "foreign", "go_back"),
    }
)


def _short(value: Input | Output) -> str:
    """Render an input or output in a few characters."""
    if isinstance(value, events.Event):
        fields = value.to_json()
        return " ".join([str(fields.pop("event")), *(str(field) for field in fields.values())])
    text = repr(value)
    for noise in ("TopicPartition(topic=", "OffsetRange(start=", "partition=", "topic=", "until="):
        text = text.replace(noise, "(" if noise.endswith(("(topic=", "(start=")) else "")
    return text
