"""Encoding and decoding of the fields of Kafka's protocol, and errors for invalid bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.types import ProtocolError

TOPIC_ID = "QtOXfeWAR9uadceaKEMIPw"
FIELDS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Reader], Any]]] = {
    "boolean": (st.booleans(), Reader.boolean),
    "int8": (st.integers(-(2**7), 2**7 - 1), Reader.int8),
    "int16": (st.integers(-(2**15), 2**15 - 1), Reader.int16),
    "int32": (st.integers(-(2**31), 2**31 - 1), Reader.int32),
    "int64": (st.integers(-(2**63), 2**63 - 1), Reader.int64),
    "varint": (st.integers(0, 2**32 - 1), Reader.varint),
    "uuid": (st.sampled_from([TOPIC_ID, None]), Reader.uuid),
    "text": (st.none() | st.text(), Reader.nullable_text),
    "data": (st.binary(), lambda reader: bytes(reader.payload())),
}


def read_from(data: bytes, *, flexible: bool) -> Reader:
    return Reader(memoryview(data), flexible=flexible)


def written(write: Callable[[Writer], None], *, flexible: bool) -> bytes:
    out = Writer(flexible=flexible)
    write(out)
    return bytes(out)


@given(data=st.data(), flexible=st.booleans())
def test_what_was_written_is_read(data: st.DataObject, flexible: bool) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(FIELDS))))
    values = [data.draw(FIELDS[kind][0]) for kind in kinds]
    out = Writer(flexible=flexible)
    for kind, value in zip(kinds, values, strict=True):
        getattr(out, kind)(value)
    out.end()
    reader = read_from(bytes(out), flexible=flexible)
    assert [FIELDS[kind][1](reader) for kind in kinds] == values
    reader.end()
    assert not reader.left


@given(numbers=st.lists(st.integers(-(2**31), 2**31 - 1)), flexible=st.booleans())
def test_arrays_are_read(numbers: list[int], flexible: bool) -> None:
    data = written(lambda out: out.array(numbers, out.int32), flexible=flexible)
    one_by_one, at_once = (read_from(data, flexible=flexible) for _ in range(2))
    assert one_by_one.array(one_by_one.int32) == numbers
    assert list(at_once.int32s()) == numbers
    assert not one_by_one.left
    assert not at_once.left


@pytest.mark.parametrize(
    ("write", "classic", "flexible"),
    [
        (lambda out: out.text("né"), "0003 6ec3a9", "04 6ec3a9"),
        (lambda out: out.text(""), "0000", "01"),
        (lambda out: out.text(None), "ffff", "00"),
        (lambda out: out.data(b"\1\2"), "00000002 0102", "03 0102"),
        (lambda out: out.data(None), "ffffffff", "00"),
        (lambda out: out.array([1, -1], out.int16), "00000002 0001 ffff", "03 0001 ffff"),
        (lambda out: out.array(None, out.int16), "ffffffff", "00"),
        (lambda out: out.data(bytes(300)), "0000012c" + "00" * 300, "ad02" + "00" * 300),
        (lambda out: out.uuid(TOPIC_ID), "42d3977de58047db9a75c79a28430 83f", "42d3977de58047db9a75c79a2843083f"),
        (lambda out: out.boolean(True), "01", "01"),
        (lambda out: out.varint(2**32 - 1), "ffffffff0f", "ffffffff0f"),
        (lambda out: out.end(), "", "00"),
    ],
)
def test_the_bytes_are_those_of_the_protocol(write: Callable[[Writer], None], classic: str, flexible: str) -> None:
    assert written(write, flexible=False).hex() == classic.replace(" ", "")
    assert written(write, flexible=True).hex() == flexible.replace(" ", "")


def test_tagged_fields_of_a_newer_broker_are_passed_over() -> None:
    reader = read_from(bytes.fromhex("02 00 03 010203 05 00") + b"\x01", flexible=True)
    reader.end()
    assert reader.boolean()


def test_a_text_that_does_not_fit_cannot_be_sent() -> None:
    with pytest.raises(ProtocolError, match="32768 bytes"):
        written(lambda out: out.text("x" * 2**15), flexible=False)
    assert written(lambda out: out.text("x" * 2**15), flexible=True)


READERS: list[Callable[[Reader], Any]] = [
    *(read for _, read in FIELDS.values()),
    Reader.text,
    Reader.end,
    Reader.int32s,
    lambda reader: reader.array(reader.int8),
    lambda reader: reader.array(reader.text),
    lambda reader: reader.array(reader.end),
]


@given(data=st.binary(max_size=64), flexible=st.booleans(), reads=st.lists(st.sampled_from(READERS), max_size=20))
def test_rubbish_is_never_another_error(data: bytes, flexible: bool, reads: list[Callable[[Reader], Any]]) -> None:
    reader = read_from(data, flexible=flexible)
    for read in reads:
        with suppress(ProtocolError):
            read(reader)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "data",
    [b"\x7f\xff\xff\xff" + bytes(8), b"\xff\xff\xff\xff\x0f" + bytes(8), b"\x80" * 9],
    ids=["int32", "varint", "endless"],
)
def test_a_length_beyond_the_bytes_that_have_come_takes_no_memory(data: bytes, read: Callable[[Reader], Any]) -> None:
    for flexible in (False, True):
        tracemalloc.start()
        with suppress(ProtocolError):
            read(read_from(data, flexible=flexible))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000
