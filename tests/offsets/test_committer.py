"""Transactions that librdkafka does not end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pyspark_kafka_group.offsets import committer
from pyspark_kafka_group.offsets.committer import CommitRefusedError, TransactionalCommitter
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

OFFSETS = {TopicPartition("t", 0): (Offset(5), "note")}


class FakeProducer:
    """Does what a producer does, and hangs in the commit of offsets if it is told to."""

    def __init__(self, config: dict[str, object], *, hangs: bool) -> None:
        self.on_error = config["error_cb"]
        self.release = threading.Event()
        self.committed = False
        self.knows_a_broker = False
        self.answers = iter([-1, 1])  # ids of the brokers that answer: a bootstrap server first
        self.sent: list[list[object]] = []
        self._hangs = hangs

    def list_topics(self, _topic: str, timeout: float) -> SimpleNamespace:
        broker = next(self.answers)
        self.knows_a_broker = broker >= 0
        return SimpleNamespace(orig_broker_id=broker)

    def init_transactions(self, _timeout: float) -> None:
        assert self.knows_a_broker, "it would take 0.5 s longer"

    def poll(self, _timeout: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(self, parts: list[object], *_: object) -> None:
        self.sent.append(parts)
        if self._hangs:
            self.release.wait(30)

    def commit_transaction(self, _timeout: float) -> None:
        self.committed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeProducer]]:
    """Yield the producers that were made; the first one hangs."""
    made: list[FakeProducer] = []

    def make(config: dict[str, object]) -> FakeProducer:
        made.append(FakeProducer(config, hangs=not made))
        return made[-1]

    monkeypatch.setattr("confluent_kafka.Producer", make)
    monkeypatch.setattr(committer, "TRANSACTION_TIMEOUT_S", 0.1)
    monkeypatch.setattr(committer, "_HANG_S", 0.1)
    yield made
    for producer in made:
        producer.release.set()


@pytest.fixture
def transactions() -> TransactionalCommitter:
    return TransactionalCommitter({"bootstrap.servers": "nowhere"}, group_id="g", query_id="q")


def test_commit_that_hangs_is_given_up_and_the_next_one_has_a_producer_of_its_own(
    made: list[FakeProducer], transactions: TransactionalCommitter
) -> None:
    """Regression: after the restart of the only broker the query committed nothing any more."""
    with pytest.raises(CommitRefusedError, match="does not answer"):
        transactions.commit(OFFSETS, b"group")
    transactions.commit(OFFSETS, b"group")
    assert [producer.committed for producer in made] == [False, True]


def test_producer_that_lost_a_connection_is_not_used_again(
    made: list[FakeProducer], transactions: TransactionalCommitter
) -> None:
    class Lost:
        def name(self) -> str:
            return "_TRANSPORT"

    transactions.prepare()
    made[0].on_error(Lost())  # type: ignore[operator]  # the error callback of the configuration
    transactions.commit(OFFSETS, b"group")
    assert len(made) == 2
    transactions.commit(OFFSETS, b"group")
    assert len(made) == 2


def test_transaction_of_many_partitions_is_sent_in_requests_that_the_coordinator_can_write(
    made: list[FakeProducer], transactions: TransactionalCommitter
) -> None:
    """Regression: the commit of 10,000 partitions was refused for ever, being larger than max.message.bytes."""
    transactions.prepare()
    made[0].release.set()
    many = {TopicPartition("t", number): (Offset(5), "note") for number in range(2500)}
    transactions.commit(many, b"group")
    assert [len(request) for request in made[0].sent] == [1000, 1000, 500]
    assert made[0].committed
