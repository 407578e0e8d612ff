"""Which records of a batch a table lacks, at the edges of its ranges."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.landing.missing import behind, holds, missing, touches, uncovered
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.stores.lake_history import OffsetSpan
from tests.connector.landing.applications import ZERO

BATCH = OffsetSpan(10, 20)


@pytest.mark.parametrize(
    ("stored", "lost", "lacks"),
    [
        (None, [], [(10, 20)]),
        (10, [], [(10, 20)]),
        (15, [], [(15, 20)]),
        (20, [], []),
        (25, [], []),
        (20, [(5, 12)], [(10, 12)]),
        (15, [(5, 12)], [(10, 12), (15, 20)]),
        (15, [(12, 30)], [(12, 15), (15, 20)]),
    ],
)
def test_missing(stored: int | None, lost: list[tuple[int, int]], lacks: list[tuple[int, int]]) -> None:
    assert missing(BATCH, stored, [OffsetSpan(*span) for span in lost]) == [OffsetSpan(*span) for span in lacks]


@pytest.mark.parametrize(("stored", "begun", "is_behind"), [(9, True, True), (10, True, False), (None, True, True)])
def test_a_table_is_behind_if_it_lacks_one_finished_record(stored: int | None, begun: bool, is_behind: bool) -> None:
    ranges = {ZERO: ReadRange(Offset(10), Offset(20), Offset(10), begun, "id")}
    found = behind(ranges, {} if stored is None else {ZERO: stored})
    assert found == ({ZERO: (stored, 10)} if is_behind else {})


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ([(10, 20)], False),
        ([(15, 20), (10, 15)], False),
        ([(10, 20), (10, 20)], True),
        ([(10, 15)], True),
        ([(10, 14), (15, 20)], True),
        ([(10, 16), (15, 20)], True),
        ([(10, 21)], True),
        ([(9, 20)], True),
        ([], True),
    ],
)
def test_tasks_have_read_exactly_the_batch(parts: list[tuple[int, int]], wrong: bool) -> None:
    assert uncovered(BATCH, [OffsetSpan(*part) for part in parts]) is wrong


@pytest.mark.parametrize(
    ("first", "last", "inside", "common"),
    [(10, 19, True, True), (10, 20, False, True), (9, 10, False, True), (20, 25, False, False), (5, 9, False, False)],
)
def test_the_offsets_of_a_file(first: int, last: int, inside: bool, common: bool) -> None:
    assert holds([BATCH], first, last) is inside
    assert touches([BATCH], first, last) is common
