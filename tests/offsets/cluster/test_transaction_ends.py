"""What the answers of transaction coordinators mean, over real sockets to brokers that answer what the test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_group.offsets.cluster import transaction_ends
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.transaction_ends import TransactionRequests, open_transaction_requests
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.group_requests import Coordinator, FindCoordinator
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata, PartitionMetadata, TopicMetadata
from pyspark_kafka_group.wire.transaction_ends import DescribeTransactions, EndTransaction, TransactionState
from tests.wire import answers
from tests.wire.fake_broker import SILENCE, Answer, FakeBroker

FIND, METADATA = FindCoordinator.api.key, Metadata.api.key
DESCRIBE, END = DescribeTransactions.api.key, EndTransaction.api.key
LOADING, CONCURRENT, FENCED, REFUSED = 14, 51, 90, 53
OPEN = TransactionState(0, "Ongoing", 7, 1)


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Two; the first one is the bootstrap server, and the coordinator."""
    made = [FakeBroker(), FakeBroker()]
    made[0].answers[FIND] = coordinator(made[0])
    yield made
    for broker in made:
        broker.close()


@pytest.fixture
def broker(brokers: list[FakeBroker]) -> FakeBroker:
    return brokers[0]


@pytest.fixture
def requests(broker: FakeBroker) -> Iterator[TransactionRequests]:
    made = open_transaction_requests({"bootstrap.servers": str(broker.address)}, client_id="sink")
    assert made is not None
    yield made
    made.close()


def coordinator(broker: FakeBroker) -> Answer:
    return answers.coordinator(Coordinator(0, "", broker.address), "x")


def soon(seconds: float = 10.0) -> Deadline:
    return Deadline.after(seconds)


def test_a_busy_coordinator_is_asked_until_it_answers(broker: FakeBroker, requests: TransactionRequests) -> None:
    busy = [answers.transaction_end(code) for code in (LOADING, CONCURRENT, CONCURRENT)]
    broker.answers[END] = [*busy, answers.transaction_end(0)]
    assert requests.end("x", 7, 1, commit=True, deadline=soon()) == "NONE"
    assert broker.kinds().count("EndTxn") == 4


def test_an_answer_that_no_retry_changes_is_returned(broker: FakeBroker, requests: TransactionRequests) -> None:
    broker.answers[END] = answers.transaction_end(FENCED)
    assert requests.end("x", 7, 1, commit=True, deadline=soon()) == "PRODUCER_FENCED"


def test_a_silent_coordinator_does_not_take_all_the_time(
    brokers: list[FakeBroker], requests: TransactionRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is gone, say, and another broker takes over."""
    monkeypatch.setattr(transaction_ends, "_ATTEMPT_S", 0.2)
    old, new = brokers
    old.answers[FIND] = [coordinator(old), coordinator(new)]
    old.answers[DESCRIBE] = SILENCE
    new.answers[DESCRIBE] = answers.transaction_state(OPEN)
    assert requests.state("x", deadline=soon()) == OPEN


def test_a_missing_right_is_not_tried_again(broker: FakeBroker, requests: TransactionRequests) -> None:
    broker.answers[END] = answers.transaction_end(REFUSED)
    with pytest.raises(AuthenticationError, match="WRITE and DESCRIBE on transactional ids"):
        requests.end("x", 7, 1, commit=True, deadline=soon())
    assert broker.kinds().count("EndTxn") == 1


def test_partitions_are_counted_as_soon_as_the_topic_is_known(
    broker: FakeBroker, requests: TransactionRequests
) -> None:
    def known(count: int, error: int = 0) -> Answer:
        partitions = tuple(PartitionMetadata(n, 0, 1, 1) for n in range(count))
        return answers.metadata(ClusterMetadata({1: broker.address}, (TopicMetadata("t", error, None, partitions),)))

    broker.answers[METADATA] = [known(0, error=3), known(2)]
    assert requests.partition_count("t", deadline=soon()) == 2
    broker.answers[METADATA] = known(0, error=3)
    with pytest.raises(TryAgainError, match="does not know it"):
        requests.partition_count("t", deadline=soon(0.1))
