"""What the driver does with the transactions of a batch, over a coordinator that is a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, SinkTransactionError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.wire.transaction_ends import TransactionState
from pyspark_kafka_group.writing import batch_transactions
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions, TaskMessage
from pyspark_kafka_group.writing.decisions import Decision, Transaction, decision_offsets, newest_decision
from pyspark_kafka_group.writing.options import parse_write_options

EXACTLY_ONCE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery": "exactly-once"}
OPEN, COMMITTED, ABORTED = "Ongoing", "CompleteCommit", "CompleteAbort"


class Coordinator:
    """Stands in for :class:`TransactionRequests`, as far as a batch needs it."""

    def __init__(self) -> None:
        self.transactions: dict[str, TransactionState] = {}
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.partitions = 1
        self.failure: Exception | None = None

    def open(self, task: int, attempt: int = 0, *, epoch: int = 1) -> Transaction:
        self.transactions[f"kafka-group-sink-q-{task}-{attempt}"] = TransactionState(0, OPEN, task, epoch)
        return Transaction(task, attempt, task, epoch)

    def states(self) -> list[str]:
        return [found.state for found in self.transactions.values()]

    def state(self, transactional_id: str, **_: Any) -> TransactionState:
        return self.transactions.get(transactional_id, TransactionState(105, "", -1, -1))

    def end(self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, **_: Any) -> str:
        if self.failure is not None:
            raise self.failure
        found = self.state(transactional_id)
        if (found.producer_id, found.producer_epoch) != (producer_id, producer_epoch):
            return "PRODUCER_FENCED"
        wanted = COMMITTED if commit else ABORTED
        if found.state not in (OPEN, wanted):
            return "INVALID_TXN_STATE"
        self.transactions[transactional_id] = found._replace(state=wanted)
        return "NONE"

    def partition_count(self, _topic: str, **_more: Any) -> int:
        return self.partitions

    def all_committed(self, _group_id: str, **_: Any) -> dict[TopicPartition, tuple[int, str]]:
        return self.committed

    def commit(
        self, _group_id: str, _member: str, _generation: int, _instance: None, offsets: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, str]:
        there = {tp for tp in offsets if tp.partition < self.partitions}
        self.committed |= {tp: (offsets[tp][0], offsets[tp][2]) for tp in there}
        return dict.fromkeys(offsets.keys() - there, "UNKNOWN_TOPIC_OR_PARTITION")

    def close(self) -> None:
        pass


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(batch_transactions, "open_transaction_requests", lambda *_, **__: made)
    return made


@pytest.fixture
def transactions(coordinator: Coordinator) -> BatchTransactions:
    return BatchTransactions(parse_write_options(EXACTLY_ONCE), "q")


def message(transaction: Transaction) -> TaskMessage:
    return TaskMessage(1, "q", "t", transaction)


def test_a_batch_is_decided_and_committed(coordinator: Coordinator, transactions: BatchTransactions) -> None:
    made = [coordinator.open(0), coordinator.open(1)]
    transactions.commit([message(one) for one in made], 3)
    assert coordinator.states() == [COMMITTED, COMMITTED]
    assert newest_decision(coordinator.committed) == Decision(3, tuple(made))
    assert transactions.was_decided(3)


@pytest.mark.parametrize("batch", [3, None])
def test_where_one_transaction_is_gone_the_others_are_aborted(
    coordinator: Coordinator, transactions: BatchTransactions, batch: int | None
) -> None:
    """Else consumers would wait for them until their timeout."""
    messages = [message(coordinator.open(0)), message(coordinator.open(1))]
    coordinator.open(0, epoch=2)  # another attempt
    with pytest.raises(SinkTransactionError, match="the transaction of task 0 is gone"):
        transactions.commit(messages, batch)
    assert coordinator.states() == [OPEN, ABORTED]
    assert not coordinator.committed


@pytest.mark.parametrize("batch", [3, 4])
def test_a_batch_that_another_run_has_decided_meanwhile_is_not_committed_too(
    coordinator: Coordinator, transactions: BatchTransactions, batch: int
) -> None:
    """Its tasks had looked before that."""
    messages = [message(coordinator.open(5))]
    before = decision_offsets("t", Decision(batch, (Transaction(0, 0, 0, 1),)))
    coordinator.committed = before
    with pytest.raises(SinkTransactionError, match="The same checkpoint is in use twice"):
        transactions.commit(messages, 3)
    assert coordinator.states() == [ABORTED]
    assert coordinator.committed == before


def test_a_batch_that_some_tasks_found_decided_is_not_committed_twice(
    coordinator: Coordinator, transactions: BatchTransactions
) -> None:
    coordinator.committed = decision_offsets("t", Decision(3, (coordinator.open(0),)))
    messages = [TaskMessage(0, "q", decided=True), message(coordinator.open(1))]
    with pytest.raises(SinkTransactionError, match="The same checkpoint is in use twice"):
        transactions.commit(messages, 3)
    assert coordinator.states() == [OPEN, ABORTED]


def test_half_a_decision_is_not_written(coordinator: Coordinator, transactions: BatchTransactions) -> None:
    """The query could never go on with it."""
    messages = [message(coordinator.open(task)) for task in range(600)]
    with pytest.raises(SinkTransactionError, match=r"600 tasks, too many for a topic with so few partitions"):
        transactions.commit(messages, 3)
    assert {*coordinator.states()} == {ABORTED}
    assert not transactions.was_decided(3)
    coordinator.partitions = 3
    transactions.commit([message(coordinator.open(task)) for task in range(600)], 3)
    assert {*coordinator.states()} == {COMMITTED}


def test_what_cannot_be_cleaned_up_is_no_failure_of_the_batch(
    coordinator: Coordinator, transactions: BatchTransactions, caplog: pytest.LogCaptureFixture
) -> None:
    """Who believes that a job has failed writes its rows again."""
    asked = coordinator.state

    def state(transactional_id: str, **more: Any) -> TransactionState:
        if transactional_id.endswith("-0-0"):  # an attempt that was killed
            raise TryAgainError("no answer")
        return asked(transactional_id, **more)

    coordinator.state = state  # type: ignore[method-assign]
    transactions.commit([message(coordinator.open(0, attempt=1))], None)
    assert coordinator.states() == [COMMITTED]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_missing_right_to_keep_the_decision_is_named(
    coordinator: Coordinator, transactions: BatchTransactions
) -> None:
    def refuse(*_: Any) -> None:
        raise AuthenticationError("TOPIC_AUTHORIZATION_FAILED.")

    coordinator.commit = refuse  # type: ignore[assignment,method-assign]
    with pytest.raises(AuthenticationError, match=r"needs READ on the topic 't' and on the group 'kafka-group-sink-q'"):
        transactions.commit([message(coordinator.open(0))], 3)


def test_what_is_gone_behind_the_decision_is_not_said_to_be_lost(
    coordinator: Coordinator, transactions: BatchTransactions
) -> None:
    """Another run may have committed it."""
    made = coordinator.open(0), coordinator.open(1)
    coordinator.committed = decision_offsets("t", Decision(3, made))
    coordinator.open(1, epoch=2)
    with pytest.raises(SinkTransactionError, match=r"tasks \[1\] are gone.*Look before you write"):
        transactions.commit([TaskMessage(0, "q", decided=True)], 3)
    assert coordinator.states() == [COMMITTED, OPEN]


@pytest.mark.parametrize(
    ("failure", "attempts"), [(TryAgainError("no answer"), 2), (BrokerError("no"), 2), (AuthenticationError("no"), 1)]
)
def test_what_cannot_be_aborted_hides_no_other_error(
    coordinator: Coordinator,
    transactions: BatchTransactions,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    attempts: int,
) -> None:
    coordinator.failure = failure
    transactions.abort([coordinator.open(0), coordinator.open(1)])
    assert len(caplog.records) == attempts
