"""The assignment and hand-over of partitions, as one pure state machine.

No Kafka, no Spark, no threads and no clocks: :func:`step` takes a state and an input, and returns the next
state and what is to be done.  The shell around it (:mod:`pyspark_kafka_group.coordinator.group_thread`) feeds
it callbacks, answers and deadlines, and carries out its commands.

Life of one partition: see :data:`TRANSITIONS`, the table that the code runs on.  Around it stands the batch:
Spark runs one at a time, it is *in flight* from the moment it is planned until Spark says that it is durably
finished, and then it is committed, beside the next batch.

Three rules carry the guarantees:

* Only what Spark has finished is committed, and only for partitions that are still owned under the ownership
  epoch under which they were planned.
* A revoked partition leaves when nothing of it is in flight and nothing of it is uncommitted.
* A partition that comes back while its old batch still runs waits for that batch: where it starts depends on
  what the batch has finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, assert_never

from pyspark_kafka_group.coordinator import events
from pyspark_kafka_group.offsets.document import BatchOffset, Mark
from pyspark_kafka_group.offsets.errors import DataError, KafkaGroupError
from pyspark_kafka_group.offsets.skips import SkipMarker
from pyspark_kafka_group.offsets.start import Facts, StartPolicy, decide_start
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition

# ------------------------------------------------------------------------------ life of a partition


class Phase(Enum):
    """Where one owned partition stands."""

    RESOLVING = "resolving"  # it is not known yet where to start
    STARTING = "starting"  # known; nothing is planned before it is committed
    ACTIVE = "active"  # planned from its position on
    DRAINING = "draining"  # revoked, but still busy; never planned again


class Cause(Enum):
    """Why a partition changes its phase."""

    ASSIGNED = "assigned"
    START_DURABLE = "start is durable"
    START_DECIDED = "start must be committed first"
    START_COMMITTED = "start was committed"
    REVOKED_IDLE = "revoked, nothing to finish"
    REVOKED_BUSY = "revoked, busy"
    SETTLED = "everything is committed"
    EXPIRED = "drain deadline"
    LOST = "lost"


TRANSITIONS: Mapping[tuple[Phase | None, Cause], Phase | None] = {
    (None, Cause.ASSIGNED): Phase.RESOLVING,
    (Phase.RESOLVING, Cause.START_DURABLE): Phase.ACTIVE,
    (Phase.RESOLVING, Cause.START_DECIDED): Phase.STARTING,
    (Phase.RESOLVING, Cause.REVOKED_IDLE): None,
    (Phase.RESOLVING, Cause.LOST): None,
    (Phase.STARTING, Cause.START_COMMITTED): Phase.ACTIVE,
    (Phase.STARTING, Cause.REVOKED_BUSY): Phase.DRAINING,
    (Phase.STARTING, Cause.LOST): None,
    (Phase.ACTIVE, Cause.REVOKED_IDLE): None,
    (Phase.ACTIVE, Cause.REVOKED_BUSY): Phase.DRAINING,
    (Phase.ACTIVE, Cause.LOST): None,
    (Phase.DRAINING, Cause.SETTLED): None,
    (Phase.DRAINING, Cause.EXPIRED): None,
    (Phase.DRAINING, Cause.LOST): None,
}
"""``None`` is "not owned".  What is not in the table cannot happen, and raises."""


class IllegalTransitionError(KafkaGroupError):
    """The shell fed the state machine something that cannot happen.  A bug of this project."""


def _phase_after(phase: Phase | None, cause: Cause) -> Phase | None:
    try:
        return TRANSITIONS[phase, cause]
    except KeyError:
        where = "not owned" if phase is None else phase.value
        raise IllegalTransitionError(f"a partition that is {where} cannot be: {cause.value}") from None


# -------------------------------------------------------------------------------------------- state

NO_EPOCH = OwnershipEpoch(0)
"""Before the first assignment."""


class Partition(NamedTuple):
    """One owned partition.

    Deliberate: no dataclass.  There may be 10,000, each is made anew several times for each batch, and a frozen
    dataclass takes five times as long to copy.

    Attributes
    ----------
    epoch : OwnershipEpoch
        The assignment under which it is owned.
    position : Offset or None
        The next offset to plan; None while resolving.
    finished, committed : Offset or None
        Up to where Spark has finished it, and up to where the group has it committed.
    first_partitions : int
        Carried by each commit, see :mod:`pyspark_kafka_group.offsets.start`.
    fetching : bool
        Whether the facts for its start have been asked for.
    """

    phase: Phase
    epoch: OwnershipEpoch
    position: Offset | None = None
    finished: Offset | None = None
    committed: Offset | None = None
    first_partitions: int = 0
    fetching: bool = False

    @property
    def uncommitted(self) -> bool:
        """Whether the group does not have what is finished."""
        return self.finished is not None and (self.committed is None or self.finished > self.committed)

    # Deliberate: not _replace, which takes three times as long.

    def planned(self, until: Offset) -> Partition:
        """Return the partition with everything before ``until`` planned."""
        return Partition(
            self.phase, self.epoch, until, self.finished, self.committed, self.first_partitions, self.fetching
        )

    def done(self, until: Offset) -> Partition:
        """Return the partition with everything before ``until`` finished."""
        finished = until if self.finished is None or until > self.finished else self.finished
        return Partition(
            self.phase, self.epoch, self.position, finished, self.committed, self.first_partitions, self.fetching
        )

    def stored(self, committed: Offset) -> Partition:
        """Return the partition with ``committed`` being what the group has."""
        return Partition(
            self.phase, self.epoch, self.position, self.finished, committed, self.first_partitions, self.fetching
        )


class Progress(NamedTuple):
    """What the query knows of one partition, owned or not: H and K of :mod:`..offsets.start`."""

    finished: Offset
    seen: Offset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The batch in flight.

    Attributes
    ----------
    end : BatchOffset
        Its end offset, as Spark logs it.
    running : mapping of TopicPartition to OffsetRange
        What is read.
    epochs : mapping of TopicPartition to OwnershipEpoch
        Under which assignment each partition was planned; without one it was not ours (a replay).
    skipped : frozenset of TopicPartition
        What a replay does not read of the ranges that ``end`` has.
    """

    end: BatchOffset
    running: Mapping[TopicPartition, OffsetRange]
    epochs: Mapping[TopicPartition, OwnershipEpoch]
    skipped: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that a member knows.  Never changed in place.

    ``rewinds`` counts how often a mark of the query has gone back, ``markers`` are the skips that are durable.
    """

    policy: StartPolicy
    query_id: str | None = None
    rewinds: int = 0
    markers: Mapping[TopicPartition, SkipMarker] = field(default_factory=dict)
    owned: Mapping[TopicPartition, Partition] = field(default_factory=dict)
    progress: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    batch: Batch | None = None
    committing: Commit | None = None
    retry_pending: bool = False
    finished_batches: int = 0
    last_epoch: OwnershipEpoch = NO_EPOCH
    exiting: bool = False

    @property
    def unsettled(self) -> bool:
        """Whether it is still open where some owned partition starts."""
        return any(p.phase in (Phase.RESOLVING, Phase.STARTING) for p in self.owned.values())

    @property
    def uncommitted(self) -> bool:
        """Whether something finished, of a partition that is still owned, is not committed."""
        return any(p.uncommitted for p in self.owned.values())

    @property
    def may_plan(self) -> bool:
        """Whether a batch may be planned: batch N+2 waits for an answer to N's commit."""
        return self.committing is None or self.committing.after_batch == self.finished_batches

    def plannable(self) -> dict[TopicPartition, tuple[OwnershipEpoch, Offset]]:
        """Return epoch and position of every partition that the next batch may read."""
        if self.exiting or not self.may_plan:
            return {}
        return {
            tp: (p.epoch, p.position)
            for tp, p in self.owned.items()
            if p.phase is Phase.ACTIVE and p.position is not None
        }


# ------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Adopt:
    """The offset that Spark starts the query with, the name the query has or gets, and its durable skips."""

    start: BatchOffset
    query_id: str
    markers: Mapping[TopicPartition, SkipMarker] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assign:
    """The group gives partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Facts arrived, for partitions as they were owned when asked for."""

    facts: Mapping[TopicPartition, tuple[OwnershipEpoch, Facts]]


@dataclass(frozen=True, slots=True)
class Revoke:
    """The group asks for partitions back, and waits."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Expire:
    """The time to drain is over: what is still draining goes now."""


@dataclass(frozen=True, slots=True)
class Lose:
    """The group has taken partitions away."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Read these ranges, planned from :meth:`State.plannable`, as the next batch.

    Ranges of partitions that have left since then are dropped.  ``always``: log a batch even if nothing is
    left, as for batch 0, which Spark runs in any case.
    """

    ranges: Mapping[TopicPartition, tuple[OwnershipEpoch, OffsetRange]]
    always: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """Spark runs the batch that ends at ``end`` again, from its log.

    Nothing happens, and it has to be said again later, while the group has not decided who owns a range.

    Attributes
    ----------
    elsewhere : frozenset of TopicPartition
        What the group has given to other queries.
    orphaned : frozenset of TopicPartition
        What this query cannot get back and nobody else has; it is read all the same.
    """

    end: BatchOffset
    elsewhere: frozenset[TopicPartition] = frozenset()
    orphaned: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Marked:
    """These skips are durable."""

    markers: Mapping[TopicPartition, SkipMarker]


@dataclass(frozen=True, slots=True)
class Finish:
    """Spark has durably finished the batch that ends at ``end``."""

    end: BatchOffset


@dataclass(frozen=True, slots=True)
class CommitDone:
    """The outstanding commit has an answer; ``problem`` is None if it succeeded."""

    problem: str | None


@dataclass(frozen=True, slots=True)
class Retry:
    """The pause after a failed commit is over."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The query ends: plan nothing more."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The member leaves now: give everything back."""


Input = (
    Adopt
    | Assign
    | Answer
    | Revoke
    | Expire
    | Lose
    | Plan
    | Replay
    | Marked
    | Finish
    | CommitDone
    | Retry
    | Exit
    | Leave
)


# ------------------------------------------------------------------------------------------ outputs


@dataclass(frozen=True, slots=True)
class FetchFacts:
    """Ask the cluster about partitions; answer with :class:`Answer`."""

    epochs: Mapping[TopicPartition, OwnershipEpoch]


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit these offsets; answer with :class:`CommitDone`.  At most one is outstanding.

    Attributes
    ----------
    offsets : mapping
        For each topic-partition the epoch, the offset, and the count its metadata carries.
    after_batch : int
        How many batches were finished when the commit was decided.
    """

    offsets: Mapping[TopicPartition, tuple[OwnershipEpoch, Offset, int]]
    after_batch: int


@dataclass(frozen=True, slots=True)
class MarkSkips:
    """Make these skips durable, and answer with :class:`Marked`."""

    markers: Mapping[TopicPartition, SkipMarker]


@dataclass(frozen=True, slots=True)
class ScheduleRetry:
    """Feed :class:`Retry` after a pause."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the query with this error."""

    error: KafkaGroupError


Output = FetchFacts | Commit | MarkSkips | ScheduleRetry | Fail | events.Event


# --------------------------------------------------------------------------------------------- step


def step(state: State, given: Input) -> tuple[State, tuple[Output, ...]]:
    """Return the state after ``given`` and what is to be done, in this order.

    Raises
    ------
    IllegalTransitionError
        If ``given`` cannot happen in ``state``; the state is unchanged.
    """
    match given:
        case Adopt():
            state, out = _adopt(state, given)
        case Assign():
            state, out = _assign(state, given)
        case Answer():
            state, out = _answer(state, given)
        case Revoke():
            state, out = _revoke(state, given)
        case Expire():
            state, out = _expire(state)
        case Lose():
            state, out = _lose(state, given)
        case Plan():
            state, out = _plan(state, given)
        case Replay():
            state, out = _replay(state, given)
        case Marked():
            state, out = replace(state, markers={**state.markers, **given.markers}), []
        case Finish():
            state, out = _finish(state, given)
        case CommitDone():
            state, out = _commit_done(state, given)
        case Retry():
            state, out = replace(state, retry_pending=False), []
        case Exit():
            state, out = replace(state, exiting=True), []
        case Leave():
            state, out = _leave(state)
        case _:
            assert_never(given)
    return _follow_up(state, out)


def _follow_up(state: State, out: list[Output]) -> tuple[State, tuple[Output, ...]]:
    """Do what the new state calls for, whatever led to it: release, fetch, commit."""
    settled: list[TopicPartition] = []
    asked: dict[TopicPartition, OwnershipEpoch] = {}
    due: dict[TopicPartition, tuple[OwnershipEpoch, Offset, int]] = {}
    for tp, p in state.owned.items():
        if p.phase is Phase.DRAINING and not _busy(state, tp, p):
            settled.append(tp)
        elif p.phase is Phase.RESOLVING and not p.fetching and not _blocked(state, tp, p):
            asked[tp] = p.epoch
        if p.finished is not None and p.finished != p.committed and p.uncommitted:
            due[tp] = p.epoch, p.finished, p.first_partitions
    if settled:
        state = _move(state, settled, Cause.SETTLED)
        out.append(events.Released(partitions=tuple(settled)))
    if asked:
        state = _update(state, {tp: state.owned[tp]._replace(fetching=True) for tp in asked})
        out.append(FetchFacts(asked))
    if due and state.committing is None and not state.retry_pending:
        commit = Commit(due, state.finished_batches)
        state = replace(state, committing=commit)
        out.append(commit)
    return state, tuple(out)


def _update(state: State, changed: Mapping[TopicPartition, Partition]) -> State:
    return replace(state, owned={**state.owned, **changed})


def _move(state: State, partitions: Iterable[TopicPartition], cause: Cause) -> State:
    owned = dict(state.owned)
    for tp in partitions:
        phase = _phase_after(owned[tp].phase, cause)
        if phase is None:
            del owned[tp]
        else:
            owned[tp] = owned[tp]._replace(phase=phase)
    return replace(state, owned=owned)


def _busy(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Whether ``tp`` has something in flight, or finished and not committed, under this epoch."""
    return p.uncommitted or (state.batch is not None and state.batch.epochs.get(tp) == p.epoch)


def _blocked(state: State, tp: TopicPartition, p: Partition) -> bool:
    """Whether a batch of an earlier assignment still reads ``tp``: its end decides where to start."""
    batch = state.batch
    return batch is not None and tp in batch.running and batch.epochs.get(tp) != p.epoch


def _raised(old: Progress | None, finished: Offset, seen: Offset | None) -> Progress:
    """Return ``old`` raised to what is new; marks only rise."""
    if old is None:
        return Progress(finished, seen)
    if seen is None or (old.seen is not None and old.seen > seen):
        seen = old.seen
    return Progress(finished if finished > old.finished else old.finished, seen)


# ---------------------------------------------------------------------------------- single inputs


def _adopt(state: State, given: Adopt) -> tuple[State, list[Output]]:
    start = given.start
    skipped = {tp for tp, marker in given.markers.items() if marker.names(start, tp)}
    progress = {
        tp: Progress(finished=mark.range.start if tp in skipped else mark.range.until, seen=mark.seen)
        for tp, mark in start.marks.items()
    }
    rewinds = start.rewinds + bool(skipped)
    return replace(state, query_id=given.query_id, rewinds=rewinds, markers=dict(given.markers), progress=progress), []


def _assign(state: State, given: Assign) -> tuple[State, list[Output]]:
    if not given.partitions:
        return state, []
    epoch = OwnershipEpoch(state.last_epoch + 1)
    owned = dict(state.owned)
    for tp in given.partitions:
        phase = _phase_after(owned[tp].phase if tp in owned else None, Cause.ASSIGNED)
        assert phase is not None
        owned[tp] = Partition(phase=phase, epoch=epoch)
    return replace(state, owned=owned, last_epoch=epoch), [events.Assigned(partitions=given.partitions)]


def _answer(state: State, given: Answer) -> tuple[State, list[Output]]:
    out: list[Output] = []
    started: dict[TopicPartition, Offset] = {}
    changed: dict[TopicPartition, Partition] = {}
    progress = dict(state.progress)
    went_back = False
    for tp, (epoch, facts) in given.facts.items():
        p = state.owned.get(tp)
        if p is None or p.epoch != epoch or p.phase is not Phase.RESOLVING:
            continue  # it has left since
        known = progress.get(tp)
        try:
            start = decide_start(
                tp,
                facts,
                finished=None if known is None else known.finished,
                seen=None if known is None else known.seen,
                policy=state.policy,
            )
        except DataError as error:
            return state, [*out, Fail(error)]
        phase = _phase_after(p.phase, Cause.START_DECIDED if start.durable_first else Cause.START_DURABLE)
        assert phase is not None
        changed[tp] = p._replace(
            phase=phase,
            position=start.position,
            finished=start.position,
            committed=start.committed,
            first_partitions=start.first_partitions,
        )
        if phase is Phase.ACTIVE:
            went_back |= known is not None and start.position < known.finished
            progress[tp] = Progress(finished=start.position, seen=start.committed)
        if start.skipped is not None:
            out.append(events.Skipped(partition=tp, gone=start.skipped))
        if start.rewound:
            out.append(events.Rewound(partition=tp, committed=facts.committed, position=start.position))
        if phase is Phase.ACTIVE:
            started[tp] = start.position
    if started:
        out.append(events.Started(positions=started))
    return replace(_update(state, changed), progress=progress, rewinds=state.rewinds + went_back), out


def _revoke(state: State, given: Revoke) -> tuple[State, list[Output]]:
    mine = {tp: _busy(state, tp, state.owned[tp]) for tp in given.partitions if tp in state.owned}
    busy = tuple(tp for tp, is_busy in mine.items() if is_busy)
    idle = tuple(tp for tp, is_busy in mine.items() if not is_busy)
    state = _move(state, busy, Cause.REVOKED_BUSY)
    state = _move(state, idle, Cause.REVOKED_IDLE)
    out: list[Output] = []
    if idle:
        out.append(events.Released(partitions=idle))
    if busy:
        out.append(events.Draining(partitions=busy))
    return state, out


def _twice(state: State, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
    """Return what of ``partitions`` the next owner may process again: in flight, or not committed."""
    ranges = {}
    for tp in partitions:
        p = state.owned[tp]
        if p.finished is None:
            continue
        end = p.finished
        if state.batch is not None and state.batch.epochs.get(tp) == p.epoch:
            end = state.batch.running[tp].until
        start = p.finished if p.committed is None else p.committed
        if start < end:
            ranges[tp] = OffsetRange(start, end)
    return ranges


def _expire(state: State) -> tuple[State, list[Output]]:
    late = tuple(tp for tp, p in state.owned.items() if p.phase is Phase.DRAINING)
    if not late:
        return state, []
    ranges = _twice(state, late)
    return _move(state, late, Cause.EXPIRED), [events.Expired(ranges=ranges)]


def _leave(state: State) -> tuple[State, list[Output]]:
    busy = tuple(tp for tp, p in state.owned.items() if _busy(state, tp, p))
    staying = tuple(tp for tp in busy if state.owned[tp].phase is not Phase.DRAINING)
    state = _move(state, staying, Cause.REVOKED_BUSY)
    state, out = _expire(state)
    idle = tuple(state.owned)
    if idle:
        out.append(events.Released(partitions=idle))
    return _move(state, idle, Cause.REVOKED_IDLE), out


def _lose(state: State, given: Lose) -> tuple[State, list[Output]]:
    mine = tuple(tp for tp in given.partitions if tp in state.owned)
    if not mine:
        return state, []
    ranges = _twice(state, mine)
    return _move(state, mine, Cause.LOST), [events.Lost(partitions=mine, ranges=ranges)]


def _plan(state: State, given: Plan) -> tuple[State, list[Output]]:
    if state.batch is not None:
        raise IllegalTransitionError("a batch is planned while another one is in flight")
    plannable = state.plannable()
    running = {
        tp: r for tp, (epoch, r) in given.ranges.items() if r.start < r.until and plannable.get(tp) == (epoch, r.start)
    }
    if not running and not given.always:
        return state, []
    epochs = {tp: state.owned[tp].epoch for tp in running}
    moved = {tp: state.owned[tp].planned(r.until) for tp, r in running.items()}
    marks = {
        tp: Mark(running[tp] if tp in running else OffsetRange(known.finished, known.finished), known.seen)
        for tp, known in state.progress.items()
    }
    end = BatchOffset(state.query_id, rewinds=state.rewinds, marks=marks)
    state = replace(_update(state, moved), batch=Batch(end=end, running=running, epochs=epochs))
    return state, [events.Planned(ranges=running)] if running else []


def _replay(state: State, given: Replay) -> tuple[State, list[Output]]:
    if state.batch is not None:
        raise IllegalTransitionError("a batch is replayed while another one is in flight")
    end = given.end
    running: dict[TopicPartition, OffsetRange] = {}
    epochs: dict[TopicPartition, OwnershipEpoch] = {}
    moved: dict[TopicPartition, Partition] = {}
    skipped: set[TopicPartition] = set()
    for tp, r in end.ranges().items():
        p = state.owned.get(tp)
        marker = state.markers.get(tp)
        if marker is not None and marker.names(end, tp):
            skipped.add(tp)  # whoever owns it now: the sink may have the batch as it was replayed before
        elif p is not None:
            if p.phase is not Phase.ACTIVE or p.position is None:
                return state, []
            if p.position < r.start:
                skipped.add(tp)  # the group was rewound: all of it is planned again from the position on
                continue
            # Ours again: the group's offset tells how far somebody has come with it since.
            rest = OffsetRange(min(p.position, r.until), r.until)
            moved[tp] = p._replace(position=Offset(max(p.position, r.until)))
            if len(rest):
                running[tp] = rest
                epochs[tp] = p.epoch
        elif tp in given.elsewhere:
            skipped.add(tp)  # its owner began at the group's offset, at or below this range
        elif tp in given.orphaned:
            running[tp] = r
        else:
            return state, []
    markers = {tp: SkipMarker.of(end, tp) for tp in sorted(skipped)}
    unmarked = {tp: marker for tp, marker in markers.items() if state.markers.get(tp) != marker}
    if unmarked:
        return state, [MarkSkips(unmarked)]
    progress = dict(state.progress)
    for tp, mark in end.marks.items():
        if not len(mark.range):
            progress[tp] = _raised(progress.get(tp), mark.range.until, mark.seen)
        elif tp in skipped and tp not in progress:
            progress[tp] = Progress(finished=mark.range.start, seen=mark.seen)
    state = replace(
        _update(state, moved),
        progress=progress,
        rewinds=max(state.rewinds, end.rewinds + bool(skipped)),
        batch=Batch(end=end, running=running, epochs=epochs, skipped=frozenset(skipped)),
    )
    not_owned = tuple(tp for tp in running if tp not in epochs)
    ranges = end.ranges()
    event = events.Replayed(ranges=running, not_owned=not_owned, skipped={tp: ranges[tp] for tp in sorted(skipped)})
    return state, [event] if ranges else []


def _finish(state: State, given: Finish) -> tuple[State, list[Output]]:
    batch = state.batch
    if batch is None or given.end != batch.end:
        return state, []  # said before: Spark says it up to twice
    changed = {}
    for tp, r in batch.running.items():
        p = state.owned.get(tp)
        if p is not None and p.epoch == batch.epochs.get(tp):
            changed[tp] = p.done(r.until)
    progress = dict(state.progress)
    # Deliberate: not the marks of what was not read.  A re-created log may have lowered them since.
    for tp, (r, seen) in batch.end.marks.items():
        if r.start < r.until and tp not in batch.skipped:
            progress[tp] = _raised(progress.get(tp), r.until, seen)
    state = replace(_update(state, changed), progress=progress, batch=None, finished_batches=state.finished_batches + 1)
    return state, [events.Finished(ranges=batch.running)] if batch.running else []


def _commit_done(state: State, given: CommitDone) -> tuple[State, list[Output]]:
    commit = state.committing
    if commit is None:
        raise IllegalTransitionError("an answer came to a commit that was not asked for")
    state = replace(state, committing=None)
    if given.problem is not None:
        return (
            replace(state, retry_pending=True),
            [events.CommitFailed(problem=given.problem), ScheduleRetry()],
        )
    owned = dict(state.owned)
    progress = dict(state.progress)
    started: dict[TopicPartition, Offset] = {}
    went_back = False
    for tp, (epoch, offset, _) in commit.offsets.items():
        known = progress.get(tp)
        progress[tp] = _raised(known, offset, offset)
        p = owned.get(tp)
        if p is None or p.epoch != epoch:
            continue
        if p.committed is None:
            # Deliberate: not raised but set.  In a truncated or re-created log the mark goes back with the start.
            went_back |= known is not None and offset < known.finished
            progress[tp] = Progress(finished=offset, seen=offset)
        if p.phase is Phase.STARTING:
            phase = _phase_after(p.phase, Cause.START_COMMITTED)
            assert phase is not None
            p = p._replace(phase=phase)
            started[tp] = offset
        owned[tp] = p.stored(offset)
    out: list[Output] = [events.Committed(offsets={tp: o for tp, (_, o, _) in commit.offsets.items()})]
    if started:
        out.append(events.Started(positions=started))
    return replace(state, owned=owned, progress=progress, rewinds=state.rewinds + went_back), out
