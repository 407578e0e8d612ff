"""Deadlines."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from pyspark_kafka_group.wire import deadline
from pyspark_kafka_group.wire.deadline import Deadline


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: made.s))
    return made


def test_time_runs_out(now: SimpleNamespace) -> None:
    answer = Deadline.after(3)
    assert (answer.left_s, answer.passed) == (3.0, False)
    now.s += 2
    assert (answer.left_s, answer.passed) == (1.0, False)
    now.s += 1
    assert (answer.left_s, answer.passed) == (0.0, True)
    now.s += 1
    assert answer.left_s == 0.0, "never less than nothing"


def test_no_time_at_all_has_passed_at_once() -> None:
    assert Deadline.after(0).passed


def test_one_that_never_comes(now: SimpleNamespace) -> None:
    never = Deadline.after(math.inf)
    now.s += 1e9
    assert (never.passed, never.is_set, never.left_s) == (False, False, math.inf)
    assert Deadline.after(1).is_set


def test_a_deadline_can_be_extended(now: SimpleNamespace) -> None:
    now.s += 5
    passed = Deadline.after(-2)
    assert (passed.later(3).left_s, passed.later(1).left_s) == (1.0, 0.0)
    assert not Deadline.after(math.inf).later(3).is_set


def test_the_earlier_of_two_is_the_smaller_one(now: SimpleNamespace) -> None:
    whole = Deadline.after(10)
    now.s += 8
    assert min(whole, Deadline.after(5)) is whole
    assert whole.within(5) is whole
    assert whole.within(1).left_s == 1.0


def test_sharers_get_equal_parts_of_what_is_left(now: SimpleNamespace) -> None:
    whole = Deadline.after(12)
    now.s += 3
    assert whole.share(3).left_s == 3.0
    now.s += 20
    assert whole.share(3).passed, "nothing is left to share"
