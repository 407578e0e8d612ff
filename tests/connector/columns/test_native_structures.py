"""A C library that was built from other sources is not used."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

from pyspark_kafka_group.columns import chunk_reader, native_structures
from pyspark_kafka_group.columns.native_structures import mismatch
from tests.connector.reading.clients import need_native_library


@pytest.fixture
def library() -> ctypes.CDLL:
    need_native_library()
    found = chunk_reader.native_library()
    assert found is not None
    return found


def test_the_library_of_this_package_is_used(library: ctypes.CDLL) -> None:
    assert mismatch(library) == ""


@pytest.mark.parametrize("name", native_structures._SHARED)
def test_one_with_structures_of_other_sizes_is_not(
    name: str, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *rest = native_structures._SHARED[name]
    for other in ((first + 8, *rest), (first, *rest, 8), tuple(rest)):
        monkeypatch.setitem(native_structures._SHARED, name, other)

        assert mismatch(library) == "it is of another version"


def test_one_that_does_not_say_its_sizes_is_not() -> None:
    class Older:
        """As before it said them."""

        kg_collect = 1

    older: Any = Older()

    assert mismatch(older) == "it is of another version"


def test_none_is_used_where_the_highest_byte_comes_first(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")

    assert mismatch(library) == "it is for processors that put the lowest byte of a number first"


def test_what_is_wrong_is_said_with_what_to_do(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_reader, "mismatch", lambda _: "it is of another version")

    found = chunk_reader._load.__wrapped__()

    assert isinstance(found, str)
    assert found.startswith("its C library cannot be used: it is of another version. Install a wheel for this platform")
