"""The interface of the clients that read ranges.

There are three: `direct_client` fetches record batches over connections of its own, where it can;
`librdkafka_client` takes records off librdkafka's queue without an object for each, where the C library of this package
could be built; `message_client` by way of confluent-kafka's message objects, everywhere.  All give identical rows
(``test_librdkafka_client.py`` and ``test_direct_client.py`` compare them).  `range_reader` decides what
records and events mean.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark_kafka_group.offsets.redaction import redact
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
        Whose.
    batch : pyarrow.RecordBatch or None
        The records; None if there is none before `position`.
    position : int
        The offset to resume at.  It is the end of the range if no further record can come before that.
    """

    tp: TopicPartition
    batch: pa.RecordBatch | None
    position: int


@dataclass(frozen=True, slots=True)
class ReaderEvent:
    """What librdkafka delivers between records: an error, or the end of a partition, and its offset."""

    tp: TopicPartition | None
    error: KafkaError
    offset: int


class ReaderClient(ABC):
    """A consumer without a group that reads some partitions from given offsets on.  Used by one thread at a time.

    Attributes
    ----------
    errors : dict
        The last error of each code that was reported outside of any partition, latest last.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.errors: dict[int, KafkaError] = {}
        self._config = config

    @abstractmethod
    def assign(self, ranges: Mapping[TopicPartition, OffsetRange], columns: tuple[str, ...]) -> None:
        """Begin to fetch partitions, besides those that are fetched already.

        Parameters
        ----------
        ranges
            Where to begin, and where to end.
        columns
            The columns that batches will have.

        Raises
        ------
        KafkaException
            librdkafka refuses the assignment.
        """

    @abstractmethod
    def unassign(self, tp: TopicPartition) -> None:
        """Stop fetching a partition, and drop what was fetched of it."""

    @abstractmethod
    def poll(self, ends: Mapping[TopicPartition, int], wait_s: float) -> Records | ReaderEvent | None:
        """Return what comes next below these offsets: some records, or one event; None after `wait_s` of nothing.

        A batch has at most `MAX_BATCH_RECORDS` records, and `MAX_BATCH_BYTES` of data unless it is a single record.

        Raises
        ------
        UnexpectedRecordError
            A record that was not asked for.
        DataError
            A record that cannot be read.
        """

    @abstractmethod
    def watermarks(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Ask the leader for the start and the end of the log.

        Raises
        ------
        KafkaException
            No answer, or a refusal.
        """

    @abstractmethod
    def partition_error(self, tp: TopicPartition, timeout_s: float) -> KafkaError | None:
        """Ask whether the partition exists; return what is wrong with it.

        Raises
        ------
        KafkaException
            No answer, or a refusal.
        """

    @abstractmethod
    def unassign_all(self) -> None:
        """Stop fetching all partitions."""

    @abstractmethod
    def discard(self) -> bool:
        """Drop what is queued, without waiting; False if there was nothing."""

    @abstractmethod
    def close(self) -> None:
        """End the client.  May block for as long as requests under way take."""

    def text_of(self, error: KafkaError) -> str:
        """Return the error for people: its name, which can be looked up, and librdkafka's words without secrets."""
        return redact(f"{error.name()}: {error.str()}", self._config)


class OpenLibrdkafka(Protocol):
    """Opens a client of librdkafka."""

    def __call__(self, *, patient: bool = False, without_rack: bool = False) -> ReaderClient:
        """Open it; a patient one lets brokers wait long for records, and one without rack reads from leaders."""


def note(errors: dict[int, KafkaError], error: KafkaError) -> None:
    """Remember `error` in `errors`, as the latest.  For callbacks, which must not hold the client itself alive."""
    errors.pop(error.code(), None)
    errors[error.code()] = error
