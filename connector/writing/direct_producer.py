"""The faster producer: C code writes rows from Arrow's buffers into record batches, which our own connections send.

`record_writer` encodes the rows, and `batch_sender` sends the batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from itertools import repeat

from pyspark_kafka_group.cluster.patience import patiently
from pyspark_kafka_group.offsets.errors import DeliveryError
from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.topic_requests import ClusterMetadata, TopicMetadata
from pyspark_kafka_group.wire.types import ProtocolError, TopicPartition
from pyspark_kafka_group.writing.batch_sender import BatchSender, ProducerBatch
from pyspark_kafka_group.writing.direct_settings import DirectSettings, direct_settings
from pyspark_kafka_group.writing.producer import SinkProducer
from pyspark_kafka_group.writing.producer_requests import TOO_LARGE, UNKNOWN_PARTITION, ProducerId, ProducerRequests
from pyspark_kafka_group.writing.record_rows import Rows
from pyspark_kafka_group.writing.record_writer import RecordWriter, Stop, Written, sealed

_WAIT_S = 1.0
_REFRESH_S = 10.0  # how long a question may take without which the producer can continue
_BEHIND_S, _BEHIND_PAUSE_S = 3.0, 0.1  # how long a broker may not know a new partition yet
_SEQUENCES = 2**31  # sequence numbers begin again at 0


class DirectProducer(SinkProducer):
    """Writes over our own connections.

    Parameters
    ----------
    config : mapping of str to str
        The result of `producer_properties.producer_config`, and the transactional id if there is one.
    settings : DirectSettings or None
        The result of `direct_settings` for this configuration, if there is one.

    Raises
    ------
    NotSupportedError
        If this producer does not support the configuration.
    """

    def __init__(self, config: Mapping[str, str], settings: DirectSettings | None = None) -> None:
        self._settings = settings = settings or direct_settings(config)
        self._requests = ProducerRequests(settings, config)
        self._sender = BatchSender(settings, self._requests, self._learn)
        self._writer = RecordWriter(batch_bytes=settings.batch_bytes, record_bytes=settings.record_bytes)
        self._id: ProducerId | None = None if settings.idempotent else ProducerId()
        self._sequences: dict[TopicPartition, int] = {}
        self._in_transaction: set[TopicPartition] = set()
        self._topic_ids: dict[str, str | None] = {}
        self._ask_again: dict[str, Deadline] = {}
        """When to ask for the partitions of each topic again."""
        self._failure: BaseException | None = None

    def begin_transaction(self) -> ProducerId:
        transactional_id = self._settings.transactional_id
        assert transactional_id is not None
        self._id = self._requests.take_over(transactional_id)
        return self._id

    def send(self, rows: Rows) -> None:
        self._guarded(self._send, rows)

    def flush(self) -> None:
        self._guarded(self._flush)

    def close(self) -> None:
        self._sender.close()
        self._requests.close()

    def _guarded(self, call: Callable[..., None], *given: Rows) -> None:
        """Run a step.  After a failure, raise it again: it is unknown which batches are written."""
        if self._failure is not None:
            raise self._failure
        self._sender.resume()
        try:
            call(*given)
        except BaseException as problem:
            self._failure = problem
            raise
        finally:
            self._sender.pause()

    def _send(self, rows: Rows) -> None:
        self._know(rows.topics)
        written = Written(0, Stop.DONE, None)
        while written.at < rows.count:
            written = self._writer.write(rows, written.at, int(time.time() * 1000))
            if written.tp is not None:
                self._continue(written.stop, written.tp, rows, written.at)
            self._make_room()

    def _continue(self, stop: Stop, tp: TopicPartition, rows: Rows, at: int) -> None:
        """Do what lets the writer continue."""
        if stop is Stop.FULL:
            self._seal([tp])
        elif stop is Stop.TOO_LARGE:
            raise self._requests.failure(TOO_LARGE, *_place(rows, at))
        else:
            self._find_partition(tp)

    def _find_partition(self, tp: TopicPartition) -> None:
        """Ask for the partitions of a topic until ``tp`` is there.  A broker learns late of one that was just added."""

        def ask() -> bool:
            self._refresh([tp.topic])
            if self._writer.partitions(tp.topic) > tp.partition:
                return True
            self._sender.step()
            return False

        if not patiently(ask, Deadline.after(_BEHIND_S), repeat(_BEHIND_PAUSE_S), is_enough=bool):
            raise self._requests.failure(UNKNOWN_PARTITION, *tp)

    def _make_room(self) -> None:
        """Send, and wait while the buffer is full."""
        self._sender.step()
        most = self._settings.buffer_bytes
        while self._sender.unwritten_bytes + self._writer.open_bytes > most:
            # With many partitions, few batches are ever full.
            if self._writer.open_bytes > most // 2:
                self._seal(self._writer.open_partitions())
            self._sender.step(_WAIT_S)

    def _flush(self) -> None:
        self._seal(self._writer.open_partitions())
        while self._sender.unwritten_bytes:
            self._sender.step(_WAIT_S)
        self._writer.collect()
        self._requests.last_error = ""

    # -- batches

    def _seal(self, partitions: Collection[TopicPartition]) -> None:
        """End the open batches of partitions, and pass them on to be sent."""
        if not partitions:
            return
        if self._id is None:
            self._id = self._requests.producer_id()
        self._add_to_transaction(partitions)
        for tp in partitions:
            records = self._writer.take(tp)
            first = self._sequences.get(tp, 0) if self._settings.idempotent else -1
            buffers = [
                memoryview(part)
                for part in sealed(
                    records,
                    producer_id=self._id.id,
                    epoch=self._id.epoch,
                    sequence=first,
                    transactional=self._settings.transactional_id is not None,
                    compression=self._settings.compression,
                )
            ]
            if self._settings.idempotent:
                self._sequences[tp] = (first + records.count) % _SEQUENCES
            size = sum(map(len, buffers))
            self._sender.add(tp, ProducerBatch(buffers, size))

    def _add_to_transaction(self, partitions: Collection[TopicPartition]) -> None:
        transactional_id = self._settings.transactional_id
        if transactional_id is None or self._in_transaction.issuperset(partitions):
            return
        assert self._id is not None
        # All at once: other open batches will follow.
        added = {*partitions, *self._writer.open_partitions()} - self._in_transaction
        self._requests.add_partitions(transactional_id, self._id, sorted(added))
        self._in_transaction |= added

    # -- topics

    def _know(self, topics: Collection[str]) -> None:
        """Ask for the partitions of topics that are unknown, or that may have more of them by now."""
        unknown = [topic for topic in topics if not self._writer.knows(topic)]
        if unknown:
            self._learn(self._requests.new_topics(unknown))
            for topic, most in self._requests.batch_limits(unknown).items():
                self._writer.limit(topic, most)
        old = [topic for topic in topics if self._ask_again[topic].passed]
        if old:
            self._refresh(old)

    def _refresh(self, topics: Collection[str]) -> None:
        """Ask for the partitions of known topics.  Continue with the old ones if no broker answers."""
        for topic in topics:
            self._ask_again[topic] = Deadline.after(self._settings.topic_age_s)
        deadline = Deadline.after(_REFRESH_S)
        try:
            self._learn(self._requests.metadata(topics, deadline))
        except (OSError, ProtocolError) as problem:
            self._requests.note(problem, deadline)

    def _learn(self, metadata: ClusterMetadata) -> None:
        for topic in metadata.topics:
            if topic.partitions:
                led = [found.number for found in topic.partitions if found.leader in metadata.brokers]
                self._learn_partitions(topic, led)
                self._ask_again[topic.name] = Deadline.after(self._settings.topic_age_s)
        self._sender.learn(metadata)

    def _learn_partitions(self, topic: TopicMetadata, led: Collection[int]) -> None:
        name, count = topic.name, len(topic.partitions)
        # Topics only grow.  So a smaller number is old, unless this is another topic of the same name.
        if self._topic_ids.get(name) == topic.topic_id and self._writer.knows(name):
            count = max(count, self._writer.partitions(name))
        self._topic_ids[name] = topic.topic_id
        self._writer.set_partitions(name, count, led)
        last = max(self._writer.partitions(name) - 1, self._sender.last_partition(name))
        if last >= count:
            raise DeliveryError(
                topic=name,
                partition=last,
                code="_UNKNOWN_PARTITION",
                text="the topic was created again with fewer partitions",
                remedy="Spark may repeat the task. If it does not, write the rows again.",
            )


def _place(rows: Rows, at: int) -> tuple[str, int]:
    """Return the topic and the partition of a row; -1 if it has no partition."""
    topic = rows.topics[0 if rows.topic is None else rows.topic[at].as_py()]
    return topic, -1 if rows.partition is None else rows.partition[at].as_py()
