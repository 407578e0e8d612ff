"""How the driver handles the transactions of a batch, with a table as the coordinator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest

from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.transactions import FENCED_MS, Ended, OpenProducer
from pyspark_kafka_group.offsets.errors import AuthenticationError, BrokerError, SinkTransactionError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.wire.error_codes import error_code
from pyspark_kafka_group.wire.transactions import TransactionState
from pyspark_kafka_group.writing import batch_transactions
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions
from pyspark_kafka_group.writing.commit_decision import (
    Decision,
    TaskMessage,
    Transaction,
    decision_offsets,
    newest_decision,
)
from pyspark_kafka_group.writing.options import parse_write_options
from pyspark_kafka_group.writing.row_digest import RowDigest

EXACTLY_ONCE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery": "exactly-once"}
OPEN, COMMITTED, ABORTED, EMPTY = "Ongoing", "CompleteCommit", "CompleteAbort", "Empty"
TIMEOUT_MS = 900_000
DRIVER = "kafka-group-sink-q-driver"
ROW = RowDigest(1, 7)
ATTEMPT = "kafka-group-sink-q-9-0"


class Coordinator:
    """A fake of :class:`Cluster`, as far as a batch needs it."""

    def __init__(self) -> None:
        self.transactions: dict[str, TransactionState] = {}
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.pending: dict[TopicPartition, tuple[int, str]] = {}
        self.topics = {"t"}
        self.old: frozenset[str] = frozenset()
        self.refused = "UNKNOWN_TOPIC_OR_PARTITION"
        self.silent: set[str] = set()
        self.failure: Exception | None = None

    def open(self, task: int, slot: int = 0, *, epoch: int = 1) -> Transaction:
        self.transactions[f"kafka-group-sink-q-{task}-{slot}"] = TransactionState(0, OPEN, task, epoch, TIMEOUT_MS)
        return Transaction(task, slot, task, epoch)

    def states_now(self) -> list[str]:
        return [found.state for name, found in self.transactions.items() if name != DRIVER]

    def states(self, transactional_ids: Collection[str], **_: Any) -> dict[str, TransactionState]:
        unknown = TransactionState(105, "", -1, -1, 0)
        return {name: self.transactions.get(name, unknown) for name in transactional_ids}

    def end(self, producers: Mapping[str, OpenProducer], *, commit: bool, **_: Any) -> Ended:
        if self.failure is not None:
            raise self.failure
        silent = {name: "no answer" for name in producers if name in self.silent}
        return Ended(
            {name: self._end(name, *one, commit=commit) for name, one in producers.items() if name not in silent},
            silent,
        )

    def _end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> str:
        found = self.transactions.get(transactional_id)
        if found is None:
            return "INVALID_PRODUCER_ID_MAPPING"
        if (found.producer_id, found.producer_epoch) != (producer_id, epoch):
            return "PRODUCER_FENCED"
        wanted = COMMITTED if commit else ABORTED
        if found.state not in (OPEN, wanted):
            return "INVALID_TXN_STATE"
        if transactional_id == DRIVER:
            self.committed |= self.pending if commit else {}
            self.pending = {}
        self.transactions[transactional_id] = found._replace(state=wanted)
        return "NONE"

    def fence(self, transactional_ids: Collection[str], **_: Any) -> dict[str, str]:
        for name in transactional_ids:
            found = self.transactions[name]
            state = ABORTED if found.state == OPEN else found.state
            self.transactions[name] = found._replace(
                state=state, producer_epoch=found.producer_epoch + 1, timeout_ms=FENCED_MS
            )
        return {}

    def take_over(self, transactional_id: str, _timeout_ms: int, **_: Any) -> OpenProducer:
        epoch = self.transactions[transactional_id].producer_epoch + 1 if transactional_id in self.transactions else 0
        self.transactions[transactional_id] = TransactionState(0, EMPTY, 1000, epoch, 20_000)
        self.pending = {}
        return OpenProducer(1000, epoch)

    def write_offsets(
        self,
        transactional_id: str,
        producer: OpenProducer,
        _group: str,
        offsets: Mapping[TopicPartition, Any],
        **_: Any,
    ) -> dict[TopicPartition, str]:
        found = self.transactions[transactional_id]
        assert (found.producer_id, found.producer_epoch) == producer
        self.transactions[transactional_id] = found._replace(state=OPEN)
        self.pending = {tp: (one.offset, one.metadata) for tp, one in offsets.items() if tp.topic in self.topics}
        return dict.fromkeys(offsets.keys() - self.pending.keys(), self.refused)

    def listed(self, prefix: str, states: Collection[str], *, longer_than_ms: int = -1, **_: Any) -> frozenset[str]:
        if longer_than_ms >= 0:
            assert longer_than_ms == 840_000
            return self.old
        if self.failure is not None:
            raise self.failure
        assert all(name.startswith(prefix) for name in self.transactions)
        return frozenset(name for name, found in self.transactions.items() if found.state in states)

    def stable_offsets(self, _group_id: str, **_: Any) -> dict[TopicPartition, CommittedOffset]:
        return {tp: CommittedOffset(Offset(offset), None, text) for tp, (offset, text) in self.committed.items()}

    def close(self) -> None:
        pass


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(batch_transactions, "connect", lambda *_, **__: made)
    return made


def sink(**more: str) -> BatchTransactions:
    return BatchTransactions(parse_write_options(EXACTLY_ONCE | more), "q")


def message(transaction: Transaction, *topics: str) -> TaskMessage:
    return TaskMessage(1, "q", topics or ("t",), transaction, digest=ROW)


def decided(batch: int, *made: Transaction) -> dict[TopicPartition, tuple[int, str]]:
    return decision_offsets(["t"], Decision(batch, made, ROW))


FOUND_DECIDED = TaskMessage(0, "q", decided=True, digest=ROW)


def test_a_batch_is_decided_and_committed(kafka: Coordinator) -> None:
    driver = sink()
    made = [kafka.open(0), kafka.open(1)]
    driver.commit([message(one) for one in made], 3)
    assert kafka.states_now() == [COMMITTED, COMMITTED]
    assert newest_decision(kafka.committed) == Decision(3, tuple(made), RowDigest(2, 14))
    assert driver.was_decided(3)


def test_the_prefix_is_an_option(kafka: Coordinator) -> None:
    assert sink(transactionalIdPrefix="team-a-").transactional_id(3, 1) == "team-a-q-3-1"


@pytest.mark.parametrize("batch", [3, None])
def test_where_one_transaction_is_gone_the_others_are_aborted(kafka: Coordinator, batch: int | None) -> None:
    """Otherwise consumers would wait for the others until these time out."""
    messages = [message(kafka.open(0)), message(kafka.open(1))]
    kafka.open(0, epoch=2)
    with pytest.raises(SinkTransactionError, match="the transaction of task 0 is gone"):
        sink().commit(messages, batch)
    assert kafka.states_now() == [OPEN, ABORTED]
    assert not kafka.committed


@pytest.mark.parametrize("batch", [3, None])
def test_a_batch_with_too_little_time_left_is_not_committed(kafka: Coordinator, batch: int | None) -> None:
    messages = [message(kafka.open(0)), message(kafka.open(1))]
    kafka.old = frozenset({"kafka-group-sink-q-1-0", "kafka-group-sink-q-8-0"})
    with pytest.raises(SinkTransactionError, match="1 of 2 transactions would end by their timeout in less than 60 s"):
        sink().commit(messages, batch)
    assert kafka.states_now() == [ABORTED, ABORTED]
    assert not kafka.committed


@pytest.mark.parametrize("batch", [3, 4])
def test_a_batch_that_another_run_has_decided_meanwhile_is_not_committed_too(kafka: Coordinator, batch: int) -> None:
    """Its tasks checked before the other run decided."""
    messages = [message(kafka.open(5))]
    before = decided(batch, Transaction(0, 0, 0, 1))
    kafka.committed = before
    with pytest.raises(SinkTransactionError, match="checkpoint is in use twice"):
        sink().commit(messages, 3)
    assert kafka.states_now() == [ABORTED]
    assert kafka.committed == before


def test_a_batch_that_some_tasks_found_decided_is_not_committed_twice(kafka: Coordinator) -> None:
    kafka.committed = decided(3, kafka.open(0))
    messages = [FOUND_DECIDED, message(kafka.open(1))]
    with pytest.raises(SinkTransactionError, match="checkpoint is in use twice"):
        sink().commit(messages, 3)
    assert kafka.states_now() == [OPEN, ABORTED]


def test_a_decision_that_is_gone_since_the_tasks_found_it_is_an_error(kafka: Coordinator) -> None:
    with pytest.raises(SinkTransactionError, match="checkpoint is in use twice"):
        sink().commit([FOUND_DECIDED], 3)


@pytest.mark.parametrize("count", [299, 300])
def test_many_tasks_are_a_warning_before_they_are_an_error(
    kafka: Coordinator, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Whether a decision has room depends on the producer ids, which drift apart over months."""
    sink().commit([message(kafka.open(task)) for task in range(count)], 3)
    assert ["300 tasks with rows" in record.getMessage() for record in caplog.records] == [True] * (count == 300)


def test_a_batch_with_too_many_tasks_is_not_decided(kafka: Coordinator) -> None:
    driver = sink()
    messages = [message(kafka.open(task, epoch=task * task % 2**15)) for task in range(3000)]
    with pytest.raises(SinkTransactionError, match=r"3000 tasks with rows"):
        driver.commit(messages, 3)
    assert {*kafka.states_now()} == {ABORTED}
    assert not driver.was_decided(3)


def test_each_topic_keeps_the_decision_unless_it_is_gone(kafka: Coordinator) -> None:
    driver = sink()
    kafka.topics = {"t", "u"}
    driver.commit([message(kafka.open(0), "t", "v"), message(kafka.open(1), "u")], 3)
    assert {tp.topic for tp in kafka.committed} == {"t", "u"}
    with pytest.raises(SinkTransactionError, match="The topic was deleted"):
        driver.commit([message(kafka.open(0), "v")], 4)
    assert kafka.transactions["kafka-group-sink-q-0-0"].state == ABORTED


def test_a_missing_right_on_one_topic_is_named_and_nothing_stays_open(kafka: Coordinator) -> None:
    """Regression: the transactions stayed open for 15 minutes while an operator granted the right."""
    kafka.refused = "TOPIC_AUTHORIZATION_FAILED"
    with pytest.raises(AuthenticationError, match=r"READ on the topic 'v' and on the group 'kafka-group-sink-q'"):
        sink().commit([message(kafka.open(0), "t", "v")], 3)
    assert kafka.states_now() == [ABORTED]
    assert not kafka.committed


def test_a_deleted_topic_does_not_hide_a_missing_right(kafka: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {
        TopicPartition("gone", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        TopicPartition("v", 0): "TOPIC_AUTHORIZATION_FAILED",
    }
    monkeypatch.setattr(kafka, "write_offsets", lambda *_, **__: refused)
    with pytest.raises(AuthenticationError, match="READ on the topic 'v' and on"):
        sink().commit([message(kafka.open(0), "gone", "t", "v")], 3)


def test_what_nobody_commits_is_aborted(kafka: Coordinator) -> None:
    """These are killed attempts of this run or an earlier one.

    They have sent records, or were about to send the first.
    """
    driver = sink()
    made = kafka.open(0, slot=1)
    kafka.open(0)
    kafka.open(7, slot=4)
    kafka.transactions[ATTEMPT] = TransactionState(0, EMPTY, 9, 3, TIMEOUT_MS)
    driver.commit([message(made)], 3)
    assert kafka.states_now() == [COMMITTED, ABORTED, ABORTED, EMPTY]
    assert kafka.transactions[ATTEMPT].producer_epoch == 4
    # Regression: each batch fenced the unused ids of failed attempts again.
    driver.commit([message(kafka.open(0, slot=1))], 4)
    assert kafka.transactions[ATTEMPT].producer_epoch == 4
    kafka.transactions[ATTEMPT] = TransactionState(0, EMPTY, 9, 5, TIMEOUT_MS)
    driver.commit([message(kafka.open(0, slot=1))], 5)
    assert kafka.transactions[ATTEMPT].producer_epoch == 6, "another attempt has taken it"


@pytest.mark.parametrize("failure", [TryAgainError("no answer"), BrokerError("no")])
def test_what_cannot_be_cleaned_up_is_no_failure_of_the_batch(
    kafka: Coordinator,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
) -> None:
    """A user who believes that a job has failed writes its rows again."""
    monkeypatch.setattr(kafka, "fence", MagicMock(side_effect=failure))
    sink().commit([message(kafka.open(0, slot=1))], None)
    assert kafka.states_now() == [COMMITTED]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_what_is_gone_behind_the_decision_is_not_said_to_be_lost(kafka: Coordinator) -> None:
    """Another run may have committed the transaction, or the transaction has expired."""
    made = kafka.open(0), kafka.open(1), Transaction(2, 0, 77, 0)
    kafka.committed = decided(3, *made)
    kafka.open(1, epoch=2)
    with pytest.raises(SinkTransactionError, match=r"tasks \[1, 2\] are gone.*cannot find out whether.*acceptBatch=3"):
        sink().commit([FOUND_DECIDED], 3)
    assert kafka.states_now()[0] == COMMITTED
    sink(acceptBatch="3").commit([FOUND_DECIDED], 3)


@pytest.mark.parametrize(
    ("rows", "accepted", "refused"),
    [
        (RowDigest(1, 7), {}, False),
        (RowDigest(1, 8), {}, True),
        (RowDigest(1, 8), {"acceptBatch": "fewerRows"}, True),
        (RowDigest(2, 7), {"acceptBatch": "FEWERROWS"}, True),
        (RowDigest(0, 0), {}, True),
        (RowDigest(0, 0), {"acceptBatch": "fewerrows"}, False),
        (RowDigest(0, 0), {"acceptBatch": "2"}, True),
        (RowDigest(2, 9), {"acceptBatch": "3"}, False),
    ],
)
def test_another_batch_with_the_number_of_the_written_one(
    kafka: Coordinator, rows: RowDigest, accepted: dict[str, str], refused: bool
) -> None:
    """Regression: the sink took it for the written batch, and its rows were lost."""
    kafka.committed = decided(3, kafka.open(0))
    told = pytest.raises(SinkTransactionError, match=r"Batch 3 was written.*changed the query.*acceptBatch=3")
    with told if refused else nullcontext():
        sink(**accepted).commit([replace(FOUND_DECIDED, digest=rows)], 3)
    assert kafka.states_now() == [COMMITTED], "what was decided is committed in any case"


def test_a_silent_coordinator_behind_the_decision_is_no_loss(kafka: Coordinator) -> None:
    driver = sink()
    kafka.silent = {"kafka-group-sink-q-0-0"}
    messages = [message(kafka.open(0)), message(kafka.open(1))]
    with pytest.raises(BrokerError, match=r"tasks \[0\] do not answer.*the other 1 tasks.*continues here"):
        driver.commit(messages, 3)
    assert kafka.states_now() == [OPEN, COMMITTED]
    kafka.silent = set()
    driver.commit([replace(FOUND_DECIDED, digest=RowDigest(2, 14))], 3)
    assert kafka.states_now() == [COMMITTED, COMMITTED]


def test_what_is_lost_of_a_batch_job_is_named(kafka: Coordinator) -> None:
    kafka.silent = {"kafka-group-sink-q-0-0"}
    with pytest.raises(
        SinkTransactionError, match=r"tasks \[0\] could not be committed.*the other 1 tasks are in Kafka"
    ):
        sink().commit([message(kafka.open(0)), message(kafka.open(1))], None)


def test_killed_attempts_of_a_batch_job_are_also_aborted_if_its_commit_fails(kafka: Coordinator) -> None:
    """A batch job has no next run.  A transaction without an answer may still be committed."""
    kafka.silent = {"kafka-group-sink-q-0-0"}
    messages = [message(kafka.open(0)), message(kafka.open(1))]
    kafka.open(1, slot=4)
    with pytest.raises(SinkTransactionError, match="The write is incomplete"):
        sink().commit(messages, None)
    assert kafka.states_now() == [OPEN, COMMITTED, ABORTED]


def test_a_decision_without_an_answer_is_not_taken_back(kafka: Coordinator) -> None:
    kafka.silent = {DRIVER}
    with pytest.raises(BrokerError, match="it is unknown whether the decision to commit it was written"):
        sink().commit([message(kafka.open(0))], 3)
    assert kafka.states_now() == [OPEN]


def test_what_was_decided_is_left_alone_when_all_others_are_aborted(kafka: Coordinator) -> None:
    kafka.committed = decided(3, kafka.open(0))
    kafka.open(1)
    sink().abort_all(stream=True)
    assert kafka.states_now() == [OPEN, ABORTED]


def test_what_was_decided_is_left_alone_if_its_state_is_unknown(
    kafka: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kafka may have moved between the two questions."""
    kafka.committed = decided(3, kafka.open(0))
    unknown, states = TransactionState(error_code("NOT_COORDINATOR"), "", -1, -1, 0), kafka.states
    monkeypatch.setattr(kafka, "states", lambda ids, **_: states(ids) | dict.fromkeys({*ids} - {DRIVER}, unknown))
    sink().abort_all(stream=True)
    assert kafka.states_now() == [OPEN]


def test_a_later_batch_with_the_ids_of_the_last_decision_is_aborted(kafka: Coordinator) -> None:
    """Regression: its transactions stayed open, and readers of committed records waited for their timeout."""
    driver = sink()
    driver.commit([message(kafka.open(0)), message(kafka.open(1))], 3)
    kafka.open(0, epoch=2)
    driver.abort_all(stream=True)
    assert kafka.states_now() == [ABORTED, COMMITTED]


def test_a_task_that_has_begun_and_sent_nothing_is_fenced_after_a_failed_batch(kafka: Coordinator) -> None:
    """Regression: it sent its records later, and readers of committed records waited for its timeout."""
    driver = sink()
    driver.commit([message(kafka.open(0)), message(kafka.open(1))], 3)
    begun = TransactionState(0, EMPTY, 0, 2, TIMEOUT_MS)
    kafka.transactions["kafka-group-sink-q-0-0"] = begun
    driver.abort_all(stream=True)
    assert kafka.transactions["kafka-group-sink-q-0-0"].producer_epoch == 3
    assert kafka.transactions["kafka-group-sink-q-1-0"].producer_epoch == 1


def test_a_driver_that_another_one_has_replaced_leaves_its_transactions_alone(
    kafka: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example: the driver waited for a kafka, while the query started again and wrote its next batch."""
    ended = kafka.end

    def end(producers: Mapping[str, OpenProducer], **more: Any) -> Ended:
        found = ended(producers, **more)
        if DRIVER not in producers:
            kafka.take_over(DRIVER, 0)
            kafka.open(7)
        return found

    monkeypatch.setattr(kafka, "end", end)
    sink().commit([message(kafka.open(0))], 3)
    assert kafka.states_now() == [COMMITTED, OPEN]


def test_a_task_takes_no_transaction_that_is_open(kafka: Coordinator) -> None:
    kafka.open(5, slot=1)
    kafka.open(5, slot=2)
    kafka.transactions["kafka-group-sink-q-5-3"] = TransactionState(0, COMMITTED, 5, 8, TIMEOUT_MS)
    assert [sink().free_slot(5, attempt) for attempt in range(4)] == [(0, -1), (3, 8), (3, 8), (3, 8)]


def test_a_task_takes_no_transactional_id_whose_state_is_unknown(kafka: Coordinator) -> None:
    """To use it would abort a transaction that an earlier run may have decided to commit."""
    kafka.transactions["kafka-group-sink-q-5-0"] = TransactionState(error_code("INVALID_REQUEST"), "", -1, -1, 0)
    with pytest.raises(SinkTransactionError, match=r"'kafka-group-sink-q-5-0' is in use: INVALID_REQUEST\."):
        sink().free_slot(5, 0)


@pytest.mark.parametrize("failure", [TryAgainError("no answer"), BrokerError("no"), AuthenticationError("no")])
def test_what_cannot_be_aborted_hides_no_other_error(
    kafka: Coordinator,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    driver = sink()
    kafka.failure = failure
    driver.abort([kafka.open(0), kafka.open(1)])
    driver.abort_all(stream=False)
    assert len(caplog.records) == 2
