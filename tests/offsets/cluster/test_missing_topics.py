"""Which topics do not exist: only what a broker says counts."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyspark_kafka_group.offsets.cluster.missing_topics import missing_topics
from pyspark_kafka_group.offsets.types import TopicPartition

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("payments", 0)]


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (SimpleNamespace(partitions=[0, 1, 2]), set()),
        (SimpleNamespace(partitions=[0, 1]), {"orders"}),  # created again, with fewer partitions
        (KafkaError.UNKNOWN_TOPIC_OR_PART, {"orders"}),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, set()),
        (KafkaError._TRANSPORT, set()),
        (None, set()),
    ],
)
def test_topic_is_missing_if_a_broker_says_so(
    monkeypatch: pytest.MonkeyPatch, answer: SimpleNamespace | int | None, missing: set[str]
) -> None:
    def describe_topics(_topics: object, request_timeout: float) -> dict[str, Future[SimpleNamespace]]:
        answers: dict[str, Future[SimpleNamespace]] = {"payments": Future(), "orders": Future()}
        answers["payments"].set_result(SimpleNamespace(partitions=[0]))
        if isinstance(answer, int):
            answers["orders"].set_exception(KafkaException(KafkaError(answer)))
        elif answer is not None:
            answers["orders"].set_result(answer)
        return answers

    admin = SimpleNamespace(describe_topics=describe_topics)
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda _config: admin)
    assert missing_topics({"bootstrap.servers": "nowhere"}, PARTITIONS, timeout_s=0.1) == missing


def test_nothing_is_missing_where_no_client_can_be_had() -> None:
    assert (
        missing_topics({"bootstrap.servers": "a:1", "ssl.ca.location": "/nowhere"}, PARTITIONS, timeout_s=0.1) == set()
    )
