"""The interface of the clients that read ranges.

There are two clients:

* `direct_client` fetches record batches over our own connections, in most cases.
* `message_client` uses confluent-kafka's message objects.  It works without the C library of this package, and with
  brokers before Kafka 2.1.

Both return identical rows.  `range_reader` handles records and events.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_group.cluster.properties.clients import client_text
from pyspark_kafka_group.columns.record_batches import Undecompressed
from pyspark_kafka_group.offsets.errors import KafkaGroupError, RecordBatchTooLargeError, UnreadableBatchError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError

log = logging.getLogger("pyspark_kafka_group.reading")


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive records of one partition.

    Attributes
    ----------
    tp : TopicPartition
        The partition of the records.
    batch : pyarrow.RecordBatch or None
        The records; None if there is none before `position`.
    position : int
        The offset to resume at.  It is the end of the range if no further record can come before that end.
    """

    tp: TopicPartition
    batch: pa.RecordBatch | None
    position: int


@dataclass(frozen=True, slots=True)
class ReaderEvent:
    """An event between records: an error, or the end of a partition with its offset."""

    tp: TopicPartition | None
    error: KafkaError
    offset: int


@dataclass(frozen=True, slots=True)
class UnreadableBatch:
    """A record batch that no client can read.  The client stops at it, until the partition is assigned again.

    Attributes
    ----------
    tp : TopicPartition
        The partition.
    start : int
        The first offset that cannot be read.
    until : int or None
        The offset after the batch; None if it is unknown.
    error : KafkaGroupError
        The error that says why.
    """

    tp: TopicPartition
    start: int
    until: int | None
    error: KafkaGroupError


Polled: TypeAlias = Records | ReaderEvent | UnreadableBatch | None
"""What `ReaderClient.poll` returns."""


class ReaderClient(ABC):
    """A consumer without a group that reads partitions from given offsets.  Used by one thread at a time.

    Attributes
    ----------
    errors : dict
        The last error of each code that belongs to no partition, latest last.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.errors: dict[int, KafkaError] = {}
        self._config = config

    @abstractmethod
    def assign(self, ranges: Mapping[TopicPartition, OffsetRange], columns: tuple[str, ...]) -> None:
        """Begin to fetch more partitions.

        Parameters
        ----------
        ranges
            The range to read of each partition.
        columns
            The columns of the batches.

        Raises
        ------
        KafkaException
            If librdkafka refuses the assignment.
        """

    @abstractmethod
    def unassign(self, tp: TopicPartition) -> None:
        """Stop fetching a partition, and drop its fetched records."""

    @abstractmethod
    def poll(self, ends: Mapping[TopicPartition, int], wait_s: float) -> Polled:
        """Return the next records below these offsets, or the next event; None if nothing comes within `wait_s`.

        A batch has at most `MAX_BATCH_RECORDS` records, and `MAX_BATCH_BYTES` of data unless it is a single record.

        Raises
        ------
        UnexpectedRecordError
            If a record comes that was not requested.
        DataError
            If a record cannot be read.
        """

    @abstractmethod
    def watermarks(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Return the start and the end of the log, as the leader reports them.

        Raises
        ------
        KafkaException
            If the leader does not answer, or refuses.
        """

    @abstractmethod
    def partition_errors(self, timeout_s: float) -> Mapping[TopicPartition, KafkaError]:
        """Return the errors of the assigned partitions that do not exist or have an error.

        Raises
        ------
        KafkaException
            If no broker answers, or the broker refuses.
        """

    @abstractmethod
    def unassign_all(self) -> None:
        """Stop fetching all partitions."""

    @abstractmethod
    def discard(self) -> bool:
        """Drop the next queued item without waiting; return False if there was none."""

    @abstractmethod
    def close(self) -> None:
        """Close the client.  May block until running requests have ended."""

    def text_of(self, error: KafkaError) -> str:
        """Return the error's name and librdkafka's text, without secrets."""
        return client_text(f"{error.name()}: {error.str()}", self._config)


def note(errors: dict[int, KafkaError], error: KafkaError) -> None:
    """Store `error` in `errors` as the latest.  For callbacks, which must not keep the client alive."""
    errors.pop(error.code(), None)
    errors[error.code()] = error


def damaged(tp: TopicPartition, start: int, until: int | None, reason: str) -> UnreadableBatch:
    """Return the offsets of a batch that cannot be read from `start` on, with the error."""
    error = UnreadableBatchError(topic=tp.topic, partition=tp.partition, offset=start, until=until, reason=reason)
    return UnreadableBatch(tp, start, until, error)


def unreadable(
    tp: TopicPartition, start: int, until: int | None, why: Undecompressed | None, most_bytes: int
) -> UnreadableBatch:
    """Return the offsets of a batch whose checksum is right, with the error.

    Parameters
    ----------
    tp, start, until
        The offsets that cannot be read.
    why
        Why the batch could not be decompressed; None if it was, but a record in it is malformed.
    most_bytes
        The limit of its decompressed size.
    """
    if why is None:
        return damaged(tp, start, until, "a record in it is malformed")
    if why.reason:
        return damaged(tp, start, until, f"it cannot be decompressed ({why.reason})")
    found = f"{why.compressed_bytes} compressed bytes, which become more when they are decompressed"
    error = RecordBatchTooLargeError(
        topic=tp.topic, partition=tp.partition, offset=start, limit_bytes=most_bytes, found=found, until=until
    )
    return UnreadableBatch(tp, start, until, error)
