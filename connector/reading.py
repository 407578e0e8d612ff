"""Read exactly the records of an offset range of one partition, as Arrow record batches.

Runs in executors' Python workers, in the thread of the task.  A pure function of its arguments: it joins no group,
commits nothing, and may run again, or twice at once, for a retried or speculative task.  Where ranges come from is
the planner's business; columns are built in `arrow`, consumers come from `consumer_cache`.

How the end is found
--------------------
Offsets at the end of a range need not belong to records: they may be control records of transactions, records of
aborted transactions, or compacted away.  The range ``[start, until)`` is read when

1. a record at ``until - 1`` was read, or
2. a record at or after ``until`` arrives (it is dropped), or
3. the end of the partition is reported at or after ``until``.

An end of the partition *before* ``until`` is no end.  Right after a change of leader it is the new leader that has not
yet heard how far its followers are; otherwise the log was cut.  ListOffsets tells which: since KIP-207 a leader
refuses to answer it until it knows of all that its predecessor had acknowledged.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Any, cast

from pyspark_kafka_group.arrow import Columns, RecordBatchBuilder, collect
from pyspark_kafka_group.consumer_cache import CONSUMERS, ReaderClient
from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    DataLossError,
    ReadTimeoutError,
    UnexpectedRecordError,
)
from pyspark_kafka_group.read_errors import Meaning, meaning_of, text_of

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError, Message

log = logging.getLogger("pyspark_kafka_group.reading")

CHUNK_RECORDS = 2048
"""Most records of one batch.  Below about 1000 Spark's cost per batch shows, above some thousand the messages fall
out of the processor's cache: 500 to 10,000 are within a few percent of each other."""

MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Most data of one batch, unless a single record is larger.  It bounds the copy that Arrow makes; the messages copied
from are bounded by ``queued.max.messages.kbytes``.  Far below 2 GB, where an Arrow binary column ends."""

_WAIT_S = 0.1
"""How long one call waits for a record; between calls deadlines and unanswered questions are looked at."""

_QUERY_TIMEOUT_S = 5.0
"""Longest single wait for log start and end; an unanswered question is asked again until the range's timeout."""

_REFUSAL_PATIENCE_S = 10.0
"""How long refusals (credentials, rights, unknown topic) may last before they count.  Brokers that are starting, or
that have not yet heard of a new ACL, refuse for a moment; Spark's own retries of a task are few."""


def read_range(
    client_config: Mapping[str, Any],
    topic: str,
    partition: int,
    start: int,
    until: int,
    *,
    include_headers: bool,
    fail_on_data_loss: bool,
    timeout_s: float,
) -> Iterator[pa.RecordBatch]:
    """Read the records of one topic-partition with ``start <= offset < until``, in order.

    Offsets without a record (see the module's text) are passed over.  Transient errors of brokers are retried by
    librdkafka as long as `timeout_s` allows.

    Parameters
    ----------
    client_config
        What `reader_config` returns.
    topic, partition
        The topic-partition.
    start, until
        The half-open range.  An empty one asks no broker.
    include_headers
        Whether the batches have the column ``headers``.
    fail_on_data_loss
        What to do about records that were deleted before they were read: raise, or warn and go on at the nearest
        offset that exists, within the range.
    timeout_s
        Longest time without progress.  The time that the caller spends between batches does not count.

    Yields
    ------
    pyarrow.RecordBatch
        With the schema `arrow_schema`; never empty, at most `CHUNK_RECORDS` records, and at most `MAX_BATCH_BYTES`
        of data unless a single record is larger.

    Raises
    ------
    DataLossError
        Records are lost, and `fail_on_data_loss` is set.
    ReadTimeoutError
        No progress for `timeout_s`.
    AuthenticationError
        The cluster keeps refusing the credentials, or the right to read the topic.
    BrokerError
        An error that a retry would not cure.
    ConfigurationError
        librdkafka refuses `client_config`.
    UnexpectedRecordError
        A bug: a record that was not asked for.

    Notes
    -----
    Closing the generator early closes its consumer.  Spark's own source differs in two ways: a gap never fails the
    query there or here, but here a log that ends before `until` does; and after a deleted *start* it resumes at the
    earliest record at once, as here, but without naming the lost range.
    """
    if start >= until:
        return
    from confluent_kafka import KafkaException

    with CONSUMERS.lease(client_config) as client:
        reader = _RangeReader(
            client, topic, partition, start, until, fail_on_data_loss=fail_on_data_loss, timeout_s=timeout_s
        )
        builder = RecordBatchBuilder(topic, partition, include_headers=include_headers, max_records=CHUNK_RECORDS)
        try:
            for columns in reader.read(include_headers=include_headers):
                yield from builder.build_bounded(columns, max_bytes=MAX_BATCH_BYTES)
                reader.note_progress()
        except KafkaException as error:
            raise reader.broker_error(error.args[0]) from None


class _RangeReader:
    """Reads one range with one consumer.  State: what is read next, and since when nothing has come."""

    def __init__(
        self,
        client: ReaderClient,
        topic: str,
        partition: int,
        start: int,
        until: int,
        *,
        fail_on_data_loss: bool,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._position = start
        self._until = until
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout_s = timeout_s
        self._idle_since = time.monotonic()
        # What to do with the answer to a question about log start and end that is still open.
        self._on_log_bounds: Callable[[int, int], None] | None = None

    def read(self, *, include_headers: bool) -> Iterator[Columns]:
        """The records of the range.  The caller says `note_progress` after each."""
        self._assign()
        pending: list[Message] = []
        while self._position < self._until:
            pending = pending or self._next_messages()
            columns = collect(pending, include_headers=include_headers)
            if columns:
                self._check_source(pending[0], pending[len(columns) - 1])
                # Lets go of the messages, which hold a second copy of the data, before the caller takes its time.
                pending = pending[len(columns) :]
                yield self._accept(columns)
                continue
            if pending:
                self._on_event(pending.pop(0))
            else:
                self._ask_log_bounds()
            if self._position < self._until:
                self._check_patience()

    def note_progress(self) -> None:
        """Restart the clock: something was read, and whatever was wrong before is over."""
        self._idle_since = time.monotonic()
        self._client.errors.clear()

    def _assign(self) -> None:
        from confluent_kafka import TopicPartition

        self._client.consumer.assign([TopicPartition(self._topic, self._partition, self._position)])

    def _next_messages(self) -> list[Message]:
        # Deliberate: never consume(n, t) with t > 0.  It waits for all n or the full time, and n may not exist, since
        # a range has gaps.  What was fetched is taken at once; else one poll waits for the first record of a fetch.
        consumer = self._client.consumer
        wanted = min(CHUNK_RECORDS, self._until - self._position)
        messages = consumer.consume(wanted, 0)
        if not messages:
            first = consumer.poll(_WAIT_S)
            if first is not None:
                messages = [first]
                if wanted > 1:
                    messages += consumer.consume(wanted - 1, 0)
        return messages

    def _check_source(self, *messages: Message) -> None:
        # librdkafka drops what an earlier assignment had fetched; the first and the last of a chunk prove it did.
        for message in messages:
            if message.topic() != self._topic or message.partition() != self._partition:
                raise self._unexpected(f"one of {message.topic()}-{message.partition()} at {message.offset()}")

    def _accept(self, columns: Columns) -> Columns:
        """Advance over `columns`, without what lies beyond the range."""
        offsets = columns.offsets
        if offsets[0] < self._position:
            raise self._unexpected(f"one at {offsets[0]}")
        if not all(map(lt, offsets, islice(offsets, 1, None))):
            raise self._unexpected(f"records out of order between {min(offsets)} and {max(offsets)}")
        if offsets[-1] >= self._until:
            columns = columns.part(0, bisect_left(offsets, self._until))
        self._position = min(offsets[-1] + 1, self._until)
        return columns

    def _on_event(self, message: Message) -> None:
        error = message.error()
        assert error is not None, "collect() stops only at events"
        meaning = meaning_of(error)
        if meaning is Meaning.END:
            end = cast(int, message.offset())  # this event always has one
            if end >= self._until:
                self._position = self._until
            else:
                self._on_log_bounds = partial(self._on_early_end, end)
                self._ask_log_bounds()
        elif meaning is Meaning.OUT_OF_RANGE:
            self._on_log_bounds = self._on_out_of_range
            self._ask_log_bounds()
        elif meaning is Meaning.FINAL:
            raise self.broker_error(error)
        elif meaning is not Meaning.NOT_OURS:
            self._client.note_error(error)

    def _ask_log_bounds(self) -> None:
        """Ask for log start and end if somebody wants to know; without an answer, the next wait asks again."""
        if self._on_log_bounds is None:
            return
        from confluent_kafka import KafkaException, TopicPartition

        try:
            log_start, log_end = self._client.consumer.get_watermark_offsets(
                TopicPartition(self._topic, self._partition), timeout=min(_QUERY_TIMEOUT_S, self._timeout_s)
            )
        except KafkaException as exception:
            error = exception.args[0]
            if meaning_of(error) is Meaning.FINAL:
                raise self.broker_error(error) from None
            self._client.note_error(error)
            return
        answer, self._on_log_bounds = self._on_log_bounds, None
        answer(log_start, log_end)

    def _on_out_of_range(self, log_start: int, log_end: int) -> None:
        if self._position < log_start:
            self._lose(self._position, min(log_start, self._until), log_start, log_end)
            self._position = min(log_start, self._until)
        elif self._position > log_end:
            self._lose(self._position, self._until, log_start, log_end)
            self._position = self._until
        else:
            # The fetch and this answer came from two leaders: ask the new one.
            time.sleep(_WAIT_S)
        if self._position < self._until:
            self._assign()

    def _on_early_end(self, reported_end: int, log_start: int, log_end: int) -> None:
        if log_end >= self._until:
            return  # the leader has caught up, or is about to: the records will come
        end = max(self._position, log_end)
        self._lose(end, self._until, log_start, log_end)
        self._until = end
        if reported_end >= end:
            self._position = end

    def _lose(self, lost_from: int, lost_until: int, log_start: int, log_end: int) -> None:
        loss = DataLossError(
            topic=self._topic,
            partition=self._partition,
            lost_from=lost_from,
            lost_until=lost_until,
            log_start=log_start,
            log_end=log_end,
        )
        if self._fail_on_data_loss:
            raise loss
        log.warning(
            "%s-%d: offsets [%d, %d) are gone before they were read; the broker holds [%d, %d). "
            "Going on without them, because failOnDataLoss=false.",
            self._topic,
            self._partition,
            lost_from,
            lost_until,
            log_start,
            log_end,
        )
        self.note_progress()

    def _check_patience(self) -> None:
        idle_s = time.monotonic() - self._idle_since
        errors = list(self._client.errors.values())
        for error in errors:
            if error.fatal():
                raise self.broker_error(error)
        if idle_s >= min(_REFUSAL_PATIENCE_S, self._timeout_s):
            for error in errors:
                meaning = meaning_of(error)
                if meaning is Meaning.REFUSED:
                    raise AuthenticationError(
                        f"{self._topic}-{self._partition}: the cluster refuses the executors' consumer: "
                        f"{text_of(error)}. Check the kafka.security.*, kafka.sasl.* and kafka.ssl.* options, "
                        f"and that their user may Read and Describe the topic."
                    )
                if meaning is Meaning.GONE:
                    self._lose(self._position, self._until, -1, -1)
                    self._position = self._until
                    return
        if idle_s >= self._timeout_s:
            raise ReadTimeoutError(
                topic=self._topic,
                partition=self._partition,
                position=self._position,
                until=self._until,
                timeout_s=self._timeout_s,
                last_error=text_of(errors[-1]) if errors else "",
            )

    def broker_error(self, error: KafkaError) -> BrokerError:
        """An error that a retry here would not cure, in this reader's words."""
        return BrokerError(
            f"{self._topic}-{self._partition}: reading [{self._position}, {self._until}) failed: {text_of(error)}. "
            f"If the cluster is healthy and holds these records intact, restart the query."
        )

    def _unexpected(self, found: str) -> UnexpectedRecordError:
        return UnexpectedRecordError(topic=self._topic, partition=self._partition, position=self._position, found=found)
