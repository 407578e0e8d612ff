"""Burrow's verdicts on the history of a run.  tests/tools/analysis/test_lag_judgement.py tests its rules."""

from __future__ import annotations

import pytest

from integration.burrow import Ends, evaluate_history, judge_burrow
from integration.oracles import Committed

TP = "t-0"


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
