"""The codecs of Kafka's record batches, never into more memory than one is ready to spend.

A batch says nothing reliable about its size once it is decompressed: a megabyte of zstd can be 30 GB of zeros.  So
what it says is only believed where it is small enough, and what comes out is counted while it comes.  Peak memory is
twice the bound, because pieces are joined; zstd's own window, of at most 128 MB, is a part of what has come out.
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
"""From there on Arrow is faster than zlib, by a quarter; below it costs more to begin with."""
_SNAPPY_RATIO = 22
"""Snappy's densest element makes 64 bytes of 3."""

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
        As in the attributes of a batch: 1 is gzip, 2 snappy, 3 lz4, 4 zstd.
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
        It cannot be decompressed.
    TooLargeError
        It would become larger than `most_bytes`.
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
    """One member of gzip after the other, as Java's clients read them."""
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
            return found  # only at the end is there less
        left -= piece.size


def _unsnap(data: memoryview, most_bytes: int) -> list[bytes | pa.Buffer]:
    """Snappy as Java's clients write it, in blocks of xerial's framing, or plain, as others do."""
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
        raise CompressionError("it says that it is larger than it can be")
    if size > most_bytes:
        raise TooLargeError
    return pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size)
