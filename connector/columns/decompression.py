"""Decompresses Kafka's record batches within a limit of memory.

The decompressed size in a batch is not reliable: a megabyte of zstd can become 30 GB of zeros.  So this size is used
only if it is within the limit, and the output is counted while it is written.  Peak memory is twice the limit, because
the pieces are joined.  zstd's window, of at most 128 MB, is part of the output.

It accepts the same data as Kafka's client in Java, because brokers accept it.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, TypeAlias

from pyspark_kafka_group.columns.limits import TooLargeError

if TYPE_CHECKING:
    import pyarrow as pa

_LENGTH = struct.Struct(">i")
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
(_XERIAL_BEGIN,) = _LENGTH.unpack_from(_XERIAL_MAGIC)
_ANY_GZIP_WINDOW = 31
_GZIP_MAGIC, _GZIP_HEADER_BYTES = b"\x1f\x8b\x08", 18
"""The begin of a member, and its least size without data."""
_MUCH_GZIP_BYTES = 4000
"""Above this size, Arrow is a quarter faster than zlib.  Below it, Arrow's start costs more."""
_FIRST_GZIP_BYTES, _MOST_GZIP_BYTES = 512, 1 << 20
"""How much zlib gets of a member at once: each time twice as much, between these."""
_SNAPPY_RATIO = 22
"""Snappy's densest element becomes 64 bytes from 3."""

_LZ4_MAGIC, _LZ4_HEADER_BYTES = b"\x04\x22\x4d\x18", 7
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_BLOCK_CHECKSUMS, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04

_SMALL_PIECE_BYTES = 4096
_FIRST_PIECE_BYTES = 64 * 1024
_LARGEST_PIECE_BYTES = 4 * 1024 * 1024
_USUAL_RATIO = 4


Piece: TypeAlias = "bytes | bytearray | pa.Buffer"
"""A piece of decompressed data."""


class CompressionError(Exception):
    """Data that cannot be decompressed."""


def decompress(codec: int, data: memoryview, most_bytes: int) -> list[Piece]:
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
                return _unpack_lz4(data, most_bytes)
            case 4:
                return _read(data, "zstd", most_bytes)
            case _:
                raise CompressionError(f"unknown codec {codec}")
    except (OSError, ValueError, zlib.error, pa.ArrowException) as problem:
        raise CompressionError(str(problem)) from None


def _gunzip(data: memoryview, most_bytes: int) -> list[Piece]:
    """Decompress all members of a gzip file.  As in Java, they end before what does not begin like a member."""
    import pyarrow as pa

    if len(data) > _MUCH_GZIP_BYTES:
        try:
            return _read(data, "gzip", most_bytes)
        except (OSError, pa.ArrowException):
            pass  # perhaps because of bytes behind the last member
    found: list[Piece] = []
    left, at = most_bytes, 0
    while True:
        # Deliberate: piece by piece.  zlib copies what it has left over, and there may be very many small members.
        stream, size = zlib.decompressobj(_ANY_GZIP_WINDOW), _FIRST_GZIP_BYTES
        while not stream.eof and at < len(data):
            part = stream.decompress(data[at : at + size], left + 1)
            if len(part) > left:
                raise TooLargeError
            _append(found, part)
            left -= len(part)
            at = min(at + size, len(data)) - len(stream.unused_data)
            size = min(2 * size, _MOST_GZIP_BYTES)
        if not stream.eof:
            raise CompressionError("it is cut off")
        if len(data) - at < _GZIP_HEADER_BYTES or data[at : at + len(_GZIP_MAGIC)] != _GZIP_MAGIC:
            return found


def _append(found: list[Piece], piece: bytes | pa.Buffer) -> None:
    """Append a piece.  Join small ones: millions of objects would take far more memory than their bytes."""
    if len(piece) >= _SMALL_PIECE_BYTES:
        found.append(piece)
    elif found and isinstance(found[-1], bytearray):
        found[-1] += memoryview(piece)
    else:
        found.append(bytearray(memoryview(piece)))


def _unpack_lz4(data: memoryview, most_bytes: int) -> list[Piece]:
    """Decompress lz4.  As in Java, a wrong size, a wrong checksum, and what follows the first frame are ignored."""
    import pyarrow as pa

    blocks = _lz4_blocks(data)
    if blocks is None:
        return _read(data, "lz4", most_bytes)
    try:
        # Deliberate: not with the rest.  Arrow would also decompress another frame.
        return _read(data[: blocks.stop + (4 if data[4] & _LZ4_CONTENT_CHECKSUM else 0)], "lz4", most_bytes)
    except (OSError, pa.ArrowException):
        header = bytes([data[4] & ~(_LZ4_CONTENT_SIZE | _LZ4_CONTENT_CHECKSUM), data[5]])
    plain = b"".join((_LZ4_MAGIC, header, bytes([_xxh32_of_two(header) >> 8 & 0xFF]), data[blocks]))
    return _read(memoryview(plain), "lz4", most_bytes)


def _lz4_blocks(data: memoryview) -> slice | None:
    """Return where the blocks of the first frame of lz4 are, with their end mark; None if it is not whole."""
    if len(data) < _LZ4_HEADER_BYTES or data[:4] != _LZ4_MAGIC:
        return None
    flags = data[4]
    begin = at = _LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    checksum = 4 if flags & _LZ4_BLOCK_CHECKSUMS else 0
    while at + 4 <= len(data):
        size = _LZ4_LENGTH.unpack_from(data, at)[0] & 0x7FFFFFFF
        at += 4
        if size == 0:
            return slice(begin, at)
        at += size + checksum
    return None


def _xxh32_of_two(two: bytes) -> int:
    """Return the XXH32 of two bytes, with the seed 0."""
    found = 374761393 + len(two)
    for byte in two:
        found = (found + byte * 374761393) & 0xFFFFFFFF
        found = ((found << 11 | found >> 21) * 2654435761) & 0xFFFFFFFF
    found = ((found ^ found >> 15) * 2246822519) & 0xFFFFFFFF
    found = ((found ^ found >> 13) * 3266489917) & 0xFFFFFFFF
    return found ^ found >> 16


def _read(data: memoryview, codec: str, most_bytes: int) -> list[Piece]:
    import pyarrow as pa

    stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), codec)
    size = min(max(_FIRST_PIECE_BYTES, _USUAL_RATIO * len(data)), _LARGEST_PIECE_BYTES)
    found: list[Piece] = []
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


def _unsnap(data: memoryview, most_bytes: int) -> list[Piece]:
    """Decompress snappy, either in xerial's framing, as Java's clients write it, or plain."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return [_unsnap_block(data, most_bytes)]
    found: list[Piece] = []
    left = most_bytes
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        if len(data) - at < _LENGTH.size:
            break  # as in Java
        size = _LENGTH.unpack_from(data, at)[0]
        if size == _XERIAL_BEGIN:  # another stream, or for Java the end
            if data[at : at + len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
                break
            at += _XERIAL_HEADER_BYTES
            continue
        at += _LENGTH.size
        if not 0 < size <= len(data) - at:
            raise CompressionError("a block is larger than the rest")
        block = _unsnap_block(data[at : at + size], left)
        left -= block.size
        at += size
        _append(found, block)
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
