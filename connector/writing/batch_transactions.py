"""Commits the transactions of a batch: all of them or none, and once.

Each task writes in a transaction, flushes it and leaves it open.  Its message to the driver names the transaction.
When all tasks have ended, the driver

1. takes over the transactional id of the query's driver: from then on, brokers refuse all requests of another driver,
2. reads the decision (`commit_decision`), and checks that each transaction is still open and has enough time left,
3. writes the decision to commit them, in its own transaction,
4. commits them,
5. aborts every other open transaction of the query.

If Spark repeats a batch, each task first reads the decision.

* If it is for this batch, the batch was written.  The tasks write nothing, and the driver continues with step 4.  Then
  it compares the rows with those that were written.
* If not, consumers cannot read anything that an earlier run has written of the batch, and never will.  The tasks write
  in other transactions.

So a repeated batch may have other tasks, and its rows another order.

A batch job has no decision, because Spark does not repeat it.

Belongs to one thread.  Runs in tasks, and in the planning process of the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.transactions import FENCED_MS, OpenProducer
from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    KafkaGroupError,
    SinkTransactionError,
)
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import NONE, error_name
from pyspark_kafka_group.wire.group_requests import OffsetToCommit
from pyspark_kafka_group.writing.commit_decision import (
    MOST_TOPICS,
    Decision,
    TaskMessage,
    Transaction,
    decision_offsets,
    newest_decision,
)
from pyspark_kafka_group.writing.delivery_errors import (
    DELETED,
    accept,
    decision_refused,
    named,
    no_right,
    twice,
    unanswered,
)
from pyspark_kafka_group.writing.options import FEWER_ROWS, WriterSettings
from pyspark_kafka_group.writing.row_digest import total

log = logging.getLogger("pyspark_kafka_group.writing")

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long a step may take, for example while brokers restart."""

# How long the transaction with the decision may be open.  If a driver dies meanwhile, the next run waits for the end of
# this transaction before it can read the decision.  Brokers take up to 10 s to notice the timeout, and both together
# must take less than PATIENCE_S.
_DECISION_S = 20.0

_ABORT_S = 15.0  # how long an abort may take: transactions that it misses end by their timeout
_MARGIN_S = 60.0  # how much of its timeout a transaction must have left for the commit
_MANY_TASKS = 300
"""From how many tasks on to warn: a decision has room for 400 to 870, fewer if producer ids are far apart."""

_MOST_SLOTS = 1000  # of a task; each occupied slot is an open transaction of an earlier attempt

_OPEN, _BEGUN = "Ongoing", "Empty"  # a transaction with records; a producer that has sent none yet
_UNUSED = "TRANSACTIONAL_ID_NOT_FOUND"
_GONE = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE"})


class BatchTransactions:
    """The transactions of one query, or of one batch job.

    Parameters
    ----------
    settings : WriterSettings
        The parsed options.
    name : str
        The id of the query or of the batch job, which is part of transactional ids.

    Raises
    ------
    OptionError
        If our own connections do not support a property.
    """

    def __init__(self, settings: WriterSettings, name: str) -> None:
        self._requests = connect(settings.properties, client_id="kafka-group-sink")
        self._settings = settings
        self._group = f"{settings.transactional_id_prefix}{name}"
        self._driver_id = f"{self._group}-driver"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close()

    # -- in a task

    def was_decided(self, batch: int) -> bool:
        """Return whether an earlier run has decided to commit the batch.

        Raises
        ------
        SinkTransactionError
            If the decision is for a later batch: the checkpoint is an old copy.
        """
        found = self._decision()
        if found is not None and found.batch > batch:
            raise SinkTransactionError(
                f"Batch {batch} is to be written, but this query has already written batch {found.batch}. Either the "
                f"checkpoint was restored from an older copy, so that batch numbers repeat: use the newest checkpoint, "
                f"or a new one. Or another query runs with a copy of this checkpoint: give each query its own "
                f"checkpoint."
            )
        return found is not None and found.batch == batch

    def free_slot(self, task: int, attempt: int) -> tuple[int, int]:
        """Return which of its transactional ids a task may use, and the epoch of its last producer; -1 if it is new.

        Deliberate: never one whose transaction is open.  To use it would abort a transaction that an earlier run may
        have decided to commit, or that belongs to another attempt.  Attempts begin at different numbers, so that two
        simultaneous attempts do not choose the same id.
        """
        for slot in range(attempt, attempt + _MOST_SLOTS):
            [(state, _, epoch)] = self._states([self.transactional_id(task, slot)])
            if epoch < 0 and state != _UNUSED:
                raise SinkTransactionError(
                    f"It is unknown whether the transactional id {self.transactional_id(task, slot)!r} is in use: "
                    f"{state}. Nothing was written. Check the brokers, and start the write again."
                )
            if state != _OPEN:
                return slot, epoch
        raise SinkTransactionError(
            f"Task {task} finds {_MOST_SLOTS} open transactions of earlier attempts. They end after "
            f"kafka.transaction.timeout.ms. Start the query again after that time."
        )

    def opened(self, task: int, slot: int) -> Transaction:
        """Return the transaction of a librdkafka producer that has just taken over its transactional id.

        Deliberate: call this before the first record is sent.  If another attempt takes over the id meanwhile, this
        returns the producer of that attempt.  But brokers then refuse our records, and the task fails.  It must not
        abort the transaction of the other attempt.
        """
        [(_, producer_id, epoch)] = self._states([self.transactional_id(task, slot)])
        return Transaction(task, slot, producer_id, epoch)

    def abort(self, transactions: Sequence[Transaction]) -> None:
        """Try to abort open transactions: consumers would wait for their timeout."""
        self._abort(self._producers(transactions))

    # -- in the driver

    def abort_all(self, *, stream: bool) -> None:
        """Abort all open transactions of a query or batch job that has failed or was stopped.

        Parameters
        ----------
        stream : bool
            Whether it is a query.  The transactions that it has decided to commit stay open.
        """
        keep: set[str] = set()
        driver = None
        try:
            if stream:
                driver = self._take_over()
                found = self._decision()
                keep = self._still_open(found) if found is not None else keep
        except KafkaGroupError as problem:
            log.warning("Open transactions may delay consumers until their timeout: %s", problem)
            return
        self._abort_others(keep, driver)

    def commit(self, messages: Sequence[TaskMessage], batch: int | None) -> None:
        """Commit a batch.

        Parameters
        ----------
        messages : sequence of TaskMessage
            The messages of all tasks.
        batch : int or None
            The number of the batch; None for a batch job.

        Raises
        ------
        SinkTransactionError
            If that fails.  The text says which rows are in Kafka, and what to do.
        """
        transactions = sorted(message.transaction for message in messages if message.transaction is not None)
        if any(message.decided for message in messages):
            assert batch is not None
            self._commit_decided(messages, transactions, batch)
        elif not transactions:
            return
        elif batch is None:
            try:
                self._before_decision(transactions, lambda: self._check_open(transactions, None))
                self._commit_all(transactions, None)
            finally:
                # Deliberate: keep those of the messages.  A coordinator that did not answer may still commit them.
                self._abort_others(self._producers(transactions), None)
        else:
            if len(transactions) >= _MANY_TASKS:
                log.warning(
                    "Batch %s has %s tasks with rows. The sink can commit 400, and more only if their producer ids are "
                    "close together. Write with fewer tasks, for example with .coalesce(100).",
                    batch,
                    len(transactions),
                )
            topics = sorted({topic for message in messages for topic in message.topics})[:MOST_TOPICS]
            decision = Decision(batch, tuple(transactions), total(message.digest for message in messages))
            driver = self._before_decision(transactions, lambda: self._note(topics, decision))
            self._decide(driver, decision)
            self._commit_all(transactions, batch)
            self._abort_others((), driver)

    def _commit_decided(self, messages: Sequence[TaskMessage], mine: Sequence[Transaction], batch: int) -> None:
        """Commit the transactions that an earlier run has decided to commit, and check that they are this batch."""
        driver = self._take_over()
        found = self._decision()
        if found is None or found.batch != batch or not all(message.decided for message in messages):
            self.abort(mine)  # the decision names transactions of another run
            raise twice(batch)
        log.warning("Batch %s was written before. The sink commits its transactions if they are still open.", batch)
        self._commit_all(found.transactions, batch)
        self._abort_others((), driver)
        now = total(message.digest for message in messages)
        fewer = now.rows < found.digest.rows
        if now == found.digest or self._settings.accept_batch in (batch, FEWER_ROWS if fewer else batch):
            return
        raise SinkTransactionError(
            f"Batch {batch} was written before, with other rows: {found.digest.rows} rows then, {now.rows} now. The "
            f"new rows are not written. If the checkpoint was restored from an older copy, use the newest one, or a "
            f"new one. If another query runs with a copy of this checkpoint, give it its own checkpoint. If you have "
            f"changed the query or the option topic, or if the query returns other rows in each run, as with rand(), "
            f"the rows in Kafka are the batch. "
            + (
                f"The same holds if the query shares a consumer group of this project's source, and other members have "
                f"taken over partitions of the batch: acceptBatch={FEWER_ROWS} allows that. "
                if fewer
                else ""
            )
            + accept(batch)
        )

    def _before_decision(self, transactions: Sequence[Transaction], step: Callable[[], T]) -> T:
        """Run a step before the decision.  If it fails, abort the transactions."""
        try:
            return step()
        except KafkaGroupError:
            # Otherwise they would stay open until the next run of the query, or for a batch job until their timeout.
            self.abort(transactions)
            raise

    def _check_open(self, transactions: Sequence[Transaction], batch: int | None) -> None:
        producers = self._producers(transactions)
        for transaction, found in zip(transactions, self._states(producers), strict=True):
            if found != (_OPEN, transaction.producer_id, transaction.epoch):
                raise SinkTransactionError(
                    f"{named(batch)}: the transaction of task {transaction.task} is gone (it is {found[0]}). The batch "
                    f"took longer than kafka.transaction.timeout.ms, or another run of the query has aborted it. "
                    f"Nothing of the batch can be read in Kafka. You can write it again. {_SMALLER}"
                )
        timeout_s = self._settings.transaction_timeout_s
        margin_s = min(_MARGIN_S, timeout_s / 4)
        old = self._listed([_OPEN], longer_than_s=timeout_s - margin_s) & producers.keys()
        if old:
            raise SinkTransactionError(
                f"{named(batch)}: {len(old)} of {len(transactions)} transactions would end by their timeout in less "
                f"than {margin_s:.0f} s, too soon to commit them safely. Nothing of the batch can be read in Kafka. "
                f"You can write it again. {_SMALLER}"
            )

    def _note(self, topics: Sequence[str], decision: Decision) -> OpenProducer:
        """Write the decision in a transaction, and leave this transaction open."""
        batch = decision.batch
        offsets = {
            tp: OffsetToCommit(offset, -1, text) for tp, (offset, text) in decision_offsets(topics, decision).items()
        }
        driver = self._take_over()
        try:
            found = self._decision()
            if found is not None and found.batch >= batch:
                raise twice(batch)
            self._check_open(decision.transactions, batch)
            try:
                refused = self._requests.write_offsets(
                    self._driver_id, driver, self._group, offsets, deadline=Deadline.after(_DECISION_S)
                )
            except AuthenticationError as problem:
                raise no_right(batch, str(problem), topics, self._group) from None
            except TryAgainError as problem:
                raise BrokerError(
                    f"{named(batch)}: the decision to commit it could not be written: {problem}. Nothing of the batch "
                    f"can be read in Kafka. Check the brokers, and start the query again: it writes the batch again."
                ) from None
            # A topic that was deleted meanwhile cannot store the decision.  The other topics store it.
            if any(name != DELETED for name in refused.values()) or len(refused) == len(offsets):
                raise decision_refused(refused, topics, batch, self._group)
        except KafkaGroupError:
            self._abort({self._driver_id: driver})
            raise
        return driver

    def _decide(self, driver: OpenProducer, decision: Decision) -> None:
        """Commit the transaction with the decision.

        If that fails, the driver does not know whether the batch is decided.  The next run finds out.
        """
        ended = self._requests.end({self._driver_id: driver}, commit=True, deadline=Deadline.after(PATIENCE_S))
        for problem in ended.silent.values():
            raise BrokerError(
                f"{named(decision.batch)}: it is unknown whether the decision to commit it was written: {problem}. "
                f"Check the brokers, and start the query again: it finds out, and continues with this batch."
            )
        if (name := ended.names[self._driver_id]) != NONE:
            raise SinkTransactionError(
                f"{named(decision.batch)}: it is unknown whether the decision to commit it was written ({name}). "
                f"Either the same checkpoint is in use twice, and another run has taken over: stop one of the queries. "
                f"Or the brokers took longer than {_DECISION_S:.0f} s: start the query again. It finds out, and "
                f"continues with this batch."
            )

    def _commit_all(self, transactions: Sequence[Transaction], batch: int | None) -> None:
        """Commit transactions.  This cannot be undone.

        If a coordinator does not answer, retry until the transactions have timed out.
        """
        producers = self._producers(transactions)
        of_task = {name: one.task for name, one in zip(producers, transactions, strict=True)}
        deadline = Deadline.after(max(PATIENCE_S, self._settings.transaction_timeout_s))
        ended = self._requests.end(producers, commit=True, deadline=deadline)
        gone = sorted(of_task[name] for name, error in ended.names.items() if error in _GONE)
        silent = sorted(of_task[name] for name in ended.silent)
        for name, error in ended.names.items():
            if error != NONE and error not in _GONE:
                raise SinkTransactionError(
                    f"{named(batch)}: the transaction of task {of_task[name]} could not be committed: {error}."
                )
        written = f"The rows of the other {len(transactions) - len(gone) - len(silent)} tasks are in Kafka."
        if batch is None and (gone or silent):
            raise SinkTransactionError(
                f"The write is incomplete: the transactions of tasks {gone + silent} could not be committed before "
                f"their timeout, and their rows are lost. {written} "
                + (f"Check the brokers: {next(iter(ended.silent.values()))}. " if silent else "")
                + "Write the missing rows by hand."
            )
        if silent:
            raise BrokerError(
                f"{named(batch)}: the commit is decided, but the coordinators of the transactions of tasks {silent} do "
                f"not answer: {next(iter(ended.silent.values()))}. {written} Check the brokers, and start the query "
                f"again: it continues here."
            )
        if gone and self._settings.accept_batch != batch:
            assert batch is not None
            raise SinkTransactionError(
                f"{named(batch)} was decided, but the transactions of tasks {gone} are gone: they have expired, or "
                f"were committed and have ended. The sink cannot find out whether their rows are in Kafka. They are "
                f"not if the query was away for longer than kafka.transaction.timeout.ms before it could commit them. "
                f"They are if it had committed them before. {written} Check the topic, and write missing rows by hand. "
                + accept(batch)
            )

    def _still_open(self, decision: Decision) -> set[str]:
        """Return the transactional ids of a decision, without those that a later batch uses by now."""
        keep = set()
        decided = self._producers(decision.transactions)
        for (name, producer), (state, *now) in zip(decided.items(), self._states(decided), strict=True):
            # Deliberate: also if its state is unknown (`test_what_was_decided_is_left_alone_if_its_state_is_unknown`).
            if state not in (_OPEN, _BEGUN) or producer == tuple(now):
                keep.add(name)
        return keep

    def _abort_others(self, keep: Collection[str], driver: OpenProducer | None) -> None:
        """Abort the open transactions of killed attempts and earlier runs: consumers would wait for them.

        Deliberate: never raises.  The rows are already written, and users repeat a job that fails.

        Parameters
        ----------
        keep : collection of str
            Transactional ids whose transactions stay open.
        driver : OpenProducer or None
            The producer of this driver; None for a batch job.  If another driver has taken over, this does nothing.
        """
        try:
            left = self._unfenced(self._listed([_OPEN, _BEGUN]) - {*keep, self._driver_id})
            if driver is not None and self._states([self._driver_id])[0][1:] != driver:
                log.warning("Another run of the query has taken over. It ends the open transactions.")
                return
            deadline = Deadline.after(_ABORT_S)
            for text in self._requests.fence(sorted(left), deadline=deadline).values():
                log.warning("A transaction may stay open until its timeout: %s", text)
        except (TryAgainError, KafkaGroupError) as problem:
            log.warning("Open transactions may delay consumers until their timeout: %s", problem)

    def _unfenced(self, names: Collection[str]) -> Collection[str]:
        """Return the transactional ids whose last producer was not fenced.

        A fence leaves an id as it is if it has no transaction.  Without this, the ids of failed attempts would be
        fenced after each batch, for ever.
        """
        try:
            found = self._requests.states(names, deadline=Deadline.after(_ABORT_S))
        except TryAgainError:
            return names  # a second fence is harmless
        return [name for name in names if found[name].timeout_ms != FENCED_MS]

    def _abort(self, producers: Mapping[str, OpenProducer]) -> None:
        try:
            ended = self._requests.end(producers, commit=False, deadline=Deadline.after(_ABORT_S))
        except (TryAgainError, KafkaGroupError) as problem:
            log.warning("Transactions may stay open until their timeout: %s", problem)
            return
        for text in ended.silent.values():
            log.warning("A transaction may stay open until its timeout: %s", text)

    # -- requests

    def transactional_id(self, task: int, slot: int) -> str:
        """Return a transactional id of a task.

        Each batch uses the same ids.  So there are as many as tasks, and more if attempts overlap.
        """
        return f"{self._group}-{task}-{slot}"

    def _producers(self, transactions: Sequence[Transaction]) -> dict[str, OpenProducer]:
        return {
            self.transactional_id(one.task, one.slot): OpenProducer(one.producer_id, one.epoch) for one in transactions
        }

    def _take_over(self) -> OpenProducer:
        """Take over the driver's transactional id: from then on, brokers refuse all requests of another driver."""
        try:
            return self._requests.take_over(
                self._driver_id, int(_DECISION_S * 1000), deadline=Deadline.after(PATIENCE_S)
            )
        except TryAgainError as problem:
            raise unanswered(problem) from None

    def _decision(self) -> Decision | None:
        try:
            committed = self._requests.stable_offsets(self._group, deadline=Deadline.after(PATIENCE_S))
        except TryAgainError as problem:
            raise unanswered(problem) from None
        return newest_decision({tp: (stored.offset, stored.metadata) for tp, stored in committed.items()})

    def _listed(self, states: Collection[str], *, longer_than_s: float | None = None) -> frozenset[str]:
        longer_than_ms = -1 if longer_than_s is None else int(longer_than_s * 1000)
        try:
            return self._requests.listed(
                f"{self._group}-", states, longer_than_ms=longer_than_ms, deadline=Deadline.after(PATIENCE_S)
            )
        except TryAgainError as problem:
            raise unanswered(problem) from None

    def _states(self, transactional_ids: Collection[str]) -> list[tuple[str, int, int]]:
        """Return state, producer id and epoch of each; the name of the error, -1 and -1 for an unknown one."""
        try:
            found = self._requests.states(transactional_ids, deadline=Deadline.after(PATIENCE_S))
        except TryAgainError as problem:
            raise unanswered(problem) from None
        return [
            (one.state, one.producer_id, one.producer_epoch) if one.error == 0 else (error_name(one.error), -1, -1)
            for one in (found[name] for name in transactional_ids)
        ]


_SMALLER = (
    "Raise kafka.transaction.timeout.ms, and transaction.max.timeout.ms on the brokers, or write smaller batches."
)
