"""The client that works everywhere: reads through confluent-kafka's message objects.

librdkafka limits the decompressed size of zstd only.  So this client reads only where `direct_client` cannot, and never
because of what a producer has written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from operator import lt
from typing import TYPE_CHECKING, cast

from pyspark_kafka_group.cluster.properties.clients import ClientLog, create_client
from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.from_messages import Columns, RecordBatchBuilder, collect
from pyspark_kafka_group.offsets.errors import UnexpectedRecordError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.reader_client import Polled, ReaderClient, ReaderEvent, Records, log, note

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message


def open_questions(config: Mapping[str, str], errors: dict[int, KafkaError]) -> Consumer:
    """Return a consumer for :func:`watermarks`.

    It reads uncommitted records, because librdkafka would else name the begin of an open transaction as the log end.
    """
    return open_consumer({**config, "isolation.level": "read_uncommitted"}, errors)


def open_consumer(config: Mapping[str, str], errors: dict[int, KafkaError]) -> Consumer:
    """Return a confluent-kafka consumer.  Its log lines go to the logger of reading, and its errors to `errors`.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """
    from confluent_kafka import Consumer

    # The callback references only the errors.  A reference to the client would keep a dropped consumer alive.
    callbacks = {"error_cb": partial(note, errors), "logger": ClientLog(log, config)}
    return create_client(Consumer, {**config, **callbacks}, config)


def partition_errors(
    consumer: Consumer, tps: Collection[TopicPartition], timeout_s: float
) -> dict[TopicPartition, KafkaError]:
    """Return the errors of partitions that do not exist or have an error."""
    from confluent_kafka import KafkaError

    topics = {name: consumer.list_topics(name, timeout=timeout_s).topics[name] for name in {tp.topic for tp in tps}}
    errors: dict[TopicPartition, KafkaError] = {}
    for tp in tps:
        found = topics[tp.topic]
        if found.error is not None:
            errors[tp] = found.error
        elif tp.partition not in found.partitions:
            errors[tp] = KafkaError(KafkaError._UNKNOWN_PARTITION)
    return errors


def watermarks(consumer: Consumer, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Return the start and the end of the log, as the leader reports them."""
    from confluent_kafka import TopicPartition as KafkaPartition

    return consumer.get_watermark_offsets(KafkaPartition(tp.topic, tp.partition), timeout=timeout_s)


@dataclass(slots=True)
class _MessagePartition:
    position: int
    builder: RecordBatchBuilder


class MessageClient(ReaderClient):
    """Reads with a confluent-kafka consumer.

    Parameters
    ----------
    config
        The result of `reader_config`.
    consumer
        An existing consumer, in tests.

    Raises
    ------
    OptionError
        If librdkafka refuses a property.
    """

    def __init__(self, config: Mapping[str, str], consumer: Consumer | None = None) -> None:
        super().__init__(config)
        self._consumer = consumer or open_consumer(config, self.errors)
        self._questions = consumer
        self._partitions: dict[TopicPartition, _MessagePartition] = {}
        self._messages: list[Message] = []
        self._ready: deque[Records] = deque()
        self._include_headers = False

    def assign(self, ranges: Mapping[TopicPartition, OffsetRange], columns: tuple[str, ...]) -> None:
        from confluent_kafka import TopicPartition as KafkaPartition

        self._include_headers = "headers" in columns
        for tp, wanted in ranges.items():
            builder = RecordBatchBuilder(tp.topic, tp.partition, columns)
            self._partitions[tp] = _MessagePartition(wanted.start, builder)
        self._consumer.incremental_assign([KafkaPartition(*tp, wanted.start) for tp, wanted in ranges.items()])

    def unassign(self, tp: TopicPartition) -> None:
        from confluent_kafka import TopicPartition as KafkaPartition

        del self._partitions[tp]
        self._consumer.incremental_unassign([KafkaPartition(*tp)])
        self._messages = [message for message in self._messages if _partition_of(message) != tp]
        self._ready = deque(records for records in self._ready if records.tp != tp)

    def poll(self, ends: Mapping[TopicPartition, int], wait_s: float) -> Polled:
        if not self._ready:
            self._messages = self._messages or self._next_messages(ends, wait_s)
            run = self._first_run()
            columns = collect(run, include_headers=self._include_headers)
            if columns:
                tp = self._check_source(run[0], run[len(columns) - 1])
                # Release the messages, which hold a second copy of the data, before the caller processes the batch.
                del run, self._messages[: len(columns)]
                self._make_ready(tp, columns, ends[tp])
        if self._ready:
            return self._ready.popleft()
        if not self._messages:
            return None
        message = self._messages.pop(0)
        error, source = message.error(), _partition_of(message)
        assert error is not None, "collect() stops only at events"
        if source is not None and source not in ends:
            return None  # the task no longer reads this partition
        return ReaderEvent(source, error, cast(int, message.offset()))

    def watermarks(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        if self._questions is None:
            self._questions = open_questions(self._config, self.errors)
        return watermarks(self._questions, tp, timeout_s)

    def partition_errors(self, timeout_s: float) -> Mapping[TopicPartition, KafkaError]:
        return partition_errors(self._consumer, self._partitions.keys(), timeout_s)

    def unassign_all(self) -> None:
        self._messages = []
        self._ready.clear()
        self._partitions.clear()
        self._consumer.unassign()

    def discard(self) -> bool:
        return self._consumer.poll(0) is not None

    def close(self) -> None:
        if self._questions is not None and self._questions is not self._consumer:
            self._questions.close()
        self._consumer.close()

    def _next_messages(self, ends: Mapping[TopicPartition, int], wait_s: float) -> list[Message]:
        # Deliberate: never consume(n, t) with t > 0.  It waits for n messages or the full time, but a range may have
        # gaps and so fewer messages.  Take fetched messages at once; otherwise one poll waits for the first message.
        rest = sum(end - self._partitions[tp].position for tp, end in ends.items())
        wanted = min(limits.MAX_BATCH_RECORDS, rest)
        messages = self._consumer.consume(wanted, 0)
        if not messages:
            first = self._consumer.poll(wait_s)
            if first is not None:
                messages = [first]
                if wanted > 1:
                    messages += self._consumer.consume(wanted - 1, 0)
        return messages

    def _first_run(self) -> list[Message]:
        """Return the leading messages of one partition."""
        if len(self._partitions) == 1:
            return self._messages
        return list(takewhile(lambda m: _partition_of(m) == _partition_of(self._messages[0]), self._messages))

    def _make_ready(self, tp: TopicPartition, columns: Columns, until: int) -> None:
        """Check the records and build their batches, without records beyond the range."""
        offsets = columns.offsets
        partition = self._partitions[tp]
        if offsets[0] < partition.position:
            raise self._unexpected(tp, f"one at {offsets[0]}")
        if not all(map(lt, offsets, islice(offsets, 1, None))):
            raise self._unexpected(tp, f"records out of order between {min(offsets)} and {max(offsets)}")
        if offsets[-1] >= until:
            columns = columns.part(0, bisect_left(offsets, until))
        end = partition.position = min(offsets[-1] + 1, until)
        taken = 0
        for batch in partition.builder.build_bounded(columns, max_bytes=limits.MAX_BATCH_BYTES):
            taken += batch.num_rows
            self._ready.append(Records(tp, batch, columns.offsets[taken - 1] + 1 if taken < len(columns) else end))
        if not taken:
            self._ready.append(Records(tp, None, end))

    def _check_source(self, first: Message, last: Message) -> TopicPartition:
        # librdkafka drops messages of an earlier assignment.  Check the first and the last message of a chunk.
        for message in (last, first):
            if _partition_of(message) not in self._partitions:
                expected = next(iter(self._partitions))
                raise self._unexpected(expected, f"one of {_partition_of(message)} at {message.offset()}")
        return cast(TopicPartition, _partition_of(first))

    def _unexpected(self, tp: TopicPartition, found: str) -> UnexpectedRecordError:
        return UnexpectedRecordError(
            topic=tp.topic, partition=tp.partition, position=self._partitions[tp].position, found=found
        )


def _partition_of(message: Message) -> TopicPartition | None:
    topic, partition = message.topic(), message.partition()
    return None if topic is None or partition is None else TopicPartition(topic, partition)
