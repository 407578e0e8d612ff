"""Which batches have the same digest."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.writing.record_rows import RecordColumns, record_rows
from pyspark_kafka_group.writing.row_digest import NO_ROWS, RowDigest, digest_of, python_sum, total

Row = tuple[str, bytes | None, bytes | None]

rows = st.tuples(st.sampled_from(["a", "b"]), st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=3))


def digest(*found: Row) -> RowDigest:
    topic, key, value = ([row[at] for row in found] for at in range(3))
    batch = pa.record_batch(
        {"topic": pa.array(topic, pa.string()), "k": pa.array(key, pa.binary()), "v": pa.array(value, pa.binary())}
    )
    checked = record_rows(batch, RecordColumns(topic=0, key=1, value=2), None)
    slower = python_sum(checked, [zlib.crc32(name.encode()) for name in checked.topics])
    made = digest_of(checked)
    assert made.sum == slower, "with and without C"
    return made


@given(st.lists(rows, min_size=1, max_size=6), st.data())
def test_neither_order_nor_tasks_matter(found: list[Row], data: st.DataObject) -> None:
    other = data.draw(st.permutations(found))
    at = data.draw(st.integers(0, len(found)))
    parts = [digest(*part) for part in (other[:at], other[at:]) if part]
    assert total(parts) == digest(*found)


@given(st.lists(rows, min_size=1, max_size=6), st.lists(rows, min_size=1, max_size=6))
def test_other_rows_have_another_digest(one: list[Row], other: list[Row]) -> None:
    def order(row: Row) -> str:
        return repr(row)

    assert (digest(*one) == digest(*other)) == (sorted(one, key=order) == sorted(other, key=order))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("a", b"k", b"v")], [("b", b"k", b"v")]),
        ([("a", None, b"v")], [("a", b"", b"v")]),
        ([("a", b"kv", b"")], [("a", b"k", b"v")]),
        ([("a", b"k", b"")], [("a", b"k", None)]),
        ([("a", b"1", b"x"), ("a", b"2", b"y")], [("a", b"1", b"y"), ("a", b"2", b"x")]),
        ([("a", b"k", b"v")], [("a", b"k", b"v")] * 2),
    ],
)
def test_what_makes_a_difference(one: list[Row], other: list[Row]) -> None:
    assert digest(*one) != digest(*other)


@given(st.binary(max_size=100), st.integers(0, 3))
def test_a_slice_and_a_long_value_have_the_digest_of_python(value: bytes, start: int) -> None:
    batch = pa.record_batch({"k": pa.array([b"k", None, b"", value]), "v": pa.array([value, b"x", None, value * 3])})
    found = record_rows(batch.slice(start), RecordColumns(key=0, value=1), "t")
    assert digest_of(found).sum == python_sum(found, [zlib.crc32(b"t")])


def test_a_digest_that_stays() -> None:
    """A run compares its digest with that of an earlier run, perhaps of another version."""
    assert digest(("t", b"k", b"v"), ("t", None, None)) == RowDigest(2, 0x8AAD17A0598762F)
    assert total([]) == NO_ROWS == (0, 0)
