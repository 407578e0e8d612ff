"""Rates, rebalances and changes between two polls of a group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyspark_kafka_group.cluster.cluster_answers import GroupCoordinator
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.offsets.reset_note import ResetNote
from pyspark_kafka_group.tools.analysis.group_samples import Rates, following
from pyspark_kafka_group.tools.analysis.group_view import GroupView, PartitionView
from pyspark_kafka_group.tools.analysis.history import Move, changes
from pyspark_kafka_group.wire.types import Address, TopicPartition

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
MEMBER = GroupMember(member_id="m", instance_id=None, client_id="app", host="/10.0.0.1", assignment=frozenset({TP}))


def part(tp: TopicPartition, committed: int | None, end: int | None, **other: Any) -> PartitionView:
    return PartitionView(tp=tp, committed_offset=committed, log_end_offset=end, **other)


def view(*parts: PartitionView, members: tuple[GroupMember, ...] = (MEMBER,), **description: Any) -> GroupView:
    given = {"state": "Stable", "protocol": GroupProtocol.CLASSIC, **description}
    return GroupView(
        group="etl",
        description=GroupDescription(members=members, **given),
        coordinator=GroupCoordinator(1, Address("a", 1)),
        partitions=parts,
    )


def test_rates_and_how_long_the_lag_lasts() -> None:
    first = following(None, view(part(TP, 10, 100), part(OTHER, None, 5)), time_ms=1000)
    assert (first.rates, first.rebalances, first.total) == ({}, 0, Rates(None, None))
    second = following(first, view(part(TP, 50, 120), part(OTHER, None, 9)), time_ms=3000)
    assert second.rates == {TP: Rates(20.0, 10.0), OTHER: Rates(None, 2.0)}
    assert second.total == Rates(20.0, 12.0)
    assert [p.catch_up_seconds for p in second.view.partitions] == [pytest.approx(7.0), None]
    third = following(second, view(part(TP, 50, 130)), time_ms=4000)
    assert third.view.partitions[0].catch_up_seconds is None, "it grows"


def test_what_went_back_has_no_rate() -> None:
    first = following(None, view(part(TP, 50, 100)), time_ms=0)
    assert following(first, view(part(TP, 5, 100)), time_ms=1000).rates == {TP: Rates(None, 0.0)}
    assert following(first, view(part(TP, None, None)), time_ms=1000).rates == {TP: Rates(None, None)}


def test_a_clock_that_stands_still_gives_no_rates() -> None:
    first = following(None, view(part(TP, 50, 100)), time_ms=9)
    assert following(first, view(part(TP, 60, 100)), time_ms=9).rates == {}


def test_rebalances_are_counted_as_they_show() -> None:
    sample = following(None, view(), time_ms=0)
    bob = replace(MEMBER, member_id="b", assignment=frozenset({OTHER}))
    looks = [
        (view(), 0),
        (view(state="PreparingRebalance", members=(replace(MEMBER, assignment=frozenset()),)), 1),
        (view(members=(MEMBER, bob)), 2),
        (view(members=(bob, MEMBER)), 2),
        (view(members=(bob, MEMBER), epoch=7), 3),
    ]
    for n, (look, expected) in enumerate(looks, 1):
        sample = following(sample, look, time_ms=n)
        assert sample.rebalances == expected


def test_changes_are_steps_of_a_history() -> None:
    first = view(part(TP, 10, 100, owner=MEMBER), part(OTHER, 5, 9))
    begun = list(changes(None, first, time_ms=7))
    assert [(e.tp, e.move, e.offset, e.time_ms, e.log_offset) for e in begun] == [
        (TP, Move.FIRST, 10, 7, None),
        (OTHER, Move.FIRST, 5, 7, None),
    ]
    assert begun[0].owner is not None
    assert begun[0].owner.client_id == "app"
    assert list(changes(first, first, time_ms=8)) == []
    note = ResetNote("alice@laptop", 0, None)
    after = view(part(TP, 30, 100, owner=MEMBER), part(OTHER, 2, 9, metadata=note.encode()), members=())
    forth, back = changes(first, after, time_ms=8)
    assert (forth.move, forth.previous, forth.by_outsider) == (Move.FORTH, 10, False)
    assert (back.move, back.previous, back.reset, back.by_outsider) == (Move.BACK, 5, note, True)
    (gone,) = changes(after, view(part(TP, 30, 100)), time_ms=9)
    assert (gone.tp, gone.move, gone.offset) == (OTHER, Move.DELETED, None)
    (same,) = changes(view(part(TP, 3, 9)), view(part(TP, 3, 9, metadata="x")), time_ms=9)
    assert same.move is Move.SAME
