"""The state machine with a record of its outputs, and the situations in which tests begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    Finish,
    Input,
    PartitionInfoReceived,
    PlanBatch,
    PlannedRange,
    Restored,
    Revoke,
)
from pyspark_kafka_group.coordinator.handover.outputs import CommitEntry, Output
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset, PartitionEntry
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, Former
from pyspark_kafka_group.offsets.start_inputs import (
    PartitionInfo,
    ProcessedOffset,
    RewindPolicy,
    StartingOffset,
    StartPolicy,
)
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, OwnershipEpoch, TopicPartition

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)

POLICY = StartPolicy(group_id="g", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True)
EMPTY = State(policy=POLICY)

LOG, NEW_LOG = "log-1", "log-2"  # topic ids
LEADER = LeaderEpoch(4)
LINEAGE, NEW_LINEAGE = "lineage-1", "lineage-2"  # of earlier commits, and of starts that are decided now


def span(start: int, until: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(until))


def entry(
    start: int,
    until: int,
    *,
    log: str | None = LOG,
    lineage: str = LINEAGE,
    leader: LeaderEpoch | None = LEADER,
) -> PartitionEntry:
    """Return the entry of one partition in the end of a batch."""
    return PartitionEntry(span(start, until), leader, log, lineage)


def processed(
    finished: int,
    *,
    log: str | None = LOG,
    lineage: str = LINEAGE,
    leader: LeaderEpoch | None = LEADER,
) -> ProcessedOffset:
    return ProcessedOffset(Offset(finished), leader, log, lineage)


def note(
    query: str = "q",
    *,
    since: int = 0,
    log: str | None = LOG,
    lineage: str = LINEAGE,
    first: int = 3,
    former: Mapping[str, int] = MappingProxyType({}),
) -> CommitNote:
    owners = tuple(Former(name, Offset(until)) for name, until in former.items())
    return CommitNote(query, log, first, Offset(since), lineage, owners)


def to_commit(epoch: int, offset: int, carried: CommitNote, *, leader: LeaderEpoch | None = LEADER) -> CommitEntry:
    return CommitEntry(OwnershipEpoch(epoch), Offset(offset), leader, carried)


ANOTHERS = note("another")
"""The note of a commit by another query of the group."""


def info(
    committed: int | None,
    *,
    end: int = 100,
    start: int = 0,
    by: CommitNote | None = ANOTHERS,
    log: str | None = LOG,
    leader: LeaderEpoch | None = LEADER,
    epoch_ends: Mapping[LeaderEpoch, Offset] | None = None,
) -> PartitionInfo:
    """Return the cluster's answer; ``by`` is the note of the committed offset, by default another query's."""
    return PartitionInfo(
        committed=None if committed is None else Offset(committed),
        note=None if committed is None else by,
        log_start=Offset(start),
        log_end=Offset(end),
        high_watermark=Offset(end),
        topic_partitions=3,
        topic_started=committed is not None,
        initial_partition_count=None if committed is None else 3,
        topic_id=log,
        leader_epoch=leader,
        epoch_ends=epoch_ends or {},
    )


class Machine:
    """A state, and the outputs since the test last cleared them."""

    def __init__(self, state: State = EMPTY) -> None:
        self.state = state
        self.said: list[Output] = []

    def feed(self, *inputs: Input) -> list[Output]:
        """Feed ``inputs``, and return the outputs of the last one."""
        outputs: tuple[Output, ...] = ()
        for given in inputs:
            self.state, outputs = step(self.state, given)
            self.said.extend(outputs)
        return list(outputs)

    def epoch(self, tp: TopicPartition) -> OwnershipEpoch:
        return self.state.owned[tp].epoch

    def told(self, tp: TopicPartition, found: PartitionInfo) -> list[Output]:
        """Feed info about ``tp`` under its current epoch."""
        return self.feed(PartitionInfoReceived({tp: (self.epoch(tp), found)}, NEW_LINEAGE))

    def answer(self, tp: TopicPartition, committed: int | None, *, end: int = 100, start: int = 0) -> list[Output]:
        return self.told(tp, info(committed, end=end, start=start))

    def plan(self, *wanted: tuple[TopicPartition, int], always: bool = False) -> list[Output]:
        """Plan each partition from its position to the given offset."""
        positions = self.state.plannable()
        ranges = {
            tp: PlannedRange(positions[tp].epoch, span(positions[tp].offset, until), LEADER) for tp, until in wanted
        }
        return self.feed(PlanBatch(ranges, always))

    def finish(self) -> list[Output]:
        return self.feed(Finish(self.end()))

    def end(self) -> BatchOffset:
        """Return the end of the batch in flight."""
        assert self.state.batch is not None
        return self.state.batch.end

    def phase(self, tp: TopicPartition) -> Phase | None:
        return self.state.owned[tp].phase if tp in self.state.owned else None

    def plannable(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the epoch and the offset of each plannable partition."""
        return {tp: (position.epoch, position.offset) for tp, position in self.state.plannable().items()}

    def due(self) -> dict[TopicPartition, int]:
        """Return the offsets of the outstanding commit."""
        assert self.state.committing is not None
        return {tp: told.offset for tp, told in self.state.committing.entries.items()}


def resolving(*tps: TopicPartition) -> Machine:
    machine = Machine()
    machine.feed(Restored(INITIAL, "q"), Assign(tps or (A,)))
    return machine


def starting() -> Machine:
    machine = resolving()
    machine.answer(A, None)
    return machine


def active(*tps: TopicPartition) -> Machine:
    """Return a machine whose partitions are active at offset 0."""
    machine = resolving(*tps)
    for tp in tps or (A,):
        machine.answer(tp, 0)
    return machine


def in_flight(*tps: TopicPartition) -> Machine:
    """Return a machine with a batch in flight that reads [0, 5) of each partition."""
    machine = active(*tps)
    machine.plan(*((tp, 5) for tp in tps or (A,)))
    return machine


def draining(*tps: TopicPartition) -> Machine:
    """Return a machine with a batch in flight, after the group has revoked the first partition."""
    machine = in_flight(*tps)
    machine.feed(Revoke((tps[0] if tps else A,)))
    return machine


def restored(
    entries: Mapping[TopicPartition, PartitionEntry],
    *assigned: TopicPartition,
    unfinished: BatchOffset | None = None,
    on_rewind: RewindPolicy = RewindPolicy.FAIL,
    fail_on_data_loss: bool = True,
) -> Machine:
    """Return a machine that resolves its partitions, with processed offsets from a checkpoint."""
    policy = replace(POLICY, on_rewind=on_rewind, fail_on_data_loss=fail_on_data_loss)
    machine = Machine(State(policy=policy))
    machine.feed(Restored(BatchOffset("q", entries), "q", {}, unfinished), Assign(assigned or (A,)))
    return machine


def lenient(*, finished: int) -> Machine:
    """Return a machine that resolves A, with ``failOnDataLoss=false`` and the processed offset ``finished``."""
    return restored({A: entry(finished, finished)}, fail_on_data_loss=False)


def fed(machine: Machine, *inputs: Input) -> Machine:
    machine.feed(*inputs)
    return machine
