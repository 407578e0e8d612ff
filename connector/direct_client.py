"""The fastest client: record batches as the brokers send them, decoded into Arrow buffers without librdkafka.

librdkafka makes an object of each record, which takes three quarters of the time of reading.  This client asks the
leaders itself and hands whole record batches to `_record_batches.c`.

It reads only what goes as expected.  Whatever does not (a leader that has moved, a lost connection, an offset out of
range, silence), is left to a client of librdkafka, which takes over at the very next offset for the rest of the task:
retries, errors and their meaning are decided in one place, `range_reader`, whichever client reads.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark_kafka_group import native_chunks as chunks
from pyspark_kafka_group import reader_client
from pyspark_kafka_group.broker_connection import BrokerConnection
from pyspark_kafka_group.connection_security import PROPERTIES, Security, security_of
from pyspark_kafka_group.constant_columns import ConstantColumns
from pyspark_kafka_group.fetcher import Fetched, Fetcher, FetchSettings, Span, Stopped
from pyspark_kafka_group.kafka_protocol import Address, ProtocolError
from pyspark_kafka_group.leaders import addresses, find_leaders
from pyspark_kafka_group.native_chunks import ChunkReader
from pyspark_kafka_group.offsets.clients import is_false, redact
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reader_client import Event, ReaderClient, Records, switched_to
from pyspark_kafka_group.record_batches import BatchReader, batch_library

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

log = logging.getLogger("pyspark_kafka_group.reading")

_PATIENCE_S = 2.0
"""How long silence may last before librdkafka is asked to say why."""

_REST_S = 30.0
"""How long to leave all to librdkafka after it had to take over."""

_TIMEOUT_S = 1.0
"""How long a broker may take to be connected to, and to say anything at all."""

_UNDERSTOOD = frozenset(
    {
        "allow.auto.create.topics",
        "auto.offset.reset",
        "bootstrap.servers",
        "check.crcs",
        "client.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.metrics.push",
        "enable.partition.eof",
        "fetch.message.max.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "isolation.level",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "reconnect.backoff.ms",
    }
    | PROPERTIES
)
"""Properties that are either followed here or mean nothing to it.  With any other, librdkafka reads."""


@dataclass(slots=True)
class _Partition:
    span: Span
    position: int
    constant: ConstantColumns


def open_direct_client(config: Mapping[str, str], librdkafka: Callable[[], ReaderClient]) -> ReaderClient | None:
    """A client of this kind, or None where librdkafka has to read.

    Parameters
    ----------
    config
        What `reader_config` returns.
    librdkafka
        Opens the client that takes over if need be.
    """
    if switched_to() or batch_library() is None or config.keys() - _UNDERSTOOD:
        return None
    security = security_of(config)
    if security is None:
        return None
    servers = addresses(config.get("bootstrap.servers", ""), security.protocol)
    return DirectClient(config, servers, security, librdkafka) if servers else None


class DirectClient(ReaderClient):
    """Reads record batches from the leaders.

    Parameters
    ----------
    config
        What `reader_config` returns.
    servers
        Where to ask who leads.
    security
        How to secure connections.
    librdkafka
        Opens the client that takes over if need be.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        servers: list[Address],
        security: Security,
        librdkafka: Callable[[], ReaderClient],
    ) -> None:
        super().__init__(config)
        library = batch_library()
        assert library is not None
        self._library = library
        self._servers = servers
        self._open_librdkafka = librdkafka
        self._settings = FetchSettings(
            read_committed=config["isolation.level"] == "read_committed",
            check_crcs=not is_false(config["check.crcs"]),
            max_wait_ms=int(config["fetch.wait.max.ms"]),
            partition_bytes=int(config.get("fetch.message.max.bytes", 1024 * 1024)),
            ahead_bytes=int(config["queued.max.messages.kbytes"]) * 1024,
        )
        self._connect = partial(
            BrokerConnection, client_id=config["client.id"], timeout_s=_TIMEOUT_S, security=security
        )
        self._batches = BatchReader(library)
        self._chunks = ChunkReader(library, self._batches.functions, self._batches.handle)
        self._leaders: dict[TopicPartition, Address] = {}
        self._fetchers: dict[Address, Fetcher] = {}
        self._fetched: queue.SimpleQueue[Fetched | Stopped] = queue.SimpleQueue()
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._columns: tuple[str, ...] = ()
        self._current: Fetched | None = None  # what is loaded
        self._silent_s = 0.0
        self._librdkafka: ReaderClient | None = None
        self._librdkafka_reads = False
        self._rest_until = 0.0

    def begin(self, ranges: Mapping[TopicPartition, OffsetRange], columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._chunks.begin(columns)
        self._silent_s = 0.0
        for tp, wanted in ranges.items():
            span = Span(tp, wanted.start, wanted.until)
            self._partitions[tp] = _Partition(span, wanted.start, ConstantColumns(*tp))
        if self._librdkafka_reads or time.monotonic() < self._rest_until:
            self._hand_over(ranges)
            return
        try:
            if unknown := [tp for tp in ranges if tp not in self._leaders]:
                self._leaders.update(find_leaders(unknown, self._servers, self._connect))
        except (OSError, ProtocolError) as problem:
            self._give_up(problem)
            return
        for address in {self._leaders[tp] for tp in ranges}:
            if address not in self._fetchers:
                connect = partial(self._connect, address)
                self._fetchers[address] = Fetcher(self._library, connect, self._settings, self._fetched.put)
            spans = [self._partitions[tp].span for tp in ranges if self._leaders[tp] == address]
            self._fetchers[address].add(spans)

    def end(self, tp: TopicPartition) -> None:
        partition = self._partitions.pop(tp)
        if self._librdkafka_reads:
            self._reader().end(tp)
            return
        self._fetchers[self._leaders[tp]].drop(partition.span)
        if self._current is not None and self._current.span.tp == tp:
            self._unload()

    def take(self, ends: Mapping[TopicPartition, int], wait_s: float) -> Records | Event | None:
        while not self._librdkafka_reads:
            if self._current is not None:
                records = self._next_records(self._current, ends)
                if records is not None:
                    self._silent_s = 0.0
                    return records
                continue
            try:
                item = self._fetched.get(timeout=wait_s)
            except queue.Empty:
                self._silent_s += wait_s
                if self._silent_s < _PATIENCE_S:
                    return None
                item = Stopped(TimeoutError("nothing has come"))
            if isinstance(item, Stopped):
                self._give_up(item.reason)
            else:
                self._load(item)
        return self._reader().take(ends, wait_s)

    def log_bounds(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return self._reader().log_bounds(tp, timeout_s)

    def partition_error(self, tp: TopicPartition, timeout_s: float) -> KafkaError | None:
        return self._reader().partition_error(tp, timeout_s)

    def unassign(self) -> None:
        for tp, partition in self._partitions.items():
            if not self._librdkafka_reads:
                self._fetchers[self._leaders[tp]].drop(partition.span)
        self._partitions.clear()
        self._unload()
        self._clear_fetched()
        if self._librdkafka_reads:
            self._reader().unassign()
            self._librdkafka_reads = False

    def discard(self) -> bool:
        return self._librdkafka is not None and self._librdkafka.discard()

    def close(self) -> None:
        self._close_fetchers()
        self._unload()
        self._chunks.close()
        self._batches.close()
        if self._librdkafka is not None:
            self._librdkafka.close()

    # -- what goes as expected

    def _load(self, item: Fetched) -> None:
        partition = self._partitions.get(item.span.tp)
        if partition is None or partition.span is not item.span:
            item.release()  # of a partition that is read no more
            return
        self._batches.load(item.span.tp, partition.position, item.batches)
        self._current = item

    def _unload(self) -> None:
        self._chunks.drop()
        self._batches.unload()
        if self._current is not None:
            self._current.release()
            self._current = None

    def _next_records(self, item: Fetched, ends: Mapping[TopicPartition, int]) -> Records | None:
        """The next records of what is loaded; None if that was the last, or librdkafka has taken over."""
        tp = item.span.tp
        partition, until = self._partitions[tp], ends[tp]
        chunk = self._chunks.collect(tp, partition.position, until, most=reader_client.CHUNK_RECORDS, wait_s=0)
        if chunk.records:
            batch = self._chunks.build(partition.constant)
            partition.position = until if chunk.follows == chunks.BEYOND else chunk.last_offset + 1
            return Records(tp, batch, partition.position)
        if chunk.follows not in (chunks.NOTHING, chunks.BEYOND):
            self._give_up(ProtocolError(f"{tp}: a malformed record batch after offset {partition.position}"))
            return None
        self._unload()
        # Offsets of control records, of aborted transactions, and of records that were compacted away.
        position = until if chunk.follows == chunks.BEYOND else min(until, item.batches.next_offset)
        if position == partition.position:
            return None
        partition.position = position
        return Records(tp, None, position)

    # -- what does not

    def _reader(self) -> ReaderClient:
        if self._librdkafka is None:
            self._librdkafka = self._open_librdkafka()
            self.errors = self._librdkafka.errors
        return self._librdkafka

    def _give_up(self, reason: Exception) -> None:
        """Let librdkafka read the rest."""
        log.info("%s: librdkafka reads on: %s", self._config["client.id"], redact(str(reason), self._config))
        self._rest_until = time.monotonic() + _REST_S
        self._close_fetchers()
        self._unload()
        self._leaders.clear()
        rest = {tp: OffsetRange(Offset(p.position), Offset(p.span.until)) for tp, p in self._partitions.items()}
        self._hand_over(rest)

    def _hand_over(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        self._librdkafka_reads = True
        self._reader().begin(ranges, self._columns)

    def _close_fetchers(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._clear_fetched()

    def _clear_fetched(self) -> None:
        """Let go of what was fetched and is not read any more."""
        while not self._fetched.empty():
            item = self._fetched.get()
            if isinstance(item, Fetched):
                item.release()
            else:
                self._close_fetchers()  # the next reading begins with new connections
