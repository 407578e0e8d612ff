"""Decides how the reader of a range handles records and events, and when the range is read.

How the end is found
--------------------
The last offsets of a range may have no records: control records of transactions, records of aborted transactions, or
compacted ones.  The range ``[start, until)`` is read when

1. a record at ``until - 1`` was read, or
2. a record at or after ``until`` arrives (it is dropped), or
3. the client reports the end of the partition at or after ``until``.

If the reported end is *before* ``until``, there are two possible causes.  After a change of leader, the new leader may
not know yet how far its followers are.  Otherwise the log was truncated.  A ListOffsets request distinguishes the two:
since KIP-207 a leader refuses to answer until it knows everything that its predecessor had acknowledged.  Brokers may
still return an older end for a moment while a partition changes its leader.  So a lower end counts only if it lasts.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets import lasting
from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    DataLossError,
    ReadTimeoutError,
)
from pyspark_kafka_group.offsets.kafka_errors import Meaning, row_of
from pyspark_kafka_group.offsets.lasting import Lasting
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading.reader_client import ReaderClient, ReaderEvent, Records, UnreadableBatch, note

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

log = logging.getLogger("pyspark_kafka_group.reading")

WAIT_S = 0.1
"""How long one call waits for a record.  Between calls, the reader checks deadlines and repeats unanswered requests."""

_QUERY_TIMEOUT_S = 5.0
"""Timeout of one request for log start and end.  The reader repeats it until the range's timeout."""

REFUSAL_PATIENCE_S = 10.0
"""How long refusals (credentials, rights, unknown topic) must last before they are errors.  Brokers refuse for a moment
while they start, or until they know a new ACL.  Spark repeats a task only a few times."""

_ASK_AGAIN_S = 1.0
"""Time between two questions whether a partition exists."""

_SAME_ANSWER_S = 0.5
"""How long all ranges of a task use one answer to that question.  It says something about each of their partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How ranges are read.

    Attributes
    ----------
    columns : tuple of str
        The names of the wanted columns, a subsequence of `schema.COLUMNS`.
    fail_on_data_loss : bool
        Whether to raise if records were deleted before they were read.  Otherwise the reader warns, and continues at
        the nearest existing offset within the range.
    timeout_s : float
        The longest time without progress, in seconds.  The time that the caller spends between batches does not count.
    """

    columns: tuple[str, ...]
    fail_on_data_loss: bool
    timeout_s: float


class Idle:
    """The time since the last records, and what a broker has said meanwhile.  All ranges of a task share it."""

    def __init__(self) -> None:
        self.restart()
        self._answer: Mapping[TopicPartition, KafkaError] | KafkaException = {}
        self._answered_at = -math.inf

    def restart(self) -> None:
        """Note that records have come."""
        self.since = time.monotonic()

    def partition_error(self, client: ReaderClient, tp: TopicPartition, timeout_s: float) -> KafkaError | None:
        """Return the error if a partition does not exist or has an error, or else the error of the question."""
        from confluent_kafka import KafkaException

        if time.monotonic() - self._answered_at >= _SAME_ANSWER_S:
            try:
                self._answer = client.partition_errors(timeout_s)
            except KafkaException as exception:
                self._answer = exception
            self._answered_at = time.monotonic()
        return self._answer.args[0] if isinstance(self._answer, KafkaException) else self._answer.get(tp)


class RangeReader:
    """The reader of one range.  Its state: the position, the errors since the last record, and the open request."""

    def __init__(
        self, client: ReaderClient, tp: TopicPartition, wanted: OffsetRange, options: ReadOptions, idle: Idle
    ) -> None:
        self._client = client
        self._options = options
        self._idle = idle
        self.tp = tp
        self.position: int = wanted.start
        self.until: int = wanted.until
        self._errors: dict[int, KafkaError] = {}  # of this partition, since its last record
        self._asked_for_partition: float | None = None  # when, since its last record
        self._gone: Lasting[TopicPartition] = Lasting(lasting.GONE_S)
        self._shorter: Lasting[TopicPartition] = Lasting(min(lasting.SHORTER_S, options.timeout_s / 2))
        # Handles the answer to the open request for log start and end.
        self._on_watermarks: Callable[[int, int], None] | None = None

    @property
    def rest(self) -> OffsetRange:
        """The unread part of the range."""
        return OffsetRange(Offset(self.position), Offset(self.until))

    @property
    def done(self) -> bool:
        """Whether the range is read."""
        return self.position >= self.until

    def on_records(self, records: Records) -> None:
        """Note that records have come."""
        self.position = records.position
        self._note_progress()

    def on_nothing(self, event: ReaderEvent | None) -> None:
        """Handle an event of the partition or the consumer, or silence (None).  Raise if it has lasted too long."""
        if event is None:
            self._ask_watermarks()
        else:
            self._on_event(event)
        if not self.done:
            self._check_patience()

    def on_unreadable(self, batch: UnreadableBatch) -> None:
        """Continue after a batch that cannot be read, or raise its error."""
        if batch.until is None or self._options.fail_on_data_loss:
            raise batch.error
        end = min(batch.until, self.until)
        log.warning(
            "%s: offsets [%d, %d) are lost, because they cannot be read. Continuing without them, because "
            "failOnDataLoss=false. %s",
            self.tp,
            batch.start,
            end,
            batch.error,
        )
        self.position = max(self.position, end)
        self._note_progress()
        if not self.done:
            self._read_again()

    def _note_progress(self) -> None:
        """Restart the clock and forget earlier errors."""
        self._idle.restart()
        self._asked_for_partition = None
        self._gone.note(())
        self._shorter.note(())
        self._errors.clear()

    def _on_event(self, event: ReaderEvent) -> None:
        error = event.error
        meaning = meaning_of(error)
        if meaning is Meaning.END:
            if event.offset >= self.until:
                self.position = self.until
            else:
                self._on_watermarks = partial(self._on_early_end, event.offset)
                self._ask_watermarks()
        elif meaning is Meaning.OUT_OF_RANGE:
            self._on_watermarks = self._on_out_of_range
            self._ask_watermarks()
        elif meaning is Meaning.FINAL:
            raise self._broker_error(error)
        elif meaning is not Meaning.NOT_OURS:
            note(self._errors, error)

    def _ask_watermarks(self) -> None:
        """Request log start and end if something waits for them.  Without an answer, the next call repeats this."""
        if self._on_watermarks is None:
            return
        from confluent_kafka import KafkaException

        try:
            log_start, log_end = self._client.watermarks(self.tp, min(_QUERY_TIMEOUT_S, self._options.timeout_s))
        except KafkaException as exception:
            error = exception.args[0]
            if meaning_of(error) is Meaning.FINAL:
                raise self._broker_error(error) from None
            note(self._errors, error)
            return
        answer, self._on_watermarks = self._on_watermarks, None
        answer(log_start, log_end)

    def _on_out_of_range(self, log_start: int, log_end: int) -> None:
        if self.position < log_start:
            self._lose(self.position, min(log_start, self.until), log_start, log_end)
            self.position = min(log_start, self.until)
        elif self.position > log_end and self._shorter.note([self.tp]):
            self._lose(self.position, self.until, log_start, log_end)
            self.position = self.until
        else:
            # The fetch and this answer came from two leaders, or the end is lower for a moment: repeat the request.
            if self.position <= log_end:
                self._shorter.note(())
            time.sleep(WAIT_S)
        if not self.done:
            self._read_again()

    def _read_again(self) -> None:
        """Let the client begin again at the position."""
        self._client.unassign(self.tp)
        self._client.assign({self.tp: self.rest}, self._options.columns)

    def _on_early_end(self, reported_end: int, log_start: int, log_end: int) -> None:
        if log_end >= self.until:
            self._shorter.note(())
            return  # the leader has caught up, or will soon: the records will come
        if not self._shorter.note([self.tp]):
            self._on_watermarks = partial(self._on_early_end, reported_end)
            return
        end = max(self.position, log_end)
        self._lose(end, self.until, log_start, log_end)
        self.until = end
        if reported_end >= end:
            self.position = end

    def _lose(self, lost_from: int, lost_until: int, log_start: int, log_end: int) -> None:
        loss = DataLossError(
            topic=self.tp.topic,
            partition=self.tp.partition,
            lost_from=lost_from,
            lost_until=lost_until,
            log_start=log_start,
            log_end=log_end,
        )
        if self._options.fail_on_data_loss:
            raise loss
        log.warning(
            "%s: offsets [%d, %d) are gone before they were read. Continuing without them, because "
            "failOnDataLoss=false.",
            self.tp,
            lost_from,
            lost_until,
        )
        self._note_progress()

    def _check_patience(self) -> None:
        idle_s = time.monotonic() - self._idle.since
        for error in self._client.errors.values():
            if error.fatal():
                raise self._broker_error(error)
        if idle_s >= min(REFUSAL_PATIENCE_S, self._options.timeout_s):
            self._check_refusals()
            if self.done:
                return
        else:
            self._gone.note(())  # another partition has records, and interrupts the requests
        if idle_s >= self._options.timeout_s and not self._gone.keys and not self._lacks_records():
            errors = [*self._client.errors.values(), *self._errors.values()]
            raise ReadTimeoutError(
                topic=self.tp.topic,
                partition=self.tp.partition,
                position=self.position,
                until=self.until,
                timeout_s=self._options.timeout_s,
                last_error=self._client.text_of(errors[-1]) if errors else "",
            )

    def _lacks_records(self) -> bool:
        """Return whether the log does not contain the whole range, perhaps for a moment: then this is no timeout.

        A client that waits for records does not look for this itself until some seconds have passed.
        """
        from confluent_kafka import KafkaException

        try:
            log_start, log_end = self._client.watermarks(self.tp, min(_QUERY_TIMEOUT_S, self._options.timeout_s))
        except KafkaException as exception:
            note(self._errors, exception.args[0])
            return False
        if log_start <= self.position and self.until <= log_end:
            return False
        if self.position < log_start:
            self._on_out_of_range(log_start, log_end)
        else:
            self._on_early_end(-1, log_start, log_end)  # the client has not said that it has read up to there
        return True

    def _check_refusals(self) -> None:
        now = time.monotonic()
        asked, seems_gone = self._asked_for_partition, Meaning.GONE in map(meaning_of, self._errors.values())
        if asked is None or (seems_gone and now - asked >= _ASK_AGAIN_S):
            self._asked_for_partition = now
            self._look_for_partition()
        for error in [*self._client.errors.values(), *self._errors.values()]:
            if meaning_of(error) is Meaning.REFUSED:
                raise AuthenticationError(
                    f"{self.tp}: the cluster refuses the executors' consumer: {self._client.text_of(error)}. Check "
                    f"the kafka.security.*, kafka.sasl.* and kafka.ssl.* options, and that their user may Read and "
                    f"Describe the topic."
                )
        if self._gone.note([*self._gone.keys]):
            self._lose(self.position, self.until, -1, -1)
            self.position = self.until

    def _look_for_partition(self) -> None:
        """Ask a broker whether the partition exists.  An error of librdkafka is only a reason to ask.

        It may have passed since, and librdkafka reports none for a partition that the topic no longer has.
        """
        error = self._idle.partition_error(self._client, self.tp, min(_QUERY_TIMEOUT_S, self._options.timeout_s))
        if error is None:
            self._errors = {c: e for c, e in self._errors.items() if meaning_of(e) is not Meaning.GONE}
        else:
            note(self._errors, error)
        is_gone = error is not None and meaning_of(error) is Meaning.GONE
        self._gone.note([self.tp] if is_gone else ())

    def _broker_error(self, error: KafkaError) -> BrokerError:
        return broker_error(self._client, error, f"{self.tp}: reading [{self.position}, {self.until})")


def broker_error(client: ReaderClient, error: KafkaError, what: str) -> BrokerError:
    """Return the error of this reader for an error of Kafka that would not disappear with a retry."""
    return BrokerError(
        f"{what} failed: {client.text_of(error)}. If the cluster is healthy and these records are intact, restart the "
        f"query."
    )


def meaning_of(error: KafkaError) -> Meaning:
    """Return the meaning of an error for a reader."""
    return Meaning.FINAL if error.fatal() else row_of(error.name()).reader


_WARNED: set[tuple[str, str, object]] = set()
"""The warnings of this process and their reasons."""


def level_of(reason: Exception, what: str) -> int:
    """Return the log level for a fallback: a warning once per reason, else info."""
    kind = what, type(reason).__name__, getattr(reason, "code", None) or getattr(reason, "kind", None)
    if kind in _WARNED:
        return logging.INFO
    _WARNED.add(kind)
    return logging.WARNING
