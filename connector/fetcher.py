"""Fetches partitions from one broker ahead of those who read them, in a thread of its own.

It knows one way only, the good one.  Whatever else happens, a lost connection, an error code, a batch it cannot read,
is delivered as the reason why it has stopped; librdkafka then takes over (`direct_client`).
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark_kafka_group import kafka_protocol as protocol
from pyspark_kafka_group.broker_connection import BrokerConnection
from pyspark_kafka_group.kafka_protocol import FetchedPartition, ProtocolError, Wanted
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.record_batches import RecordBatches, UnreadableError, whole_batches

_MOST_BYTES = 16 * 1024 * 1024
"""Of one response, for all its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How to fetch.

    Attributes
    ----------
    read_committed : bool
        Whether to leave out what transactions have not committed.
    check_crcs : bool
        Whether to check the checksums of record batches.
    max_wait_ms : int
        How long the broker may wait for records.
    partition_bytes : int
        How much to fetch of a partition at a time.
    ahead_bytes : int
        How much fetched data may wait to be read before fetching rests.
    """

    read_committed: bool
    check_crcs: bool
    max_wait_ms: int
    partition_bytes: int
    ahead_bytes: int


@dataclass(eq=False, slots=True)
class Span:
    """What is to be fetched of a partition; `position` belongs to the fetching thread."""

    tp: TopicPartition
    position: int
    until: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Record batches of a span, and how much of the fetcher's room they take."""

    span: Span
    batches: RecordBatches
    release: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The fetcher has stopped."""

    reason: Exception


class Fetcher:
    """Fetches spans from one broker.

    Parameters
    ----------
    library
        What `record_batches.batch_library` returns.
    connect
        Makes a connection to the broker.
    settings
        How to fetch.
    deliver
        Takes what was fetched.  Called by the fetching thread; must not block.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        connect: Callable[[], BrokerConnection],
        settings: FetchSettings,
        deliver: Callable[[Fetched | Stopped], None],
    ) -> None:
        self._library = library
        self._open_connection = connect
        self._settings = settings
        self._deliver = deliver
        self._changed = threading.Condition()  # guards the three below
        self._spans: deque[Span] = deque()
        self._ahead_bytes = 0
        self._closed = False
        self._connection: BrokerConnection | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-group-fetch", daemon=True)
        self._thread.start()

    def add(self, spans: Iterable[Span]) -> None:
        """Fetch these, too."""
        with self._changed:
            self._spans.extend(spans)
            self._changed.notify()

    def drop(self, span: Span) -> None:
        """Fetch this one no longer."""
        with self._changed:
            if span in self._spans:
                self._spans.remove(span)

    def close(self) -> None:
        """End the thread and the connection."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            if self._connection is not None:
                self._connection.interrupt()
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
            while spans := self._next_spans():
                if time.monotonic() > connection.good_until:
                    connection.close()
                    connection = self._connect()
                self._fetch(connection, spans)
        except Exception as problem:
            if not self._closed:
                self._deliver(Stopped(problem))
        finally:
            if self._connection is not None:
                self._connection.close()

    def _connect(self) -> BrokerConnection:
        connection = self._open_connection()
        with self._changed:
            self._connection = connection
            if self._closed:
                raise ConnectionAbortedError("the fetcher is closed")
        return connection

    def _next_spans(self) -> list[Span]:
        """Wait until there is something to fetch and room for it; empty when the fetcher is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (self._spans and self._ahead_bytes < self._settings.ahead_bytes)
            )
            return [] if self._closed else list(self._spans)

    def _fetch(self, connection: BrokerConnection, spans: list[Span]) -> None:
        settings = self._settings
        request = protocol.fetch_request(
            {span.tp: Wanted(span.position, settings.partition_bytes) for span in spans},
            read_committed=settings.read_committed,
            max_wait_ms=settings.max_wait_ms,
            max_bytes=_MOST_BYTES,
        )
        answer = connection.request(protocol.FETCH, request)
        by_partition = {span.tp: span for span in spans}
        for partition in protocol.fetched(answer):
            self._take(by_partition[partition.tp], partition)

    def _take(self, span: Span, partition: FetchedPartition) -> None:
        if partition.error:
            raise ProtocolError(f"{span.tp} cannot be fetched from offset {span.position} on: error {partition.error}")
        try:
            batches = whole_batches(
                self._library, partition.records, partition.aborted, check_crcs=self._settings.check_crcs
            )
        except UnreadableError as problem:
            raise UnreadableError(f"{span.tp}: {problem}") from None
        if batches is None:
            return
        size = batches.data.size

        def release() -> None:
            with self._changed:
                self._ahead_bytes -= size
                self._changed.notify()

        with self._changed:
            if span not in self._spans:
                return  # dropped meanwhile
            span.position = batches.next_offset
            # To the end: what has just been read makes way for the others in the next answer.
            self._spans.remove(span)
            if span.position < span.until:
                self._spans.append(span)
            self._ahead_bytes += size
        self._deliver(Fetched(span, batches, release))
