"""Decides what records and events mean to the reader of a range, and when the range is read.

How the end is found
--------------------
Offsets at the end of a range need not belong to records: they may be control records of transactions, records of
aborted transactions, or compacted away.  The range ``[start, until)`` is read when

1. a record at ``until - 1`` was read, or
2. a record at or after ``until`` arrives (it is dropped), or
3. the end of the partition is reported at or after ``until``.

An end of the partition *before* ``until`` is no end.  Right after a change of leader it is the new leader that has not
yet heard how far its followers are; otherwise the log was cut.  ListOffsets tells which: since KIP-207 a leader
refuses to answer it until it knows of all that its predecessor had acknowledged.  Brokers may still tell an older end
for a moment while they hand a partition over, so an end counts once it has stayed lower.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    DataLossError,
    ReadTimeoutError,
)
from pyspark_kafka_group.offsets.kafka_errors import Meaning, row_of
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading.reader_client import ReaderClient, ReaderEvent, Records, note

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

log = logging.getLogger("pyspark_kafka_group.reading")

WAIT_S = 0.1
"""How long one call waits for a record; between calls deadlines and unanswered questions are looked at."""

_QUERY_TIMEOUT_S = 5.0
"""Longest single wait for log start and end; an unanswered question is asked again until the range's timeout."""

SHORTER_S = 10.0
"""For how long the log must end below the range before records count as lost."""

REFUSAL_PATIENCE_S = 10.0
"""How long refusals (credentials, rights, unknown topic) may last before they count.  Brokers that are starting, or
that have not yet heard of a new ACL, refuse for a moment; Spark's own retries of a task are few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How ranges are read.

    Attributes
    ----------
    columns : tuple of str
        The names of the columns that are wanted, a subsequence of `schema.COLUMNS`.
    fail_on_data_loss : bool
        What to do about records that were deleted before they were read: raise, or warn and go on at the nearest
        offset that exists, within the range.
    timeout_s : float
        Longest time without progress.  The time that the caller spends between batches does not count.
    """

    columns: tuple[str, ...]
    fail_on_data_loss: bool
    timeout_s: float


class Idle:
    """Since when nothing has come."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Something has come."""
        self.since = time.monotonic()


class RangeReader:
    """Decides for one range.  Its state: the position, the errors since the last record, and the open question."""

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
        self._looked_for_partition = False  # since then
        self._shorter_since: float | None = None
        # What to do with the answer to a question about log start and end that is still open.
        self._on_watermarks: Callable[[int, int], None] | None = None

    @property
    def rest(self) -> OffsetRange:
        """The part that is not read yet."""
        return OffsetRange(Offset(self.position), Offset(self.until))

    @property
    def done(self) -> bool:
        """Whether the range is read."""
        return self.position >= self.until

    def on_records(self, records: Records) -> None:
        """Take note that records have come."""
        self.position = records.position
        self._note_progress()

    def on_nothing(self, event: ReaderEvent | None) -> None:
        """React to an event of the partition, or of the consumer, or to silence; raise if that has lasted too long."""
        if event is None:
            self._ask_watermarks()
        else:
            self._on_event(event)
        if not self.done:
            self._check_patience()

    def _note_progress(self) -> None:
        """Restart the clock: something was read, and whatever was wrong before is over."""
        self._idle.restart()
        self._looked_for_partition = False
        self._shorter_since = None
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
        """Ask for log start and end if the answer is awaited; without one, the next wait asks again."""
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
        elif self.position > log_end and self._stays_shorter():
            self._lose(self.position, self.until, log_start, log_end)
            self.position = self.until
        else:
            # The fetch and this answer came from two leaders, or the end is lower for a moment: ask again.
            time.sleep(WAIT_S)
        if not self.done:
            self._client.unassign(self.tp)
            self._client.assign({self.tp: self.rest}, self._options.columns)

    def _on_early_end(self, reported_end: int, log_start: int, log_end: int) -> None:
        if log_end >= self.until:
            self._shorter_since = None
            return  # the leader has caught up, or is about to: the records will come
        if not self._stays_shorter():
            self._on_watermarks = partial(self._on_early_end, reported_end)
            return
        end = max(self.position, log_end)
        self._lose(end, self.until, log_start, log_end)
        self.until = end
        if reported_end >= end:
            self.position = end

    def _stays_shorter(self) -> bool:
        """Tell whether the log has ended below the range for so long that it will not come back."""
        now = time.monotonic()
        if self._shorter_since is None:
            self._shorter_since = now
        return now - self._shorter_since >= min(SHORTER_S, self._options.timeout_s / 2)

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
            "%s: offsets [%d, %d) are gone before they were read. Going on without them, because failOnDataLoss=false.",
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
        if idle_s >= self._options.timeout_s:
            errors = [*self._client.errors.values(), *self._errors.values()]
            raise ReadTimeoutError(
                topic=self.tp.topic,
                partition=self.tp.partition,
                position=self.position,
                until=self.until,
                timeout_s=self._options.timeout_s,
                last_error=self._client.text_of(errors[-1]) if errors else "",
            )

    def _check_refusals(self) -> None:
        if not self._looked_for_partition:
            self._looked_for_partition = True
            self._look_for_partition()
        for error in [*self._client.errors.values(), *self._errors.values()]:
            if meaning_of(error) is Meaning.REFUSED:
                raise AuthenticationError(
                    f"{self.tp}: the cluster refuses the executors' consumer: {self._client.text_of(error)}. Check "
                    f"the kafka.security.*, kafka.sasl.* and kafka.ssl.* options, and that their user may Read and "
                    f"Describe the topic."
                )
        if any(meaning_of(error) is Meaning.GONE for error in self._errors.values()):
            self._lose(self.position, self.until, -1, -1)
            self.position = self.until

    def _look_for_partition(self) -> None:
        """Ask whether the partition still exists: librdkafka says nothing of one that a topic no longer has."""
        from confluent_kafka import KafkaException

        try:
            error = self._client.partition_error(self.tp, min(_QUERY_TIMEOUT_S, self._options.timeout_s))
        except KafkaException as exception:
            error = exception.args[0]
        if error is not None:
            note(self._errors, error)

    def _broker_error(self, error: KafkaError) -> BrokerError:
        return broker_error(self._client, error, f"{self.tp}: reading [{self.position}, {self.until})")


def broker_error(client: ReaderClient, error: KafkaError, what: str) -> BrokerError:
    """Return an error that a retry here would not cure, in this reader's words."""
    return BrokerError(
        f"{what} failed: {client.text_of(error)}. If the cluster is healthy and these records are intact, restart the "
        f"query."
    )


def meaning_of(error: KafkaError) -> Meaning:
    """Return what an error means to a reader."""
    return Meaning.FINAL if error.fatal() else row_of(error.name()).reader


_WARNED: set[tuple[str, str, object]] = set()
"""What this process has warned of, and why."""


def level_of(reason: Exception, what: str) -> int:
    """Return the level at which to log a fallback: a warning once per reason, else info."""
    kind = what, type(reason).__name__, getattr(reason, "code", None) or getattr(reason, "kind", None)
    if kind in _WARNED:
        return logging.INFO
    _WARNED.add(kind)
    return logging.WARNING


class SilenceError(Exception):
    """Nothing has come, without an error.

    Attributes
    ----------
    patient : bool
        Whether there are records, so that it may pay to wait longer for them.
    """

    def __init__(self, *, patient: bool) -> None:
        super().__init__("nothing has come")
        self.patient = patient
