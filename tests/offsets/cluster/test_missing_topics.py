"""Which topics do not exist: only what a broker says counts, and no question makes a client of its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyspark_kafka_group.offsets.cluster.missing_topics import MissingTopics
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata, PartitionMetadata, TopicMetadata
from tests.wire import answers
from tests.wire.fake_broker import HANG_UP, SILENCE, Answer, FakeBroker

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("payments", 0)]
UNKNOWN, REFUSED = 3, 29

# Only librdkafka knows it, so its client is asked.
LIBRDKAFKA = {"bootstrap.servers": "nowhere", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker()
    yield made
    made.close()


def metadata(broker: FakeBroker, count: int, error: int = 0) -> Answer:
    def topic(name: str, partitions: int, error: int = 0) -> TopicMetadata:
        found = tuple(PartitionMetadata(n, 0, 1, 0) for n in range(partitions))
        return TopicMetadata(name, error, None, found)

    topics = (topic("orders", count, error), topic("payments", 1))
    return answers.metadata(ClusterMetadata({1: broker.address}, topics))


@pytest.mark.parametrize(
    ("count", "error", "missing"),
    [
        (3, 0, set()),
        (2, 0, {"orders"}),  # created again, with fewer partitions
        (0, UNKNOWN, {"orders"}),
        (0, REFUSED, set()),
    ],
)
def test_topic_is_missing_if_a_broker_says_so(broker: FakeBroker, count: int, error: int, missing: set[str]) -> None:
    broker.answers[Metadata.api.key] = metadata(broker, count, error)
    topics = MissingTopics({"bootstrap.servers": str(broker.address)}, client_id="etl")
    assert topics.of(PARTITIONS, timeout_s=5.0) == missing
    topics.close()


@pytest.mark.parametrize("answer", [SILENCE, HANG_UP])
def test_nothing_is_missing_if_no_broker_answers(broker: FakeBroker, answer: Answer) -> None:
    broker.answers[Metadata.api.key] = answer
    topics = MissingTopics({"bootstrap.servers": str(broker.address)}, client_id="etl")
    assert topics.of(PARTITIONS, timeout_s=0.2) == set()
    topics.close()


def test_many_questions_take_one_connection(broker: FakeBroker) -> None:
    """Regression: during an outage of the coordinator each commit made a new client every second."""
    broker.answers[Metadata.api.key] = metadata(broker, 3)
    topics = MissingTopics({"bootstrap.servers": str(broker.address)}, client_id="etl")
    for _ in range(5):
        assert topics.of(PARTITIONS, timeout_s=5.0) == set()
    assert len(broker.connections) == 1
    topics.close()


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (SimpleNamespace(partitions=[0, 1, 2]), set()),
        (SimpleNamespace(partitions=[0, 1]), {"orders"}),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, {"orders"}),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, set()),
        (KafkaError._TRANSPORT, set()),
        (None, set()),
    ],
)
def test_librdkafka_is_asked_with_one_client_where_only_it_can_connect(
    monkeypatch: pytest.MonkeyPatch, answer: SimpleNamespace | int | None, missing: set[str]
) -> None:
    made: list[object] = []

    def describe_topics(_topics: object, request_timeout: float) -> dict[str, Future[SimpleNamespace]]:
        found: dict[str, Future[SimpleNamespace]] = {"payments": Future(), "orders": Future()}
        found["payments"].set_result(SimpleNamespace(partitions=[0]))
        if isinstance(answer, int):
            found["orders"].set_exception(KafkaException(KafkaError(answer)))
        elif answer is not None:
            found["orders"].set_result(answer)
        return found

    def client(config: object) -> SimpleNamespace:
        made.append(config)
        return SimpleNamespace(describe_topics=describe_topics)

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", client)
    topics = MissingTopics(LIBRDKAFKA, client_id="etl")
    for _ in range(2):
        assert topics.of(PARTITIONS, timeout_s=0.1) == missing
    assert len(made) == 1


def test_nothing_is_missing_where_no_client_can_be_had() -> None:
    topics = MissingTopics({**LIBRDKAFKA, "ssl.ca.location": "/nowhere", "sasl.mechanism": "none"}, client_id="etl")
    assert topics.of(PARTITIONS, timeout_s=0.1) == set()
