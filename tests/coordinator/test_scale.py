"""The cost of each input is proportional to the number of partitions, and a query may have ten thousand.

Quadratic code compares partitions with each other.  So the test counts comparisons and does not measure time.
"""

from __future__ import annotations

from typing import Any

from pyspark_kafka_group.coordinator.handover.inputs import (
    Assign,
    CommitAnswered,
    Finish,
    Input,
    Leave,
    LogChange,
    LogChangeFound,
    Lose,
    PartitionInfoReceived,
    PlanBatch,
    Replay,
    Restored,
    Revoke,
)
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.coordinator.handover.step import step
from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.query.planning import cut_ranges
from tests.coordinator.machine import EMPTY, NEW_LINEAGE, info

COUNT = 500


class Counted(TopicPartition):
    """A topic-partition that counts its comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return tuple.__eq__(self, other)

    __hash__ = TopicPartition.__hash__


def test_no_input_compares_every_partition_with_every_other() -> None:
    partitions = tuple(Counted("orders", n) for n in range(COUNT))

    def fed(state: State, given: Input) -> State:
        before = Counted.compared
        state, _ = step(state, given)
        assert Counted.compared - before < 20 * COUNT, f"{type(given).__name__} is not linear"
        return state

    found = info(0, end=9)
    state = fed(fed(EMPTY, Restored(INITIAL, "q")), Assign(partitions))
    state = fed(state, PartitionInfoReceived({tp: (state.owned[tp].epoch, found) for tp in partitions}, NEW_LINEAGE))
    ends: Any = dict.fromkeys(partitions, Offset(9))
    running = fed(state, PlanBatch(cut_ranges(state.plannable(), ends, {}, None)))
    assert running.batch is not None
    for given in (Revoke(partitions), Lose(partitions), LogChangeFound(partitions, LogChange.TRUNCATED), Leave()):
        fed(running, given)
    finished = fed(running, Finish(running.batch.end))
    fed(finished, Revoke(partitions))
    assert not fed(finished, CommitAnswered(None)).uncommitted
    fed(fed(state, Replay(running.batch.end)), Finish(running.batch.end))
    fed(fed(EMPTY, Restored(running.batch.end, "q", {}, running.batch.end)), Assign(partitions))
