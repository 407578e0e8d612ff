"""Skip markers are durable, or it is said that they are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_kafka_group.offsets.cluster import skip_store
from pyspark_kafka_group.offsets.cluster.cluster_answers import CommittedOffset
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.skip_store import SkipStore, read_markers
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError
from pyspark_kafka_group.offsets.skip_markers import SkipMarker, decode, encode
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))
ONE, TWO = (SkipMarker(OffsetRange(Offset(start), Offset(start + 5)), 0) for start in (0, 5))
MARKERS = {A: (ONE,), B: (ONE, TWO)}


@pytest.fixture
def store() -> SkipStore:
    made = SkipStore({"bootstrap.servers": "127.0.0.1:1"}, group_id="g", query_id="q")
    made.close()
    return made


def answering(sent: list[Any], errors: dict[TopicPartition, str]) -> Any:
    """A consumer whose commits are answered like this."""

    def commit(*, offsets: list[Any], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        sent.extend(offsets)
        return [SimpleNamespace(topic=part.topic, partition=part.partition, error=refusal(part)) for part in offsets]

    def refusal(part: Any) -> Any:
        code = errors.get(TopicPartition(part.topic, part.partition))
        return code and SimpleNamespace(name=lambda: code, str=lambda: code, fatal=lambda: False)

    return SimpleNamespace(commit=commit, poll=lambda _: None)


@pytest.mark.parametrize(
    ("code", "raised"),
    [("UNKNOWN_TOPIC_OR_PART", TryAgainError), ("GROUP_AUTHORIZATION_FAILED", AuthenticationError)],
)
def test_marker_that_one_partition_refuses_is_not_taken_for_durable(
    store: SkipStore, code: str, raised: type[Exception]
) -> None:
    """Regression: a commit of several partitions succeeds as a whole if any of them does."""
    store._consumer = answering([], {B: code})
    with pytest.raises(raised):
        store.write(MARKERS)


def test_all_markers_of_a_partition_are_written_beside_the_beginning_of_the_newest(store: SkipStore) -> None:
    sent: list[Any] = []
    store._consumer = answering(sent, {})
    store.write(MARKERS)
    assert {TopicPartition(part.topic, part.partition): decode(part.metadata) for part in sent} == MARKERS
    assert [part.offset for part in sent] == [0, 5]


def test_markers_are_found_again_and_what_is_none_is_left_out(
    store: SkipStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        A: CommittedOffset(Offset(0), None, '{"v":1,"r":[0,5],"n":0}'),
        B: CommittedOffset(Offset(5), None, encode(MARKERS[B])),
        C: CommittedOffset(Offset(5), None, "someone else's"),
    }
    monkeypatch.setattr(store, "committed", lambda _: found)
    assert store.read([A, B, C]) == MARKERS


class FakeStore:
    """Answers what it is told, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.closed = False

    def read(self, _: object) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def read(store: FakeStore) -> Any:
    return read_markers(lambda: store, [A])  # type: ignore[arg-type,return-value]  # what it needs of a store


def test_markers_are_asked_for_until_the_cluster_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_store, "_RETRY_S", 0.0)
    store = FakeStore(TryAgainError("loading"), TryAgainError("loading"), MARKERS)
    assert read(store) == MARKERS
    assert store.closed


def test_a_query_does_not_start_without_knowing_what_it_has_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_store, "CONNECT_TIMEOUT_S", -1.0)
    store = FakeStore(TryAgainError("loading"))
    with pytest.raises(BrokerError, match=r"left to others is not known.*: loading"):
        read(store)
    assert store.closed


def test_who_may_not_read_the_companion_group_does_not_start() -> None:
    """Regression: markers that a former run had written were ignored, and what they name was read by nobody."""
    store = FakeStore(AuthenticationError("no"))
    with pytest.raises(AuthenticationError):
        read(store)
    assert store.closed
