"""The judgement of a lag, from the commits of a log, the timestamps of records, and the rules of Burrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pyspark_kafka_group.cluster.cluster_answers import GroupCoordinator
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupProtocol
from pyspark_kafka_group.tools.analysis.group_records import LoggedRecord, decode
from pyspark_kafka_group.tools.analysis.group_view import GroupView, PartitionView
from pyspark_kafka_group.tools.analysis.lag_judgement import (
    CommitWindows,
    Judgement,
    Point,
    Status,
    evaluate,
    group_status,
    judge,
)
from pyspark_kafka_group.wire.types import Address, TopicPartition
from tests.tools.analysis import records
from tests.tools.analysis.records import GROUP, TP

NOW = 1_000_000_000


def view(committed: int | None, end: int | None) -> GroupView:
    return GroupView(
        group=GROUP,
        description=GroupDescription(state="Stable", protocol=GroupProtocol.CLASSIC, members=()),
        coordinator=GroupCoordinator(1, Address("a", 1)),
        partitions=(PartitionView(tp=TP, committed_offset=committed, log_end_offset=end),),
    )


def judgement(commits: Mapping[float, int], log: Mapping[float, int], end: int) -> Judgement | None:
    """Return the verdict on offsets committed, and records appended, at these ages in seconds."""
    logged = [
        LoggedRecord(n, NOW, decode(records.offset_key(), records.offset_value(offset, time_ms=NOW - int(age * 1000))))
        for n, (age, offset) in enumerate(commits.items())
    ]

    def ends_at(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        for tp, time_ms in times.items():
            later = [offset for age, offset in log.items() if NOW - age * 1000 >= time_ms]
            if later:
                found[tp] = min(later)
        return found

    committed = [*commits.values()][-1] if commits else 5
    return judge({TP: committed}, {TP: end}, CommitWindows.of(logged), ends_at, now_ms=NOW).get(TP)


END = 5000
STEADY = {float(age): END - 10 * age for age in range(500, -1, -1)}
"""A log that grows by ten records a second."""


def test_no_lag_is_ok_and_the_past_is_not_asked_for() -> None:
    def never(_: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        raise AssertionError

    assert judge({TP: 9}, {TP: 9}, CommitWindows(), never, now_ms=NOW) == {TP: Judgement(Status.OK, 0.0)}
    assert judge({}, {TP: 9}, CommitWindows(), never, now_ms=NOW) == {}, "never committed"
    assert judge({TP: 9}, {}, CommitWindows(), never, now_ms=NOW) == {}, "no leader"


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        pytest.param({6.0: END - 65, 4.0: END - 40, 2.0: END - 25}, Status.OK, id="keeps up now and then"),
        # Regression: at a steady rate these got WARN now and then, and some hours until they have caught up.  In the
        # second row, each commit ends where the log ended at the one before.
        pytest.param({6.0: END - 65, 4.0: END - 45, 2.0: END - 25}, Judgement(Status.OK, 0.0), id="keeps up"),
        pytest.param({11.0: END - 160, 6.0: END - 109, 1.0: END - 57}, Judgement(Status.OK, 0.0), id="a batch behind"),
        pytest.param({11.0: END - 260, 6.0: END - 211, 1.0: END - 162}, Status.WARN, id="two batches behind"),
        pytest.param({6.0: 300, 4.0: 300, 2.0: 300}, Status.STALL, id="never moves"),
        pytest.param({6.0: 300, 4.0: 305, 2.0: 310}, Status.WARN, id="lag never falls"),
        pytest.param({30.0: 300, 28.0: 305, 26.0: 310}, Status.STOP, id="no commits any more"),
        pytest.param({}, Status.STOP, id="no commits within the time that was looked at"),
        pytest.param({2.0: 400, 1.9: 300}, Status.REWIND, id="back, however close the commits are"),
        # The group has just started, and has read nothing yet.
        pytest.param({3.0: 300, 1.5: 300}, Status.OK, id="few commits are no stall"),
        pytest.param({50.0: 300}, Status.OK, id="no stop before a minute"),
        pytest.param({62.0: 300, 61.0: 310}, Status.STOP, id="a stop after a minute"),
    ],
)
def test_a_group_beside_a_steady_log(commits: Mapping[float, int], found: Status | Judgement) -> None:
    judged = judgement(commits, STEADY, END)
    assert judged is not None
    assert (judged if isinstance(found, Judgement) else judged.status) == found


def test_records_that_came_a_moment_ago_stop_nobody_who_had_read_everything() -> None:
    """The topic was idle, so the group had no reason to commit for an hour or longer."""
    for commits in ({}, {2000.0: 4, 1999.0: 5}):
        judged = judgement(commits, {1.0: 5, 0.5: 6}, 7)
        assert judged is not None
        assert judged.status is Status.OK


def test_a_group_is_judged_by_its_partitions() -> None:
    assert view(9, 9).status is None
    assert view(9, 9).judged({TP: Judgement(Status.STALL, None)}).status is Status.ERR


def test_how_long_a_lag_lasts_is_told_by_how_it_fell() -> None:
    # The group commits twenty records a second, and the log grows by ten.
    judged = judgement({6.0: END - 260, 4.0: END - 220, 2.0: END - 180}, STEADY, END)
    assert judged is not None
    assert judged.status is Status.OK
    assert judged.catch_up_seconds == pytest.approx(18.0, abs=2)
    for never_falls in (
        {6.0: 300, 4.0: 305, 2.0: 310},
        {4.0: END - 90, 2.0: END - 40},
        {6.0: 300, 4.0: 300, 2.0: 300},
        {300.0: 9},
    ):
        found = judgement(never_falls, STEADY, END)
        assert found is not None
        assert found.catch_up_seconds is None


def test_a_group_is_drained_when_its_last_partition_is() -> None:
    parts = tuple(
        PartitionView(tp=TopicPartition("orders", n), committed_offset=5, log_end_offset=9, catch_up_seconds=float(n))
        for n in range(3)
    )
    group = replace(view(5, 9), partitions=parts)
    assert group.catch_up_seconds == 2.0
    assert replace(group, partitions=(*parts, replace(parts[0], catch_up_seconds=None))).catch_up_seconds is None
    never_committed = PartitionView(tp=TP, committed_offset=None, log_end_offset=9)
    assert replace(group, partitions=(*parts, never_committed)).catch_up_seconds == 2.0
    dated = replace(group, partitions=(replace(parts[0], lag_seconds=3.5), never_committed))
    assert (dated.lag_seconds, group.lag_seconds) == (3.5, None)


# -- Burrow's rules, one by one


def window(*offsets_and_lags: tuple[int, int]) -> list[Point]:
    return [Point(float(second), offset, lag) for second, (offset, lag) in enumerate(offsets_and_lags)]


@pytest.mark.parametrize(
    ("points", "ends", "now", "found"),
    [
        pytest.param(window((5, 5), (10, 0)), [10], 1000.0, Status.OK, id="no lag, though nothing is committed"),
        pytest.param(window((5, 5), (6, 5), (7, 5)), [20], 4.5, Status.STOP, id="silence longer than the window"),
        pytest.param(window((5, 5), (6, 5), (7, 4)), [20], 3.5, Status.OK, id="silence within it"),
        pytest.param(window((5, 5), (6, 5), (7, 4)), [7, 20], 4.5, Status.OK, id="silence, nothing to commit"),
        pytest.param(window((5, 5), (3, 7), (4, 6)), [20], 3.0, Status.REWIND, id="goes back and stays there"),
        pytest.param(window((5, 5), (3, 7), (6, 4)), [20], 3.0, Status.OK, id="goes back and forth"),
        pytest.param(window((5, 5), (5, 6), (5, 7)), [20], 3.0, Status.STALL, id="the same offset with lag"),
        pytest.param(window((5, 5), (6, 6), (7, 7)), [20], 3.0, Status.WARN, id="lag grows with each commit"),
        pytest.param(window((5, 0), (5, 6), (5, 7)), [20], 3.0, Status.OK, id="a lag of zero in the window"),
        pytest.param([], [10], 0.0, Status.NOTFOUND, id="no commits"),
        pytest.param(window((5, 5)), [], 0.0, Status.NOTFOUND, id="no ends"),
    ],
)
def test_a_window_of_commits(points: list[Point], ends: list[int], now: float, found: Status) -> None:
    assert evaluate(points, ends, now=now) is found


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    assert group_status([]) is Status.NOTFOUND
    assert group_status([Status.NOTFOUND, Status.OK]) is Status.OK
    assert group_status([Status.WARN, Status.OK]) is Status.WARN
    for bad in (Status.STOP, Status.STALL, Status.REWIND):
        assert group_status([Status.OK, bad]) is Status.ERR
