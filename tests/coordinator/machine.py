"""The state machine with a memory for the tests, and the situations that they begin with."""

from __future__ import annotations

from dataclasses import replace

from pyspark_kafka_group.coordinator.assignment import (
    Adopt,
    Answer,
    Assign,
    Finish,
    Input,
    Output,
    Phase,
    Plan,
    Revoke,
    State,
    step,
)
from pyspark_kafka_group.offsets.document import INITIAL, BatchOffset, Mark
from pyspark_kafka_group.offsets.start import Facts, StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, OwnershipEpoch, TopicPartition

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)

POLICY = StartPolicy(group_id="g", default=StartingOffset.EARLIEST, explicit={}, fail_on_data_loss=True)
EMPTY = State(policy=POLICY)


def span(start: int, until: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(until))


def mark(start: int, until: int, seen: int | None = None) -> Mark:
    return Mark(span(start, until), None if seen is None else Offset(seen))


def facts(committed: int | None, *, end: int = 100, start: int = 0) -> Facts:
    return Facts(
        committed=None if committed is None else Offset(committed),
        log_start=Offset(start),
        log_end=Offset(end),
        high_watermark=Offset(end),
        topic_partitions=3,
        topic_started=committed is not None,
        first_partitions=None if committed is None else 3,
    )


class Machine:
    """A state, and what was said since the last look."""

    def __init__(self, state: State = EMPTY) -> None:
        self.state = state
        self.said: list[Output] = []

    def feed(self, *inputs: Input) -> list[Output]:
        """Feed ``inputs`` and return what the last one led to."""
        outputs: tuple[Output, ...] = ()
        for given in inputs:
            self.state, outputs = step(self.state, given)
            self.said.extend(outputs)
        return list(outputs)

    def epoch(self, tp: TopicPartition) -> OwnershipEpoch:
        return self.state.owned[tp].epoch

    def answer(self, tp: TopicPartition, committed: int | None, *, end: int = 100, start: int = 0) -> list[Output]:
        return self.feed(Answer({tp: (self.epoch(tp), facts(committed, end=end, start=start))}))

    def plan(self, *wanted: tuple[TopicPartition, int], always: bool = False) -> list[Output]:
        """Plan each partition from its position to the offset given."""
        positions = self.state.plannable()
        return self.feed(Plan({tp: (positions[tp][0], span(positions[tp][1], until)) for tp, until in wanted}, always))

    def finish(self) -> list[Output]:
        assert self.state.batch is not None
        return self.feed(Finish(self.state.batch.end))

    def phase(self, tp: TopicPartition) -> Phase | None:
        return self.state.owned[tp].phase if tp in self.state.owned else None

    def due(self) -> dict[TopicPartition, int]:
        """What the outstanding commit holds."""
        assert self.state.committing is not None
        return {tp: offset for tp, (_, offset, _) in self.state.committing.offsets.items()}


def resolving(*tps: TopicPartition) -> Machine:
    machine = Machine()
    machine.feed(Adopt(INITIAL, "q"), Assign(tps or (A,)))
    return machine


def starting() -> Machine:
    machine = resolving()
    machine.answer(A, None)
    return machine


def active(*tps: TopicPartition) -> Machine:
    """Everything is known, at offset 0."""
    machine = resolving(*tps)
    for tp in tps or (A,):
        machine.answer(tp, 0)
    return machine


def in_flight(*tps: TopicPartition) -> Machine:
    """A batch reads [0, 5) of each partition."""
    machine = active(*tps)
    machine.plan(*((tp, 5) for tp in tps or (A,)))
    return machine


def draining(*tps: TopicPartition) -> Machine:
    """As in flight, and the first partition is revoked."""
    machine = in_flight(*tps)
    machine.feed(Revoke((tps[0] if tps else A,)))
    return machine


def lenient(*, finished: int) -> Machine:
    """Resolving, with ``failOnDataLoss=false`` and a mark of the past."""
    machine = Machine(State(policy=replace(POLICY, fail_on_data_loss=False)))
    machine.feed(Adopt(BatchOffset("q", {A: mark(finished, finished, finished)}), "q"), Assign((A,)))
    return machine


def fed(machine: Machine, *inputs: Input) -> Machine:
    machine.feed(*inputs)
    return machine
