"""The lines of event logs."""

from __future__ import annotations

import json

import pytest

from pyspark_kafka_group.tools.analysis.event_lines import (
    BadLine,
    EventFilter,
    EventLine,
    partitions_of,
    read_lines,
    split,
)


def line(**fields: object) -> bytes:
    return json.dumps({"time": 7.5, "member": "etl-1a2b3c4d", "event": "committed", **fields}).encode() + b"\n"


def read(*lines: bytes) -> list[EventLine | BadLine]:
    return list(read_lines("a.jsonl", lines))


def event(name: str = "committed", member: str = "etl-1a2b3c4d", time: float = 7.5, **fields: object) -> EventLine:
    return EventLine(time, member, name, dict(fields))


def test_a_line_is_read_and_written_back() -> None:
    (found,) = read(line(offsets={"orders-3": 9}))
    assert found == EventLine(7.5, "etl-1a2b3c4d", "committed", {"offsets": {"orders-3": 9}})
    assert isinstance(found, EventLine)
    assert json.dumps(found.to_json()).encode() + b"\n" == line(offsets={"orders-3": 9})


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not UTF-8 text"),
        (b"[1]", "it is not a JSON object"),
        (b'{"time": 1, "member": "m"}', "'time', 'member' or 'event' is missing"),
        (line(time="now"), "'time', 'member' or 'event' is missing"),
        (line(time=float("nan")), "'time', 'member' or 'event' is missing"),
        (line(time=10**400), "'time', 'member' or 'event' is missing"),
        (line(time=1e306), "'time', 'member' or 'event' is missing"),
        (line(member=None), "'time', 'member' or 'event' is missing"),
        (line(offsets={"orders": 9}), "the field 'offsets' does not have the form"),
        (line(ranges={"orders-1": [1]}), "the field 'ranges' does not have the form"),
        (line(partitions="orders-1"), "the field 'partitions' does not have the form"),
        (line(positions=[1]), "the field 'positions' does not have the form"),
        (b"[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_read(bad: bytes, problem: str) -> None:
    first, second, third = read(line(), bad, line())
    assert isinstance(second, BadLine)
    assert (second.file, second.number) == ("a.jsonl", 2)
    assert second.problem.startswith(problem)
    assert isinstance(first, EventLine)
    assert first == third


def test_empty_lines_are_nothing_but_count() -> None:
    assert read(b"\n", b"  \n") == []
    (found,) = read(b"\n", b"x\n")
    assert isinstance(found, BadLine)
    assert found.number == 2


def test_every_partition_of_an_event_is_found() -> None:
    assert partitions_of(event(ranges={"a-1": [0, 1]}, not_owned=["a-2"], skipped={"b-c-3": [0, 1]})) == {
        "a-1",
        "a-2",
        "b-c-3",
    }
    assert partitions_of(event(partition="a-1", gone=[1, 2], topics={"t": 1}, problem="x-1")) == {"a-1"}


def test_a_topic_may_have_dashes_and_a_partition_needs_a_number() -> None:
    assert split("my-topic-12") == ("my-topic", 12)
    with pytest.raises(ValueError, match="not a partition like orders-3"):
        split("orders")


@pytest.mark.parametrize(
    ("wanted", "has"),
    [
        (EventFilter(topics={}), True),
        (EventFilter(topics={"orders": None}), True),
        (EventFilter(topics={"orders": frozenset({3})}), True),
        (EventFilter(topics={"orders": frozenset({4})}), False),
        (EventFilter(topics={"order": None}), False),
        (EventFilter(topics={}, members=["etl"]), True),
        (EventFilter(topics={}, members=["etl-1a2b3c4d"]), True),
        (EventFilter(topics={}, members=["et"]), False),
        (EventFilter(topics={}, names=["committed", "lost"]), True),
        (EventFilter(topics={}, names=["lost"]), False),
        (EventFilter(topics={}, since=7.5), True),
        (EventFilter(topics={}, since=7.6), False),
        (EventFilter(topics={}, until=7.5), False),
        (EventFilter(topics={"orders": None}, names=["lost"]), False),
    ],
)
def test_what_is_asked_for(wanted: EventFilter, has: bool) -> None:
    assert wanted.has(event(offsets={"orders-3": 9})) is has


def test_an_event_without_partitions_is_not_of_a_topic() -> None:
    assert not EventFilter(topics={"orders": None}).has(event("joined", member_id="m"))
