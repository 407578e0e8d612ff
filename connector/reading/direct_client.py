"""The fastest client: fetches record batches and decodes them into Arrow buffers without librdkafka.

librdkafka makes an object of each record, which takes three quarters of the reading time.  This client fetches from the
leaders itself and passes whole record batches to `_record_batches.c`.

It handles the normal case, brokers that throttle, leaders that move, and followers in the reader's rack.  In any other
case (a lost connection, an offset out of range, silence) a client of librdkafka takes over at the next offset, for the
rest of the task.  So only `range_reader` decides about retries and errors, for all clients.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_group.cluster.properties.client_config import reach, value_of
from pyspark_kafka_group.columns import chunk_reader as chunks
from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.chunk_reader import CHUNKS, ChunkReader
from pyspark_kafka_group.columns.constant_columns import ConstantColumns
from pyspark_kafka_group.columns.native_library import reader_override
from pyspark_kafka_group.columns.record_batches import BATCHES, BatchReader
from pyspark_kafka_group.offsets.errors import AuthenticationError, KafkaGroupError
from pyspark_kafka_group.offsets.redaction import redact
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading.fetcher import (
    MOST_BYTES,
    Delayed,
    Delivery,
    Failed,
    Fetched,
    Fetcher,
    FetchRange,
    FetchSettings,
    LeaderMoved,
    PreferredReplica,
    close_surplus,
)
from pyspark_kafka_group.reading.leader_search import HIDDEN_S, LeaderSearch, Rack, SearchTimings
from pyspark_kafka_group.reading.range_reader import SilenceError, level_of
from pyspark_kafka_group.reading.reader_client import OpenLibrdkafka, ReaderClient, ReaderEvent, Records
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.connection_security import Security
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import Address, FetchError, ProtocolError, StoppedLoginError, is_false

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_log = logging.getLogger("pyspark_kafka_group.reading")

_PATIENCE_S = 2.0
"""How long silence may last before librdkafka takes over, in addition to the time that a broker may hold a request."""

_BACKOFF_S = 30.0
"""How long new tasks use librdkafka after it had to take over."""

_TIMEOUT_S = 1.0
"""Timeout of a connection attempt, and of the first bytes of an answer."""

_BESIDES_BATCHES_BYTES = 1024 * 1024
"""Room in a response for names and aborted transactions, each of which takes 16 bytes."""

_MOST_PARTITION_BYTES = 4 * 1024 * 1024
"""How much a long range fetches at a time, unless the user sets ``fetch.message.max.bytes``.  With records of 100 B,
this took a tenth less CPU time than 1 MB (medians of 7 pairs)."""

_WAIT_MS, _LONGEST_WAIT_MS = 500, 4000
"""How long a broker may hold a fetch without records: at first, and while it reports that there are records.  These are
Kafka's default, and the time that tiered storage may take.  A wait is rare: a planned range was in the log, and the
client also fetches control records."""


class DirectSettings(NamedTuple):
    """The settings of the direct client: bootstrap servers, security, fetches, and the search for leaders."""

    servers: list[Address]
    security: Security
    fetch: FetchSettings
    search: SearchTimings = SearchTimings()


def direct_settings(config: Mapping[str, str]) -> DirectSettings:
    """Return the settings of the direct client.

    Parameters
    ----------
    config
        The result of `reader_config`.

    Raises
    ------
    OptionError
        If our own connections do not support a property.
    """
    found = reach(config)
    return DirectSettings(found.servers, found.security, _fetch_settings(config))


def _fetch_settings(config: Mapping[str, str]) -> FetchSettings:
    return FetchSettings(
        read_committed=config["isolation.level"] == "read_committed",
        check_crcs=not is_false(config["check.crcs"]),
        wait_ms=int(config.get("fetch.wait.max.ms", _WAIT_MS)),
        longest_wait_ms=int(config.get("fetch.wait.max.ms", _LONGEST_WAIT_MS)),
        partition_bytes=int(value_of("fetch.message.max.bytes", config)),
        most_partition_bytes=int(config.get("fetch.message.max.bytes", _MOST_PARTITION_BYTES)),
        ahead_bytes=int(config["queued.max.messages.kbytes"]) * 1024,
        batch_bytes=int(value_of("receive.message.max.bytes", config)),
        rack=Rack(config.get("client.rack") or None),
    )


@dataclass(eq=False, slots=True)
class _Range(FetchRange):
    """A range of this client.

    Attributes
    ----------
    read_until : int
        The offset to read next.
    constant : ConstantColumns
        The constant columns of its partition.
    """

    read_until: int = field(kw_only=True)
    constant: ConstantColumns = field(kw_only=True)


def _range(tp: TopicPartition, start: int, until: int, constant: ConstantColumns) -> _Range:
    return _Range(tp, start, until, read_until=start, constant=constant)


def open_direct_client(config: Mapping[str, str], librdkafka: OpenLibrdkafka) -> ReaderClient | None:
    """Return a direct client, or None if its C code is missing, or another client is configured.

    Parameters
    ----------
    config
        The result of `reader_config`.
    librdkafka
        Opens the client that takes over if this one cannot continue.

    Raises
    ------
    OptionError
        If our own connections do not support a property.
    """
    if reader_override() or CHUNKS.problem or BATCHES.problem:
        return None  # `librdkafka_client` logs the reason
    return DirectClient(config, direct_settings(config), librdkafka)


class DirectClient(ReaderClient):
    """Reads record batches from the leaders.

    Parameters
    ----------
    config
        The result of `reader_config`.
    settings
        The settings from `direct_settings`.
    librdkafka
        Opens the client that takes over if this one cannot continue.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        settings: DirectSettings,
        librdkafka: OpenLibrdkafka,
    ) -> None:
        super().__init__(config)
        library = BATCHES.library
        assert library is not None
        self._library = library
        self._open_librdkafka = librdkafka
        self._settings = settings.fetch
        self._patience_s = _PATIENCE_S + self._settings.wait_ms / 1000
        self._connect = partial(
            BrokerConnection, client_id=config["client.id"], timeout_s=_TIMEOUT_S, security=settings.security
        )
        self._batches = BatchReader(library)
        self._chunks = ChunkReader(library, self._batches.functions, self._batches.handle)
        self._search = LeaderSearch(settings.servers, self._connect, settings.search)
        self._fetchers: dict[Address, Fetcher] = {}
        self._fetched: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._ranges: dict[TopicPartition, _Range] = {}
        self._columns: tuple[str, ...] = ()
        self._current: Fetched | None = None  # the loaded record batches
        self._silent_s = 0.0
        self._records_are_late = False
        self._librdkafka: ReaderClient | None = None
        self._librdkafka_kind = (False, False)  # patient, without rack
        self._librdkafka_reads = False
        self._back_off_until = Deadline.after(0)

    def assign(self, ranges: Mapping[TopicPartition, OffsetRange], columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._chunks.begin(columns)
        self._silent_s = 0.0
        self._records_are_late = False
        for tp, wanted in ranges.items():
            self._ranges[tp] = _range(tp, wanted.start, wanted.until, ConstantColumns(*tp))
        if self._librdkafka_reads or not self._back_off_until.passed:
            self._hand_over(ranges)
            return
        self._search.begin(ranges)
        known = ranges.keys() & self._search.leaders.keys()
        if self._look_for_leaders():
            self._fetch(known)

    def unassign(self, tp: TopicPartition) -> None:
        wanted = self._ranges.pop(tp)
        self._search.drop(tp)
        if self._librdkafka_reads:
            self._reader().unassign(tp)
            return
        self._stop_fetching(wanted)
        if self._current is not None and self._current.wanted.tp == tp:
            self._unload()

    def poll(self, ends: Mapping[TopicPartition, int], wait_s: float) -> Records | ReaderEvent | None:
        while not self._librdkafka_reads:
            if self._current is not None:
                records = self._next_records(self._current, ends)
                if records is not None:
                    self._silent_s = 0.0
                    return records
                continue
            began = time.monotonic()
            if not self._look_for_leaders():
                continue
            next_look = self._search.next_at
            try:
                item = self._fetched.get(timeout=max(0.0, min(wait_s, next_look.left_s)))
            except queue.Empty:
                silent_s = time.monotonic() - began
                self._silent_s += silent_s
                wait_s -= silent_s
                if self._silent_s >= self._patience_s and not next_look.is_set:
                    self._fall_back(SilenceError(patient=self._records_are_late))
                elif wait_s <= 0:
                    return None
                continue
            match item:
                case Fetched():
                    self._load(item)
                case Delayed(seconds, late):
                    self._silent_s = min(self._silent_s, -seconds)
                    self._records_are_late |= late
                case LeaderMoved(wanted, reason):
                    self._lose_leader(wanted, reason)
                case PreferredReplica(wanted, broker_id):
                    self._follow(wanted, broker_id)
                case Failed(reason):
                    self._fall_back(reason)
        return self._reader().poll(ends, wait_s)

    def watermarks(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return self._reader().watermarks(tp, timeout_s)

    def partition_error(self, tp: TopicPartition, timeout_s: float) -> KafkaError | None:
        return self._reader().partition_error(tp, timeout_s)

    def unassign_all(self) -> None:
        for wanted in self._ranges.values():
            self._stop_fetching(wanted)
        self._ranges.clear()
        self._search.drop_all()
        self._unload()
        self._clear_fetched()
        close_surplus(self._fetchers)
        if self._librdkafka_reads:
            self._reader().unassign_all()
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

    # -- the normal case

    def _fetch(self, tps: Collection[TopicPartition]) -> None:
        leaders = self._search.leaders
        for address in {leaders[tp] for tp in tps}:
            if address not in self._fetchers:
                connect = partial(
                    self._connect,
                    address,
                    hold_s=self._settings.longest_wait_ms / 1000,
                    most_bytes=max(self._settings.batch_bytes, MOST_BYTES) + _BESIDES_BATCHES_BYTES,
                )
                self._fetchers[address] = Fetcher(self._library, connect, self._settings, self._fetched.put)
            self._fetchers[address] = self._fetchers.pop(address)  # the one used last comes last
            self._fetchers[address].add([self._ranges[tp] for tp in tps if leaders[tp] == address])

    def _stop_fetching(self, wanted: FetchRange) -> None:
        address = self._search.leaders.get(wanted.tp)
        if address is not None and address in self._fetchers:
            self._fetchers[address].drop(wanted)

    def _load(self, item: Fetched) -> None:
        wanted = self._ranges.get(item.wanted.tp)
        if wanted is None or wanted is not item.wanted:
            item.release()  # the task no longer reads this partition
            return
        self._batches.load(wanted.tp, wanted.read_until, item.batches)
        self._current = item

    def _unload(self) -> None:
        self._chunks.drop()
        self._batches.unload()
        if self._current is not None:
            self._current.release()
            self._current = None

    def _next_records(self, item: Fetched, ends: Mapping[TopicPartition, int]) -> Records | None:
        """Return the next loaded records; None if there are none, or if librdkafka has taken over."""
        tp = item.wanted.tp
        wanted, until = self._ranges[tp], ends[tp]
        chunk = self._chunks.collect(tp, wanted.read_until, until, most=limits.MAX_BATCH_RECORDS, wait_s=0)
        if chunk.records:
            self._search.note_records(tp)
            self._records_are_late = False
            batch = self._chunks.build(wanted.constant)
            wanted.read_until = until if chunk.follows == chunks.BEYOND else chunk.last_offset + 1
            return Records(tp, batch, wanted.read_until)
        if chunk.follows not in (chunks.NOTHING, chunks.BEYOND):
            self._fall_back(ProtocolError(f"{tp}: a malformed record batch after offset {wanted.read_until}"))
            return None
        self._unload()
        # Skip offsets of control records, of aborted transactions, and of compacted records.
        position = until if chunk.follows == chunks.BEYOND else min(until, item.batches.next_offset)
        if position <= wanted.read_until:
            return None
        wanted.read_until = position
        return Records(tp, None, position)

    # -- leaders that move

    def _lose_leader(self, wanted: FetchRange, reason: FetchError) -> None:
        if self._ranges.get(wanted.tp) is wanted:
            self._search.lose(wanted.tp, reason)

    def _follow(self, wanted: FetchRange, broker_id: int) -> None:
        """Read from the broker that the leader has named."""
        if self._ranges.get(wanted.tp) is not wanted:
            return
        try:
            self._search.follow(wanted.tp, broker_id)
        except (OSError, ProtocolError) as problem:
            self._fall_back(problem)
        else:
            self._fetch([wanted.tp])

    def _look_for_leaders(self) -> bool:
        """Look for the leaders that are due, and fetch from them; return False if a fallback was necessary."""
        try:
            found = self._search.look()
        except (OSError, ProtocolError) as problem:
            self._fall_back(problem)
            return False
        if found is None:
            return True
        for tp in found:
            if self._search.lost(tp):
                leader, position = self._search.leaders[tp], self._ranges[tp].position
                _log.info("%s: continuing at offset %d with the leader %s:%d", tp, position, *leader)
        self._silent_s = 0.0
        self._fetch(found)
        return True

    # -- fallbacks

    def _reader(self, *, patient: bool | None = None) -> ReaderClient:
        """Return the client of librdkafka.  Open a new one if there is none of the wanted kind."""
        kind = bool(patient), self._settings.rack.hidden
        if self._librdkafka is not None and patient is not None and kind != self._librdkafka_kind:
            self._librdkafka.close()
            self._librdkafka = None
        if self._librdkafka is None:
            self._librdkafka_kind = kind
            self._librdkafka = self._open_librdkafka(patient=kind[0], without_rack=kind[1])
            self.errors = self._librdkafka.errors
        return self._librdkafka

    def _fall_back(self, reason: Exception) -> None:
        """Fall back from followers to leaders, or else to librdkafka.  Raise errors that need no fallback."""
        if isinstance(reason, KafkaGroupError):
            raise reason
        if isinstance(reason, StoppedLoginError):
            raise AuthenticationError(str(reason))
        text = redact(str(reason) or type(reason).__name__, self._config)
        if self._search.follows(self._ranges):
            self._leave_followers(reason, text)
            return
        _log.log(
            level_of(reason, "librdkafka"),
            "%s: librdkafka reads from now on, which is slower, for at least %g s: %s",
            self._config["client.id"],
            _BACKOFF_S,
            text,
        )
        self._back_off_until = Deadline.after(_BACKOFF_S)
        self._close_fetchers()
        self._unload()
        self._search.forget_all()
        rest = {tp: OffsetRange(Offset(r.read_until), Offset(r.until)) for tp, r in self._ranges.items()}
        self._hand_over(rest, patient=isinstance(reason, SilenceError) and reason.patient)

    def _leave_followers(self, reason: Exception, text: str) -> None:
        """Read the rest from the leaders: one of the followers may be the cause."""
        client_id = self._config["client.id"]
        _log.log(level_of(reason, "follower"), "%s: reading only from leaders for %g s: %s", client_id, HIDDEN_S, text)
        self._settings.rack.hide()
        self._close_fetchers()
        self._unload()
        self._search.forget_all()
        self._search.begin(self._ranges)
        # New objects: records that were fetched for the old ones will be dropped.
        self._ranges = {tp: _range(tp, r.read_until, r.until, r.constant) for tp, r in self._ranges.items()}
        self._silent_s = 0.0

    def _hand_over(self, ranges: Mapping[TopicPartition, OffsetRange], *, patient: bool | None = None) -> None:
        self._librdkafka_reads = True
        self._reader(patient=patient).assign(ranges, self._columns)

    def _close_fetchers(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._clear_fetched()

    def _clear_fetched(self) -> None:
        """Release fetched records that will not be read."""
        while not self._fetched.empty():
            item = self._fetched.get()
            match item:
                case Fetched():
                    item.release()
                case LeaderMoved(wanted):
                    self._search.leaders.pop(wanted.tp, None)  # the next task looks for it
                case Failed():
                    self._close_fetchers()  # the next task begins with new connections
                case Delayed() | PreferredReplica():  # the next task asks the leader again
                    pass


log = logging.getLogger("pyspark_kafka_group.reading")
