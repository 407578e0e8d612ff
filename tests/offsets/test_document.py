"""The offset JSON: canonical, self-describing, readable for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.document import INITIAL, BatchOffset, Mark, OffsetTexts
from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from tests.offsets.make_golden import GOLDEN, SAMPLES, mark, text

GOLDEN_FILES = sorted(GOLDEN.glob("offset-v*.json"))

offsets = st.integers(min_value=0, max_value=2**63 - 1)
partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(min_value=0, max_value=10_000))
ranges = st.tuples(offsets, offsets).map(lambda pair: OffsetRange(Offset(min(pair)), Offset(max(pair))))
marks = st.builds(Mark, ranges, st.none() | offsets.map(Offset))
batch_offsets = st.builds(
    BatchOffset,
    st.none() | st.uuids().map(str),
    st.dictionaries(partitions, marks, max_size=12),
    st.integers(min_value=0, max_value=3),
)


def document(**changes: Any) -> dict[str, Any]:
    return {"version": 1, "query": "q", "topics": {"t": {"0": [1, 2, None]}}} | changes


def test_canonical_json_is_exact_to_the_byte() -> None:
    offset = BatchOffset(
        "6f2c",
        {
            TopicPartition("orders", 10): mark(3, 4, 3),
            TopicPartition("orders", 9): mark(7, 7, None),
            TopicPartition("clicks", 0): mark(0, 5, 0),
        },
    )
    assert text(offset) == (
        '{"version": 1, "query": "6f2c", "topics": {"clicks": {"0": [0, 5, 0]}, '
        '"orders": {"9": [7, 7, null], "10": [3, 4, 3]}}}'
    )


@settings(max_examples=50, deadline=None)
@given(batch_offsets, st.randoms(use_true_random=False))
def test_text_does_not_depend_on_the_order_of_the_marks(offset: BatchOffset, random: Any) -> None:
    items = list(offset.marks.items())
    random.shuffle(items)
    assert text(BatchOffset(offset.query_id, dict(items), offset.rewinds)) == text(offset)


@settings(max_examples=50, deadline=None)
@given(batch_offsets)
def test_offset_survives_the_way_through_the_log(offset: BatchOffset) -> None:
    again = BatchOffset.from_json(json.loads(text(offset)))
    assert again == offset
    assert text(again) == text(offset)


@settings(max_examples=50, deadline=None)
@given(batch_offsets)
def test_plan_of_a_batch_is_in_its_end_offset_alone(offset: BatchOffset) -> None:
    again = BatchOffset.from_json(json.loads(text(offset)))
    assert again.ranges() == {tp: m.range for tp, m in offset.marks.items() if m.range.start < m.range.until}


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.stem)
def test_golden_file_is_read_and_written_back_alike(path: Any) -> None:
    stored = path.read_text(encoding="utf-8")
    assert text(BatchOffset.from_json(json.loads(stored))) == stored


@pytest.mark.parametrize("name", SAMPLES)
def test_offset_of_format_version_1_is_what_its_golden_file_holds(name: str) -> None:
    stored = (GOLDEN / f"offset-v1-{name}.json").read_text(encoding="utf-8")
    assert BatchOffset.from_json(json.loads(stored)) == SAMPLES[name]


def test_initial_offset_is_the_same_in_every_process() -> None:
    assert text(INITIAL) == '{"version": 1, "query": null, "topics": {}}'


def test_ranges_leave_out_what_the_batch_does_not_read() -> None:
    offset = BatchOffset("q", {TopicPartition("t", 0): mark(1, 3, 1), TopicPartition("t", 1): mark(7, 7, 7)})
    assert offset.ranges() == {TopicPartition("t", 0): OffsetRange(Offset(1), Offset(3))}


@pytest.mark.parametrize("given_back", [None, 5, "text", [], {}, {"topics": {}}, {"orders": {"0": 5}}])
def test_offset_of_another_source_is_refused(given_back: Any) -> None:
    with pytest.raises(OffsetFormatError, match="not written by the kafka-group source"):
        BatchOffset.from_json(given_back)


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_other_format_version_is_refused_and_named(version: Any) -> None:
    with pytest.raises(OffsetFormatError, match=f"format version is {version!r}, not 1"):
        BatchOffset.from_json(document(version=version))


@pytest.mark.parametrize(
    ("malformed", "named"),
    [
        ({"version": 1, "query": "q"}, "topics"),
        ({"version": 1, "topics": {}}, "query"),
        (document(query=5), "5 is not a query id"),
        (document(rewinds=-1), "-1 is not a count"),
        (document(rewinds="1"), "'1' is not a count"),
        (document(topics=[]), "items"),
        (document(topics={"t": 5}), "items"),
        (document(topics={"t": {"zero": [1, 2, None]}}), "zero"),
        (document(topics={"t": {"-1": [1, 2, None]}}), "'-1' is not a partition number"),
        (document(topics={"t": {"01": [1, 2, None]}}), "'01' is not a partition number"),
        (document(topics={"t": {"0": [1, 2]}}), "not enough values"),
        (document(topics={"t": {"0": [1, 2, 3, 4]}}), "too many values"),
        (document(topics={"t": {"0": None}}), "None"),
        (document(topics={"t": {"0": [2, 1, None]}}), r"not an offset range: \[2, 1\)"),
        (document(topics={"t": {"0": [-1, 1, None]}}), r"not an offset range: \[-1, 1\)"),
        (document(topics={"t": {"0": ["1", 2, None]}}), r"\['1', 2, None\] is not \[from, until, seen\]"),
        (document(topics={"t": {"0": [1.5, 2.5, None]}}), r"is not \[from, until, seen\]"),
        (document(topics={"t": {"0": [1, 2, "3"]}}), r"is not \[from, until, seen\]"),
        (document(topics={"t": {"0": [True, 2, None]}}), r"is not \[from, until, seen\]"),
    ],
)
def test_malformed_offset_is_refused_and_the_problem_is_named(malformed: Any, named: str) -> None:
    with pytest.raises(OffsetFormatError, match=named):
        BatchOffset.from_json(malformed)


def test_an_offset_that_was_written_is_known_again() -> None:
    texts = OffsetTexts()
    offset = BatchOffset("q", {TopicPartition("orders", 0): Mark(OffsetRange(Offset(3), Offset(5)), Offset(3))})
    document = texts.write(offset)
    assert document == offset.to_json()
    assert texts.write(offset) is document
    assert texts.read(json.loads(json.dumps(document))) is offset


def test_an_offset_that_was_read_is_known_again() -> None:
    texts = OffsetTexts()
    first = texts.read(INITIAL.to_json())
    assert first == INITIAL
    assert texts.read(INITIAL.to_json()) is first


def test_the_last_two_offsets_are_known() -> None:
    """Spark says that a batch is finished after the next one is planned."""
    texts = OffsetTexts()
    offsets = [BatchOffset("q", {}, rewinds) for rewinds in range(3)]
    documents = [texts.write(offset) for offset in offsets]
    assert texts.read(documents[1]) is offsets[1]
    assert texts.read(documents[2]) is offsets[2]
    again = texts.read(documents[0])
    assert again == offsets[0]
    assert again is not offsets[0]


def test_what_is_no_offset_is_refused_each_time() -> None:
    texts = OffsetTexts()
    for _ in range(2):
        with pytest.raises(OffsetFormatError):
            texts.read({"orders": {"0": 5}})
