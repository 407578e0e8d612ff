"""The one loop that asks the cluster again, with a clock that only its pauses move."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, repeat
from types import SimpleNamespace

import pytest

from pyspark_kafka_group.cluster import patience
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.patience import growing, patiently
from pyspark_kafka_group.wire import deadline
from pyspark_kafka_group.wire.deadline import Deadline


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 1000.0 + sum(made), sleep=made.append)
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(deadline, "time", clock)
    return made


def answers(*given: int | None) -> Callable[[], int]:
    """Return a question with these answers, the last one for ever; None is none for now."""
    left = list(given)

    def ask() -> int:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer is None:
            raise TryAgainError("loading")
        return answer

    return ask


def test_the_first_answer_ends_the_wait(pauses: list[float]) -> None:
    assert patiently(answers(None, None, 7), Deadline.after(10), repeat(0.5)) == 7
    assert pauses == [0.5, 0.5]


def test_no_attempt_begins_after_the_deadline(pauses: list[float]) -> None:
    with pytest.raises(TryAgainError, match="loading"):
        patiently(answers(None), Deadline.after(2), repeat(0.75))
    assert pauses == [0.75, 0.75]


def test_an_attempt_without_time_does_not_hide_why_the_ones_before_have_failed(pauses: list[float]) -> None:
    """Regression: the error of an exactly-once write was only "no time is left"."""
    left = ["loading", "no coordinator", "group 'g': no time is left"]

    def ask() -> int:
        raise TryAgainError(left.pop(0))

    with pytest.raises(TryAgainError, match=r"^no coordinator$"):
        patiently(ask, Deadline.after(2), repeat(0.75))
    assert not left


def test_an_incomplete_answer_is_returned_at_the_deadline(pauses: list[float]) -> None:
    assert patiently(answers(1, 2, 3, 4), Deadline.after(1), repeat(0.5), is_enough=lambda n: n > 3) == 2
    assert pauses == [0.5]


def test_a_passed_deadline_leaves_one_attempt_even_without_pauses(pauses: list[float]) -> None:
    """A user may set `fetchOffset.retryIntervalMs` to 0."""
    with pytest.raises(TryAgainError):
        patiently(answers(None, 7), Deadline.after(0), repeat(0.0))
    assert pauses == []


def test_attempts_count_even_after_the_deadline(pauses: list[float]) -> None:
    assert patiently(answers(None, None, 7), Deadline.after(0), repeat(2.0), attempts=3) == 7
    with pytest.raises(TryAgainError):
        patiently(answers(None, None, 7), Deadline.after(0), repeat(2.0), attempts=2)
    assert pauses == [2.0, 2.0, 2.0]


def test_other_errors_end_the_wait(pauses: list[float]) -> None:
    def ask() -> int:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        patiently(ask, Deadline.after(10), repeat(0.5))
    assert pauses == []


def test_pauses_double_up_to_the_longest() -> None:
    assert list(islice(growing(0.1, 0.5), 5)) == [0.1, 0.2, 0.4, 0.5, 0.5]
