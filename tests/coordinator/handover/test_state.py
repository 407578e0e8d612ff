"""A copy of a state value changes only the given fields, and processed offsets only rise within one log."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.coordinator.handover.state import Partition, raised, unrelated
from pyspark_kafka_group.coordinator.handover.transitions import Phase
from pyspark_kafka_group.offsets.start_inputs import ProcessedOffset
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OwnershipEpoch
from tests.coordinator.machine import LOG, NEW_LOG, note, processed

FULL = Partition(
    phase=Phase.ACTIVE,
    epoch=OwnershipEpoch(3),
    position=Offset(9),
    leader_epoch=LeaderEpoch(2),
    finished=Offset(7),
    committed=Offset(5),
    note=note(since=4),
    fetching=True,
)


def test_every_field_of_the_sample_differs_from_its_default() -> None:
    """Otherwise the tests below miss a copy that loses a field, for example a new one."""
    assert all(getattr(FULL, name) != default for name, default in Partition._field_defaults.items())
    assert len({*map(repr, FULL)}) == len(FULL)


def test_planned_partition_keeps_everything_but_its_position() -> None:
    assert FULL.planned(Offset(12), LeaderEpoch(6)) == FULL._replace(position=Offset(12), leader_epoch=LeaderEpoch(6))


def test_finished_partition_keeps_everything_but_what_is_finished() -> None:
    assert FULL.done(Offset(8)) == FULL._replace(finished=Offset(8))


@pytest.mark.parametrize(("before", "until", "after"), [(7, 6, 7), (7, 8, 8), (None, 6, 6)])
def test_what_is_finished_only_rises(before: int | None, until: int, after: int) -> None:
    partition = FULL._replace(finished=None if before is None else Offset(before))
    assert partition.done(Offset(until)).finished == after


def test_committed_partition_keeps_everything_but_what_is_committed() -> None:
    assert FULL.stored(Offset(7)) == FULL._replace(committed=Offset(7))


@pytest.mark.parametrize(
    ("finished", "committed", "uncommitted"), [(None, None, False), (5, None, True), (5, 4, True), (5, 5, False)]
)
def test_partition_is_uncommitted_if_the_group_has_less_than_is_finished(
    finished: int | None, committed: int | None, uncommitted: bool
) -> None:
    partition = FULL._replace(
        finished=None if finished is None else Offset(finished),
        committed=None if committed is None else Offset(committed),
    )
    assert partition.uncommitted is uncommitted


def test_partition_without_a_note_is_of_no_known_log() -> None:
    resolving = Partition(Phase.RESOLVING, OwnershipEpoch(1))
    assert resolving.topic_id is None
    assert FULL.topic_id == note().topic_id


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        (None, processed(5), processed(5)),
        (processed(5), processed(7), processed(7)),
        (processed(5), processed(4), processed(5)),
        (processed(5), processed(5, leader=None), processed(5)),
        (processed(5), processed(7, leader=None), processed(7, leader=None)),
        (processed(5), processed(7, log=None), processed(7)),
        (processed(5, log=None), processed(7), processed(7)),
        (processed(9), processed(2, log=NEW_LOG), processed(2, log=NEW_LOG)),
        (processed(9), processed(2, lineage="another"), processed(2, lineage="another")),
    ],
    ids=[
        "nothing known",
        "risen",
        "not risen",
        "the same without a leader epoch",
        "risen without a leader epoch",
        "risen without an id",
        "now with an id",
        "another log",
        "another lineage",
    ],
)
def test_processed_offsets_rise_within_one_log_and_lineage(
    old: ProcessedOffset | None, new: ProcessedOffset, result: ProcessedOffset
) -> None:
    assert raised(old, new) == result


def test_an_unknown_topic_id_is_not_unrelated() -> None:
    assert not unrelated(processed(5, log=None), processed(5))
    assert unrelated(processed(5, log=LOG), note(log=NEW_LOG))
    assert unrelated(processed(5), note(lineage="another"))
