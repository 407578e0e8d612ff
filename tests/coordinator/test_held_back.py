"""The watch reports partitions that a query cannot plan for long, and the end of that state."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pyspark_kafka_group.coordinator.handover import events
from pyspark_kafka_group.coordinator.held_back import HELD_BACK_S, HeldBackWatch, Where
from tests.coordinator.machine import A, B


class Notes:
    def __init__(self) -> None:
        self.now = SimpleNamespace(s=100.0)
        self.told: list[events.Event] = []
        self.held_back = HeldBackWatch(self.told.append, clock=lambda: self.now.s)

    def __call__(self, where: Where, reasons: object, *, after_s: float = 0.0) -> list[events.Event]:
        """Note the reasons ``after_s`` later, and return the new events."""
        self.now.s += after_s
        self.told.clear()
        self.held_back.set_reasons(where, reasons)  # type: ignore[arg-type]  # a mapping or a text
        return [*self.told]


@pytest.fixture
def notes() -> Notes:
    return Notes()


def test_what_lasts_ten_seconds_is_told_once_and_so_is_its_end(notes: Notes) -> None:
    assert notes(Where.LOGS, {A: "it has no leader"}) == []
    assert notes(Where.LOGS, {A: "it has no leader"}, after_s=HELD_BACK_S - 0.5) == []
    assert notes.held_back.partitions == {}
    told = notes(Where.LOGS, {A: "it has no leader"}, after_s=0.5)
    assert told == [events.HeldBack(partitions=(A,), reason="it has no leader")]
    assert notes.held_back.partitions == {A: "it has no leader"}
    assert notes(Where.LOGS, {A: "it has no leader"}, after_s=60) == []
    assert notes(Where.LOGS, {}, after_s=1) == [events.HeldBackEnded(partitions=(A,), seconds=71.0)]
    assert notes.held_back.partitions == {}


def test_a_moment_is_not_told(notes: Notes) -> None:
    for _ in range(5):
        assert notes(Where.LOGS, {A: "it has no leader"}, after_s=9) == []
        assert notes(Where.LOGS, {}) == []


def test_time_goes_on_where_another_reason_takes_the_place_of_the_first(notes: Notes) -> None:
    notes(Where.LOGS, {A: "it has no leader"})
    notes(Where.START, {A: "its start is not known"}, after_s=6)
    assert notes(Where.LOGS, {}, after_s=1) == []
    told = notes(Where.START, {A: "its start is not known"}, after_s=3)
    assert told == [events.HeldBack(partitions=(A,), reason="its start is not known")]


def test_partitions_with_one_reason_are_told_together(notes: Notes) -> None:
    notes(Where.LOGS, {B: "it has no leader", A: "it has no leader"})
    told = notes(Where.LOGS, {B: "it has no leader", A: "it has no leader"}, after_s=10)
    assert told == [events.HeldBack(partitions=(A, B), reason="it has no leader")]
    told = notes(Where.LOGS, {B: "it has no leader"}, after_s=1)
    assert told == [events.HeldBackEnded(partitions=(A,), seconds=11.0)]


def test_a_group_that_does_not_answer_is_told_without_partitions(notes: Notes) -> None:
    notes(Where.GROUP, "no coordinator")
    assert notes(Where.GROUP, "no coordinator", after_s=11) == [events.HeldBack(partitions=(), reason="no coordinator")]
    assert notes.held_back.partitions == {}
    assert notes(Where.GROUP, "") == [events.HeldBackEnded(partitions=(), seconds=11.0)]


def test_after_the_end_nothing_is_told(notes: Notes) -> None:
    notes(Where.LOGS, {A: "it has no leader"})
    notes.held_back.close()
    assert notes(Where.LOGS, {A: "it has no leader"}, after_s=20) == []
    assert notes(Where.LOGS, {}) == []
