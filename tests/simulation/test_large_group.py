"""A hundred members join a group with committed offsets at the same time."""

from __future__ import annotations

import dataclasses

import pytest

from pyspark_kafka_group.offsets.types import TopicPartition
from tests.simulation.cluster import OffsetStore
from tests.simulation.large_group import LargeGroup
from tests.simulation.speed import quick
from tests.simulation.violation import Violation

PARTITIONS = 300


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_hundred_members_settle_in_as_few_rounds_as_ten(protocol: str) -> None:
    """No member loses a record or starts at a wrong offset.  The rounds do not grow with the members."""
    with quick():
        few = LargeGroup(protocol, 10, PARTITIONS).run()
        many = LargeGroup(protocol, 100, PARTITIONS).run()
    assert many._replace(commits=0) == few._replace(commits=0)
    # Each member commits its batch.  A few members commit once more, for partitions that have moved.
    assert 100 <= many.commits <= 300


def test_a_member_that_falls_back_to_starting_offsets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that takes a refused answer for "there is no committed offset" does this (platformatic/kafka#267)."""
    told = OffsetStore.partition_info

    def refused_once(self: OffsetStore, tp: TopicPartition, *more: object) -> object:
        found = told(self, tp, *more)  # type: ignore[arg-type]
        return dataclasses.replace(found, committed=None, note=None) if tp.partition == 7 else found

    monkeypatch.setattr(OffsetStore, "partition_info", refused_once)
    with pytest.raises(Violation, match="committed beyond finished: a-7"):
        LargeGroup("consumer", 10, 30).run()
