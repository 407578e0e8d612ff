"""Checks and decompresses Kafka's record batches, which `_record_batches.c` then reads."""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_group.columns import limits
from pyspark_kafka_group.columns.chunk_reader import MessageSource
from pyspark_kafka_group.columns.decompression import CompressionError, Piece, decompress
from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.columns.native_library import POINTER, TEXT, Int32, Int64, NativePart, structure
from pyspark_kafka_group.offsets.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_FINE = 0
_PROBLEMS = {
    1: "records of an old format",
    2: "a corrupt record batch",
    3: "a record batch whose offsets begin below the end of the previous one",
    4: "only record batches from before the position, the last of which ends",
    5: "a record batch from beyond the end of the log",
}

_HEADER_BYTES = 61
_BEFORE_LENGTH = 12
_LENGTH, _OFFSET = struct.Struct(">i"), struct.Struct(">q")
_LENGTH_AT, _ATTRIBUTES_AT, _LAST_DELTA_AT, _CODEC_MASK = 8, 22, 23, 0x07

_PIECE_BYTES = 16 * 1024 * 1024
"""The approximate size of one decompressed piece.  The whole response may be far larger, because it is compressed."""

MOST_BATCH_BYTES = 2**31 - 1 - _HEADER_BYTES
"""The size of a batch is a number of 32 bits."""


class UnreadableError(Exception):
    """Record batches that this reader cannot read.

    Attributes
    ----------
    kind, where : str
        The problem and its place.
    """

    def __init__(self, kind: str, where: str) -> None:
        super().__init__(f"{kind} {where}")
        self.kind = kind
        self.where = where


class LargeBatchError(Exception):
    """A record batch whose decompressed size exceeds the limit.

    Attributes
    ----------
    offset : int
        The first offset of the batch.
    compressed_bytes : int
        Its compressed size.
    """

    def __init__(self, offset: int, compressed_bytes: int) -> None:
        super().__init__(f"a record batch at offset {offset} is too large")
        self.offset = offset
        self.compressed_bytes = compressed_bytes


@dataclass(frozen=True, slots=True)
class RecordBatches:
    """Some whole, uncompressed batches of one partition.

    Attributes
    ----------
    data : pyarrow.Buffer
        The batches.
    next_offset : int
        The offset after them.  The next fetch begins there.
    aborted : AbortedTransactions
        The aborted transactions of their response.
    """

    data: pa.Buffer
    next_offset: int
    aborted: AbortedTransactions


class AbortedTransactions:
    """The aborted transactions of a response, and which of them have ended at the reader's position.

    All batches of the response share this object.  Read them in order.

    Parameters
    ----------
    pairs
        Producer id and first offset of each transaction, alternating.
    """

    def __init__(self, pairs: Sequence[int]) -> None:
        ahead = 0
        self._entries = array("q")  # an array of `aborted_t`, which the C code changes
        for first_offset, producer in sorted(zip(pairs[1::2], pairs[::2], strict=True)):
            self._entries.extend((producer, first_offset, ahead))
        self.address, fields = self._entries.buffer_info()
        self.count = fields // 3


@structure
class Scan(ctypes.Structure):
    """The batches of a response; ``scan_t``."""

    begin: Int64
    bytes: Int64
    next_offset: Int64
    batches: Int64
    compressed: Int64
    bad_offset: Int64
    problem: Int32


@structure
class Aborted(ctypes.Structure):
    """An aborted transaction; ``aborted_t``."""

    producer: Int64
    first_offset: Int64
    state: Int64


_INT64, _INT32 = ctypes.c_int64, ctypes.c_int32

BATCHES = NativePart(
    "kb_shared",
    (MessageSource, Scan, Aborted),
    {
        "kc_init": (None, ()),
        "kb_scan": (None, (POINTER, _INT64, _INT64, _INT64, _INT32, ctypes.POINTER(Scan))),
        "kc_crc": (ctypes.c_uint32, (ctypes.c_uint32, POINTER, _INT64, _INT32)),
        "kb_new": (POINTER, (_INT64,)),
        "kb_load": (None, (POINTER, TEXT, _INT32, _INT64, POINTER, _INT64, POINTER, _INT64)),
        "kb_unload": (None, (POINTER,)),
        "kb_free": (None, (POINTER,)),
        "kb_functions": (None, (ctypes.POINTER(MessageSource),)),
    },
    init="kc_init",
)
"""`_record_batches.c`."""


def whole_batches(
    library: ctypes.CDLL,
    records: memoryview,
    aborted: Sequence[int],
    *,
    position: int,
    until: int,
    log_end: int,
    check_crcs: bool,
    most_bytes: int,
) -> Iterator[RecordBatches]:
    """Yield the whole batches of the fetched records of a partition, piece by piece.

    Parameters
    ----------
    library
        The library of `BATCHES`.
    records
        The records from the broker.
    aborted
        Producer id and first offset of each aborted transaction, alternating.
    position
        The offset of the fetch.  Batches that end before it are skipped.
    until
        Batches from this offset on are left out, except in the last piece.
    log_end
        The end of the readable log in the broker's answer; -1 if unknown.
    check_crcs
        Whether to check checksums.
    most_bytes
        The maximum decompressed size of a batch.

    Yields
    ------
    RecordBatches
        Nothing if no batch is whole.  `next_offset` is beyond `position` and ascends.  If any batch is compressed, each
        piece has at most 16 MB and one more batch, and is decompressed only when it is requested.

    Raises
    ------
    UnreadableError
        If a checksum or the order of offsets is wrong, or an offset is beyond the log.  Also if a batch cannot be
        decompressed, or if its format is older than Kafka 0.11.
    LargeBatchError
        If the decompressed size of a batch exceeds `most_bytes`.
    """
    import pyarrow as pa

    data = pa.py_buffer(records)
    scan = Scan()
    library.kb_scan(data.address, data.size, position, log_end, check_crcs, ctypes.byref(scan))
    if scan.problem != _FINE:
        raise UnreadableError(_PROBLEMS[scan.problem], f"at offset {scan.bad_offset}")
    if scan.batches == 0:
        return
    data = data.slice(scan.begin, scan.bytes - scan.begin)
    transactions = AbortedTransactions(aborted)
    if scan.compressed == 0:
        yield RecordBatches(data, scan.next_offset, transactions)
    else:
        for piece, next_offset in _decompressed(memoryview(data).cast("B"), until, most_bytes):
            yield RecordBatches(piece, next_offset, transactions)


def _decompressed(rest: memoryview, until: int, most_bytes: int) -> Iterator[tuple[pa.Buffer, int]]:
    """Yield decompressed pieces of whole batches, and the offset after each piece."""
    import pyarrow as pa

    next_offset = -1
    while rest and next_offset < until:
        parts: list[Piece | memoryview] = []
        size = 0
        while rest and next_offset < until and size < _PIECE_BYTES:
            length = _BEFORE_LENGTH + _LENGTH.unpack_from(rest, _LENGTH_AT)[0]
            batch, rest = rest[:length], rest[length:]
            next_offset = _OFFSET.unpack_from(batch)[0] + _LENGTH.unpack_from(batch, _LAST_DELTA_AT)[0] + 1
            codec = batch[_ATTRIBUTES_AT] & _CODEC_MASK
            if codec:
                size += _without_compression(batch, codec, most_bytes, parts)
            else:
                size += len(batch)
                parts.append(batch)
        whole = pa.py_buffer(b"".join(parts))
        parts.clear()
        yield whole, next_offset


def _without_compression(batch: memoryview, codec: int, most_bytes: int, parts: list[Piece | memoryview]) -> int:
    """Append a decompressed batch, and return its size."""
    offset = _OFFSET.unpack_from(batch)[0]
    try:
        records = decompress(codec, batch[_HEADER_BYTES:], min(most_bytes, MOST_BATCH_BYTES))
    except CompressionError as problem:
        raise UnreadableError("a record batch that cannot be decompressed", f"at offset {offset}: {problem}") from None
    except TooLargeError:
        raise LargeBatchError(offset, len(batch)) from None
    size = _HEADER_BYTES + sum(map(len, records))
    header = bytearray(batch[:_HEADER_BYTES])
    _LENGTH.pack_into(header, _LENGTH_AT, size - _BEFORE_LENGTH)
    header[_ATTRIBUTES_AT] &= ~_CODEC_MASK
    parts.append(header)
    parts += records
    return size


class BatchReader:
    """The source of records for `chunk_reader.ChunkReader`, in place of a queue of librdkafka.

    Parameters
    ----------
    library
        The library of `BATCHES`.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        handle = library.kb_new(limits.MAX_BATCH_RECORDS)
        if not handle:
            raise MemoryError
        self.handle: int = handle
        self._data: pa.Buffer | None = None
        self._aborted: AbortedTransactions | None = None
        self.functions = MessageSource()
        library.kb_functions(ctypes.byref(self.functions))

    def load(self, tp: TopicPartition, position: int, batches: RecordBatches) -> None:
        """Read these batches next, from `position` on.  Earlier batches must have been read or dropped."""
        # Keep the batches alive: records point into them.
        self._topic, self._data, self._aborted = tp.topic.encode(), batches.data, batches.aborted
        self._library.kb_load(
            self.handle,
            self._topic,
            tp.partition,
            position,
            self._data.address,
            self._data.size,
            self._aborted.address,
            self._aborted.count,
        )

    def unload(self) -> None:
        """Forget the loaded batches."""
        self._library.kb_unload(self.handle)
        self._data = self._aborted = None

    def close(self) -> None:
        """Free all memory.  No other call may follow."""
        self._library.kb_free(self.handle)
