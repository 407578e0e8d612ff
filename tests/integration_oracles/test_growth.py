"""The judge of growing processes finds one that collects threads, and no other."""

from __future__ import annotations

import pytest

from integration.soak.growth import ALLOWED, Size, judge_growth, summary

TIMES = range(0, 600, 5)
PROCESS = ("app0", 7)


@pytest.mark.parametrize("what", ALLOWED)
def test_a_process_that_grows_is_found(what: str) -> None:
    sizes = [Size(at, 30, 80, 200)._replace(**{what: 100 + at // 2}) for at in TIMES]
    (violation,) = judge_growth({PROCESS: sizes})
    assert f"app0 (process 7) had 130 {what} at first" in violation


def test_a_process_that_grows_at_its_start_or_for_a_moment_is_none() -> None:
    sizes = [Size(at, min(30 + at, 80), 80 + 100 * (at == 590), min(200 + 5 * at, 480)) for at in TIMES]
    assert judge_growth({PROCESS: sizes}) == []
    assert summary({PROCESS: sizes}) == (
        "at most 80 threads, 180 files, 480 megabytes in one of 1; the longest ran for 10 min"
    )


def test_nothing_is_said_of_a_process_that_lived_for_less_than_two_minutes() -> None:
    assert judge_growth({PROCESS: [Size(at, at, at, at) for at in range(0, 115, 5)]}) == []
