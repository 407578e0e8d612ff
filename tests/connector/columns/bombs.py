"""Decompress small data that becomes large, or claims to be large, and measure the memory.

``python -m tests.connector.columns.bombs`` decompresses each sample with a bound.  It prints the errors and the peaks
of memory as JSON.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pyarrow as pa

from pyspark_kafka_group.columns.decompression import decompress
from pyspark_kafka_group.columns.record_batches import BATCHES, whole_batches
from tests.connector.columns.batches import framed, record_bytes
from tests.connector.columns.test_from_messages import record

MEGABYTE = 1_000_000
MOST_BYTES = 10 * MEGABYTE
CODECS = {"gzip": 1, "snappy": 2, "xerial": 2, "lz4": 3, "zstd": 4}


def zeros(codec: str, megabytes: int) -> bytes:
    """Return compressed zeros, without ever holding all of them in memory."""
    match codec:
        case "gzip":
            stream = zlib.compressobj(wbits=31)
            return b"".join(stream.compress(bytes(MEGABYTE)) for _ in range(megabytes)) + stream.flush()
        case "snappy":
            # One zero.  Then, again and again, the 64 bytes that begin one byte before.
            return varint(1 + 64 * (megabytes * MEGABYTE // 64)) + b"\0\0" + b"\xfe\1\0" * (megabytes * MEGABYTE // 64)
        case "xerial":
            block = zeros("snappy", 1)
            return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + megabytes * (struct.pack(">i", len(block)) + block)
        case _:
            out = pa.BufferOutputStream()
            with pa.CompressedOutputStream(out, codec) as stream:
                for _ in range(megabytes):
                    stream.write(bytes(MEGABYTE))
            return cast(bytes, out.getvalue().to_pybytes())


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def lies() -> dict[str, tuple[int, bytes]]:
    """Return small data that claims a wrong size."""
    huge = 2**62
    zstd_magic, lz4_magic = struct.pack("<I", 0xFD2FB528), struct.pack("<I", 0x184D2204)
    return {
        "snappy of 4 GB": (2, varint(2**32 - 1) + b"\0\0"),
        "snappy of 9 MB": (2, varint(9 * MEGABYTE) + b"\0\0"),
        "xerial block of 2 GB": (2, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1) + b"\0"),
        "xerial block of less than nothing": (2, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -4) + b"\0"),
        "zstd frame of 4 EB": (4, zstd_magic + b"\xe0" + struct.pack("<Q", huge) + b"\x01\0\0"),
        "zstd window of 128 MB": (4, zstd_magic + b"\x00" + bytes([17 << 3]) + b"\x03\0\0\0"),
        "lz4 frame of 4 EB": (3, lz4_magic + b"\x68\x70" + struct.pack("<Q", huge) + b"\0" + bytes(8)),
    }


def many_batches(count: int) -> bytes:
    """Return batches of one record of 9 MB each."""
    value = bytes(9 * MEGABYTE)
    records = record_bytes(record(0, value=value), 0, -1)
    return b"".join(framed(offset, 0, records, 1, codec="zstd") for offset in range(count))


def pieces_of(response: memoryview) -> None:
    """Read a response as a fetcher does if its reader keeps up."""
    library = cast(ctypes.CDLL, BATCHES.library)
    pieces = whole_batches(
        library, response, (), position=0, until=100, log_end=100, check_crcs=True, most_bytes=MOST_BYTES
    )
    assert [piece.next_offset for piece in pieces] == list(range(2, 101, 2))


def peak_of(call: Callable[[], object]) -> tuple[str, float]:
    """Return the error of a call, and by how many megabytes the memory rose during the call."""
    # Use Linux's own counter: psutil reports no peaks, and cannot reset them.
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the current use
    before = _peak_bytes()
    try:
        call()
    except Exception as problem:
        return type(problem).__name__, (_peak_bytes() - before) / MEGABYTE
    return "", (_peak_bytes() - before) / MEGABYTE


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    found = {}
    for name, codec in CODECS.items():
        for megabytes in (9, 300):
            found[f"{name} {megabytes}"] = peak_of(
                partial(decompress, codec, memoryview(zeros(name, megabytes)), MOST_BYTES)
            )
    response = memoryview(many_batches(100))
    found["response of 900 MB"] = peak_of(lambda: pieces_of(response))
    for name, (codec, data) in lies().items():
        found[name] = peak_of(partial(decompress, codec, memoryview(data), MOST_BYTES))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
