"""Decides what each message and event means to the reader of one range, and when the range is read.

One `RangeReader` reads one range with one consumer, in one thread.  What a user of the package sees of it is
`reading.read_range`.

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
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, cast

from pyspark_kafka_group.arrow import Columns, collect
from pyspark_kafka_group.offsets.errors import (
    AuthenticationError,
    BrokerError,
    DataLossError,
    ReadTimeoutError,
    UnexpectedRecordError,
)
from pyspark_kafka_group.read_errors import Meaning, meaning_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from pyspark_kafka_group.consumer_cache import ReaderClient

log = logging.getLogger("pyspark_kafka_group.reading")

CHUNK_RECORDS = 2048
"""Most records taken at once.  Below about 1000 Spark's cost per batch shows; above some thousand the messages fall out
of the processor's cache."""

_WAIT_S = 0.1
"""How long one call waits for a record; between calls deadlines and unanswered questions are looked at."""

_QUERY_TIMEOUT_S = 5.0
"""Longest single wait for log start and end; an unanswered question is asked again until the range's timeout."""

REFUSAL_PATIENCE_S = 10.0
"""How long refusals (credentials, rights, unknown topic) may last before they count.  Brokers that are starting, or
that have not yet heard of a new ACL, refuse for a moment; Spark's own retries of a task are few."""


class RangeReader:
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
        self._looked_for_partition = False  # since then
        # What to do with the answer to a question about log start and end that is still open.
        self._on_log_bounds: Callable[[int, int], None] | None = None

    def read(self, *, include_headers: bool) -> Iterator[Columns]:
        """The records of the range, in order; the time that the caller takes between two does not count."""
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
                self._note_progress()
                continue
            if pending:
                self._on_event(pending.pop(0))
            else:
                self._ask_log_bounds()
            if self._position < self._until:
                self._check_patience()

    def _note_progress(self) -> None:
        """Restart the clock: something was read, and whatever was wrong before is over."""
        self._idle_since = time.monotonic()
        self._looked_for_partition = False
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
            "%s-%d: offsets [%d, %d) are gone before they were read. Going on without them, because "
            "failOnDataLoss=false.",
            self._topic,
            self._partition,
            lost_from,
            lost_until,
        )
        self._note_progress()

    def _check_patience(self) -> None:
        """Called whenever no record came: raise if that has lasted too long."""
        idle_s = time.monotonic() - self._idle_since
        for error in self._client.errors.values():
            if error.fatal():
                raise self.broker_error(error)
        if idle_s >= min(REFUSAL_PATIENCE_S, self._timeout_s):
            self._check_refusals()
            if self._position >= self._until:
                return
        if idle_s >= self._timeout_s:
            errors = list(self._client.errors.values())
            raise ReadTimeoutError(
                topic=self._topic,
                partition=self._partition,
                position=self._position,
                until=self._until,
                timeout_s=self._timeout_s,
                last_error=self._client.text_of(errors[-1]) if errors else "",
            )

    def _check_refusals(self) -> None:
        if not self._looked_for_partition:
            self._looked_for_partition = True
            self._look_for_partition()
        for error in self._client.errors.values():
            meaning = meaning_of(error)
            if meaning is Meaning.REFUSED:
                raise AuthenticationError(
                    f"{self._topic}-{self._partition}: the cluster refuses the executors' consumer: "
                    f"{self._client.text_of(error)}. Check the kafka.security.*, kafka.sasl.* and kafka.ssl.* options, "
                    f"and that their user may Read and Describe the topic."
                )
            if meaning is Meaning.GONE:
                self._lose(self._position, self._until, -1, -1)
                self._position = self._until
                return

    def _look_for_partition(self) -> None:
        """Ask whether the partition still exists: librdkafka says nothing of one that a topic no longer has."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            metadata = self._client.consumer.list_topics(self._topic, timeout=min(_QUERY_TIMEOUT_S, self._timeout_s))
        except KafkaException as exception:
            self._client.note_error(exception.args[0])
            return
        topic = metadata.topics[self._topic]
        if topic.error is not None:
            self._client.note_error(topic.error)
        elif self._partition not in topic.partitions:
            self._client.note_error(KafkaError(KafkaError._UNKNOWN_PARTITION))

    def broker_error(self, error: KafkaError) -> BrokerError:
        """An error that a retry here would not cure, in this reader's words."""
        return BrokerError(
            f"{self._topic}-{self._partition}: reading [{self._position}, {self._until}) failed: "
            f"{self._client.text_of(error)}. If the cluster is healthy and these records are intact, restart the query."
        )

    def _unexpected(self, found: str) -> UnexpectedRecordError:
        return UnexpectedRecordError(topic=self._topic, partition=self._partition, position=self._position, found=found)
