"""The JSON of an offset is canonical and describes itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.batch_offset import BatchOffset, OffsetTexts, PartitionEntry
from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.types import LeaderEpoch, Offset, OffsetRange, TopicPartition
from tests.offsets.make_golden import GOLDEN, SAMPLES, entry, text

offsets = st.integers(min_value=0, max_value=2**63 - 1)
leader_epochs = st.integers(min_value=0, max_value=2**31 - 1).map(LeaderEpoch)
names = st.text(min_size=1, max_size=5)
partitions = st.builds(TopicPartition, names, st.integers(min_value=0, max_value=10_000))
pairs = st.tuples(offsets, offsets) | offsets.map(lambda at: (at, at))  # without records, too
ranges = pairs.map(lambda pair: OffsetRange(Offset(min(pair)), Offset(max(pair))))
entries = st.builds(
    PartitionEntry,
    ranges,
    st.none() | leader_epochs,
    st.none() | names,
    names,
)
batch_offsets = st.builds(
    BatchOffset,
    st.none() | st.uuids().map(str),
    st.dictionaries(partitions, entries, max_size=12),
    st.integers(min_value=0, max_value=3),
)


def document(topics: Any = None, **changes: Any) -> dict[str, Any]:
    """Return a document with one partition, whose topic has an id and whose offsets have a lineage."""
    return {
        "version": 2,
        "query": "q",
        "topics": {"t": {"id": {"l": {"0": [2, 1, 0]}}}} if topics is None else topics,
    } | changes


def of(numbers: Any, first: str = "0") -> dict[str, Any]:
    """Return a document with one list of ``numbers``."""
    return document({"t": {"id": {"l": {first: numbers}}}})


def test_canonical_json_is_exact_to_the_byte() -> None:
    offset = BatchOffset(
        "6f2c",
        {
            TopicPartition("orders", 10): entry(3, 4, 7, "new", "b"),
            TopicPartition("orders", 9): entry(7, 7, 0, "new", "b"),
            TopicPartition("orders", 8): entry(2, 3, None, "new", "a"),
            TopicPartition("orders", 0): entry(5, 5, None, "an old one", "b"),
            TopicPartition("clicks", 0): entry(0, 5, lineage="a"),
        },
    )
    assert text(offset) == (
        '{"version": 2, "query": "6f2c", "topics": {"clicks": {"": {"a": {"0": [5, 5, -1]}}}, '
        '"orders": {"an old one": {"b": {"0": [5, 0, -1]}}, '
        '"new": {"a": {"8": [3, 1, -1]}, "b": {"9": [7, 0, 0, 4, 1, 7]}}}}}'
    )


@settings(max_examples=50)
@given(batch_offsets, st.randoms(use_true_random=False))
def test_text_does_not_depend_on_the_order_of_the_entries(offset: BatchOffset, random: Any) -> None:
    items = list(offset.entries.items())
    random.shuffle(items)
    assert text(BatchOffset(offset.query_id, dict(items), offset.rewinds)) == text(offset)


@settings(max_examples=50)
@given(batch_offsets)
def test_offset_survives_the_way_through_the_log(offset: BatchOffset) -> None:
    again = BatchOffset.from_json(json.loads(text(offset)))
    assert again == offset
    assert text(again) == text(offset)


@settings(max_examples=50)
@given(batch_offsets, batch_offsets)
def test_offsets_have_the_same_text_only_if_they_are_equal(one: BatchOffset, other: BatchOffset) -> None:
    """If the text stays the same, Spark plans no new batch."""
    assert (text(one) == text(other)) == (one == other)


@settings(max_examples=50)
@given(batch_offsets.filter(lambda offset: bool(offset.entries)), st.data())
def test_whatever_changes_in_an_entry_changes_the_text(offset: BatchOffset, data: st.DataObject) -> None:
    tp = data.draw(st.sampled_from(sorted(offset.entries)))
    other = data.draw(entries)
    changed = BatchOffset(offset.query_id, {**offset.entries, tp: other}, offset.rewinds)
    assert (text(changed) == text(offset)) == (other == offset.entries[tp])


@settings(max_examples=50)
@given(batch_offsets)
def test_plan_of_a_batch_is_in_its_end_offset_alone(offset: BatchOffset) -> None:
    again = BatchOffset.from_json(json.loads(text(offset)))
    assert again.ranges() == {tp: e.range for tp, e in offset.entries.items() if e.range.start < e.range.until}


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_file_is_read_and_written_back_alike(name: str) -> None:
    stored = (GOLDEN / f"offset-v2-{name}.json").read_text(encoding="utf-8")
    assert BatchOffset.from_json(json.loads(stored)) == SAMPLES[name]
    assert text(SAMPLES[name]) == stored


def test_there_is_a_sample_for_each_golden_file() -> None:
    assert {path.stem for path in GOLDEN.glob("offset-v2-*.json")} == {f"offset-v2-{name}" for name in SAMPLES}


def test_partitions_without_a_gap_are_in_one_list() -> None:
    """Spark writes this text for each batch, so thousands of partitions must not take three times their offsets."""
    offset = BatchOffset("q", {TopicPartition("t", n): entry(5, 9, 0, "id") for n in (0, 1, 2, 5, 7, 8)})
    assert offset.to_json()["topics"]["t"]["id"]["l"] == {
        "0": [9, 4, 0, 9, 4, 0, 9, 4, 0],
        "5": [9, 4, 0],
        "7": [9, 4, 0, 9, 4, 0],
    }


@pytest.mark.parametrize("given_back", [None, 5, "text", [], {}, {"topics": {}}, {"orders": {"0": "5"}}])
def test_offset_of_another_source_is_refused(given_back: Any) -> None:
    with pytest.raises(OffsetFormatError, match="not written by the kafka-group source"):
        BatchOffset.from_json(given_back)


def test_a_checkpoint_of_sparks_own_source_names_the_command_that_imports_it() -> None:
    with pytest.raises(OffsetFormatError, match=r"of Spark's own source.*'kafka-group import-checkpoint .*new check"):
        BatchOffset.from_json({"orders": {"0": 5, "1": 7}, "clicks": {"0": 0}})


@pytest.mark.parametrize("version", [1, 3, 0, -1, "2", 2.0, True, None, [], {}])
def test_other_format_version_is_refused_and_named(version: Any) -> None:
    with pytest.raises(OffsetFormatError) as refused:
        BatchOffset.from_json(document(version=version))
    assert f"format version is {version!r}, not 2." in str(refused.value)


@pytest.mark.parametrize(
    ("malformed", "named"),
    [
        ({"version": 2, "query": "q"}, "topics"),
        ({"version": 2, "topics": {}}, "query"),
        (document(query=5), "5 is not a query id"),
        (document(rewinds=-1), "-1 is not a count"),
        (document(rewinds="1"), "'1' is not a count"),
        (document(rewinds=True), "True is not a count"),
        (document(rewinds=None), "None is not a count"),
        (document([]), "items"),
        (document({"t": 5}), "items"),
        (document({"t": {"id": 5}}), "items"),
        (document({"t": {"id": {"l": 5}}}), "items"),
        (document({"t": {"id": {"l": {"0": [2, 1, 0]}, "m": {"0": [2, 1, 0]}}}}), "t-0 is there twice"),
        (document({"t": {"id": {"l": {"0": [2, 1, 0]}}, "other": {"l": {"0": [4, 1, 0]}}}}), "t-0 is there twice"),
        (document({"t": {"id": {"l": {"1": [2, 1, 0], "0": [2, 1, 0, 2, 1, 0]}}}}), "t-1 is there twice"),
        (of([2, 1, 0], "zero"), "zero"),
        (of([2, -1, 0]), r"not an offset range: \[3, 2\)"),
        (of([2, 3, 0]), r"not an offset range: \[-1, 2\)"),
        (of([2, 1, -2]), "-2 is not a leader epoch"),
        # Regression: what no request can carry ended the query with an error of Python that names nothing.
        (of([2, 1, 2**31]), "2147483648 is not a leader epoch"),
        (of([2**63, 1, 0]), "not an offset range"),
        (of([2, 1, 0], "2147483648"), "is not a partition number"),
        (of([2, 1, 0, 2, 1, 0], "2147483647"), "is not a partition number"),
        (document({"t\ud800": {}}), r"'t\\ud800' is not a name"),
        (document(query="q\ud800"), r"'q\\ud800' is not a name"),
        *((of([2, 1, 0], number), "is not a partition number") for number in ("-1", "01", " 1", "1_0", "\u0661")),
        *(
            (of(numbers), r"is not \[until, size, leader epoch, \.\.\.\]")
            for numbers in (
                *(None, 5, "120", {"until": 2, "size": 1, "leader epoch": 0}),
                *([], [2], [2, 1], [2, 1, 0, 2]),
                *(["2", 1, 0], [2.5, 1.5, 0], [2, 1.0, 0], [2, True, 0]),
                *([2, 1, "3"], [2, 1, 3.0], [2, 1, False], [2, 1, None]),
            )
        ),
    ],
)
def test_malformed_offset_is_refused_and_the_problem_is_named(malformed: Any, named: str) -> None:
    with pytest.raises(OffsetFormatError, match=named):
        BatchOffset.from_json(malformed)


def test_the_last_two_offsets_that_were_written_or_read_are_known_again() -> None:
    """Spark reports that a batch is finished only after it has planned the next one."""
    texts = OffsetTexts()
    offsets = [BatchOffset("q", {TopicPartition("orders", 0): entry(3, 5)}, rewinds) for rewinds in range(3)]
    documents = [texts.write(offset) for offset in offsets]
    assert documents[2] == offsets[2].to_json()
    assert texts.write(offsets[2]) is documents[2]
    for n in (1, 2):
        assert texts.read(json.loads(json.dumps(documents[n]))) is offsets[n]
    again = texts.read(documents[0])
    assert again == offsets[0]
    assert again is not offsets[0]
    assert texts.read(documents[0]) is again


def test_what_is_no_offset_is_refused_each_time() -> None:
    texts = OffsetTexts()
    for _ in range(2):
        with pytest.raises(OffsetFormatError):
            texts.read({"orders": {"0": 5}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.just("0"), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=200)
@given(topics=json_values, version=st.sampled_from([2, 3]), query=json_values, rewinds=json_values)
def test_whatever_stands_in_a_document_it_is_an_offset_or_refused(
    topics: Any, version: int, query: Any, rewinds: Any
) -> None:
    try:
        read = BatchOffset.from_json({"version": version, "query": query, "topics": topics, "rewinds": rewinds})
    except OffsetFormatError:
        return
    assert BatchOffset.from_json(json.loads(text(read))) == read


def test_topics_that_no_batch_has_started_are_kept() -> None:
    offset = BatchOffset("q", {}, first=("a", "b"))
    document = offset.to_json()
    assert document["first"] == ["a", "b"]
    assert BatchOffset.from_json(json.loads(json.dumps(document))) == offset
    with pytest.raises(OffsetFormatError, match="malformed"):
        BatchOffset.from_json({**document, "first": "a"})
