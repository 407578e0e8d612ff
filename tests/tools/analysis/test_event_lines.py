"""The lines of event logs."""

from __future__ import annotations

import json

import pytest

from pyspark_kafka_group.tools.analysis.event_lines import BadLine, EventLine, Wanted, partitions_of, read_lines, split


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
        (b"\xff", "it is not a text in UTF-8"),
        (b"[1]", "it is no JSON object"),
        (b'{"time": 1, "member": "m"}', "it lacks 'time', 'member' or 'event'"),
        (line(time="now"), "it lacks 'time'"),
        (line(time=float("nan")), "it lacks 'time'"),
        (line(member=None), "it lacks 'time', 'member'"),
        (line(offsets={"orders": 9}), "the field 'offsets' has another form"),
        (line(ranges={"orders-1": [1]}), "the field 'ranges' has another form"),
        (line(partitions="orders-1"), "the field 'partitions' has another form"),
        (line(positions=[1]), "the field 'positions' has another form"),
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
    with pytest.raises(ValueError, match="not like orders-3"):
        split("orders")


@pytest.mark.parametrize(
    ("wanted", "has"),
    [
        (Wanted(topics={}), True),
        (Wanted(topics={"orders": None}), True),
        (Wanted(topics={"orders": {3}}), True),
        (Wanted(topics={"orders": {4}}), False),
        (Wanted(topics={"order": None}), False),
        (Wanted(topics={}, members=["etl"]), True),
        (Wanted(topics={}, members=["etl-1a2b3c4d"]), True),
        (Wanted(topics={}, members=["et"]), False),
        (Wanted(topics={}, names=["committed", "lost"]), True),
        (Wanted(topics={}, names=["lost"]), False),
        (Wanted(topics={}, since=7.5), True),
        (Wanted(topics={}, since=7.6), False),
        (Wanted(topics={}, until=7.5), False),
        (Wanted(topics={"orders": None}, names=["lost"]), False),
    ],
)
def test_what_is_asked_for(wanted: Wanted, has: bool) -> None:
    assert wanted.has(event(offsets={"orders-3": 9})) is has


def test_an_event_without_partitions_is_not_of_a_topic() -> None:
    assert not Wanted(topics={"orders": None}).has(event("joined", member_id="m"))
