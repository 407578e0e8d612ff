"""Skip markers: found again, and only for the batch they were made for."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.offsets.document import BatchOffset
from pyspark_kafka_group.offsets.skip_store import companion_group
from pyspark_kafka_group.offsets.skips import SkipMarker
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from tests.offsets.make_golden import mark

TP = TopicPartition("t", 0)
END = BatchOffset("q", {TP: mark(3, 9, 3)}, rewinds=2)
MARKER = SkipMarker(OffsetRange(Offset(3), Offset(9)), 2)


def test_marker_survives_its_text() -> None:
    assert SkipMarker.decode(MARKER.encode()) == MARKER


def test_text_of_a_marker_stays_readable() -> None:
    assert SkipMarker.decode('{"v":1,"r":[3,9],"n":2}') == MARKER


@pytest.mark.parametrize(
    "text", [None, "", "someone else's", "[]", "1", "{}", '{"v":2,"r":[3,9],"n":2}', '{"v":1,"r":[9,3],"n":2}']
)
def test_what_another_program_committed_is_no_marker(text: str | None) -> None:
    assert SkipMarker.decode(text) is None


def test_marker_names_the_batch_it_was_made_for() -> None:
    assert SkipMarker.of(END, TP) == MARKER
    assert MARKER.names(END, TP)


@pytest.mark.parametrize(
    "end",
    [
        BatchOffset("q", {TP: mark(3, 9, 3)}, rewinds=3),
        BatchOffset("q", {TP: mark(3, 8, 3)}, rewinds=2),
        BatchOffset("q", {TP: mark(9, 9, 9)}, rewinds=2),
        BatchOffset("q", {}, rewinds=2),
    ],
)
def test_marker_does_not_name_another_batch(end: BatchOffset) -> None:
    assert not MARKER.names(end, TP)


def test_right_on_the_prefix_of_the_group_covers_the_companion_group() -> None:
    assert companion_group("etl", "6f2c").startswith("etl")
