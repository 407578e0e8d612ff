"""A query reads its skip markers back, and each marker counts only for its own batch."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pyspark_kafka_group.cluster.skip_store import companion_group
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.skip_markers import Markers, SkipMarker, is_marked, with_skips
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from tests.offsets.make_golden import entry

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def marker(start: int, until: int, rewinds: int = 0) -> SkipMarker:
    return SkipMarker(OffsetRange(Offset(start), Offset(until)), rewinds)


END = BatchOffset("q", {TP: entry(3, 9, 4, "id", "l")}, rewinds=2)
MARKER = marker(3, 9, 2)


# -- batch of a marker


def test_marker_names_the_batch_it_was_made_for() -> None:
    assert SkipMarker.of(END, TP) == MARKER
    assert is_marked({TP: (MARKER,)}, END, TP)


@pytest.mark.parametrize("two", [(MARKER, marker(9, 12, 2)), (marker(0, 3, 2), MARKER)])
def test_each_of_two_markers_counts(two: tuple[SkipMarker, ...]) -> None:
    assert is_marked({TP: two}, END, TP)


@pytest.mark.parametrize(
    "end",
    [
        BatchOffset("q", {TP: entry(3, 9)}, rewinds=3),
        BatchOffset("q", {TP: entry(3, 8)}, rewinds=2),
        BatchOffset("q", {TP: entry(9, 9)}, rewinds=2),
        BatchOffset("q", {OTHER: entry(3, 9)}, rewinds=2),
        BatchOffset("q", {}, rewinds=2),
    ],
)
def test_marker_does_not_name_another_batch(end: BatchOffset) -> None:
    assert not is_marked({TP: (MARKER,)}, end, TP)


def test_marker_of_another_partition_does_not_count() -> None:
    assert not is_marked({OTHER: (MARKER,)}, END, TP)
    assert not is_marked({}, END, TP)


# -- markers that a query keeps

FINISHED = BatchOffset("q", {TP: entry(0, 3), OTHER: entry(0, 3)}, rewinds=1)
RUNNING = BatchOffset("q", {TP: entry(3, 9), OTHER: entry(3, 5)}, rewinds=2)


def test_the_first_skip_of_a_partition_leaves_one_marker() -> None:
    assert with_skips({}, FINISHED, RUNNING, [TP]) == {TP: (marker(3, 9, 2),)}


def test_a_partition_that_the_last_finished_batch_has_skipped_as_well_keeps_that_marker() -> None:
    """If the query restarts before the second batch is finished, it checks the markers of both batches."""
    before: Markers = {TP: (marker(0, 3, 1),)}
    after = with_skips(before, FINISHED, RUNNING, [TP])
    assert after == {TP: (marker(0, 3, 1), marker(3, 9, 2))}
    assert is_marked(after, FINISHED, TP)
    assert is_marked(after, RUNNING, TP)


def test_markers_of_older_batches_are_dropped() -> None:
    older = marker(7, 8, 0)
    assert with_skips({TP: (older,)}, FINISHED, RUNNING, [TP]) == {TP: (marker(3, 9, 2),)}
    assert with_skips({TP: (older, marker(0, 3, 1))}, FINISHED, RUNNING, [TP]) == {
        TP: (marker(0, 3, 1), marker(3, 9, 2))
    }


def test_a_batch_that_is_skipped_a_second_time_has_one_marker_all_the_same() -> None:
    once = with_skips({}, FINISHED, RUNNING, [TP])
    assert with_skips(once, FINISHED, RUNNING, [TP]) == once


def test_only_what_is_skipped_now_is_written() -> None:
    before: Markers = {OTHER: (marker(0, 3, 1),)}
    assert with_skips(before, FINISHED, RUNNING, [TP]) == {TP: (marker(3, 9, 2),)}
    assert with_skips(before, FINISHED, RUNNING, []) == {}


def test_there_are_never_more_than_two_however_often_a_partition_is_skipped() -> None:
    kept: Markers = {}
    ends = [BatchOffset("q", {TP: entry(n, n + 1)}, rewinds=n) for n in range(6)]
    for finished, end in pairwise(ends):
        kept = with_skips(kept, finished, end, [TP])
        assert is_marked(kept, end, TP)
    assert kept[TP] == (SkipMarker.of(ends[-2], TP), SkipMarker.of(ends[-1], TP))


def test_right_on_the_prefix_of_the_group_covers_the_companion_group() -> None:
    assert companion_group("etl", "6f2c").startswith("etl-skips-")


def java_hash(text: str) -> int:
    """Return Java's ``hashCode`` of ``text``, as its documentation defines it."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    return int(sum(unit * 31 ** (len(units) - 1 - n) for n, unit in enumerate(units)) % 2**32)


def test_hash_of_the_tests_is_that_of_java() -> None:
    assert java_hash("hello") == 99162322


@pytest.mark.parametrize("group", ["etl", "a", "orders-\N{SNOWMAN}\N{PILE OF POO}", "x" * 200])
def test_companion_group_has_the_coordinator_of_the_group(group: str) -> None:
    """Regression: a start needed two coordinators, and failed after 30 s if one of them was down."""
    for query in range(50):
        name = companion_group(group, f"6f2c-{query}")
        assert java_hash(name) == java_hash(group)
        assert companion_group(group, f"6f2c-{query}") == name
