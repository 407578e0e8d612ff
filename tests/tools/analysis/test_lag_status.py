"""Burrow's rules, one by one."""

from __future__ import annotations

from pyspark_kafka_group.tools.analysis.lag_judgement import Point, Status, evaluate, group_status


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


def test_a_lag_that_never_falls_is_a_warning() -> None:
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
