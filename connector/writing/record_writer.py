"""Encodes rows as Kafka's record batches.  No connection.

Each partition has at most one open batch.  `_record_writer.c` appends rows to them, without a Python object per row.
Batches have message format 2 (KIP-98), the only one since Kafka 4.0.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_group.columns.native_library import POINTER, Int32, Int64, NativePart, structure
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.writing.compression import Compression
from pyspark_kafka_group.writing.native_rows import NativeColumn, NativeRows, layout_of
from pyspark_kafka_group.writing.record_rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_BYTES = 61
"""The size of a batch without its records."""

_MOST_BYTES = 2**31 - 1 - HEADER_BYTES  # the size of a batch is a number of 32 bits
_INT32, _INT64 = ctypes.c_int32, ctypes.c_int64
_TRANSACTIONAL = 0x10
_MAGIC = 2
_NO_EPOCH = -1  # of the leader: the broker sets it
_BEFORE_CRC = struct.Struct(">qiibI")
_BEFORE_LENGTH = 12
_AFTER_CRC = struct.Struct(">hiqqqhii")


class Stop(IntEnum):
    """Why `RecordWriter.write` has stopped.

    ``FULL``: the batch of the partition is full.  ``NO_PARTITION``: the topic does not have the partition of the row.
    ``TOO_LARGE``: the record is larger than the limit.
    """

    DONE = 0
    FULL = 1
    NO_PARTITION = 2
    TOO_LARGE = 3


_NO_MEMORY = 4


class Written(NamedTuple):
    """How far `RecordWriter.write` has come.

    Attributes
    ----------
    at : int
        The first row that is not written.
    stop : Stop
        Why it is not written.
    tp : TopicPartition or None
        Its partition; None if all rows are written.  The number is -1 if the partitioner has not chosen one.
    """

    at: int
    stop: Stop
    tp: TopicPartition | None


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """The records of a batch, without its header and uncompressed.

    Attributes
    ----------
    data : pa.Buffer
        The encoded records.  The memory goes back to the writer when the last reference is dropped.
    count : int
        The number of records, at least 1.
    first_ms, last_ms : int
        The timestamp of the first record, and the largest one.
    """

    data: pa.Buffer
    count: int
    first_ms: int
    last_ms: int


@structure
class WrittenRows(ctypes.Structure):
    """The result of kw_write; ``written_t``."""

    at: Int64
    stop: Int32
    topic: Int32
    partition: Int32


@structure
class TakenRecords(ctypes.Structure):
    """The result of kw_take; ``taken_t``."""

    data: Int64
    size: Int64
    capacity: Int64
    first_ms: Int64
    last_ms: Int64
    count: Int32


@structure
class OpenPartition(ctypes.Structure):
    """A partition with an open batch; ``place_t``."""

    topic: Int32
    partition: Int32


RECORD_WRITER = NativePart(
    "kw_shared",
    (NativeColumn, NativeRows, WrittenRows, TakenRecords, OpenPartition, HEADER_BYTES),
    {
        "kc_init": (None, ()),
        "kc_crc": (ctypes.c_uint32, (ctypes.c_uint32, POINTER, _INT64, _INT32)),
        "kw_new": (POINTER, (_INT64, _INT64, ctypes.c_uint64)),
        "kw_free": (None, (POINTER,)),
        "kw_topic": (_INT32, (POINTER, _INT32, _INT32, ctypes.POINTER(_INT32), _INT32)),
        "kw_limit": (None, (POINTER, _INT32, _INT64)),
        "kw_write": (None, (POINTER, POINTER, _INT64, _INT64, _INT64, ctypes.POINTER(WrittenRows))),
        "kw_open_bytes": (_INT64, (POINTER,)),
        "kw_open_count": (_INT32, (POINTER,)),
        "kw_open": (None, (POINTER, ctypes.POINTER(OpenPartition))),
        "kw_take": (_INT32, (POINTER, _INT32, _INT32, ctypes.POINTER(TakenRecords))),
        "kw_give_back": (None, (POINTER, _INT64, _INT64)),
    },
    init="kc_init",
)
"""`_record_writer.c`.  Without its library, there is no `RecordWriter`."""


class RecordWriter:
    """Encodes rows into one open batch per partition.

    One thread at a time uses a writer.  Any thread may drop `EncodedRecords`.

    The partition of a row decides where it goes.  If it has none, its key decides, like librdkafka's
    ``murmur2_random``: equal keys go to equal partitions, as with Java's producer.  Rows without a key go to a random
    partition with a leader, and to another one after some 16 kB.

    Parameters
    ----------
    batch_bytes : int
        The largest uncompressed size of a batch, including its header.  A larger record comes alone in its batch.
    record_bytes : int
        The largest size of a record, as librdkafka's ``message.max.bytes``.  Batches with several records are not
        larger, either.

    Raises
    ------
    RuntimeError
        If the C library cannot be used.
    """

    def __init__(self, *, batch_bytes: int, record_bytes: int) -> None:
        library = RECORD_WRITER.library
        if library is None:
            raise RuntimeError(RECORD_WRITER.problem)
        self._library = library
        record_bytes = min(record_bytes, _MOST_BYTES)
        batch_bytes = max(1, min(batch_bytes, record_bytes) - HEADER_BYTES)
        # Not from the state of `random`: workers that were forked from one process have the same.
        self._memory = _WriterMemory(library, batch_bytes, record_bytes, int.from_bytes(os.urandom(8), "little"))
        self._handle = self._memory.handle
        self._topics: dict[str, int] = {}
        self._names: list[str] = []
        self._counts: list[int] = []
        self._rows: Rows | None = None
        self._layout = NativeRows()
        self._alive: list[Any] = []

    def set_partitions(self, topic: str, count: int, led: Collection[int] = ()) -> None:
        """Note how many partitions a topic has.  Partitions with an open batch stay, and those before them.

        Parameters
        ----------
        topic : str
            The name.
        count : int
            The number of partitions.
        led : collection of int
            The partitions that have a leader.  If it is empty, all may be chosen.

        Raises
        ------
        ValueError
            If the count is less than 1.
        """
        if count < 1:
            raise ValueError(f"a topic cannot have {count} partitions")
        number = self._topics.get(topic, len(self._names))
        count = self._library.kw_topic(self._handle, number, count, (_INT32 * len(led))(*led), len(led))
        if count < 0:
            raise MemoryError("no memory for the partitions of a topic")
        if number == len(self._names):
            self._topics[topic] = number
            self._names.append(topic)
            self._counts.append(count)
        self._counts[number] = count

    def limit(self, topic: str, batch_bytes: int) -> None:
        """Set the largest size of a batch of a known topic, including its header, if the writer's is larger."""
        self._library.kw_limit(self._handle, self._topics[topic], max(1, batch_bytes - HEADER_BYTES))

    def knows(self, topic: str) -> bool:
        """Return whether `set_partitions` was called for this topic."""
        return topic in self._topics

    def partitions(self, topic: str) -> int:
        """Return how many partitions a known topic has."""
        return self._counts[self._topics[topic]]

    def write(self, rows: Rows, at: int, now_ms: int) -> Written:
        """Append rows to the open batches of their partitions, up to the first row that has no place.

        Parameters
        ----------
        rows : Rows
            The rows.
        at : int
            The row to begin with.
        now_ms : int
            The timestamp of the records.

        Returns
        -------
        Written
            The row at which it has stopped.  After `Stop.FULL`, take the records of this partition, and call this
            method again for the same row.

        Raises
        ------
        KeyError
            If a topic of the rows is unknown.  No row is written.
        MemoryError
            If there is no memory.  Rows may be written.
        """
        if rows is not self._rows:
            topics = (_INT32 * len(rows.topics))(*(self._topics[topic] for topic in rows.topics))
            self._layout, alive = layout_of(rows, ctypes.addressof(topics))
            self._alive = [topics, alive]
            self._rows = rows
        self._memory.collect()
        found = WrittenRows()
        self._library.kw_write(self._handle, ctypes.byref(self._layout), at, rows.count, now_ms, ctypes.byref(found))
        if found.stop == _NO_MEMORY:
            raise MemoryError("no memory for the records of a batch")
        if found.stop == Stop.DONE:
            self._rows = None
            self._alive = []
            return Written(found.at, Stop.DONE, None)
        return Written(found.at, Stop(found.stop), TopicPartition(self._names[found.topic], found.partition))

    def collect(self) -> None:
        """Give back the memory of records that nothing needs any more.  An idle producer keeps little."""
        self._memory.collect()

    def open_partitions(self) -> list[TopicPartition]:
        """Return the partitions with records in an open batch, in no particular order."""
        count = self._library.kw_open_count(self._handle)
        found = (OpenPartition * count)()
        self._library.kw_open(self._handle, found)
        return [TopicPartition(self._names[one.topic], one.partition) for one in found]

    @property
    def open_bytes(self) -> int:
        """The size of the records in open batches.  They take up to twice as much memory."""
        size: int = self._library.kw_open_bytes(self._handle)
        return size

    def take(self, tp: TopicPartition) -> EncodedRecords:
        """End the open batch of a partition, and return its records.

        Raises
        ------
        KeyError
            If the partition has no open batch.
        """
        import pyarrow as pa

        found = TakenRecords()
        if self._library.kw_take(self._handle, self._topics[tp.topic], tp.partition, ctypes.byref(found)) == 0:
            raise KeyError(tp)
        owner = _Owner(self._memory, found.data, found.capacity)
        data = pa.foreign_buffer(found.data, found.size, base=owner)
        return EncodedRecords(data, found.count, found.first_ms, found.last_ms)


def sealed(
    records: EncodedRecords,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: Compression | None = None,
) -> tuple[bytes, bytes | pa.Buffer]:
    """Return a whole batch: its header of 61 bytes, and the rest.

    Parameters
    ----------
    records : EncodedRecords
        The records.
    producer_id, epoch, sequence : int
        Those of the idempotent producer; ``sequence`` is the number of the first record.
    transactional : bool
        Whether the batch belongs to a transaction.
    compression : Compression or None
        Compresses the records.  They stay as they are if that does not make them smaller.

    Returns
    -------
    tuple
        Two objects with the buffer protocol, to be sent one after the other.  The second keeps `records.data` alive if
        the batch is not compressed.
    """
    library = RECORD_WRITER.library
    assert library is not None
    attributes = _TRANSACTIONAL if transactional else 0
    payload: bytes | pa.Buffer = records.data
    if compression is not None:
        smaller = compression.compress(records.data)
        if len(smaller) < records.data.size:
            payload, attributes = smaller, attributes | compression.number
    size = len(payload)
    tail = _AFTER_CRC.pack(
        attributes,
        records.count - 1,
        records.first_ms,
        records.last_ms,
        producer_id,
        epoch,
        sequence,
        records.count,
    )
    address = payload if isinstance(payload, bytes) else payload.address
    crc = library.kc_crc(library.kc_crc(0, tail, len(tail), 0), address, size, 0)
    head = _BEFORE_CRC.pack(0, HEADER_BYTES - _BEFORE_LENGTH + size, _NO_EPOCH, _MAGIC, crc)
    return head + tail, payload


class _WriterMemory:
    """The memory of a writer in C.  It lives as long as any of its records."""

    def __init__(self, library: ctypes.CDLL, batch_bytes: int, record_bytes: int, seed: int) -> None:
        handle = library.kw_new(batch_bytes, record_bytes, seed)
        if not handle:
            raise MemoryError
        self.handle: int = handle
        self._give_back = library.kw_give_back
        self._free = library.kw_free
        # Deliberate: a queue.  Any thread may drop records while the C code runs.
        self.dropped: deque[tuple[int, int]] = deque()

    def collect(self) -> None:
        """Give dropped buffers back to the writer."""
        dropped = self.dropped
        while dropped:
            self._give_back(self.handle, *dropped.popleft())

    def __del__(self) -> None:
        if hasattr(self, "_free"):
            self.collect()
            self._free(self.handle)


class _Owner:
    """The owner of the memory of some records."""

    def __init__(self, memory: _WriterMemory, address: int, capacity: int) -> None:
        self._memory, self._place = memory, (address, capacity)

    def __del__(self) -> None:
        self._memory.dropped.append(self._place)
