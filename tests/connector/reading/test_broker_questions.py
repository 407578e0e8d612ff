"""The rare questions of a reader, over real sockets to fake brokers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.reading import broker_questions
from pyspark_kafka_group.reading.broker_questions import BrokerQuestions
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.security import Security
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata, PartitionMetadata, TopicMetadata
from pyspark_kafka_group.wire.types import Address, ProtocolError
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, FakeBroker

THERE = Address("there", 9092)
TP = TopicPartition("t", 0)
METADATA = Metadata.api.key


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    made = [FakeBroker(), FakeBroker()]
    topic = TopicMetadata("t", 0, None, (PartitionMetadata(0, 0, 1, 3), PartitionMetadata(1, 0, -1, 3)))
    for broker in made:
        broker.answers[METADATA] = answers.metadata(ClusterMetadata({1: THERE}, (topic,)))
    yield made
    for broker in made:
        broker.close()


@pytest.fixture
def questions(brokers: list[FakeBroker]) -> BrokerQuestions:
    def connect(address: Address, *, timeout_s: float) -> BrokerConnection:
        return BrokerConnection(address, "me", max(timeout_s, 5.0), Security(), needed=())

    return BrokerQuestions([Address("127.0.0.1", 1), *(broker.address for broker in brokers)], connect, 60.0)


def asked(brokers: list[FakeBroker]) -> list[int]:
    return [len(broker.asked) for broker in brokers]


def test_another_server_is_asked_if_one_hangs_up_instead_of_an_answer(
    brokers: list[FakeBroker], questions: BrokerQuestions
) -> None:
    """Regression: only a refused connection led to the next one."""
    brokers[0].answers[METADATA] = HANG_UP
    assert questions.metadata(["t"]).brokers == {1: THERE}
    assert questions.address(1) == THERE


def test_each_question_begins_with_another_server(brokers: list[FakeBroker], questions: BrokerQuestions) -> None:
    """The last server may not know the new leader yet."""
    for _ in range(2):
        questions.metadata(["t"])
    assert [len(broker.asked) for broker in brokers] == [1, 1]


def test_no_server_is_an_error(brokers: list[FakeBroker], questions: BrokerQuestions) -> None:
    for broker in brokers:
        broker.answers[METADATA] = HANG_UP
    with pytest.raises(ConnectionError):
        questions.metadata()


def test_without_bootstrap_servers_the_brokers_are_asked_that_they_have_named(brokers: list[FakeBroker]) -> None:
    """Regression: when the only bootstrap server had stopped, no task found a leader, although others led."""

    def connect(address: Address, *, timeout_s: float) -> BrokerConnection:
        return BrokerConnection(address, "me", max(timeout_s, 5.0), Security(), needed=())

    first, second = brokers
    first.answers[METADATA] = answers.metadata(ClusterMetadata({1: first.address, 2: second.address}, ()))
    questions = BrokerQuestions([first.address], connect, 60.0)
    questions.metadata()
    first.close()
    assert questions.metadata().brokers == {1: THERE}
    assert questions._servers == deque([first.address, THERE]), "bootstrap servers stay, other brokers do not"


def test_a_question_that_has_taken_long_goes_on_with_the_next_broker_another_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that asks a hundred silent brokers one after another would not read what it can."""
    monkeypatch.setattr(broker_questions, "_MOST_WAITS", 0)
    asked = []

    def connect(address: Address, *, timeout_s: float) -> BrokerConnection:
        asked.append(address)
        raise TimeoutError(f"no answer within {timeout_s} s")

    servers = [Address("here", port) for port in range(3)]
    questions = BrokerQuestions(servers, connect, 60.0)
    for _ in servers:
        with pytest.raises(TimeoutError):
            questions.metadata()
    assert asked == servers


def test_a_server_that_refuses_does_not_hide_that_another_one_is_late() -> None:
    waits_s = []

    def connect(address: Address, *, timeout_s: float) -> BrokerConnection:
        waits_s.append(timeout_s)
        raise TimeoutError("no answer") if address == THERE else ConnectionRefusedError("down")

    questions = BrokerQuestions([THERE, Address("here", 9092)], connect, 60.0)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            questions.metadata()
    assert waits_s == [1, 1, 2, 2, 4, 4]


def test_brokers_are_asked_for_once(brokers: list[FakeBroker], questions: BrokerQuestions) -> None:
    assert [questions.address(1), questions.address(1)] == [THERE, THERE]
    assert sum(asked(brokers)) == 1
    with pytest.raises(ProtocolError, match="broker 7 is unknown"):
        questions.address(7)


def test_a_partition_without_a_leader_exists(questions: BrokerQuestions) -> None:
    errors = questions.partition_errors([TopicPartition("t", n) for n in range(3)])
    assert {tp.partition: error.name() for tp, error in errors.items()} == {2: "UNKNOWN_TOPIC_OR_PART"}
    with pytest.raises(KafkaException, match="the leader of t-1: LEADER_NOT_AVAILABLE"):
        questions.watermarks(TopicPartition("t", 1))


def test_a_topic_that_the_user_may_not_know_is_no_unknown_one(
    brokers: list[FakeBroker], questions: BrokerQuestions
) -> None:
    refused = ClusterMetadata({1: THERE}, (TopicMetadata("t", 29, None, ()),))
    for broker in brokers:
        broker.answers[METADATA] = answers.metadata(refused)
    assert questions.partition_errors([TP])[TP].str() == "topic 't': TOPIC_AUTHORIZATION_FAILED"
