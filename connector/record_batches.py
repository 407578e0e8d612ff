"""Kafka's record batches, seen from Python: looked at and decompressed here, read by `_record_batches.c`."""

from __future__ import annotations

import ctypes
import struct
import zlib
from array import array
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pyspark_kafka_group import reader_client
from pyspark_kafka_group.librdkafka import POINTER
from pyspark_kafka_group.native_chunks import MessageSource, native_library
from pyspark_kafka_group.offsets.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_FINE, _OLD_FORMAT, _CORRUPT = range(3)
_PROBLEMS = {_OLD_FORMAT: "records of an old format", _CORRUPT: "a corrupt record batch"}

_HEADER_BYTES = 61
_BEFORE_LENGTH = 12
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _ATTRIBUTES_AT, _CODEC_MASK = 8, 22, 0x07
_LZ4 = 3
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_ANY_GZIP_WINDOW = 31


class UnreadableError(Exception):
    """Record batches that this reader does not read."""


class _Scan(ctypes.Structure):
    bytes: int
    next_offset: int
    batches: int
    compressed: int
    bad_offset: int
    problem: int

    _fields_ = (
        ("bytes", ctypes.c_int64),
        ("next_offset", ctypes.c_int64),
        ("batches", ctypes.c_int64),
        ("compressed", ctypes.c_int64),
        ("bad_offset", ctypes.c_int64),
        ("problem", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True)
class RecordBatches:
    """Whole batches of one partition, not compressed.

    Attributes
    ----------
    data : pyarrow.Buffer
        The batches.
    next_offset : int
        The offset after them: where to go on fetching.
    aborted : tuple of int
        Producer id and first offset of each aborted transaction that reaches into them, one after the other.
    """

    data: pa.Buffer
    next_offset: int
    aborted: tuple[int, ...]


@cache
def batch_library() -> ctypes.CDLL | None:
    """The C library of this package with these functions declared, or None where there is none."""
    library = native_library()
    return None if library is None else declared(library)


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Return the C library with its functions for record batches declared."""
    int64, int32 = ctypes.c_int64, ctypes.c_int32
    library.kb_init.restype = library.kb_scan.restype = None
    library.kb_scan.argtypes = (POINTER, int64, int32, ctypes.POINTER(_Scan))
    library.kb_crc.restype = ctypes.c_uint32
    library.kb_crc.argtypes = (POINTER, int64, int32)
    library.kb_new.restype = POINTER
    library.kb_new.argtypes = (int64,)
    library.kb_load.restype = ctypes.c_int
    library.kb_load.argtypes = (POINTER, ctypes.c_char_p, int32, int64, POINTER, int64, POINTER, int64)
    library.kb_unload.restype = library.kb_free.restype = library.kb_functions.restype = None
    library.kb_unload.argtypes = library.kb_free.argtypes = (POINTER,)
    library.kb_functions.argtypes = (ctypes.POINTER(MessageSource),)
    library.kb_init()
    return library


def whole_batches(
    library: ctypes.CDLL, records: memoryview, aborted: tuple[int, ...], *, check_crcs: bool
) -> RecordBatches | None:
    """The whole batches of what was fetched of a partition; None if there is none.

    Raises
    ------
    UnreadableError
        A checksum is wrong, or the batches are of an older format than Kafka's since 0.11.
    """
    import pyarrow as pa

    data = pa.py_buffer(records)
    scan = _Scan()
    library.kb_scan(data.address, data.size, check_crcs, ctypes.byref(scan))
    if scan.problem != _FINE:
        raise UnreadableError(f"{_PROBLEMS[scan.problem]} at offset {scan.bad_offset}")
    if scan.batches == 0:
        return None
    data = data.slice(0, scan.bytes)
    return RecordBatches(decompressed(data) if scan.compressed else data, scan.next_offset, aborted)


def decompressed(batches: pa.Buffer) -> pa.Buffer:
    """Whole batches, none of them compressed any more.

    Raises
    ------
    UnreadableError
        One cannot be decompressed.
    """
    import pyarrow as pa

    rest = memoryview(batches).cast("B")
    parts: list[bytes | memoryview | pa.Buffer] = []
    while rest:
        size = _BEFORE_LENGTH + _LENGTH.unpack_from(rest, _LENGTH_AT)[0]
        batch, rest = rest[:size], rest[size:]
        codec = batch[_ATTRIBUTES_AT] & _CODEC_MASK
        if codec == 0:
            parts.append(batch)
            continue
        try:
            records = _decompress(codec, batch[_HEADER_BYTES:])
        except (OSError, ValueError, zlib.error, pa.ArrowException, struct.error) as problem:
            raise UnreadableError(f"a record batch cannot be decompressed: {problem}") from None
        header = bytearray(batch[:_HEADER_BYTES])
        _LENGTH.pack_into(header, _LENGTH_AT, _HEADER_BYTES - _BEFORE_LENGTH + len(memoryview(records)))
        header[_ATTRIBUTES_AT] &= ~_CODEC_MASK
        parts += [header, records]
    return pa.py_buffer(b"".join(parts))


def _decompress(codec: int, data: memoryview) -> bytes | pa.Buffer:
    import pyarrow as pa

    match codec:
        case 1:
            return zlib.decompress(data, _ANY_GZIP_WINDOW)
        case 2:
            return _unsnap(data)
        case 3 | 4:
            name = "lz4" if codec == _LZ4 else "zstd"
            return pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name).read_buffer()
        case _:
            raise ValueError(f"unknown codec {codec}")


def _unsnap(data: memoryview) -> bytes | pa.Buffer:
    """Snappy as Java's clients write it, in blocks of xerial's framing, or plain, as others do."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnap_block(data)
    blocks = []
    rest = data[_XERIAL_HEADER_BYTES:]
    while rest:
        size = _LENGTH.unpack_from(rest)[0]
        blocks.append(_unsnap_block(rest[_LENGTH.size : _LENGTH.size + size]))
        rest = rest[_LENGTH.size + size :]
    return b"".join(blocks)


def _unsnap_block(block: memoryview) -> pa.Buffer:
    import pyarrow as pa

    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size)


class BatchReader:
    """What `native_chunks.ChunkReader` takes records from, in place of a queue of librdkafka.

    Parameters
    ----------
    library
        What `batch_library` returns.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        handle = library.kb_new(reader_client.CHUNK_RECORDS)
        if not handle:
            raise MemoryError
        self.handle: int = handle
        self.functions = MessageSource()
        library.kb_functions(ctypes.byref(self.functions))

    def load(self, tp: TopicPartition, position: int, batches: RecordBatches) -> None:
        """Read these batches next, from `position` on.  What was loaded before must have been read or dropped."""
        self._topic, self._data = tp.topic.encode(), batches.data  # kept alive: records point into them
        pairs = array("q", batches.aborted)
        address, _ = pairs.buffer_info()
        failed = self._library.kb_load(
            self.handle,
            self._topic,
            tp.partition,
            position,
            self._data.address,
            self._data.size,
            address,
            len(pairs) // 2,
        )
        if failed:
            raise MemoryError

    def unload(self) -> None:
        """Forget what is loaded."""
        self._library.kb_unload(self.handle)
        self._data = None

    def close(self) -> None:
        """Let everything go.  No other call may follow."""
        self._library.kb_free(self.handle)
