"""How the transactions of a batch are committed: all of them or none, and once.

Each task writes in a transaction, flushes it and leaves it open; its message to the driver names it.  When all tasks
are done, the driver

1. looks whether each transaction is still there,
2. for a stream notes the decision to commit them in Kafka (`decisions`),
3. commits them.

A batch that Spark runs again begins with a look at the decision.  If there is one, the batch was written: its tasks
write nothing, and the driver goes on with 3.  If there is none, nothing of the batch can be seen, and nothing ever
will: its tasks take the transactional ids over, which aborts what was left open.  So it does not matter how rows are
spread over tasks, or in which order, nor whether that is the same the next time.

Belongs to one thread; runs in tasks, and in the planning process of the driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.transaction_ends import TransactionRequests, open_transaction_requests
from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    KafkaGroupError,
    OptionError,
    SinkTransactionError,
)
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.writing.decisions import (
    Decision,
    Transaction,
    decision_offsets,
    newest_decision,
    sink_group,
    sink_transactional_id,
)
from pyspark_kafka_group.writing.options import WriterSettings

log = logging.getLogger("pyspark_kafka_group.writing")

PATIENCE_S = 60.0
"""How long a step may take, while brokers restart say."""

_OPEN = "Ongoing"
_MOST_ATTEMPTS = 10  # of a task; Spark's default is 4
_GONE = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE"})


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver.

    Attributes
    ----------
    rows : int
        How many rows it has written.
    name : str
        What transactional ids are called after: the query, or the run of a batch job; empty without transactions.
    topic : str
        A topic that it has written to; empty if it has written nothing.
    transaction : Transaction or None
        What is to be committed; None if it has written nothing.
    decided : bool
        Whether it has written nothing because the batch was decided before.
    speculative : bool
        Whether Spark may run tasks twice at the same time.
    """

    rows: int
    name: str = ""
    topic: str = ""
    transaction: Transaction | None = None
    decided: bool = False
    speculative: bool = False


class BatchTransactions:
    """The transactions of one query, or of one batch job.

    Parameters
    ----------
    settings : WriterSettings
        The options.
    name : str
        What transactional ids are called after.

    Raises
    ------
    OptionError
        If only librdkafka can connect to the cluster.
    """

    def __init__(self, settings: WriterSettings, name: str) -> None:
        requests = open_transaction_requests(settings.properties, client_id="kafka-group-sink")
        if requests is None:
            raise OptionError(
                "delivery",
                "exactly-once reaches the cluster in plain text, by TLS with PEM, and by SASL with PLAIN, SCRAM or "
                "OAUTHBEARER with OIDC, and the kafka.* properties ask for something else.",
                "Use one of these, or delivery=at-least-once.",
            )
        self._requests: TransactionRequests = requests
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close()

    # -- in a task

    def was_decided(self, batch: int) -> bool:
        """Tell whether the batch was decided to be committed, and so was written.

        Raises
        ------
        SinkTransactionError
            If a later batch was: the checkpoint is an old copy.
        """
        found = self._decision()
        if found is not None and found.batch > batch:
            raise SinkTransactionError(
                f"Batch {batch} is to be written, but this query has written batch {found.batch}. The checkpoint was "
                f"restored from an older copy, and its next batches have the numbers of batches that were written. Use "
                f"the newest checkpoint, or a new one."
            )
        return found is not None and found.batch == batch

    def opened(self, task: int, attempt: int) -> Transaction:
        """Return the transaction of a producer that has just taken its transactional id over.

        Deliberate: asked before the first record is sent.  If somebody takes the id over in between, the producer that
        is named here is not ours; but then none of our records is taken, and the task fails.
        """
        found = self._state(task, attempt)
        return Transaction(task, attempt, found[1], found[2])

    def abort(self, transactions: Sequence[Transaction]) -> None:
        """Abort open transactions, so that nobody waits for their timeout; as far as that can be done now."""
        deadline = Deadline.after(PATIENCE_S)
        for transaction in transactions:
            try:
                self._end(transaction, commit=False, patience_s=min(5.0, deadline.left_s))
            except (TryAgainError, KafkaGroupError) as problem:
                log.warning("A transaction stays open until its timeout: %s", problem)
                if isinstance(problem, AuthenticationError):
                    return  # more attempts may lock the account

    # -- in the driver

    def abort_unfinished(self, tasks: Sequence[int]) -> None:
        """Abort what tasks that have failed, or were killed, have left open."""
        for task in tasks:
            for attempt in range(_MOST_ATTEMPTS):
                state, producer_id, epoch = self._state(task, attempt)
                if state == _OPEN:
                    self.abort([Transaction(task, attempt, producer_id, epoch)])
                elif producer_id < 0:
                    break

    def commit(self, messages: Sequence[TaskMessage], batch: int | None) -> None:
        """Commit a batch.

        Parameters
        ----------
        messages : sequence of TaskMessage
            Of all tasks.
        batch : int or None
            The number of the batch; None for a batch job, which is not run again.

        Raises
        ------
        SinkTransactionError
            The text says what is in Kafka, and what to do.
        """
        written = [message for message in messages if message.transaction is not None]
        transactions = sorted(message.transaction for message in written if message.transaction is not None)
        if any(message.decided for message in messages):
            found = self._decision()
            if found is None or found.batch != batch or not all(message.decided for message in messages):
                self.abort(transactions)  # the decision names those of somebody else
                raise _twice(batch)
            log.warning("Batch %s was written before; its transactions are committed if they are not yet.", batch)
            self._commit_all(found.transactions, batch)
            return
        if not transactions:
            return
        topic = min(message.topic for message in written)
        try:
            self._check_open(transactions, batch)
            before = self._decision_before(topic, Decision(batch, tuple(transactions))) if batch is not None else None
        except KafkaGroupError:
            # Nothing is decided.  A stream would take them over when it runs again, a batch job never does.
            self.abort(transactions)
            raise
        if batch is not None:
            self._decide(topic, Decision(batch, tuple(transactions)))
        self._commit_all(transactions, batch)
        speculative = any(message.speculative for message in messages)
        try:
            self._abort_leftovers(transactions, before.transactions if before else (), speculative=speculative)
        except KafkaGroupError as problem:  # no reason to say that the batch has failed, and to have it written again
            log.warning("Transactions of killed attempts may stay open until their timeout: %s", problem)

    def _check_open(self, transactions: Sequence[Transaction], batch: int | None) -> None:
        for transaction in transactions:
            state, producer_id, epoch = self._state(transaction.task, transaction.attempt)
            if (state, producer_id, epoch) != (_OPEN, transaction.producer_id, transaction.epoch):
                raise SinkTransactionError(
                    f"{_what(batch)}: the transaction of task {transaction.task} is gone (it is {state}). The batch "
                    f"took longer than kafka.transaction.timeout.ms, or a late attempt of the task took its place. "
                    f"Nothing of the batch can be seen in Kafka; it may be written again. Raise "
                    f"kafka.transaction.timeout.ms, and transaction.max.timeout.ms on the brokers, or write smaller "
                    f"batches."
                )

    def _decision_before(self, topic: str, decision: Decision) -> Decision | None:
        """Return the decision that is about to be replaced, when it is sure that it may and can be."""
        before = self._decision()
        if before is not None and before.batch >= decision.batch:
            raise _twice(decision.batch)
        pieces = len(decision_offsets(topic, decision))
        if pieces > 1:
            # Kafka refuses pieces for partitions that do not exist, and takes the others: half a decision, with which
            # the query could never go on.
            try:
                count = self._requests.partition_count(topic, deadline=Deadline.after(PATIENCE_S))
            except TryAgainError as problem:
                raise _unanswered(problem) from None
            if count < pieces:
                raise _too_many_tasks(decision, TopicPartition(topic, pieces - 1))
        return before

    def _decide(self, topic: str, decision: Decision) -> None:
        offsets = {tp: (Offset(offset), None, text) for tp, (offset, text) in decision_offsets(topic, decision).items()}
        deadline = Deadline.after(PATIENCE_S)
        while True:
            try:
                refused = self._requests.commit(sink_group(self._name), "", -1, None, offsets)
            except AuthenticationError as problem:
                raise AuthenticationError(
                    f"{_what(decision.batch)}: the decision to commit it cannot be kept: {problem} The user of this "
                    f"query needs READ on the topic {topic!r} and on the group {sink_group(self._name)!r}."
                ) from None
            except TryAgainError as problem:
                # To write the same once more does no harm.
                if deadline.passed:
                    raise BrokerError(
                        f"{_what(decision.batch)}: the decision to commit it could not be written: {problem}. Check "
                        f"the brokers; when the query is started again, it goes on with this batch."
                    ) from None
                time.sleep(0.1)
                continue
            if not refused:
                return
            tp, name = next(iter(refused.items()))
            raise SinkTransactionError(
                f"{_what(decision.batch)}: the decision to commit it cannot be kept with {tp}: {name}. Nothing of the "
                f"batch can be seen in Kafka. Grant the user of this query READ on the topic and on the group "
                f"{sink_group(self._name)!r}."
            )

    def _commit_all(self, transactions: Sequence[Transaction], batch: int | None) -> None:
        lost = []
        for transaction in transactions:
            try:
                name = self._end(transaction, commit=True, patience_s=PATIENCE_S)
            except TryAgainError as problem:
                raise BrokerError(
                    f"{_what(batch)}: it is decided, and task {transaction.task} could not be told to the coordinator "
                    f"of its transaction: {problem}. Check the brokers; "
                    + (
                        "some of the rows are written, and the rest is lost when its transactions time out."
                        if batch is None
                        else "when the query is started again within kafka.transaction.timeout.ms, it goes on here, "
                        "and nothing is lost or written twice."
                    )
                ) from None
            if name in _GONE:
                lost.append(transaction.task)
            elif name != NONE:
                raise SinkTransactionError(f"{_what(batch)}: the transaction of task {transaction.task}: {name}.")
        if lost:
            raise SinkTransactionError(
                f"{_what(batch)} was to be committed, but the transactions of tasks {lost} are gone. The rows of the "
                f"other {len(transactions) - len(lost)} tasks are in Kafka. Those of these tasks are not if more than "
                f"kafka.transaction.timeout.ms has passed since they were written; they are if another run of this "
                f"query had committed the batch and went on. Look before you write what is missing by hand"
                + ("." if batch is None else ", and start the query with a new checkpoint behind this batch.")
            )

    def _abort_leftovers(
        self, committed: Sequence[Transaction], before: Sequence[Transaction], *, speculative: bool
    ) -> None:
        """Abort what nobody will take over: it would keep consumers waiting until its timeout.

        Of attempts that were killed, and of tasks that the batch had in a former run, as the batch before, and has no
        more.
        """
        mine = {(one.task, one.attempt) for one in committed}
        others = {(one.task, attempt) for one in committed for attempt in range(one.attempt + 1 + speculative)}
        others |= {(one.task, one.attempt) for one in before}
        for task, attempt in sorted(others - mine):
            state, producer_id, epoch = self._state(task, attempt)
            if state == _OPEN:
                self.abort([Transaction(task, attempt, producer_id, epoch)])

    # -- requests

    def _decision(self) -> Decision | None:
        try:
            group = sink_group(self._name)
            committed = self._requests.all_committed(group, deadline=Deadline.after(PATIENCE_S))
        except TryAgainError as problem:
            raise _unanswered(problem) from None
        return newest_decision(committed)

    def _state(self, task: int, attempt: int) -> tuple[str, int, int]:
        transactional_id = sink_transactional_id(self._name, task, attempt)
        try:
            found = self._requests.state(transactional_id, deadline=Deadline.after(PATIENCE_S))
        except TryAgainError as problem:
            raise _unanswered(problem) from None
        if (name := error_name(found.error)) != NONE:
            return name, -1, -1
        return found.state, found.producer_id, found.producer_epoch

    def _end(self, transaction: Transaction, *, commit: bool, patience_s: float) -> str:
        return self._requests.end(
            sink_transactional_id(self._name, transaction.task, transaction.attempt),
            transaction.producer_id,
            transaction.epoch,
            commit=commit,
            deadline=Deadline.after(patience_s),
        )


def _twice(batch: int | None) -> SinkTransactionError:
    return SinkTransactionError(
        f"Batch {batch} was committed by somebody else while it was written. The same checkpoint is in use twice: stop "
        f"one of the queries."
    )


def _too_many_tasks(decision: Decision, tp: TopicPartition) -> SinkTransactionError:
    return SinkTransactionError(
        f"{_what(decision.batch)}: the decision to commit it cannot be kept, for there is no partition {tp}. Nothing "
        f"of the batch can be seen in Kafka. It has {len(decision.transactions)} tasks, too many for a topic with so "
        f"few partitions: write with fewer tasks, as in .coalesce(100)."
    )


def _what(batch: int | None) -> str:
    return "The write" if batch is None else f"Batch {batch}"


def _unanswered(problem: Exception) -> BrokerError:
    return BrokerError(f"The cluster does not answer: {problem}. Check kafka.bootstrap.servers and the brokers.")
