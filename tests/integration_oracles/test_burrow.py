"""Burrow's rules, one by one, and over the history of a run."""

from __future__ import annotations

import pytest

from integration.burrow import Ends, Point, Status, evaluate, evaluate_history, judge_burrow
from integration.oracles import Committed

TP = "t-0"


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


@pytest.mark.parametrize("stalled", [False, True])
def test_a_stalled_partition_in_a_history_is_named(stalled: bool) -> None:
    ends = [Ends(float(t), {TP: 10 * t + 10}) for t in range(30)]
    commits = [Committed(t + 0.5, TP, 5 if stalled and t > 2 else 10 * t + 5) for t in range(29)]
    problems = judge_burrow(evaluate_history(commits, ends))
    assert bool(problems) is stalled
    if stalled:
        assert any("t-0 is STALL" in problem for problem in problems)


def test_a_partition_that_nobody_commits_any_more_is_named() -> None:
    ends = [Ends(float(t), {TP: 10 * t + 10}) for t in range(60)]
    commits = [Committed(t + 0.5, TP, 10 * t + 5) for t in range(15)]
    assert any("is STOP" in problem for problem in judge_burrow(evaluate_history(commits, ends)))


def test_commits_closer_than_the_distance_count_as_one() -> None:
    ends = [Ends(float(t), {TP: 1000}) for t in range(12)]
    often = [Committed(t / 10, TP, t) for t in range(40)]
    assert not evaluate_history(often, ends, min_distance_s=1.0), "forty commits in four seconds fill no window"
    assert evaluate_history(often, ends, min_distance_s=0.0)
