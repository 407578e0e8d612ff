"""Members of a group in the test's own process: each is what a source process has, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from integration.pipelines import wait_for
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover.inputs import PlannedRange
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.coordinator.start_up import start_up
from pyspark_kafka_group.offsets.batch_offset import INITIAL, BatchOffset
from pyspark_kafka_group.offsets.types import Offset, OffsetRange
from pyspark_kafka_group.options.settings import parse

Join = Callable[..., Membership]


@contextmanager
def memberships() -> Iterator[Join]:
    """Yield a function that starts a member with options of the source: ``join(options, name, start, **settings)``.

    All members leave at the end.
    """
    made: list[Membership] = []

    def join(options: Mapping[str, str], name: str = "q", start: BatchOffset = INITIAL, **settings: Any) -> Membership:
        group = replace(parse({"startingOffsets": "earliest", **options}).group, **settings).for_query(name)
        one = start_up(group, start=start, query_id=name, client_id=name, event_log=EventLog(name, None))
        made.append(one)
        one.start()
        return one

    try:
        yield join
    finally:
        for one in made:
            one.begin_stop(1.0)
        for one in made:
            one.join(60.0)


def plan(member: Membership, until: int, *, timeout_s: float = 60.0) -> BatchOffset:
    """Plan a batch up to ``until`` in all partitions that the member owns, and return its end."""

    def may_plan() -> bool:
        member.check()
        return bool(member.state.plannable())

    wait_for(may_plan, "the member may plan", timeout_s=timeout_s)
    ranges = {
        tp: PlannedRange(position.epoch, OffsetRange(position.offset, Offset(until)), position.leader_epoch)
        for tp, position in member.state.plannable().items()
    }
    end = member.plan(ranges, always=False)
    assert end is not None
    return end
