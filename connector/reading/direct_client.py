"""The fastest client: fetches record batches and decodes them into Arrow buffers without librdkafka.

librdkafka makes an object of each record, which takes three quarters of the reading time.  This client fetches from the
leaders itself and passes whole record batches to `_record_batches.c`.

It connects again after each error that a retry may cure: lost connections, timeouts, leaders that move, refusals.  It
reports each such error as an event.  `range_reader` decides how long that may last (``pollTimeoutMs``).  Another client
takes over only if the brokers or the topic need one: before Kafka 2.1, or with message formats from before Kafka 0.11.
Nothing that a producer writes lets another client take over.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from pyspark_kafka_group.cluster.properties.redaction import redact
from pyspark_kafka_group.columns import chunk_reader as chunks
from pyspark_kafka_group.columns.chunk_reader import CHUNKS, ChunkReader
from pyspark_kafka_group.columns.constant_columns import ConstantColumns
from pyspark_kafka_group.columns.record_batches import BATCHES, UnreadableError
from pyspark_kafka_group.offsets.errors import AuthenticationError, KafkaGroupError
from pyspark_kafka_group.offsets.kafka_errors import Consequence, Meaning, has, row_of
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading.broker_questions import BrokerQuestions, kafka_error, no_leader
from pyspark_kafka_group.reading.fetcher import (
    AtEnd,
    Damaged,
    Delayed,
    Delivery,
    Failed,
    Fetched,
    Fetchers,
    FetchRange,
    PreferredReplica,
    Refused,
)
from pyspark_kafka_group.reading.rack import HIDDEN_S
from pyspark_kafka_group.reading.range_reader import level_of
from pyspark_kafka_group.reading.reader_client import (
    Polled,
    ReaderClient,
    ReaderEvent,
    Records,
    UnreadableBatch,
    damaged,
    unreadable,
)
from pyspark_kafka_group.reading.reader_config import DirectReaderSettings
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.error_codes import error_name
from pyspark_kafka_group.wire.leaders import Leaders
from pyspark_kafka_group.wire.types import (
    Address,
    FetchError,
    ProtocolError,
    StoppedLoginError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_log = logging.getLogger("pyspark_kafka_group.reading")

_PATIENCE_S = 2.0
"""How long a follower may be silent, in addition to the time that a broker may hold a request."""

_BACKOFF_S = 30.0
"""How long new tasks use the other client after it had to take over."""

_MOST_DAMAGED = 3
"""How often to fetch a corrupt batch.  It may have been damaged on its way."""

_CONNECT_S = 1.0
"""How long connecting to a broker may take.  Its system answers, so this does not depend on the broker's load."""


@dataclass(eq=False, slots=True)
class _Range(FetchRange):
    """A range of this client.

    Attributes
    ----------
    read_until : int
        The offset to read next.
    constant : ConstantColumns
        The constant columns of its partition.
    damaged : int
        How often the batch at its position was damaged.
    """

    read_until: int = field(kw_only=True)
    constant: ConstantColumns = field(kw_only=True)
    damaged: int = 0


def _range(tp: TopicPartition, start: int, until: int, constant: ConstantColumns) -> _Range:
    return _Range(tp, start, until, read_until=start, constant=constant)


class DirectClient(ReaderClient):
    """Reads record batches from the leaders.

    Parameters
    ----------
    config
        The result of `reader_config`.
    settings
        The settings from `direct_settings`.
    open_fallback
        Opens the client that takes over if the brokers are too old for this one.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        settings: DirectReaderSettings,
        open_fallback: Callable[[], ReaderClient],
    ) -> None:
        super().__init__(config)
        library = BATCHES.library
        assert library is not None
        assert CHUNKS.library is library, "the functions of both parts are declared"
        self._open_fallback = open_fallback
        self._settings = settings.fetch
        self._patience_s = _PATIENCE_S + self._settings.wait_ms / 1000
        connect = partial(
            BrokerConnection, client_id=config["client.id"], connect_s=_CONNECT_S, security=settings.security
        )
        self._chunks = ChunkReader(library)
        self._leaders = Leaders(settings.leaders)
        self._questions = BrokerQuestions(settings.servers, connect, self._settings.longest_answer_s)
        self._fetchers = Fetchers(library, connect, self._settings)
        self._ranges: dict[TopicPartition, _Range] = {}
        self._columns: tuple[str, ...] = ()
        self._current: Fetched | None = None  # the loaded record batches
        self._events: deque[ReaderEvent] = deque()
        self._silent_s = 0.0
        self._fallback: ReaderClient | None = None
        self._fallback_reads = False
        self._back_off_until = Deadline.after(0)

    def assign(self, ranges: Mapping[TopicPartition, OffsetRange], columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._chunks.begin(columns)
        self._silent_s = 0.0
        for tp, wanted in ranges.items():
            self._ranges[tp] = _range(tp, wanted.start, wanted.until, ConstantColumns(*tp))
        if self._fallback_reads or not self._back_off_until.passed:
            self._hand_over(ranges)
            return
        self._leaders.want(ranges)
        known = ranges.keys() & self._leaders.known.keys()
        self._look_for_leaders()
        if not self._fallback_reads:
            self._fetch(known & self._leaders.known.keys())

    def unassign(self, tp: TopicPartition) -> None:
        wanted = self._ranges.pop(tp)
        self._leaders.drop([tp])
        if self._fallback_reads:
            self._other().unassign(tp)
            return
        self._stop_fetching(wanted)
        if self._current is not None and self._current.wanted.tp == tp:
            self._unload()

    def poll(self, ends: Mapping[TopicPartition, int], wait_s: float) -> Polled:
        deadline = Deadline.after(wait_s)
        while not self._is_replaced():
            if self._current is not None:
                found = self._next_records(self._current, ends)
                if found is not None:
                    self._silent_s = 0.0
                    return found
                continue
            if not self._events:  # each look may bring an event for each range
                self._look_for_leaders()
            if self._events:
                return self._events.popleft()
            if self._is_replaced():
                break
            item = self._next_item(deadline)
            if item is not None:
                unreadable = self._handle(item)
                if unreadable is not None:
                    return unreadable
            elif self._silent_s >= self._patience_s and self._follows():
                self._leave_followers(TimeoutError("nothing has come"))
            # Deliberate: after each item but records.  A broker that only pauses or refuses must not hold the task.
            if deadline.passed and not self._events and not isinstance(item, Fetched):
                return None
        return self._other().poll(ends, max(0.0, deadline.left_s))

    def _is_replaced(self) -> bool:
        return self._fallback_reads

    def _next_item(self, deadline: Deadline) -> Delivery | None:
        """Wait for the next item of the fetchers; return None at the deadline, or if a leader is to be looked for."""
        began = time.monotonic()
        try:
            return self._fetchers.next(max(0.0, min(deadline.left_s, self._leaders.next_at.left_s)))
        except queue.Empty:
            self._silent_s += time.monotonic() - began
            return None

    def _handle(self, item: Delivery) -> UnreadableBatch | None:
        """Handle an item of the fetchers."""
        match item:
            case Fetched():
                self._load(item)
            case Delayed(seconds):
                self._silent_s = min(self._silent_s, -seconds)
            case Failed(address, reason):
                self._fail(address, reason)
            case _ if self._ranges.get(item.wanted.tp) is not item.wanted:
                pass  # the task no longer reads this range
            case AtEnd(wanted, position):
                end = kafka_error(None, "_PARTITION_EOF", "the partition ends here")
                self._events.append(ReaderEvent(wanted.tp, end, position))
            case Refused(wanted, reason):
                self._refuse(wanted, reason)
            case Damaged(wanted, reason):
                return self._damage(cast(_Range, wanted), reason)
            case PreferredReplica(wanted, broker_id):
                self._follow(wanted, broker_id)
        return None

    def watermarks(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        if self._fallback_reads:
            return self._other().watermarks(tp, timeout_s)
        return self._questions.watermarks(tp)

    def partition_errors(self, timeout_s: float) -> Mapping[TopicPartition, KafkaError]:
        if self._fallback_reads:
            return self._other().partition_errors(timeout_s)
        return self._questions.partition_errors(self._ranges.keys())

    def unassign_all(self) -> None:
        for wanted in self._ranges.values():
            self._stop_fetching(wanted)
        self._leaders.drop(self._ranges)
        self._ranges.clear()
        self._events.clear()
        self._unload()
        self._clear_fetched()
        self._fetchers.close_surplus()
        if self._fallback_reads:
            self._other().unassign_all()
            self._fallback_reads = False

    def discard(self) -> bool:
        return self._fallback is not None and self._fallback.discard()

    def close(self) -> None:
        self._close_fetchers()
        self._unload()
        self._chunks.close()
        if self._fallback is not None:
            self._fallback.close()

    # -- the normal case

    def _fetch(self, tps: Collection[TopicPartition]) -> None:
        addresses = {tp: self._leaders.known[tp].address for tp in tps}
        for address in {*addresses.values()}:
            self._fetchers.add(address, [self._ranges[tp] for tp in tps if addresses[tp] == address])

    def _stop_fetching(self, wanted: FetchRange) -> None:
        leader = self._leaders.known.get(wanted.tp)
        if leader is not None:
            self._fetchers.drop(leader.address, wanted)

    def _load(self, item: Fetched) -> None:
        wanted = self._ranges.get(item.wanted.tp)
        if wanted is None or wanted is not item.wanted:
            item.release()  # the task no longer reads this partition
            return
        self._chunks.load(wanted.read_until, item.batches)
        self._current = item

    def _unload(self) -> None:
        self._chunks.unload()
        if self._current is not None:
            self._current.release()
            self._current = None

    def _next_records(self, item: Fetched, ends: Mapping[TopicPartition, int]) -> Records | UnreadableBatch | None:
        """Return the next loaded records, or the batch that cannot be read; None if there are none."""
        tp = item.wanted.tp
        wanted, until = self._ranges[tp], ends[tp]
        chunk = self._chunks.collect(wanted.read_until, until)
        if chunk.records:
            self._leaders.confirm(tp)
            wanted.damaged = 0
            batch = self._chunks.build(wanted.constant)
            wanted.read_until = until if chunk.follows == chunks.BEYOND else chunk.last_offset + 1
            return Records(tp, batch, wanted.read_until)
        if chunk.follows not in (chunks.NOTHING, chunks.BEYOND):
            return self._unreadable(item, wanted, chunk.other_offset)
        self._unload()
        # Skip offsets of control records, of aborted transactions, and of compacted records.
        position = until if chunk.follows == chunks.BEYOND else min(until, item.batches.next_offset)
        if position <= wanted.read_until:
            return None
        wanted.read_until = position
        return Records(tp, None, position)

    # -- errors that a retry may cure

    def _look_for_leaders(self) -> None:
        """Look for the leaders that are due, and fetch from them."""
        leaders, due = self._leaders, self._leaders.due()
        if not due:
            return
        try:
            leaders.learn(self._questions.metadata({tp.topic for tp in due}), due)
        except (OSError, ProtocolError) as problem:
            leaders.put_off(due)
            if not self._raise_or_fall_back(problem):
                self._report(problem)
            return
        found = [tp for tp in due if tp in leaders.known]
        for tp in due:
            if tp in leaders.errors:
                self._report(no_leader(leaders, tp), tp)
            elif tp in leaders.known and leaders.failures(tp):
                address, position = leaders.known[tp].address, self._ranges[tp].position
                _log.info("%s: continuing at offset %d with the leader %s:%d", tp, position, *address)
        self._silent_s = 0.0
        self._fetch(found)

    def _follows(self) -> bool:
        """Return whether one of the partitions is read from a follower."""
        known = self._leaders.known
        return any(tp in known and not known[tp].leads for tp in self._ranges)

    def _fail(self, address: Address, reason: Exception) -> None:
        """Look for the leaders again of what a fetcher has read that has stopped.  Others go on."""
        if self._raise_or_fall_back(reason):
            return
        if not isinstance(reason, OSError | ProtocolError):
            raise reason  # a bug
        self._report(reason)
        self._fetchers.close_one(address)
        known = self._leaders.known
        lost = [tp for tp in self._ranges if tp in known and known[tp].address == address]
        self._renew(lost)
        self._leaders.doubt(lost, moved=True)

    def _refuse(self, wanted: FetchRange, reason: FetchError) -> None:
        """Handle a range that its broker refuses."""
        name = error_name(reason.code)
        if has(name, Consequence.OTHER_LEADER):
            self._leaders.doubt([wanted.tp], moved=True)
        elif self._follows():
            self._leave_followers(reason)
            return
        elif row_of(name).reader is not Meaning.OUT_OF_RANGE:  # then the range reader assigns it again
            self._leaders.doubt([wanted.tp], moved=True)
        self._report(reason, wanted.tp)

    def _report(self, reason: Exception, tp: TopicPartition | None = None) -> None:
        """Report an error of one partition, or of all, as an event."""
        _log.log(level_of(reason, "retry"), "%s: retrying: %s", self._config["client.id"], self._text(reason))
        self._events.append(ReaderEvent(tp, kafka_error(reason), -1))

    def _text(self, reason: Exception) -> str:
        return redact(str(reason) or type(reason).__name__, self._config)

    def _raise_or_fall_back(self, reason: Exception) -> bool:
        """Raise errors that no retry cures, or change the brokers or the client; return False for other errors."""
        if isinstance(reason, KafkaGroupError):
            raise reason
        if isinstance(reason, StoppedLoginError):
            raise AuthenticationError(str(reason))
        if self._follows():
            self._leave_followers(reason)
        elif isinstance(reason, UnsupportedVersionError):
            self._fall_back(reason)
        else:
            return False
        return True

    def _follow(self, wanted: FetchRange, broker_id: int) -> None:
        """Read from the broker that the leader has named."""
        tp, leader = wanted.tp, self._leaders.known.get(wanted.tp)
        try:
            address = self._questions.address(broker_id)
        except (OSError, ProtocolError) as problem:
            self._leave_followers(problem)
            return
        if leader is not None and address == leader.address:
            self._leave_followers(ProtocolError(f"the leader of {tp} names itself as the follower to read from"))
            return
        self._leaders.follow(tp, address)
        self._fetch([tp])

    def _leave_followers(self, reason: Exception) -> None:
        """Read the rest from the leaders: one of the followers may be the cause."""
        _log.log(
            level_of(reason, "follower"),
            "%s: reading only from leaders for %g s: %s",
            self._config["client.id"],
            HIDDEN_S,
            self._text(reason),
        )
        self._settings.rack.hide()
        self._begin_again()
        self._leaders = Leaders(self._leaders.timings)
        self._leaders.want(self._ranges)
        self._silent_s = 0.0

    def _begin_again(self) -> None:
        """Close all connections, and forget what was fetched and not read."""
        self._close_fetchers()
        self._unload()
        self._renew(self._ranges)

    def _renew(self, tps: Iterable[TopicPartition]) -> None:
        """Let ranges begin again.  Records that were fetched for the old objects will be dropped."""
        for tp in tps:
            old = self._ranges[tp]
            self._ranges[tp] = _range(tp, old.read_until, old.until, old.constant)

    # -- batches that cannot be read

    def _damage(self, wanted: _Range, reason: UnreadableError) -> UnreadableBatch | None:
        """Fetch a damaged batch again, some times."""
        if reason.is_old:
            self._fall_back(reason)
            return None
        if self._follows():
            self._leave_followers(reason)
            return None
        wanted.damaged += 1
        if wanted.damaged < _MOST_DAMAGED:
            self._leaders.doubt([wanted.tp], moved=True)
            return None
        return damaged(wanted.tp, max(wanted.read_until, reason.offset), reason.until, reason.kind)

    def _unreadable(self, item: Fetched, wanted: _Range, offset: int) -> UnreadableBatch:
        """Stop at a batch of the loaded ones."""
        until, why = item.batches.end_of(offset), item.batches.undecompressed.get(offset)
        self._unload()
        self._stop_fetching(wanted)
        return unreadable(wanted.tp, max(wanted.read_until, offset), until, why, self._settings.batch_bytes)

    # -- the other client

    def _other(self) -> ReaderClient:
        """Return the client that takes over."""
        if self._fallback is None:
            self._fallback = self._open_fallback()
            self.errors = self._fallback.errors
        return self._fallback

    def _fall_back(self, reason: Exception) -> None:
        """Let the other client read the rest, because the brokers are too old for this one."""
        _log.log(
            level_of(reason, "librdkafka"),
            "%s: librdkafka reads from now on, which is slower, for at least %g s: %s",
            self._config["client.id"],
            _BACKOFF_S,
            self._text(reason),
        )
        self._back_off_until = Deadline.after(_BACKOFF_S)
        self._close_fetchers()
        self._unload()
        self._events.clear()
        self._leaders = Leaders(self._leaders.timings)
        self._hand_over({tp: OffsetRange(Offset(r.read_until), Offset(r.until)) for tp, r in self._ranges.items()})

    def _hand_over(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        self._fallback_reads = True
        self._other().assign(ranges, self._columns)

    def _close_fetchers(self) -> None:
        self._fetchers.close()
        self._clear_fetched()

    def _clear_fetched(self) -> None:
        """Release fetched records that will not be read."""
        for item in self._fetchers.undelivered():
            match item:
                case Refused(wanted):
                    self._leaders.known.pop(wanted.tp, None)  # the next task looks for it
                case Failed(address):
                    self._fetchers.close_one(address)  # the next task begins with a new connection
                case _:  # the next task asks the leader again
                    pass
