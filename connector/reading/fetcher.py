"""Fetches partitions from one broker ahead of the reader, in its own thread.

Handles the normal case and throttling (KIP-219).  `direct_client` decides about everything else: the fetcher drops a
refused range, or one with an unreadable batch, and delivers the reason.  A lost connection stops the fetcher.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from pyspark_kafka_group.columns.record_batches import RecordBatches, UnreadableError, whole_batches
from pyspark_kafka_group.offsets.errors import RecordBatchTooLargeError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.reading.answer_time import AnswerTime
from pyspark_kafka_group.reading.reader_config import FetchSettings
from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.messages import FetchedPartition, Wanted
from pyspark_kafka_group.wire.types import Address, FetchError, LargeResponseError, ProtocolError

MOST_BYTES = 16 * 1024 * 1024
"""The largest response, for all its partitions.  If the first record batch is larger, it comes alone."""

_BESIDES_BATCHES_BYTES = 1024 * 1024
"""Room in a response for names and aborted transactions, each of which takes 16 bytes."""

_SLOWEST_BYTES_PER_S = 1_000_000
"""How slowly a response may arrive before it counts as silence."""

IDLE_S = 5.0
"""How long an unused connection is kept.  Spark gives a worker other partitions in each batch.  So in time each worker
reads from each broker, and 100 executors with 8 workers would keep 24,000 connections to 30 brokers.  Batches in quick
succession reuse their connections.  For others, a new connection takes a few milliseconds."""

MOST_KEPT = 8
"""How many connections are kept between two tasks, those used last.  Most clusters have no more brokers.  A task opens
as many as it needs."""

_MAX_FRUITLESS = 3
"""How often in a row an answer may contain only a part of a batch.  A broker may cut off a batch that does not fit into
a response, but then the next response begins with it."""


@dataclass(eq=False, slots=True)
class FetchRange:
    """A range of a partition to fetch; `position`, `fruitless` and `brought` belong to the fetching thread."""

    tp: TopicPartition
    position: int
    until: int
    fruitless: int = 0
    brought: int = 0  # bytes of the answers so far


@dataclass(frozen=True, slots=True)
class Fetched:
    """Fetched record batches of a range; `release` returns their room to the fetcher."""

    wanted: FetchRange
    batches: RecordBatches
    release: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Delayed:
    """No records will come for some time, without an error.

    Attributes
    ----------
    seconds : float
        The length of that time.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The readable log ends at the position of the range.  The fetcher continues to ask for records."""

    wanted: FetchRange
    position: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker refuses the range.  The fetcher has dropped it: resume it at its position."""

    wanted: FetchRange
    reason: FetchError


@dataclass(frozen=True, slots=True)
class Damaged:
    """The batch at the position cannot be read.  The fetcher has dropped the range: resume it at its position."""

    wanted: FetchRange
    reason: UnreadableError


@dataclass(frozen=True, slots=True)
class PreferredReplica:
    """The leader names a follower to read from.  The fetcher has dropped the range: resume it at its position."""

    wanted: FetchRange
    broker_id: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The fetcher of this broker has stopped."""

    address: Address
    reason: Exception


Delivery: TypeAlias = Fetched | Delayed | AtEnd | Refused | Damaged | PreferredReplica | Failed


class Fetcher:
    """Fetches ranges from one broker.

    Parameters
    ----------
    library
        The library of `record_batches.BATCHES`.
    address
        The address of the broker.
    connect
        Opens a connection: takes the address, the time for an answer, how much longer the broker may hold a request,
        and the largest answer.
    settings
        How to fetch.
    deliver
        Takes each result.  The fetching thread calls it: it must not block.
    answer_time
        How long to wait for answers of this broker.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        address: Address,
        connect: Callable[..., BrokerConnection],
        settings: FetchSettings,
        deliver: Callable[[Delivery], None],
        *,
        answer_time: AnswerTime,
    ) -> None:
        self._library = library
        self._address = address
        self._open_connection = connect
        self._settings = settings
        self._deliver = deliver
        self._answer_time = answer_time
        self._wait_ms = settings.wait_ms  # belongs to the fetching thread
        self._changed = threading.Condition()  # guards the five below
        self._ranges: deque[FetchRange] = deque()
        self._alone = False  # whether a request has only one range
        self._ahead_bytes = 0
        self._closed = self._connects = False
        self._connection: BrokerConnection | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-group-fetch", daemon=True)
        self._thread.start()

    def add(self, ranges: Iterable[FetchRange]) -> None:
        """Fetch more ranges."""
        with self._changed:
            self._ranges.extend(ranges)
            self._alone = False
            self._changed.notify()

    def drop(self, wanted: FetchRange) -> None:
        """Stop fetching a range."""
        with self._changed:
            if wanted in self._ranges:
                self._ranges.remove(wanted)
                self._changed.notify()

    def close(self) -> None:
        """End the connection and the thread, which may end a little later."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            if self._connection is not None:
                self._connection.interrupt()
            connects = self._connects
        # Deliberate: not while it connects.  That cannot be interrupted, and may take as long as a late answer.
        if not connects:
            self._thread.join()

    def _run(self) -> None:
        try:
            while ranges := self._next_ranges():
                with self._answer_time.wait() as answer_s:
                    connection = self._connection or self._connect(answer_s)
                    if connection.good_until.passed:
                        connection.close()
                        connection = self._connect(answer_s)
                    connection.set_timeout(answer_s)  # it may have been opened after timeouts
                    self._fetch(connection, ranges)
        except Exception as problem:
            if not self._closed:
                self._deliver(Failed(self._address, problem))
        finally:
            if self._connection is not None:
                self._connection.close()

    def _connect(self, answer_s: float) -> BrokerConnection:
        with self._changed:
            self._check_open()
            self._connects = True
        connection = self._open_connection(
            self._address,
            timeout_s=answer_s,
            hold_s=self._settings.longest_wait_ms / 1000,
            most_bytes=max(self._settings.batch_bytes, MOST_BYTES) + _BESIDES_BATCHES_BYTES,
        )
        with self._changed:
            self._connection, self._connects = connection, False
            self._check_open()
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError("the fetcher is closed")

    def _next_ranges(self) -> list[FetchRange]:
        """Wait until there is something to fetch and room for it.  Return an empty list when the fetcher is closed.

        If there is nothing to fetch for a while, close the connection.
        """
        with self._changed:
            while not self._changed.wait_for(self._may_go_on, None if self._connection is None else IDLE_S):
                if not self._ranges and self._connection is not None:
                    self._connection.close()
                    self._connection = None
            if self._closed:
                return []
            if not self._alone:
                return list(self._ranges)
            self._ranges.rotate()
            return [self._ranges[0]]

    def _may_go_on(self) -> bool:
        return self._closed or (bool(self._ranges) and self._ahead_bytes < self._settings.ahead_bytes)

    def _fetch(self, connection: BrokerConnection, ranges: list[FetchRange]) -> None:
        settings = self._settings
        rack = settings.rack.name
        with_rack = rack is not None and connection.speaks(protocol.FETCH, protocol.FETCH_WITH_RACK)
        request = protocol.fetch_request(
            {wanted.tp: Wanted(wanted.position, self._share(wanted)) for wanted in ranges},
            read_committed=settings.read_committed,
            max_wait_ms=self._wait_ms,
            max_bytes=MOST_BYTES,
            rack=rack if with_rack else None,
        )
        version = protocol.FETCH_WITH_RACK if with_rack else None
        try:
            received = connection.request(protocol.FETCH, request, version, arriving=self._be_patient_with)
            answer = protocol.fetched(received, with_rack=with_rack)
        except LargeResponseError as problem:
            # Only a record batch makes a response so large.
            if len(ranges) > 1:
                self._find_the_large_one()
                return
            raise self._too_large(ranges[0], problem.length) from None
        by_partition = {wanted.tp: wanted for wanted in ranges}
        news = False
        for partition in answer.partitions:
            if partition.tp not in by_partition:
                raise ProtocolError(f"the broker answers for {partition.tp}, which was not requested")
            news |= self._take(by_partition[partition.tp], partition)
        if answer.throttle_ms > 0:
            self._pause(answer.throttle_ms / 1000)
        elif news:
            self._wait_ms = settings.wait_ms
        else:
            self._be_patient(answer.partitions, by_partition)

    def _be_patient_with(self, length: int) -> None:
        """Note that a response has begun to arrive.  Over a slow network the rest may take long."""
        if length > _SLOWEST_BYTES_PER_S:
            self._deliver(Delayed(length / _SLOWEST_BYTES_PER_S))

    def _find_the_large_one(self) -> None:
        """Ask for each range alone, over a new connection."""
        with self._changed:
            self._alone = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _share(self, wanted: FetchRange) -> int:
        """Return how many bytes of a range to ask for."""
        settings = self._settings
        return max(settings.partition_bytes, min(wanted.brought, settings.most_partition_bytes))

    def _pause(self, seconds: float) -> None:
        """Send no requests for some time: the broker would not read them."""
        self._deliver(Delayed(seconds))
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def _be_patient(self, answered: Iterable[FetchedPartition], ranges: Mapping[TopicPartition, FetchRange]) -> None:
        """Let the broker wait longer for existing records, which a log end beyond the position shows.

        They may be in tiered storage.  Before Kafka 3.8 (KIP-1018), a broker stops loading them when this wait ends,
        and starts again with the next request.
        """
        if self._wait_ms >= self._settings.longest_wait_ms:
            return
        if any(partition.readable_until > ranges[partition.tp].position for partition in answered):
            self._wait_ms = min(2 * self._wait_ms, self._settings.longest_wait_ms)
            self._deliver(Delayed(self._wait_ms / 1000))

    def _take(self, wanted: FetchRange, partition: FetchedPartition) -> bool:
        """Deliver the fetched part of a partition; return whether there was anything to deliver."""
        if partition.error:
            refusal = FetchError(f"{wanted.tp} cannot be fetched from offset {wanted.position}", partition.error)
            self._let_go(wanted, Refused(wanted, refusal))
            return True
        if partition.read_from != protocol.NOBODY:
            self._let_go(wanted, PreferredReplica(wanted, partition.read_from))
            return True
        settings = self._settings
        before = wanted.position
        wanted.brought += len(partition.records)
        try:
            for batches in whole_batches(
                self._library,
                partition.records,
                partition.aborted,
                position=before,
                until=wanted.until,
                log_end=partition.readable_until,
                check_crcs=settings.check_crcs,
                most_bytes=settings.batch_bytes,
            ):
                if not self._pass_on(wanted, batches):
                    return True
        except UnreadableError as problem:
            self._let_go(wanted, Damaged(wanted, problem))
            return True
        if wanted.position == before:
            self._bear(wanted, partition)
            return False
        wanted.fruitless = 0
        with self._changed:
            if wanted in self._ranges:
                # To the end: the next answer begins with the other ranges.
                self._ranges.remove(wanted)
                self._ranges.append(wanted)
        return True

    def _pass_on(self, wanted: FetchRange, batches: RecordBatches) -> bool:
        """Deliver batches as soon as there is room; return False if the range was dropped meanwhile."""
        size = batches.data.size

        def release() -> None:
            with self._changed:
                self._ahead_bytes -= size
                self._changed.notify()

        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or wanted not in self._ranges or self._ahead_bytes < self._settings.ahead_bytes
            )
            if self._closed or wanted not in self._ranges:
                return False
            assert batches.next_offset > wanted.position, "guaranteed by whole_batches"
            wanted.position = batches.next_offset
            if wanted.position >= wanted.until:
                self._ranges.remove(wanted)
            self._ahead_bytes += size
        self._deliver(Fetched(wanted, batches, release))
        return True

    def _bear(self, wanted: FetchRange, partition: FetchedPartition) -> None:
        """Note an answer without a whole batch."""
        if len(partition.records):
            wanted.fruitless += 1
            if wanted.fruitless >= _MAX_FRUITLESS:
                wanted.fruitless = 0
                self._let_go(
                    wanted, Damaged(wanted, UnreadableError("a record batch that is never whole", wanted.position))
                )
        elif 0 <= partition.readable_until <= wanted.position:
            self._deliver(AtEnd(wanted, wanted.position))

    def _let_go(self, wanted: FetchRange, why: Refused | Damaged | PreferredReplica) -> None:
        with self._changed:
            if wanted not in self._ranges:
                return
            self._ranges.remove(wanted)
        self._deliver(why)

    def _too_large(self, wanted: FetchRange, length: int) -> RecordBatchTooLargeError:
        return RecordBatchTooLargeError(
            topic=wanted.tp.topic,
            partition=wanted.tp.partition,
            offset=wanted.position,
            limit_bytes=self._settings.batch_bytes,
            found=f"a response of {length} bytes",
        )


class Fetchers:
    """The fetchers of one client, one for each broker, and what they deliver.

    Parameters
    ----------
    library
        The library of `record_batches.BATCHES`.
    connect
        Opens a connection to a broker.
    settings
        How to fetch.
    """

    def __init__(self, library: ctypes.CDLL, connect: Callable[..., BrokerConnection], settings: FetchSettings) -> None:
        self._library = library
        self._connect = connect
        self._settings = settings
        self._by_address: dict[Address, Fetcher] = {}  # those used last come last
        self._answer_times = defaultdict[Address, AnswerTime](partial(AnswerTime, settings.longest_answer_s))
        self._delivered: queue.SimpleQueue[Delivery] = queue.SimpleQueue()

    def add(self, address: Address, ranges: Iterable[FetchRange]) -> None:
        """Fetch more ranges from a broker."""
        if address not in self._by_address:
            deliver, answer_time = self._delivered.put, self._answer_times[address]
            made = Fetcher(self._library, address, self._connect, self._settings, deliver, answer_time=answer_time)
            self._by_address[address] = made
        self._by_address[address] = self._by_address.pop(address)
        self._by_address[address].add(ranges)

    def drop(self, address: Address, wanted: FetchRange) -> None:
        """Stop fetching a range from a broker."""
        if address in self._by_address:
            self._by_address[address].drop(wanted)

    def next(self, timeout_s: float) -> Delivery:
        """Return the next result; raise ``queue.Empty`` if none comes in this time."""
        return self._delivered.get(timeout=timeout_s)

    def undelivered(self) -> Iterator[Delivery]:
        """Yield the results that have come, and release their records."""
        while not self._delivered.empty():
            item = self._delivered.get()
            if isinstance(item, Fetched):
                item.release()
            yield item

    def close_one(self, address: Address) -> None:
        """Close the fetcher of a broker."""
        if address in self._by_address:
            self._by_address.pop(address).close()

    def close_surplus(self) -> None:
        """Close all but :data:`MOST_KEPT` fetchers."""
        for address in [*self._by_address][:-MOST_KEPT]:
            self.close_one(address)

    def close(self) -> None:
        """Close all fetchers.  What they have delivered stays."""
        for address in [*self._by_address]:
            self.close_one(address)
