"""The source looks for matching topics again and again, on another thread."""

from __future__ import annotations

from typing import cast

import pytest

from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator import topic_pattern
from pyspark_kafka_group.coordinator.topic_pattern import TopicPattern
from pyspark_kafka_group.offsets.errors import AuthenticationError
from tests.coordinator.fakes import FakeLoop, FakeOffsets, InlineWorker

NEVER_S = 3600.0


class Looking:
    """A pattern that sends its requests on this thread."""

    def __init__(self, *, refresh_s: float = -1.0, worker: InlineWorker | None = None) -> None:
        self.offsets = FakeOffsets()
        loop = FakeLoop()
        self.failed = loop.failed
        self.pattern = TopicPattern(
            "a.*",
            refresh_s=refresh_s,
            worker=worker or InlineWorker(),
            offsets=cast(GroupOffsets, self.offsets),
            loop=loop,
        )


def test_nothing_is_known_before_the_first_look() -> None:
    looking = Looking(refresh_s=NEVER_S)
    looking.offsets.topics = {"a1": 1}
    assert looking.pattern.matching() is None
    assert looking.offsets.asked == []


def test_what_matches_is_looked_at_again() -> None:
    looking = Looking()
    looking.offsets.topics = {"a1": 1}
    assert looking.pattern.matching() == frozenset({"a1"})
    looking.offsets.topics = {"a1": 1, "a2": 3}
    assert looking.pattern.matching() == frozenset({"a1", "a2"})
    assert looking.offsets.asked == ["matching a.*"] * 2


def test_look_that_got_no_answer_changes_nothing() -> None:
    looking = Looking()
    looking.offsets.topics = {"a1": 1}
    looking.pattern.matching()
    looking.offsets.problem = TryAgainError("nobody answers")
    assert looking.pattern.matching() == frozenset({"a1"})
    assert looking.failed == []


def test_looks_that_get_no_answer_for_minutes_are_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_pattern, "_WARN_S", 0.0)
    looking = Looking()
    looking.offsets.problem = TryAgainError("nobody answers")
    looking.pattern.matching()
    assert "New topics are not found meanwhile" in caplog.text


@pytest.mark.logs_errors("an unexpected error in the background")
def test_look_that_fails_unexpectedly_ends_the_query_by_name() -> None:
    looking = Looking()
    looking.offsets.problem = ZeroDivisionError("here")
    looking.pattern.matching()
    assert "Asking for the topics that match failed" in str(looking.failed)


def test_look_that_is_refused_ends_the_query() -> None:
    looking = Looking()
    looking.offsets.problem = AuthenticationError("not allowed")
    looking.pattern.matching()
    assert looking.failed == [looking.offsets.problem]


@pytest.mark.parametrize("refresh_s", [-1.0, NEVER_S])
def test_between_two_looks_the_last_one_counts(refresh_s: float) -> None:
    looking = Looking(refresh_s=refresh_s)
    for _ in range(3):
        looking.pattern.matching()
    assert len(looking.offsets.asked) == (3 if refresh_s < 0 else 0)


def test_a_slow_cluster_gets_one_request_at_a_time() -> None:
    """Regression: with a short refresh interval, requests piled up before the starts of partitions."""
    worker = InlineWorker(waits=True)
    looking = Looking(worker=worker)
    for _ in range(5):
        looking.pattern.matching()
    assert len(worker.waiting) == 1
    worker.run()
    looking.pattern.matching()
    assert len(worker.waiting) == 1
