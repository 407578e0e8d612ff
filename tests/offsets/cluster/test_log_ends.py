"""Log ends, asked again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from pyspark_kafka_group.offsets.cluster import unjoined_consumer
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.log_ends import LogEnds, TopicIds
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.testing import MockKafka

PATIENCE_S = 30.0
MANY = [TopicPartition("orders", n) for n in range(20)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    with MockKafka(brokers=2) as mock:
        mock.create_topic("orders", len(MANY))
        yield mock


@pytest.fixture
def produce(kafka: MockKafka) -> Callable[[int], None]:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def produce(partition: int) -> None:
        producer.produce("orders", b"x", partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    return produce


@pytest.fixture
def logs(kafka: MockKafka) -> Iterator[LogEnds]:
    client = LogEnds({"bootstrap.servers": kafka.bootstrap_servers}, group_id="etl", read_committed=True)
    yield client
    client.close()


def ends(logs: LogEnds, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Ask until the mock has leaders for all."""
    for _ in range(100):
        try:
            found = logs.ends(partitions)
        except TryAgainError:
            continue
        if len(found) == len(partitions):
            return dict(found)
    raise AssertionError("no ends")


def test_each_partition_has_its_own_end_whatever_the_order_of_the_question(
    logs: LogEnds, produce: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the question is asked in pieces, and of several brokers."""
    monkeypatch.setattr(unjoined_consumer, "_PIECE", 3)
    before = ends(logs, MANY)
    for _ in range(7):
        produce(13)
    produce(2)
    grown = {MANY[13]: 7, MANY[2]: 1}
    expected = {tp: before[tp] + grown.get(tp, 0) for tp in MANY}
    assert ends(logs, MANY) == expected
    backwards = MANY[::-1]
    assert list(ends(logs, backwards).items()) == [(tp, expected[tp]) for tp in backwards]


def test_without_anything_new_the_answer_is_the_same_object(logs: LogEnds, produce: Callable[[int], None]) -> None:
    ends(logs, MANY)
    first = logs.ends(MANY)
    assert logs.ends([*MANY]) is first
    copy = dict(first)
    produce(5)
    assert logs.ends(MANY)[MANY[5]] == copy[MANY[5]] + 1
    assert first == copy, "what was returned is never changed"


def test_other_partitions_are_another_question(logs: LogEnds) -> None:
    everything = ends(logs, MANY)
    assert ends(logs, MANY[:4]) == {tp: everything[tp] for tp in MANY[:4]}
    assert ends(logs, MANY) == everything
    assert logs.ends([]) == {}


def topic_ids(answer: Callable[[Future[Any]], None]) -> tuple[TopicIds, list[KafkaError]]:
    future: Future[Any] = Future()
    answer(future)
    refused: list[KafkaError] = []
    return TopicIds({"orders": future}, refused.append), refused


def test_ids_are_here_when_they_have_been_answered() -> None:
    ids, _ = topic_ids(lambda future: future.set_result(SimpleNamespace(topic_id="abc")))
    assert ids.here
    assert ids.wait(0) == {"orders": "abc"}


def test_ids_that_are_on_their_way_can_be_waited_for() -> None:
    ids, _ = topic_ids(lambda future: None)
    assert not ids.here
    with pytest.raises(TimeoutError):
        ids.wait(0)


def test_a_topic_without_an_id_is_left_out_and_its_error_looked_at() -> None:
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    ids, refused = topic_ids(lambda future: future.set_exception(KafkaException(error)))
    assert ids.wait(0) == {}
    assert refused == [error]


def test_a_broker_without_ids_tells_that_the_topic_exists() -> None:
    for topic_id in (None, "AAAAAAAAAAAAAAAAAAAAAA"):
        found = SimpleNamespace(topic_id=topic_id)
        ids, _ = topic_ids(lambda future, found=found: future.set_result(found))  # type: ignore[misc]
        assert ids.wait(0) == {"orders": None}


def test_a_topic_of_which_the_broker_cannot_tell_is_not_taken_for_one_that_does_not_exist() -> None:
    error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    ids, refused = topic_ids(lambda future: future.set_exception(KafkaException(error)))
    with pytest.raises(TryAgainError, match="'orders'"):
        ids.wait(0)
    assert refused == [error]


def test_ids_know_which_topics_they_were_asked_of() -> None:
    ids, _ = topic_ids(lambda future: None)
    assert ids.of(["orders"])
    assert not ids.of(["orders", "clicks"])


def test_the_leaders_of_a_topic_are_asked_for_once_before_its_log_ends(
    logs: LogEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: in 3 of 100 cases librdkafka missed its own question for them, and answered 0.7 s late."""
    asked: list[str] = []

    def spy(name: str) -> None:
        answer = getattr(logs, name)

        def ask(*args: Any, **options: Any) -> Any:
            asked.append(name)
            return answer(*args, **options)

        monkeypatch.setattr(logs, name, ask)

    spy("partition_count")
    spy("_ask_ends")
    for partitions in (MANY, MANY[:3], MANY):
        ends(logs, partitions)
    assert asked[:2] == ["partition_count", "_ask_ends"]
    assert asked.count("partition_count") == 1


def test_topic_ids_are_as_kafka_prints_them() -> None:
    """librdkafka prints ``+`` and ``/`` where Kafka prints ``-`` and ``_``."""
    described: Future[Any] = Future()
    described.set_result(SimpleNamespace(topic_id="hF4Zof2jS7i+HunLEo/pZw"))
    asked = TopicIds({"orders": described}, lambda error: pytest.fail(error.str()))
    assert asked.wait(0) == {"orders": "hF4Zof2jS7i-HunLEo_pZw"}
