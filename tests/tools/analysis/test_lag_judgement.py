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


def status(commits: Mapping[float, int], log: Mapping[float, int], end: int) -> Status | None:
    found = judgement(commits, log, end)
    return found.status if found else None


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


def test_a_group_that_keeps_up_now_and_then_is_ok() -> None:
    assert status({6.0: END - 65, 4.0: END - 40, 2.0: END - 25}, STEADY, END) is Status.OK


def test_a_group_that_keeps_up_is_ok_and_has_caught_up() -> None:
    """Regression: at a steady rate it got WARN now and then, and some hours until it has caught up."""
    for commits in (
        {6.0: END - 65, 4.0: END - 45, 2.0: END - 25},
        {11.0: END - 160, 6.0: END - 109, 1.0: END - 57},  # each commit ends where the log ended at the one before
    ):
        assert judgement(commits, STEADY, END) == Judgement(Status.OK, 0.0)
    two_batches_behind = {11.0: END - 260, 6.0: END - 211, 1.0: END - 162}
    assert status(two_batches_behind, STEADY, END) is Status.WARN


def test_a_committed_offset_that_never_moves_is_a_stall() -> None:
    assert status({6.0: 300, 4.0: 300, 2.0: 300}, STEADY, END) is Status.STALL


def test_a_lag_that_never_falls_is_a_warning() -> None:
    assert status({6.0: 300, 4.0: 305, 2.0: 310}, STEADY, END) is Status.WARN


def test_no_commits_any_more_are_a_stop() -> None:
    assert status({30.0: 300, 28.0: 305, 26.0: 310}, STEADY, END) is Status.STOP
    assert status({}, STEADY, END) is Status.STOP, "not even within the time that was looked at"


def test_records_that_came_a_moment_ago_stop_nobody_who_had_read_everything() -> None:
    """The topic was idle, so the group had no reason to commit for an hour or longer."""
    assert status({}, {1.0: 5, 0.5: 6}, 7) is Status.OK
    assert status({2000.0: 4, 1999.0: 5}, {1.0: 5, 0.5: 6}, 7) is Status.OK


def test_an_offset_that_went_back_is_a_rewind_however_close_the_commits_are() -> None:
    assert status({2.0: 400, 1.9: 300}, STEADY, END) is Status.REWIND


def test_few_commits_show_no_stall_and_no_stop_before_a_minute() -> None:
    """The group has just started, and has read nothing yet."""
    assert status({3.0: 300, 1.5: 300}, STEADY, END) is Status.OK
    assert status({50.0: 300}, STEADY, END) is Status.OK
    assert status({62.0: 300, 61.0: 310}, STEADY, END) is Status.STOP


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


def test_no_lag_is_ok_even_if_nothing_is_committed_any_more() -> None:
    assert evaluate(window((5, 5), (10, 0)), [10], now=1000.0) is Status.OK


def test_silence_longer_than_the_window_is_stop() -> None:
    assert evaluate(window((5, 5), (6, 5), (7, 5)), [20], now=4.5) is Status.STOP
    assert evaluate(window((5, 5), (6, 5), (7, 4)), [20], now=3.5) is Status.OK


def test_silence_is_no_stop_where_there_was_nothing_to_commit() -> None:
    assert evaluate(window((5, 5), (6, 5), (7, 4)), [7, 20], now=4.5) is Status.OK


def test_an_offset_that_goes_back_and_stays_there_is_rewind() -> None:
    assert evaluate(window((5, 5), (3, 7), (4, 6)), [20], now=3.0) is Status.REWIND
    assert evaluate(window((5, 5), (3, 7), (6, 4)), [20], now=3.0) is Status.OK


def test_commits_of_the_same_offset_with_lag_are_stall() -> None:
    assert evaluate(window((5, 5), (5, 6), (5, 7)), [20], now=3.0) is Status.STALL


def test_a_lag_that_grows_with_each_commit_is_a_warning() -> None:
    assert evaluate(window((5, 5), (6, 6), (7, 7)), [20], now=3.0) is Status.WARN


def test_a_lag_of_zero_in_the_window_is_ok() -> None:
    assert evaluate(window((5, 0), (5, 6), (5, 7)), [20], now=3.0) is Status.OK


def test_nothing_is_said_of_a_partition_without_commits() -> None:
    assert evaluate([], [10], now=0.0) is Status.NOTFOUND
    assert evaluate(window((5, 5)), [], now=0.0) is Status.NOTFOUND


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    assert group_status([]) is Status.NOTFOUND
    assert group_status([Status.NOTFOUND, Status.OK]) is Status.OK
    assert group_status([Status.WARN, Status.OK]) is Status.WARN
    for bad in (Status.STOP, Status.STALL, Status.REWIND):
        assert group_status([Status.OK, bad]) is Status.ERR
