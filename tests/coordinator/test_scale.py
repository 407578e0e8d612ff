"""Each input costs in proportion to the number of partitions, of which a query may have ten thousand.

What is quadratic compares partitions with each other; so comparisons are counted, not time.
"""

from __future__ import annotations

from typing import Any

from pyspark_kafka_group.coordinator import assignment as core
from pyspark_kafka_group.coordinator.assignment import Answer, Assign, CommitDone, Finish, Leave, Lose, Plan, Revoke
from pyspark_kafka_group.offsets.start import Facts
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.planning import plan
from tests.coordinator.machine import POLICY

COUNT = 500


class Counted(TopicPartition):
    """A topic-partition that counts how often it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return tuple.__eq__(self, other)

    __hash__ = TopicPartition.__hash__


def test_no_input_compares_every_partition_with_every_other() -> None:
    partitions = tuple(Counted("orders", n) for n in range(COUNT))
    facts = Facts(
        committed=Offset(0),
        log_start=Offset(0),
        log_end=Offset(9),
        high_watermark=Offset(9),
        topic_partitions=COUNT,
        topic_started=True,
        first_partitions=COUNT,
    )

    def fed(state: core.State, given: core.Input) -> core.State:
        before = Counted.compared
        state, _ = core.step(state, given)
        assert Counted.compared - before < 20 * COUNT, f"{type(given).__name__} is not linear"
        return state

    state = fed(core.State(policy=POLICY, query_id="q"), Assign(partitions))
    state = fed(state, Answer({tp: (state.owned[tp].epoch, facts) for tp in partitions}))
    ends: Any = dict.fromkeys(partitions, Offset(9))
    running = fed(state, Plan(plan(state.plannable(), ends, None)))
    assert running.batch is not None
    for given in (Revoke(partitions), Lose(partitions), Leave()):
        fed(running, given)
    finished = fed(running, Finish(running.batch.end))
    fed(finished, Revoke(partitions))
    assert not fed(finished, CommitDone(None)).uncommitted
