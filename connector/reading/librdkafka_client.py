"""The client for every cluster: records go from librdkafka into Arrow buffers without a Python object for each.

It creates its own librdkafka consumer, through the public C interface of the library that confluent-kafka has loaded.
`_native.c` takes the records from its queue.  A confluent-kafka consumer with the same configuration sends the rare
requests (log start and end, metadata).
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark_kafka_group.columns import chunk_reader as chunks
from pyspark_kafka_group.columns.chunk_reader import CHUNKS, KAFKA_FUNCTIONS, ChunkReader, functions_at
from pyspark_kafka_group.columns.constant_columns import ConstantColumns
from pyspark_kafka_group.columns.librdkafka_library import (
    FATAL,
    LibrdkafkaHandle,
    OnError,
    RefusedError,
    address,
    kafka_error,
    load_problem,
    text_of,
)
from pyspark_kafka_group.columns.native_library import POINTER, READER_OVERRIDE, TEXT, Signatures, reader_override
from pyspark_kafka_group.offsets.client_log import ClientLog
from pyspark_kafka_group.offsets.client_login import needs_renewals
from pyspark_kafka_group.offsets.errors import UnexpectedRecordError
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.message_client import open_questions, partition_error, watermarks
from pyspark_kafka_group.reading.reader_client import ReaderClient, ReaderEvent, Records, log, note

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

_INT = ctypes.c_int

_SIGNATURES: Signatures = {
    "rd_kafka_poll_set_consumer": (_INT, (POINTER,)),
    "rd_kafka_queue_get_consumer": (POINTER, (POINTER,)),
    "rd_kafka_topic_partition_list_new": (POINTER, (_INT,)),
    "rd_kafka_topic_partition_list_add": (POINTER, (POINTER, TEXT, ctypes.c_int32)),
    "rd_kafka_topic_partition_list_set_offset": (_INT, (POINTER, TEXT, ctypes.c_int32, ctypes.c_int64)),
    "rd_kafka_topic_partition_list_destroy": (None, (POINTER,)),
    "rd_kafka_assign": (_INT, (POINTER, POINTER)),
    "rd_kafka_incremental_assign": (POINTER, (POINTER, POINTER)),
    "rd_kafka_incremental_unassign": (POINTER, (POINTER, POINTER)),
    "rd_kafka_consumer_close": (_INT, (POINTER,)),
    **dict.fromkeys(KAFKA_FUNCTIONS.values(), (None, ())),  # only the C code calls these
}


def open_librdkafka_client(config: Mapping[str, str]) -> ReaderClient | None:
    """Return a client of this kind, or None if it is not available.  Log the reason once."""
    missing = _missing()
    if missing:
        _say_once(missing)
        return None
    if needs_renewals(config):
        return None  # a kept client of this kind would log in with tokens that have ended
    try:
        return LibrdkafkaClient(config)
    except RefusedError:
        return None  # the message client reports the error


@cache
def _missing() -> str:
    """Return why this client is not available; empty if it is."""
    if reader_override() == "off":
        return f"{READER_OVERRIDE} is off"
    return CHUNKS.problem or load_problem(_SIGNATURES)


@cache
def _say_once(reason: str) -> None:
    log.log(
        logging.INFO if reader_override() == "off" else logging.WARNING,
        "Reading through Python objects, which is slower: %s.",
        reason,
    )


@dataclass(slots=True)
class _LibrdkafkaPartition:
    position: int
    constant: ConstantColumns


class LibrdkafkaClient(ReaderClient):
    """Reads with its own librdkafka consumer.

    Parameters
    ----------
    config
        The result of `reader_config`.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        library = CHUNKS.library
        assert library is not None
        callbacks = {"rd_kafka_conf_set_error_cb": _error_callback(self.errors)}
        self._consumer = LibrdkafkaHandle(config, _SIGNATURES, callbacks, ClientLog(log, config))
        self._kafka, self._handle = self._consumer.kafka, self._consumer.handle
        # All events of the client come through one queue, so that reading serves all of them.
        self._kafka.rd_kafka_poll_set_consumer(self._handle)
        self._queue = self._kafka.rd_kafka_queue_get_consumer(self._handle)
        addresses = {name: address(self._kafka, function) for name, function in KAFKA_FUNCTIONS.items()}
        self._chunks = ChunkReader(library, functions_at(addresses), self._queue)
        self._partitions: dict[TopicPartition, _LibrdkafkaPartition] = {}
        self._last: TopicPartition | None = None
        self._questions: Consumer | None = None

    def assign(self, ranges: Mapping[TopicPartition, OffsetRange], columns: tuple[str, ...]) -> None:
        self._chunks.begin(columns)
        positions: dict[TopicPartition, int] = {tp: wanted.start for tp, wanted in ranges.items()}
        for tp, position in positions.items():
            self._partitions[tp] = _LibrdkafkaPartition(position, ConstantColumns(*tp))
        with self._partition_list(positions) as partitions:
            self._check(self._kafka.rd_kafka_incremental_assign(self._handle, partitions))

    def unassign(self, tp: TopicPartition) -> None:
        del self._partitions[tp]
        with self._partition_list({tp: 0}) as partitions:
            self._check(self._kafka.rd_kafka_incremental_unassign(self._handle, partitions))
        self._chunks.drop(tp)

    def poll(self, ends: Mapping[TopicPartition, int], wait_s: float) -> Records | ReaderEvent | None:
        most = sum(end - self._partitions[tp].position for tp, end in ends.items())
        # Mostly the next records belong to the same partition as the last ones.
        tp = self._last if self._last is not None and self._last in ends else next(iter(ends))
        while True:
            partition, until = self._partitions[tp], ends[tp]
            chunk = self._chunks.collect(tp, partition.position, until, most=most, wait_s=wait_s)
            self._consumer.serve()
            if chunk.records:
                self._last = tp
                partition.position = until if chunk.follows == chunks.BEYOND else chunk.last_offset + 1
                return Records(tp, self._chunks.build(partition.constant), partition.position)
            other = TopicPartition(text_of(chunk.other_topic), chunk.other_partition) if chunk.other_topic else None
            match chunk.follows:
                case chunks.NOTHING:
                    return None
                case chunks.EVENT if other is not None and other not in ends:
                    continue  # the task no longer reads this partition
                case chunks.EVENT:
                    return ReaderEvent(other, _error(chunk.error, chunk.error_text), chunk.other_offset)
                case chunks.BEYOND:
                    partition.position = until
                    return Records(tp, None, until)
                case chunks.FOREIGN if other is not None and other in ends:
                    tp = other
                case _:
                    raise UnexpectedRecordError(
                        topic=tp.topic,
                        partition=tp.partition,
                        position=partition.position,
                        found=f"one of {other} at {chunk.other_offset}",
                    )

    def watermarks(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return watermarks(self._ask(), tp, timeout_s)

    def partition_error(self, tp: TopicPartition, timeout_s: float) -> KafkaError | None:
        return partition_error(self._ask(), tp, timeout_s)

    def unassign_all(self) -> None:
        self._partitions.clear()
        self._kafka.rd_kafka_assign(self._handle, None)
        self._chunks.drop()

    def discard(self) -> bool:
        self._consumer.serve()
        return self._chunks.discard()

    def close(self) -> None:
        if self._questions is not None:
            self._questions.close()
        self._chunks.close()
        self._kafka.rd_kafka_consumer_close(self._handle)
        self._kafka.rd_kafka_queue_destroy(self._queue)
        self._consumer.destroy()

    def _ask(self) -> Consumer:
        if self._questions is None:
            self._questions = open_questions(self._config, self.errors)
        return self._questions

    @contextmanager
    def _partition_list(self, positions: Mapping[TopicPartition, int]) -> Iterator[int]:
        partitions: int = self._kafka.rd_kafka_topic_partition_list_new(len(positions))
        try:
            for tp, position in positions.items():
                topic = tp.topic.encode()
                self._kafka.rd_kafka_topic_partition_list_add(partitions, topic, tp.partition)
                self._kafka.rd_kafka_topic_partition_list_set_offset(partitions, topic, tp.partition, position)
            yield partitions
        finally:
            self._kafka.rd_kafka_topic_partition_list_destroy(partitions)

    def _check(self, problem: int | None) -> None:
        """Raise the ``rd_kafka_error_t`` that a call has returned, if there is one."""
        from confluent_kafka import KafkaException

        error = self._consumer.taken(problem)
        if error is not None:
            raise KafkaException(error)


def _error_callback(errors: dict[int, KafkaError]) -> Any:
    """Return the callback for errors that belong to no partition.  librdkafka calls it in the reading thread."""

    def on_error(_handle: int, code: int, reason: bytes, _opaque: int) -> None:
        note(errors, _error(code, reason))

    return OnError(on_error)


def _error(code: int, reason: bytes | None) -> KafkaError:
    return kafka_error(code, reason, fatal=code == FATAL)
