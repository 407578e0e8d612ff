"""Checks and decompresses Kafka's record batches, which `_record_batches.c` then reads."""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_group.columns.decompression import CompressionError, Piece, decompress
from pyspark_kafka_group.columns.limits import TooLargeError
from pyspark_kafka_group.columns.native_library import POINTER, Int32, Int64, NativePart, structure

if TYPE_CHECKING:
    import pyarrow as pa

_FINE, _OLD, _CORRUPT = 0, 1, 2
_PROBLEMS = {
    1: "records of another format",
    2: "a corrupt record batch",
    3: "a record batch whose offsets begin below the end of the previous one",
    4: "only record batches from before the position, the last of which ends",
    5: "a record batch from beyond the end of the log",
}

_HEADER_BYTES = 61
_BEFORE_LENGTH = 12
_LENGTH, _OFFSET = struct.Struct(">i"), struct.Struct(">q")
_LENGTH_AT, _MAGIC_AT, _ATTRIBUTES_AT, _LAST_DELTA_AT, _CODEC_MASK = 8, 16, 22, 23, 0x07
_MAGIC = 2

_PIECE_BYTES = 16 * 1024 * 1024
"""The approximate size of one decompressed piece.  The whole response may be far larger, because it is compressed."""

MOST_BATCH_BYTES = 2**31 - 1 - _HEADER_BYTES
"""The size of a batch is a number of 32 bits."""


class UnreadableError(Exception):
    """A record batch that this reader cannot read.

    Attributes
    ----------
    kind : str
        The problem.
    offset : int
        The first offset of the batch, as far as it is known.
    until : int or None
        The offset after it; None if its header is not credible.
    is_old : bool
        Whether its format is older than Kafka 0.11, so that librdkafka can read it.
    """

    def __init__(self, kind: str, offset: int, until: int | None = None, *, is_old: bool = False) -> None:
        super().__init__(f"{kind} at offset {offset}")
        self.kind = kind
        self.offset = offset
        self.until = until
        self.is_old = is_old


@dataclass(frozen=True, slots=True)
class Undecompressed:
    """Why a batch could not be decompressed.

    Attributes
    ----------
    reason : str
        The reason; empty if the result would exceed the limit.
    compressed_bytes : int
        The compressed size of the batch.
    """

    reason: str
    compressed_bytes: int


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
    undecompressed : mapping of int to Undecompressed
        The batches that could not be decompressed, by their first offsets.  They are in `data` as they were sent, and
        do not matter if their transaction was aborted.
    """

    data: pa.Buffer
    next_offset: int
    aborted: AbortedTransactions
    undecompressed: Mapping[int, Undecompressed] = field(default_factory=dict)

    def end_of(self, offset: int) -> int | None:
        """Return the offset after the batch that begins at an offset; None if there is no such batch."""
        rest = memoryview(self.data).cast("B")
        while len(rest) >= _HEADER_BYTES:
            if _OFFSET.unpack_from(rest)[0] == offset:
                return offset + int(_LENGTH.unpack_from(rest, _LAST_DELTA_AT)[0]) + 1
            rest = rest[_BEFORE_LENGTH + _LENGTH.unpack_from(rest, _LENGTH_AT)[0] :]
        return None


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
    (Scan, Aborted),
    {
        "kc_init": (None, ()),
        "kb_scan": (None, (POINTER, _INT64, _INT64, _INT64, _INT32, ctypes.POINTER(Scan))),
        "kc_crc": (ctypes.c_uint32, (ctypes.c_uint32, POINTER, _INT64, _INT32)),
        "kb_new": (POINTER, (_INT64,)),
        "kb_load": (None, (POINTER, _INT64, POINTER, _INT64, POINTER, _INT64)),
        "kb_unload": (None, (POINTER,)),
        "kb_free": (None, (POINTER,)),
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
        If the first batch has a wrong checksum, offsets in a wrong order or beyond the log, or a format older than
        Kafka 0.11.  Batches before such a batch are yielded without an error.
    """
    import pyarrow as pa

    data = pa.py_buffer(records)
    scan = Scan()
    library.kb_scan(data.address, data.size, position, log_end, check_crcs, ctypes.byref(scan))
    if scan.batches == 0:
        if scan.problem != _FINE:
            end = _end_of_corrupt(records, scan.bytes) if scan.problem == _CORRUPT else None
            is_old = scan.problem == _OLD and records[scan.bytes + _MAGIC_AT] < _MAGIC
            raise UnreadableError(_PROBLEMS[scan.problem], scan.bad_offset, end, is_old=is_old)
        return
    data = data.slice(scan.begin, scan.bytes - scan.begin)
    transactions = AbortedTransactions(aborted)
    if scan.compressed == 0:
        yield RecordBatches(data, scan.next_offset, transactions)
    else:
        for piece, next_offset, undecompressed in _decompressed(memoryview(data).cast("B"), until, most_bytes):
            yield RecordBatches(piece, next_offset, transactions, undecompressed)


def _end_of_corrupt(records: memoryview, at: int) -> int | None:
    """Return the offset after a corrupt batch, which begins at a position; None if its header is not credible."""
    if len(records) - at < _HEADER_BYTES:
        return None
    offset, length = _OFFSET.unpack_from(records, at)[0], _LENGTH.unpack_from(records, at + _LENGTH_AT)[0]
    end = int(offset + _LENGTH.unpack_from(records, at + _LAST_DELTA_AT)[0] + 1)
    following = at + _BEFORE_LENGTH + length
    if offset < 0 or end <= offset or following < at + _HEADER_BYTES:
        return None
    is_followed = len(records) - following >= _OFFSET.size
    return None if is_followed and _OFFSET.unpack_from(records, following)[0] < end else end


def _decompressed(
    rest: memoryview, until: int, most_bytes: int
) -> Iterator[tuple[pa.Buffer, int, Mapping[int, Undecompressed]]]:
    """Yield decompressed pieces of whole batches, the offset after each piece, and what could not be decompressed."""
    import pyarrow as pa

    next_offset = -1
    while rest and next_offset < until:
        parts: list[Piece | memoryview] = []
        undecompressed: dict[int, Undecompressed] = {}
        size = 0
        while rest and next_offset < until and size < _PIECE_BYTES:
            length = _BEFORE_LENGTH + _LENGTH.unpack_from(rest, _LENGTH_AT)[0]
            batch, rest = rest[:length], rest[length:]
            next_offset = _OFFSET.unpack_from(batch)[0] + _LENGTH.unpack_from(batch, _LAST_DELTA_AT)[0] + 1
            codec = batch[_ATTRIBUTES_AT] & _CODEC_MASK
            if codec:
                size += _without_compression(batch, codec, most_bytes, parts, undecompressed)
            else:
                size += len(batch)
                parts.append(batch)
        whole = pa.py_buffer(b"".join(parts))
        parts.clear()
        yield whole, next_offset, undecompressed


def _without_compression(
    batch: memoryview,
    codec: int,
    most_bytes: int,
    parts: list[Piece | memoryview],
    undecompressed: dict[int, Undecompressed],
) -> int:
    """Append a decompressed batch, and return its size.  Append the batch itself if it cannot be decompressed."""
    reason = ""
    try:
        records = decompress(codec, batch[_HEADER_BYTES:], min(most_bytes, MOST_BATCH_BYTES))
    except (CompressionError, TooLargeError) as problem:
        records = None
        reason = str(problem)
    if records is None:
        undecompressed[_OFFSET.unpack_from(batch)[0]] = Undecompressed(reason, len(batch))
        parts.append(batch)
        return len(batch)
    size = _HEADER_BYTES + sum(map(len, records))
    header = bytearray(batch[:_HEADER_BYTES])
    _LENGTH.pack_into(header, _LENGTH_AT, size - _BEFORE_LENGTH)
    header[_ATTRIBUTES_AT] &= ~_CODEC_MASK
    parts.append(header)
    parts += records
    return size
