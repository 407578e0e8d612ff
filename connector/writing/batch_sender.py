"""Sends record batches to the leaders of their partitions, until each one is written.

Everything happens on the caller's thread.  At most one batch of a partition is in flight, and one request of a broker.
So a retry sends the same bytes again, with the same sequence number.  The broker recognizes a batch that it has already
written, and batches of a partition keep their order.

Deliberate: not more in flight.  After a lost request, later batches could arrive first.  A broker without state for a
producer accepts any first sequence number, and would then refuse the earlier batch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_kafka_group.wire.broker_connection import BrokerConnection, with_input
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.leaders import Leaders, LeaderTimings
from pyspark_kafka_group.wire.messages import PRODUCE, Buffer
from pyspark_kafka_group.wire.produce_requests import produce_request, produced
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata
from pyspark_kafka_group.wire.types import Address, ProtocolError, TopicPartition
from pyspark_kafka_group.writing.direct_settings import DirectSettings
from pyspark_kafka_group.writing.producer import log
from pyspark_kafka_group.writing.producer_requests import MESSAGE_TIMED_OUT, WRITTEN, ProducerRequests

_AWAY_S = 0.1
"""Shorter pauses of the caller count as time of the batches."""

_CONNECT_S = 10.0
"""How long connecting may take, with the login."""

_ANSWER_BYTES = 64 * 1024 * 1024
"""The largest accepted answer.  It has about 30 bytes for each partition."""


class ProducerBatch(NamedTuple):
    """A batch to write, and its size in bytes."""

    buffers: Sequence[Buffer]
    size: int


@dataclass(eq=False, slots=True)
class _Partition:
    """A partition, and its batches in order.  The first batch may be in flight."""

    tp: TopicPartition
    batches: deque[ProducerBatch] = field(default_factory=deque)
    until: Deadline | None = None  # when to stop retrying the first batch; None before the first attempt


@dataclass(eq=False, slots=True)
class _Broker:
    """A broker, its connection, the partitions that may be sent, and those in flight."""

    address: Address
    connection: BrokerConnection | None = None
    ready: dict[_Partition, None] = field(default_factory=dict)
    sent: list[_Partition] = field(default_factory=list)
    answer_by: Deadline = field(default_factory=lambda: Deadline.after(0))
    free_at: Deadline = field(default_factory=lambda: Deadline.after(0))  # it throttles until then


class BatchSender:
    """Sends batches.  Belongs to one thread.

    Parameters
    ----------
    settings : DirectSettings
        The settings of the producer.
    requests : ProducerRequests
        Finds leaders, and knows which errors a retry can cure.
    found : callable
        Is called with the metadata of topics whose leaders were searched for.  Calls :meth:`learn`.

    Attributes
    ----------
    unwritten_bytes : int
        The size of the batches that are not written yet.
    """

    def __init__(
        self, settings: DirectSettings, requests: ProducerRequests, found: Callable[[ClusterMetadata], None]
    ) -> None:
        self._settings, self._requests, self._found = settings, requests, found
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._brokers: dict[Address, _Broker] = {}
        self._leaders = Leaders(LeaderTimings(settings.pause_s, settings.longest_pause_s))
        self.unwritten_bytes = 0
        self._paused_at = time.monotonic()

    def close(self) -> None:
        """Close the connections.  Drops unwritten batches."""
        for broker in self._brokers.values():
            if broker.connection is not None:
                broker.connection.abort()
                broker.connection = None

    def learn(self, metadata: ClusterMetadata) -> None:
        """Note the leaders of partitions.  A batch that is ready or in flight stays with its broker."""
        self._leaders.learn(metadata)

    def add(self, tp: TopicPartition, batch: ProducerBatch) -> None:
        """Add the next batch of a partition."""
        partition = self._partitions.setdefault(tp, _Partition(tp))
        partition.batches.append(batch)
        self.unwritten_bytes += batch.size
        if len(partition.batches) == 1:
            self._make_ready(partition)

    def last_partition(self, topic: str) -> int:
        """Return the largest number of a partition of a topic that has unwritten batches; -1 if there is none."""
        found = (tp.partition for tp, partition in self._partitions.items() if tp.topic == topic and partition.batches)
        return max(found, default=-1)

    def pause(self) -> None:
        """Note that there will be no steps for some time, because the caller has other work."""
        self._paused_at = time.monotonic()

    def resume(self) -> None:
        """Extend the time of batches by the time since :meth:`pause`, in which no thread could send them."""
        away_s = time.monotonic() - self._paused_at
        if away_s < _AWAY_S or not self.unwritten_bytes:
            return
        for partition in self._partitions.values():
            if partition.until is not None:
                partition.until = partition.until.later(away_s)

    def step(self, wait_s: float = 0.0) -> None:
        """Send what can be sent, and take answers.

        Parameters
        ----------
        wait_s : float
            How long to wait for an answer if there is none.

        Raises
        ------
        KafkaGroupError
            If a batch cannot be written.
        """
        self._look_for_leaders()
        for broker in self._brokers.values():
            if broker.ready and not broker.sent and broker.free_at.passed:
                self._send(broker)
        self._receive(wait_s)

    # -- leaders

    def _make_ready(self, partition: _Partition) -> None:
        leader = self._leaders.known.get(partition.tp)
        if leader is None:
            self._leaders.want([partition.tp])
        else:
            broker = self._brokers.setdefault(leader.address, _Broker(leader.address))
            broker.ready[partition] = None

    def _look_for_leaders(self) -> None:
        due = self._leaders.due()
        if not due:
            return
        partitions = [self._partitions[tp] for tp in due]
        until = self._until(partitions)
        try:
            metadata = self._requests.metadata({tp.topic for tp in due}, until)
        except (OSError, ProtocolError) as problem:
            self._requests.note(problem, until)
            self._leaders.put_off(due)
        else:
            self._found(metadata)
            self._leaders.learn(metadata, due)
            self._requests.prefer_another()
        for partition in partitions:
            if partition.tp in self._leaders.known:
                self._make_ready(partition)
                continue
            if partition.tp in self._leaders.errors:
                self._requests.note_code(self._leaders.errors[partition.tp], *partition.tp)
            self._retry(partition)

    def _retry(self, partition: _Partition) -> None:
        """Look for the leader again after a pause, and send the first batch again."""
        self._leaders.doubt([partition.tp])
        if self._until([partition]) <= self._leaders.due_at(partition.tp):
            raise self._requests.failure(MESSAGE_TIMED_OUT, *partition.tp)
        log.info("%s: retry because of %s", partition.tp, self._requests.last_error)

    # -- requests

    def _send(self, broker: _Broker) -> None:
        """Send the first batch of each partition that is ready, up to the size of a request."""
        size = 0
        for partition in broker.ready:
            size += partition.batches[0].size
            if broker.sent and size > self._settings.request_bytes:
                break
            broker.sent.append(partition)
        for partition in broker.sent:
            del broker.ready[partition]
        until = self._until(broker.sent)
        body = produce_request(
            {partition.tp: partition.batches[0].buffers for partition in broker.sent},
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=int(self._settings.request_s * 1000),
        )
        try:
            connection = self._connection(broker, until)
            connection.begin(PRODUCE, body, until.within(self._settings.answer_s))
        except (OSError, ProtocolError) as problem:
            self._lose(broker, problem)
        else:
            broker.answer_by = until.within(self._settings.answer_s)

    def _connection(self, broker: _Broker, until: Deadline) -> BrokerConnection:
        """Return a connection without a request in flight."""
        found = broker.connection
        if found is not None and found.is_idle() and not found.good_until.passed:
            return found
        if found is not None:
            found.close()
            broker.connection = None
        broker.connection = BrokerConnection(
            broker.address,
            self._settings.client_id,
            self._settings.answer_s,
            self._settings.security,
            needed=(PRODUCE,),
            begin_s=until.within(_CONNECT_S).left_s,
            most_bytes=_ANSWER_BYTES,
        )
        return broker.connection

    def _receive(self, wait_s: float) -> None:
        """Take the answers that have arrived."""
        until = Deadline.after(wait_s)
        running = {broker.connection: broker for broker in self._brokers.values() if broker.connection and broker.sent}
        if wait_s:
            until = min([until, *self._next_times()])
        if not running:
            if wait_s:
                time.sleep(until.left_s)
            return
        for connection in with_input(running, until.left_s if wait_s else 0):
            self._take_answer(connection, running[connection])
        for broker in running.values():
            if broker.sent and broker.answer_by.passed:
                self._lose(broker, TimeoutError(f"no answer from {broker.address}"))

    def _next_times(self) -> Iterable[Deadline]:
        """Yield when there will be something to do, without an answer."""
        yield self._leaders.next_at
        for broker in self._brokers.values():
            if broker.sent:
                yield broker.answer_by
            elif broker.ready:
                yield broker.free_at

    def _take_answer(self, connection: BrokerConnection, broker: _Broker) -> None:
        try:
            # Deliberate: not only until `answer_by`.  The caller may have been away, and the answer has arrived.
            answer = produced(connection.end(Deadline.after(self._settings.answer_s)))
        except (OSError, ProtocolError) as problem:
            self._lose(broker, problem)
            return
        if any(partition.tp not in answer.errors for partition in broker.sent):
            self._lose(broker, ProtocolError("an answer about other partitions"))
            return
        sent, broker.sent = broker.sent, []
        broker.free_at = Deadline.after(answer.throttle_ms / 1000)
        for partition in sent:
            error = answer.errors[partition.tp]
            if error in WRITTEN:
                self.unwritten_bytes -= partition.batches.popleft().size
                partition.until = None
                self._leaders.confirm(partition.tp)
                if partition.batches:
                    self._make_ready(partition)
            else:
                self._requests.note_code(error, *partition.tp)
                self._retry(partition)

    def _lose(self, broker: _Broker, problem: OSError | ProtocolError) -> None:
        """Give up a connection.  It is unknown what the broker has written."""
        if broker.connection is not None:
            # Deliberate: unsent data must not arrive later.
            broker.connection.abort()
            broker.connection = None
        sent, broker.sent = [*broker.sent, *broker.ready], []
        broker.ready.clear()
        self._requests.note(problem, self._until(sent))
        for partition in sent:
            self._retry(partition)

    def _until(self, partitions: Iterable[_Partition]) -> Deadline:
        """Return when the first of these batches must be written.  The time begins with the first attempt.

        Deliberate: not with the end of the batch.  A slow or throttled cluster may take long for the batches before it.
        """
        found = []
        for partition in partitions:
            partition.until = partition.until or Deadline.after(self._settings.delivery_s)
            found.append(partition.until)
        return min(found)
