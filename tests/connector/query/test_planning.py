"""How the query cuts a batch out of the records that it can read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.coordinator.handover.inputs import PlannedRange
from pyspark_kafka_group.coordinator.handover.state import Position
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, OwnershipEpoch, TopicPartition
from pyspark_kafka_group.query.planning import (
    Plannable,
    below,
    cut_ranges,
    recreated_topics,
    suspects,
)

EPOCH = OwnershipEpoch(3)


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def at(*positions: int) -> Plannable:
    return {tp(n): Position(EPOCH, Offset(position)) for n, position in enumerate(positions)}


def under(*leader_epochs: int | None, offset: int = 5) -> Plannable:
    """Return positions whose logs were polled under these leader epochs."""
    return {
        tp(n): Position(EPOCH, Offset(offset), None if epoch is None else LeaderEpoch(epoch), "id")
        for n, epoch in enumerate(leader_epochs)
    }


def ends(*offsets: int) -> dict[TopicPartition, Offset]:
    return {tp(n): Offset(offset) for n, offset in enumerate(offsets)}


def leaders(*epochs: int) -> dict[TopicPartition, LeaderEpoch]:
    return {tp(n): LeaderEpoch(epoch) for n, epoch in enumerate(epochs)}


def ranges(plannable: Plannable, ends: dict[TopicPartition, Offset], limit: int | None = None) -> dict[int, str]:
    return {tp.partition: str(planned.range) for tp, planned in cut_ranges(plannable, ends, {}, limit).items()}


# -- which logs the positions belong to


def test_a_topic_with_another_id_than_that_of_a_position_was_created_again() -> None:
    clicks = TopicPartition("clicks", 0)
    plannable = {**under(1, 1), clicks: Position(EPOCH, Offset(5), None, "id of clicks")}
    assert recreated_topics(plannable, {"orders": "id", "clicks": "id of clicks"}) == set()
    assert recreated_topics(plannable, {"orders": "another", "clicks": "id of clicks"}) == {"orders"}


def test_an_id_that_is_not_known_is_no_other() -> None:
    assert recreated_topics(under(1), {}) == set()
    assert recreated_topics(at(5), {"orders": "id"}) == set()


def test_positions_under_a_former_leader_have_to_be_compared_with_the_log() -> None:
    assert suspects(under(4, 4, 4, None), {}, leaders(5, 4, 3, 9)).to_validate == {tp(0): 4}


def test_positions_behind_which_librdkafka_tells_of_records_have_to_be_compared_with_the_log() -> None:
    """librdkafka reports no leader epochs.  A partition without new records does not need the comparison."""
    plannable = {**under(4, 4, None)}
    ends = {tp(n): Offset(plannable[tp(n)].offset + n) for n in range(3)}
    assert suspects(plannable, ends, {}).to_validate == {tp(1): 4}


def test_an_end_that_a_former_leader_has_told_is_not_to_be_believed() -> None:
    assert suspects(under(4, 4, 4, None), {}, leaders(5, 4, 3, 0)).outdated == {tp(2)}
    assert suspects(under(4), {}, {}).outdated == set()


def test_a_log_that_ends_below_the_position_was_truncated() -> None:
    assert suspects(at(5, 5, 5), ends(4, 5, 6), {}).shorter == {tp(0)}


def test_a_log_without_a_known_end_is_not_a_shorter_one() -> None:
    found = suspects(at(5, 5), ends(5), {})
    assert (found.silent, found.shorter) == ({tp(1)}, set())


def test_a_log_whose_leader_epoch_ends_below_the_position_was_truncated_however_long_it_is() -> None:
    """The log now contains other records there."""
    assert below(under(4, 4, 4), ends(4, 5, 6)) == {tp(0)}


# -- the ranges


def test_a_range_carries_the_assignment_and_the_leader_under_which_it_was_looked_at() -> None:
    planned = cut_ranges(under(3, 3), ends(9, 9), {tp(0): LeaderEpoch(4)}, None)
    r = OffsetRange(Offset(5), Offset(9))
    assert planned == {tp(0): PlannedRange(EPOCH, r, LeaderEpoch(4)), tp(1): PlannedRange(EPOCH, r, None)}


def test_each_partition_from_its_position_to_its_end() -> None:
    assert ranges(at(5, 0), ends(9, 3)) == {0: "[5, 9)", 1: "[0, 3)"}


def test_partitions_with_nothing_new_are_left_out() -> None:
    assert ranges(at(5, 7), ends(5, 8)) == {1: "[7, 8)"}


def test_an_end_below_the_position_is_nothing_new() -> None:
    assert ranges(at(5), ends(3)) == {}


def test_a_partition_without_an_end_waits() -> None:
    assert ranges(at(5, 0), ends(9)) == {0: "[5, 9)"}


def test_the_limit_is_shared_by_backlog() -> None:
    assert ranges(at(0, 0), ends(300, 100), limit=100) == {0: "[0, 75)", 1: "[0, 25)"}


def test_a_small_backlog_beside_a_large_one_does_not_starve() -> None:
    assert ranges(at(0, 0), ends(1_000_000, 1), limit=10) == {0: "[0, 9)", 1: "[0, 1)"}


def test_shares_are_rounded_as_in_sparks_own_source() -> None:
    """Spark's own source multiplies the limit by the fraction, here 28.999999999999996.  So the batches are equal."""
    assert ranges(at(0, 0), ends(58, 42), limit=50) == {0: "[0, 28)", 1: "[0, 21)"}


def test_a_limit_above_the_backlog_changes_nothing() -> None:
    assert ranges(at(0), ends(10), limit=10) == {0: "[0, 10)"}


@given(backlog=st.lists(st.integers(0, 10_000), min_size=1, max_size=20), limit=st.integers(1, 20_000))
def test_every_limit_is_kept_but_for_one_record_per_partition(backlog: list[int], limit: int) -> None:
    planned = cut_ranges(at(*[0] * len(backlog)), ends(*backlog), {}, limit)
    assert sum(r.size for _, r, _ in planned.values()) <= limit + len(backlog)
    for n, size in enumerate(backlog):
        epoch, r, _ = planned.get(tp(n), PlannedRange(EPOCH, OffsetRange(Offset(0), Offset(0))))
        assert epoch == EPOCH
        assert r.size <= size
        assert bool(r.size) == bool(size), "who has something gets something, who has nothing gets nothing"
