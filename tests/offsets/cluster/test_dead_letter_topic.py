"""The topic for dead letters is there, or comes, or its option is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_group.offsets.cluster import dead_letter_topic
from pyspark_kafka_group.offsets.cluster.dead_letter_topic import require_dead_letter_topic
from pyspark_kafka_group.offsets.cluster.missing_topics import MissingTopics
from pyspark_kafka_group.offsets.errors import OptionError

HERE = {"bootstrap.servers": "b:9092"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(dead_letter_topic, "_ask_as_producers_do", lambda _, topic: found.append(topic))
    monkeypatch.setattr(dead_letter_topic, "_CREATION_S", 0.0)
    return found


def answers(monkeypatch: pytest.MonkeyPatch, *missing: bool) -> Iterator[bool]:
    left = iter(missing)
    monkeypatch.setattr(MissingTopics, "of", lambda *_, **__: frozenset({"dead"} if next(left) else ()))
    return left


def test_one_that_is_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    answers(monkeypatch, False)

    require_dead_letter_topic(HERE, "dead")

    assert asked == []


def test_one_that_the_cluster_creates_is_waited_for(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    monkeypatch.setattr(dead_letter_topic, "_CREATION_S", 60.0)
    left = answers(monkeypatch, True, True, False)

    require_dead_letter_topic(HERE, "dead")

    assert asked == ["dead"]
    assert list(left) == []


def test_one_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    answers(monkeypatch, True, True, True)

    with pytest.raises(OptionError) as raised:
        require_dead_letter_topic(HERE, "dead")

    assert asked == ["dead"]
    assert str(raised.value) == (
        "Option 'deadLetterTopic': the topic 'dead' does not exist, and the cluster does not create it by itself. "
        "Create it, or correct the name."
    )


def test_where_no_broker_answers_nothing_is_said(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    monkeypatch.setattr(dead_letter_topic, "_TIMEOUT_S", 0.2)

    require_dead_letter_topic({"bootstrap.servers": "127.0.0.1:1"}, "dead")

    assert asked == []
