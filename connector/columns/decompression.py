"""Decompresses Kafka's record batches within a limit of memory.

The decompressed size in a batch is not reliable: a megabyte of zstd can become 30 GB of zeros.  So this size is used
only if it is within the limit, and the output is counted while it is written.  Peak memory is twice the limit, because
the pieces are joined.  zstd's window, of at most 128 MB, is part of the output.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from pyspark_kafka_group.columns.limits import TooLargeError

if TYPE_CHECKING:
    import pyarrow as pa

_LENGTH = struct.Struct(">i")
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_ANY_GZIP_WINDOW = 31
_MUCH_GZIP_BYTES = 4000
"""Above this size, Arrow is a quarter faster than zlib.  Below it, Arrow's start costs more."""
_SNAPPY_RATIO = 22
"""Snappy's densest element becomes 64 bytes from 3."""

_FIRST_PIECE_BYTES = 64 * 1024
_LARGEST_PIECE_BYTES = 4 * 1024 * 1024
_USUAL_RATIO = 4


class CompressionError(Exception):
    """Data that cannot be decompressed."""


def decompress(codec: int, data: memoryview, most_bytes: int) -> list[bytes | pa.Buffer]:
    """Decompress the records of a batch.

    Parameters
    ----------
    codec
        The number in the attributes of a batch: 1 is gzip, 2 snappy, 3 lz4, 4 zstd.
    data
        The batch without its header.
    most_bytes
        The largest size of the decompressed data.

    Returns
    -------
    list
        The decompressed data, in parts.

    Raises
    ------
    CompressionError
        If the data cannot be decompressed.
    TooLargeError
        If the result would be larger than `most_bytes`.
    """
    import pyarrow as pa

    try:
        match codec:
            case 1:
                return _gunzip(data, most_bytes)
            case 2:
                return _unsnap(data, most_bytes)
            case 3:
                return _read(data, "lz4", most_bytes)
            case 4:
                return _read(data, "zstd", most_bytes)
            case _:
                raise CompressionError(f"unknown codec {codec}")
    except (OSError, ValueError, zlib.error, pa.ArrowException) as problem:
        raise CompressionError(str(problem)) from None


def _gunzip(data: memoryview, most_bytes: int) -> list[bytes | pa.Buffer]:
    """Decompress all members of a gzip file, as Java's clients do."""
    if len(data) > _MUCH_GZIP_BYTES:
        return _read(data, "gzip", most_bytes)
    found: list[bytes | pa.Buffer] = []
    left = most_bytes
    rest: memoryview | bytes = data
    while True:
        stream = zlib.decompressobj(_ANY_GZIP_WINDOW)
        member = stream.decompress(rest, left + 1)
        if len(member) > left:
            raise TooLargeError
        if not stream.eof:
            raise CompressionError("it is cut off")
        found.append(member)
        left -= len(member)
        rest = stream.unused_data
        if not rest:
            return found


def _read(data: memoryview, codec: str, most_bytes: int) -> list[bytes | pa.Buffer]:
    import pyarrow as pa

    stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), codec)
    size = min(max(_FIRST_PIECE_BYTES, _USUAL_RATIO * len(data)), _LARGEST_PIECE_BYTES)
    found: list[bytes | pa.Buffer] = []
    left = most_bytes
    while True:
        wanted = min(size, left + 1)
        piece = stream.read_buffer(wanted)
        if piece.size > left:
            raise TooLargeError
        found.append(piece)
        if piece.size < wanted:
            return found  # a shorter piece is the last one
        left -= piece.size


def _unsnap(data: memoryview, most_bytes: int) -> list[bytes | pa.Buffer]:
    """Decompress snappy, either in xerial's framing, as Java's clients write it, or plain."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return [_unsnap_block(data, most_bytes)]
    found: list[bytes | pa.Buffer] = []
    left = most_bytes
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        if len(data) - at < _LENGTH.size:
            raise CompressionError("it is cut off")
        size = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        if not 0 < size <= len(data) - at:
            raise CompressionError("a block is larger than the rest")
        block = _unsnap_block(data[at : at + size], left)
        left -= block.size
        at += size
        found.append(block)
    return found


def _unsnap_block(block: memoryview, most_bytes: int) -> pa.Buffer:
    import pyarrow as pa

    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _SNAPPY_RATIO * len(block):
        raise CompressionError("its stated size is larger than possible")
    if size > most_bytes:
        raise TooLargeError
    return pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size)
