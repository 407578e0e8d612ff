"""Decompression returns the original records, and never takes more memory than the limit."""

from __future__ import annotations

import contextlib
import json
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.columns.decompression import CompressionError, _xxh32_of_two, decompress
from pyspark_kafka_group.columns.limits import TooLargeError
from tests.connector.columns.batches import compress
from tests.connector.columns.bombs import CODECS, MEGABYTE, MOST_BYTES, lies, zeros
from tests.connector.columns.test_from_messages import UNHURRIED
from tests.connector.reading.clients import need_native_library
from tests.missing_tools import skip_without

codecs = st.sampled_from(sorted(CODECS))


def whole(codec: str, data: bytes, most_bytes: int) -> bytes:
    return b"".join(decompress(CODECS[codec], memoryview(data), most_bytes))


@UNHURRIED
@given(codec=codecs, data=st.binary(max_size=300), repeated=st.integers(1, 2000))
def test_what_was_compressed_comes_out_if_it_may_be_that_large(codec: str, data: bytes, repeated: int) -> None:
    data *= repeated
    compressed = compress(codec, data)
    assert whole(codec, compressed, len(data)) == data
    if data:
        with pytest.raises(TooLargeError):
            whole(codec, compressed, len(data) - 1)


@UNHURRIED
@given(
    codec=codecs,
    data=st.binary(min_size=1, max_size=300),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=3),
    cut=st.none() | st.integers(0, 300),
)
def test_whatever_is_decompressed_is_an_error_or_not_too_large(
    codec: str, data: bytes, changes: list[tuple[int, int]], cut: int | None
) -> None:
    damaged = bytearray(compress(codec, data)[:cut])
    for at, change in changes:
        if damaged:
            damaged[at % len(damaged)] ^= change
    for most_bytes in (0, 10, 100_000):
        with contextlib.suppress(CompressionError, TooLargeError):
            assert len(whole(codec, bytes(damaged), most_bytes)) <= most_bytes


@pytest.mark.parametrize("size", [10, 100_000])
def test_gzip_of_several_members_is_read_as_javas_clients_read_it(size: int) -> None:
    """The size decides which code decompresses the data."""
    first, second = random.Random(1).randbytes(size), random.Random(2).randbytes(size)
    members = compress("gzip", first) + compress("gzip", second)
    assert whole("gzip", members, 2 * size) == first + second
    with pytest.raises(TooLargeError):
        whole("gzip", members, 2 * size - 1)
    for damaged in (members[:-1], members + members[:25]):
        with pytest.raises(CompressionError):
            whole("gzip", damaged, 3 * size)


DATA = random.Random(3).randbytes(50_000) + bytes(50_000)
HALF = len(DATA) // 2


def xerial(data: bytes, block: int = 10_000) -> bytes:
    """Return data as snappy in the framing of Java's clients."""
    blocks = [compress("snappy", data[at : at + block]) for at in range(0, len(data), block)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(one)) + one for one in blocks)


def lz4(data: bytes, *, flags: int = 0, size: bytes = b"", checksum: bytes = b"") -> bytes:
    """Return data as a frame of lz4 with blocks that are not compressed."""
    blocks = [data[at : at + 65536] for at in range(0, len(data), 65536)]
    written = b"".join(struct.pack("<I", 0x80000000 | len(one)) + one for one in blocks)
    return b"\x04\x22\x4d\x18" + bytes([0x60 | flags, 0x40]) + size + b"?" + written + bytes(4) + checksum


ACCEPTED = {
    "gzip and bytes": ("gzip", compress("gzip", DATA) + b"garbage"),
    "gzip and zeros": ("gzip", compress("gzip", DATA) + bytes(40)),
    "gzip and a part of a header": ("gzip", compress("gzip", DATA) + b"\x1f\x8b\x08"),
    "gzip of two members and bytes": ("gzip", compress("gzip", DATA[:HALF]) + compress("gzip", DATA[HALF:]) + b"?"),
    "two xerial streams": ("snappy", xerial(DATA[:HALF]) + xerial(DATA[HALF:])),
    "an empty xerial stream first": ("snappy", xerial(b"") + xerial(DATA)),
    "xerial and bytes": ("snappy", xerial(DATA) + b"abc"),
    "xerial and another header": ("snappy", xerial(DATA) + b"\x82SNA" + bytes(30)),
    "lz4 and bytes": ("lz4", compress("lz4", DATA) + b"garbage"),
    "lz4 and another frame": ("lz4", compress("lz4", DATA) + compress("lz4", b"more")),
    "lz4 and a frame with a checksum": ("lz4", lz4(DATA, flags=4, checksum=b"1234") + lz4(b"more")),
    "lz4 with a wrong checksum": ("lz4", lz4(DATA, flags=4, checksum=b"1234")),
    "lz4 with a wrong size": ("lz4", lz4(DATA, flags=8, size=struct.pack("<Q", 5))),
    "lz4 with both and bytes": ("lz4", lz4(DATA, flags=12, size=struct.pack("<Q", 5), checksum=b"1234") + b"more"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_brokers_and_java_accept_is_read(name: str) -> None:
    """Regression: such a batch ended the query for good, also for each new owner of the partition."""
    codec, data = ACCEPTED[name]
    assert whole(codec, data, len(DATA)) == DATA
    with pytest.raises(TooLargeError):
        whole(codec, data, len(DATA) - 1)


def test_checksums_of_blocks_of_lz4_are_no_blocks() -> None:
    """The size of the content is wrong, so the frame is walked."""
    block = struct.pack("<I", 0x80000002) + b"ab" + struct.pack("<I", _xxh32_of_two(b"ab"))
    frame = b"\x04\x22\x4d\x18" + bytes([0x60 | 0x18, 0x40]) + struct.pack("<Q", 7) + b"?" + block * 3 + bytes(4)
    assert whole("lz4", frame, 6) == b"ababab"


@pytest.mark.parametrize("data", [lz4(DATA)[:-5], lz4(DATA)[:6], compress("lz4", DATA)[:-5]])
def test_a_frame_of_lz4_that_is_cut_off_is_an_error(data: bytes) -> None:
    with pytest.raises(CompressionError):
        whole("lz4", data, len(DATA))


def test_blocks_of_a_byte_take_no_more_memory_than_their_bytes() -> None:
    """Regression: 7 MB of them took 218 MB, because each was an object."""
    one = compress("snappy", b"a")
    blocks = (struct.pack(">i", len(one)) + one) * 100_000
    found = decompress(CODECS["snappy"], memoryview(xerial(b"") + blocks), 100_000)
    assert len(found) == 1
    assert bytes(found[0]) == b"a" * 100_000


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_an_error(codec: int) -> None:
    with pytest.raises(CompressionError, match="unknown"):
        decompress(codec, memoryview(b""), 1)


@pytest.fixture(scope="module")
def peaks() -> dict[str, tuple[str, float]]:
    """Return the error and the peak of memory in megabytes, of each bomb."""
    need_native_library()
    if not Path("/proc/self/clear_refs").exists():
        skip_without("linux", "peaks of memory are measured as Linux tells them")
    command = [sys.executable, "-m", "tests.connector.columns.bombs"]
    run = subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=Path(__file__).parents[3])
    return {name: (problem, peak) for name, (problem, peak) in json.loads(run.stdout).items()}


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_an_error_before_it_takes_more_memory_than_twice_the_bound(
    codec: str, peaks: dict[str, tuple[str, float]]
) -> None:
    """The bomb is 300 MB of zeros, and the limit is 10 MB.  Regression: the reader took 300 MB and more."""
    assert peaks[f"{codec} 300"][0] == "TooLargeError"
    assert peaks[f"{codec} 300"][1] * MEGABYTE < 2.5 * MOST_BYTES
    assert peaks[f"{codec} 9"][0] == "", "what is allowed is read"


HARMLESS = ("zstd window of 128 MB", "lz4 frame of 4 EB")


@pytest.mark.parametrize("lie", lies())
def test_a_header_that_lies_about_the_size_takes_no_memory(lie: str, peaks: dict[str, tuple[str, float]]) -> None:
    """Of lz4, the stated size is ignored, as in Java."""
    assert peaks[lie][0] in ("CompressionError", "TooLargeError") or lie in HARMLESS
    assert peaks[lie][1] < 2


def test_a_response_of_many_batches_is_decompressed_a_piece_at_a_time(peaks: dict[str, tuple[str, float]]) -> None:
    """Some kilobytes become 900 MB.  The reader decompresses two batches at a time.  Regression: it took 1800 MB."""
    problem, peak = peaks["response of 900 MB"]
    assert problem == ""
    assert peak < 80


def test_the_bombs_are_small() -> None:
    assert len(zeros("zstd", 300)) < 20_000
    assert len(zeros("lz4", 9)) < 40_000
    assert len(zeros("gzip", 9)) < 10_000


def test_very_many_members_of_gzip_take_no_quadratic_time() -> None:
    """Regression: zlib copied all that follows each member: 35 s for 4 MB, whose last byte belongs to none."""
    begin = time.process_time()
    assert whole("gzip", compress("gzip", b"") * 200_000 + b"\0", 10) == b""
    assert time.process_time() - begin < 20
