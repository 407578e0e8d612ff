"""Timelines of the owners of partitions, from events."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.tools.analysis.event_lines import EventLine
from pyspark_kafka_group.tools.analysis.timeline import BatchBar, Ownership, Timeline, timeline


def event(time: float, member: str, name: str, **fields: object) -> EventLine:
    return EventLine(time, member, name, dict(fields))


def spans(made: Timeline) -> list[tuple[str, str, float, float, float | None, str]]:
    return [(s.member, s.partition, s.start, s.end, s.draining, s.how) for s in made.ownerships]


def test_a_partition_is_handed_over() -> None:
    """The lines may come in any order."""
    made = timeline(
        [
            event(5, "a", "draining", partitions=["t-9"]),
            event(1, "a", "assigned", partitions=["t-10", "t-9"]),
            event(2, "a", "started", positions={"t-10": 0, "t-9": 0}),
            event(7, "a", "released", partitions=["t-9"]),
            event(8, "b", "assigned", partitions=["t-9"]),
            event(9, "b", "committed", offsets={"t-9": 4}),
        ]
    )
    assert spans(made) == [
        ("a", "t-10", 1, 9, None, "open"),
        ("a", "t-9", 1, 7, 5, "released"),
        ("b", "t-9", 8, 9, None, "open"),
    ]
    assert (made.start, made.end, made.partitions) == (1, 9, ["t-9", "t-10"])
    assert made.members["a"] == {"assigned": 2, "released": 1}
    assert made.members["b"] == {"assigned": 1, "committed": 1}


@pytest.mark.parametrize(("name", "field"), [("expired", "ranges"), ("lost", "partitions")])
def test_what_ends_without_a_commit_says_so(name: str, field: str) -> None:
    value = {"t-0": [0, 5]} if field == "ranges" else ["t-0"]
    made = timeline([event(1, "a", "assigned", partitions=["t-0"]), event(4, "a", name, **{field: value})])
    assert spans(made) == [("a", "t-0", 1, 4, None, name)]
    assert made.members["a"][name] == 1
    assert [(mark.name, mark.partitions) for mark in made.marks] == [("assigned", 1), (name, 1)]


def test_a_killed_member_ends_where_the_next_one_begins() -> None:
    made = timeline(
        [
            event(1, "a", "assigned", partitions=["t-0", "t-1"]),
            event(2, "a", "planned", ranges={"t-0": [0, 5]}),
            event(50, "b", "assigned", partitions=["t-0"]),
            event(60, "a", "joined", member_id="m2"),
        ]
    )
    assert spans(made) == [
        ("a", "t-0", 1, 50, None, "taken"),
        ("a", "t-1", 1, 60, None, "taken"),
        ("b", "t-0", 50, 60, None, "open"),
    ]
    assert made.members["a"]["taken"] == 2


def test_clocks_that_differ_do_not_make_a_hand_over_a_loss() -> None:
    made = timeline(
        [
            event(1, "a", "assigned", partitions=["t-0"]),
            event(4.9, "b", "assigned", partitions=["t-0"]),
            event(5, "a", "released", partitions=["t-0"]),
        ]
    )
    assert spans(made) == [("a", "t-0", 1, 5, None, "released"), ("b", "t-0", 4.9, 5, None, "open")]


def test_a_log_that_begins_in_the_middle_is_drawn_from_there() -> None:
    made = timeline([event(3, "a", "started", positions={"t-0": 7}), event(5, "a", "left", clean=True)])
    assert spans(made) == [("a", "t-0", 3, 5, None, "left")]
    assert spans(timeline([event(3, "a", "released", partitions=["t-0"])])) == []


def test_batches_last_from_their_plan_to_their_end() -> None:
    made = timeline(
        [
            event(1, "a", "replayed", ranges={"t-0": [0, 5]}, not_owned=[], skipped={}),
            event(3, "a", "finished", ranges={"t-0": [0, 5]}),
            event(4, "a", "planned", ranges={"t-0": [5, 9], "t-1": [0, 1]}),
            event(5, "b", "planned", ranges={}),
            event(6, "a", "lag", topics={"t": 4, "u": 1}),
        ]
    )
    assert made.batches == [
        BatchBar(member="a", start=1, end=3, records=5, replay=True),
        BatchBar(member="a", start=4, end=6, records=5),
        BatchBar(member="b", start=5, end=6, records=0),
    ]
    assert (made.members["a"]["batches"], made.members["a"]["records"]) == (2, 10)
    assert made.lag == [(6, "a", 5)]


def test_many_batches_are_drawn_as_few_and_none_is_forgotten() -> None:
    lines = []
    for n in range(5000):
        lines += [event(n, "a", "planned", ranges={"t-0": [n, n + 2]}), event(n + 0.5, "a", "finished", ranges={})]
    made = timeline(lines, most=100)
    assert len(made.batches) <= 100
    assert (sum(b.count for b in made.batches), sum(b.records for b in made.batches)) == (5000, 10_000)
    assert (made.batches[0].start, made.batches[-1].end) == (0, 4999.5)


def test_of_many_lags_the_peaks_and_the_last_one_are_kept() -> None:
    lines = [event(n, "a", "lag", topics={"t": 1000 if n == 777 else n % 5}) for n in range(5001)]
    made = timeline(lines, most=100)
    assert len(made.lag) <= 102
    assert max(made.lag, key=lambda point: point[2]) == (777, "a", 1000)
    assert made.lag[-1][:2] == (5000, "a")
    assert made.lag == sorted(made.lag)


def test_only_the_first_failed_commit_of_a_row_is_marked() -> None:
    names = ["commitFailed", "commitFailed", "committed", "commitFailed"]
    made = timeline(event(n, "a", name, problem="x", offsets={}) for n, name in enumerate(names))
    assert [(mark.time, mark.name) for mark in made.marks] == [(0, "commitFailed"), (3, "commitFailed")]
    assert made.members["a"]["commitFailed"] == 3


def test_nothing_is_an_empty_timeline() -> None:
    assert timeline([]) == Timeline()
    assert Ownership(member="a", partition="t-0", start=0, end=0).how == "open"
