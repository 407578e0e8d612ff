"""The topic for dead letters exists or is created, or the error names its option."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from pyspark_kafka_group.cluster import dead_letter_topic
from pyspark_kafka_group.cluster.dead_letter_topic import require_dead_letter_topic
from pyspark_kafka_group.offsets.errors import OptionError

HERE = {"bootstrap.servers": "b:9092"}


class Topics:
    """A fake cluster that takes its answers from ``there``, and notes which requests may create the topic."""

    def __init__(self, *there: bool) -> None:
        self.there = list(there)
        self.creates: list[bool] = []

    def topics(self, names: Collection[str], *, creates: bool, timeout_s: float) -> dict[str, Any]:
        self.creates.append(creates)
        return dict.fromkeys(names if self.there.pop(0) else [])

    def close(self) -> None: ...


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Topics]:
    monkeypatch.setattr(dead_letter_topic, "_PAUSE_S", 0.0)

    def make(*there: bool) -> Topics:
        made = Topics(*there)
        monkeypatch.setattr(dead_letter_topic, "connect", lambda *_, **__: made)
        return made

    return make


def test_one_that_is_there_is_not_asked_for_twice(cluster: Callable[..., Topics]) -> None:
    asked = cluster(True)
    require_dead_letter_topic(HERE, "dead")
    assert asked.creates == [False]


def test_one_that_the_cluster_creates_is_waited_for(cluster: Callable[..., Topics]) -> None:
    asked = cluster(False, False, True)
    require_dead_letter_topic(HERE, "dead")
    assert asked.creates == [False, True, True]


def test_one_that_is_missing_is_named(cluster: Callable[..., Topics], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_topic, "_CREATION_S", 0.0)
    cluster(False, False)
    with pytest.raises(OptionError) as raised:
        require_dead_letter_topic(HERE, "dead")
    assert str(raised.value) == (
        "Option 'deadLetterTopic': the topic 'dead' does not exist, and the cluster does not create it. "
        "Create it, or correct the name."
    )


def test_where_no_broker_answers_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_topic, "_TIMEOUT_S", 0.2)
    require_dead_letter_topic({"bootstrap.servers": "127.0.0.1:1"}, "dead")
