"""The package does not use a C library that was built from other sources."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

from pyspark_kafka_group.columns.chunk_reader import CHUNKS
from pyspark_kafka_group.columns.native_library import NativePart, _library
from pyspark_kafka_group.columns.record_batches import BATCHES
from pyspark_kafka_group.formats.native_columns import FORMATS
from pyspark_kafka_group.writing.record_writer import RECORD_WRITER
from pyspark_kafka_group.writing.row_digest import ROW_DIGEST
from tests.connector.reading.clients import need_native_library

OTHER = "it is of another version"
parts = pytest.mark.parametrize(
    "part",
    [CHUNKS, BATCHES, FORMATS, RECORD_WRITER, ROW_DIGEST],
    ids=["chunks", "batches", "formats", "record writer", "row digest"],
)


@pytest.fixture
def library() -> ctypes.CDLL:
    need_native_library()
    found = _library()
    assert isinstance(found, ctypes.CDLL)
    return found


@parts
def test_the_library_of_this_package_is_used(part: NativePart) -> None:
    need_native_library()
    assert (part.problem, part.library is None) == ("", False)


@parts
def test_one_with_structures_of_other_sizes_is_not(
    part: NativePart, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *rest = part.expected
    for other in ((first + 8, *rest), (first, *rest, 8), tuple(rest)):
        monkeypatch.setattr(part, "expected", other)

        assert part.mismatch(library) == OTHER


@parts
def test_one_that_does_not_say_its_sizes_is_not(part: NativePart) -> None:
    class Older:
        """A library from before libraries reported the sizes of their structures."""

        kg_collect = 1

    older: Any = Older()

    assert part.mismatch(older) == OTHER


def test_none_is_used_where_the_highest_byte_comes_first(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")

    assert CHUNKS.mismatch(library) == "it needs a little-endian processor"


def test_what_is_wrong_is_said_with_what_to_do(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHUNKS, "expected", ())

    found = CHUNKS.of(library)

    assert isinstance(found, str)
    assert found.startswith(f"its C library cannot be used: {OTHER}. Install a wheel for this platform")
