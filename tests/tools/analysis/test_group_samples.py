"""Rates, rebalances and changes between two polls of a group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyspark_kafka_group.cluster.cluster_answers import GroupCoordinator
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.tools.analysis.group_samples import GroupSample, Rates, following
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


def polled(*looks: tuple[float, int, int], lag_seconds: float = 0.0) -> list[GroupSample]:
    """Return the samples of polls: each is a time in seconds, a committed offset and a log end."""
    samples: list[GroupSample] = []
    for second, committed, end in looks:
        look = view(part(TP, committed, end, lag_seconds=lag_seconds))
        samples.append(following(samples[-1] if samples else None, look, time_ms=int(second * 1000)))
    return samples


def steady(trigger_s: float, poll_s: float, until_s: float, late_s: float = 0.0) -> list[tuple[float, int, int]]:
    """Return polls of a group that reads all of 100 records a second at each trigger."""
    times = [n * poll_s for n in range(int(until_s / poll_s) + 1)]
    return [(t, int((max(0.0, t - late_s) // trigger_s) * trigger_s * 100), int(t * 100)) for t in times]


@pytest.mark.parametrize(("trigger_s", "poll_s"), [(5, 2), (5, 5), (1, 2), (10, 2), (60, 2), (0.5, 0.3)])
def test_rates_of_a_steady_group_are_steady(trigger_s: float, poll_s: float) -> None:
    """Regression: with triggers of 5 s and polls of 2 s, the group seemed to read 0/s and 250/s in turn."""
    samples = polled(*steady(trigger_s, poll_s, 4 * trigger_s + 60), lag_seconds=trigger_s)
    known = [rate for sample in samples[1:] if (rate := sample.rates[TP].consumed) is not None]
    assert len(known) > len(samples) / 3
    settled = known[len(known) // 3 :]
    assert min(settled) >= 80
    assert max(settled) <= 120
    assert [sample.rates[TP].produced for sample in samples[1:]] == [pytest.approx(100, rel=0.02)] * (len(samples) - 1)
    assert {sample.view.partitions[0].catch_up_seconds for sample in samples[2:]} <= {0.0, None}


def test_a_group_that_stops_committing_has_a_rate_that_falls_to_0() -> None:
    looks = steady(5, 2, 60)
    last = looks[-1]
    looks += [(last[0] + 2 * n, last[1], last[2] + 200 * n) for n in range(1, 60)]
    rates = [sample.rates[TP].consumed for sample in polled(*looks)[1:]]
    assert rates[-1] == pytest.approx(0, abs=15)
    never = polled(*((float(t), 7, 7 + t) for t in range(40)))
    assert [sample.rates[TP].consumed for sample in never[1:]] == [None] * 29 + [0.0] * 10


def test_a_group_that_falls_behind_and_one_that_catches_up() -> None:
    # It reads 200 a second, in commits of 200, and the log grows by 100.
    catching = polled(*((float(t), 200 * t, 10_000 + 100 * t) for t in range(12)), lag_seconds=90.0)
    assert catching[-1].view.partitions[0].catch_up_seconds == pytest.approx((10_000 - 1100) / 100)
    falling = polled(*((float(t), 50 * t, 10_000 + 100 * t) for t in range(12)), lag_seconds=90.0)
    assert falling[-1].view.partitions[0].catch_up_seconds is None


def test_what_went_back_has_no_rate() -> None:
    first = following(None, view(part(TP, 50, 100)), time_ms=0)
    assert (first.rates, first.rebalances, first.total) == ({}, 0, Rates(None, None))
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
