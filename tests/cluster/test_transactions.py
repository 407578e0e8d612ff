"""How the cluster client interprets the answers of transaction coordinators, over real sockets to fake brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_group.cluster import transactions
from pyspark_kafka_group.cluster.cluster import Cluster, connect
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.transactions import OpenProducer
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.group_requests import (
    Coordinator,
    FetchedOffset,
    FetchedOffsets,
    FindCoordinator,
    OffsetFetch,
    OffsetToCommit,
)
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, Metadata
from pyspark_kafka_group.wire.transactions import (
    AddOffsetsToTransaction,
    CommitOffsetsInTransaction,
    DescribeTransactions,
    EndTransaction,
    InitializedProducer,
    InitProducerId,
    ListedTransactions,
    ListTransactions,
    TransactionState,
)
from pyspark_kafka_group.wire.types import TopicPartition
from tests.wire import answers
from tests.wire.fake_broker import SILENCE, FakeBroker
from tests.wire.fake_group import coordinator, fake_brokers

FIND, METADATA = FindCoordinator.api.key, Metadata.api.key
DESCRIBE, END = DescribeTransactions.api.key, EndTransaction.api.key
LIST, INIT, FETCH = ListTransactions.api.key, InitProducerId.api.key, OffsetFetch.api.key
ADD, WRITE = AddOffsetsToTransaction.api.key, CommitOffsetsInTransaction.api.key
UNSTABLE = 88
LOADING, CONCURRENT, FENCED, REFUSED = 14, 51, 90, 53
OPEN = TransactionState(0, "Ongoing", 7, 1, 60_000)


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Yield two brokers.  The first one is the bootstrap server and the coordinator."""
    with fake_brokers(2, coordinates="x") as made:
        yield made


@pytest.fixture
def broker(brokers: list[FakeBroker]) -> FakeBroker:
    return brokers[0]


@pytest.fixture
def requests(broker: FakeBroker) -> Iterator[Cluster]:
    made = connect({"bootstrap.servers": str(broker.address)}, client_id="sink")
    assert made is not None
    yield made
    made.close()


def soon(seconds: float = 10.0) -> Deadline:
    return Deadline.after(seconds)


def test_a_busy_coordinator_is_asked_until_it_answers(broker: FakeBroker, requests: Cluster) -> None:
    busy = [answers.transaction_end(code) for code in (LOADING, CONCURRENT, CONCURRENT)]
    broker.answers[END] = [*busy, answers.transaction_end(0)]
    assert requests.end({"x": OpenProducer(7, 1)}, commit=True, deadline=soon()) == ({"x": "NONE"}, {})
    assert broker.kinds().count("EndTxn") == 4


def test_an_answer_that_no_retry_changes_is_returned(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[END] = answers.transaction_end(FENCED)
    assert requests.end({"x": OpenProducer(7, 1)}, commit=True, deadline=soon()) == ({"x": "PRODUCER_FENCED"}, {})


def test_an_attempt_without_time_is_not_what_the_others_have_failed_of(requests: Cluster) -> None:
    ended = requests.end({"x": OpenProducer(7, 1)}, commit=True, deadline=soon(0))
    assert ended == ({}, {"x": "no coordinator was asked"})


def test_a_silent_coordinator_does_not_take_all_the_time(
    brokers: list[FakeBroker], requests: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, its machine is lost, and another broker takes over."""
    monkeypatch.setattr(transactions, "_ATTEMPT_S", 0.2)
    old, new = brokers
    old.answers[FIND] = [coordinator(old, "x"), coordinator(new, "x")]
    old.answers[DESCRIBE] = SILENCE
    new.answers[DESCRIBE] = answers.transaction_state(OPEN)
    assert requests.states(["x"], deadline=soon()) == {"x": OPEN}


def test_a_silent_coordinator_keeps_no_other_transaction_open(
    brokers: list[FakeBroker], requests: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after the first silent coordinator, the code did not try the others."""
    monkeypatch.setattr(transactions, "_ATTEMPT_S", 0.2)
    silent, other = brokers

    places = {name: Coordinator(0, "", broker.address) for name, broker in {"x": silent, "y": other}.items()}
    silent.answers[FIND] = answers.coordinators(places)
    silent.answers[END] = SILENCE
    other.answers[END] = answers.transaction_end(0)
    ended = requests.end({"x": OpenProducer(7, 1), "y": OpenProducer(8, 1)}, commit=True, deadline=soon(1.0))
    assert ended.names == {"y": "NONE"}
    assert ended.silent.keys() == {"x"}


def test_a_missing_right_is_not_tried_again(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[END] = answers.transaction_end(REFUSED)
    with pytest.raises(AuthenticationError, match="WRITE and DESCRIBE on transactional ids"):
        requests.end({"x": OpenProducer(7, 1)}, commit=True, deadline=soon())
    assert broker.kinds().count("EndTxn") == 1


def test_a_producer_whose_transaction_is_being_aborted_is_fenced(broker: FakeBroker, requests: Cluster) -> None:
    broker.answers[INIT] = answers.initialized(InitializedProducer(CONCURRENT, -1, -1))
    assert requests.fence(["x"], deadline=soon()) == {}
    assert broker.kinds().count("InitProducerId") == 1


def test_who_takes_over_waits_until_what_was_open_has_ended(broker: FakeBroker, requests: Cluster) -> None:
    busy = answers.initialized(InitializedProducer(CONCURRENT, -1, -1))
    broker.answers[INIT] = [busy, busy, answers.initialized(InitializedProducer(0, 7, 3))]
    assert requests.take_over("x", 1000, deadline=soon()) == OpenProducer(7, 3)


def test_all_brokers_are_asked_for_their_transactions(brokers: list[FakeBroker], requests: Cluster) -> None:
    """A broker may be loading its transactions.  Older brokers also list other prefixes.

    Regression: a retry did not ask brokers that had answered, and missed transactions that had moved to them.
    """
    one, other = brokers
    one.answers[METADATA] = answers.metadata(ClusterMetadata({1: one.address, 2: other.address}, ()))
    one.answers[LIST] = [
        answers.transactions(ListedTransactions(0, ("a-1", "b-1"))),
        answers.transactions(ListedTransactions(0, ("a-3",))),
    ]
    other.answers[LIST] = [
        answers.transactions(ListedTransactions(LOADING, ())),
        answers.transactions(ListedTransactions(0, ("a-2",))),
    ]
    assert requests.listed("a-", ["Ongoing"], deadline=soon()) == {"a-1", "a-2", "a-3"}


def test_a_broker_that_does_not_list_its_transactions_is_no_broker_without_any(
    brokers: list[FakeBroker], requests: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_ATTEMPT_S", 0.1)
    one, other = brokers
    one.answers[METADATA] = answers.metadata(ClusterMetadata({1: one.address, 2: other.address}, ()))
    one.answers[LIST] = answers.transactions(ListedTransactions(0, ("a-1",)))
    # The last attempt may begin so late that it does not come to broker 2.
    with pytest.raises(TryAgainError, match=r"broker 2|no time is left"):
        requests.listed("a-", ["Ongoing"], deadline=soon(0.5))


def test_an_offset_that_is_about_to_change_is_waited_for(broker: FakeBroker, requests: Cluster) -> None:
    tp = TopicPartition("t", 0)
    pending = FetchedOffsets(0, {tp: FetchedOffset(UNSTABLE, -1, -1, "")})
    stable = FetchedOffsets(0, {tp: FetchedOffset(0, 5, -1, "m")})
    broker.answers[FETCH] = [answers.offsets(pending, "g"), answers.offsets(stable, "g")]
    assert requests.stable_offsets("g", deadline=soon()) == {tp: CommittedOffset(Offset(5), None, "m")}


def test_offsets_are_refused_one_by_one(broker: FakeBroker, requests: Cluster) -> None:
    kept, gone = TopicPartition("a", 0), TopicPartition("b", 0)
    broker.answers[ADD] = [answers.transaction_end(CONCURRENT), answers.transaction_end(0)]
    broker.answers[WRITE] = [answers.commits({kept: LOADING, gone: 3}), answers.commits({kept: 0, gone: 3})]
    offsets = {tp: OffsetToCommit(5, -1, "m") for tp in (kept, gone)}
    refused = requests.write_offsets("x", OpenProducer(7, 1), "g", offsets, deadline=soon())
    assert refused == {gone: "UNKNOWN_TOPIC_OR_PARTITION"}
    broker.answers[ADD] = answers.transaction_end(FENCED)
    refused = requests.write_offsets("x", OpenProducer(7, 1), "g", offsets, deadline=soon())
    assert refused == dict.fromkeys(offsets, "PRODUCER_FENCED")
