"""The note of a committed offset names the queries that had committed before."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.offsets.commit_metadata import ANYBODY, CommitNote, Former, differ
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.offsets.types import Offset


def test_each_owner_is_noted_with_its_last_offset() -> None:
    note, committed = CommitNote("a" * 36, "t", 1, Offset(0), "l", ()), Offset(0)
    for query, until in [("b", 5), ("c", 9), ("a", 12), ("b", 20)]:
        committed = Offset(until)
        note = CommitNote(query * 36, "t", 1, committed, "l", note.handed_on(committed))
    assert note.former == (Former("b" * 12, Offset(9)), Former("c" * 12, Offset(12)), Former("a" * 12, Offset(20)))
    assert note.formerly_committed_by("c" * 36) == 12
    assert note.formerly_committed_by("d" * 36) == 0


def test_of_many_owners_only_the_last_have_names() -> None:
    note = CommitNote("q0", "t", 1, Offset(0), "l", ())
    for n in range(1, 7):
        note = CommitNote(f"q{n}", "t", 1, Offset(n), "l", note.handed_on(Offset(n)))
    assert note.former == (Former(ANYBODY, Offset(2)), *(Former(f"q{n - 1}", Offset(n)) for n in (3, 4, 5, 6)))
    assert [note.formerly_committed_by(f"q{n}") for n in range(6)] == [2, 2, 3, 4, 5, 6]
    assert read_commit(note.encode()) == note, "regression: it was damaged, and the next owner took it for a reset"


def test_commit_of_a_start_is_not_one_of_something_processed() -> None:
    note = CommitNote("q", "t", 1, Offset(12), "l", (Former("q", Offset(5)), Former("x", Offset(12))))
    assert note.handed_on(Offset(12)) == note.former


def test_nobody_has_committed_what_was_truncated_since() -> None:
    note = CommitNote("x", "t", 1, Offset(12), "l", (Former("q", Offset(12)),))
    assert note.handed_on(Offset(8)) == (Former("q", Offset(8)),)


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [("a", "b", True), ("a", "a", False), ("a", None, False), (None, "b", False), (None, None, False)],
)
def test_what_is_not_known_does_not_differ(one: str | None, other: str | None, told: bool) -> None:
    assert differ(one, other) is told


def test_the_example_of_the_docstring() -> None:
    first = CommitNote("A", None, 1, Offset(0), "l")
    second = CommitNote("B", None, 1, Offset(100), "l", first.handed_on(Offset(100)))
    assert second.former == (Former("A", Offset(100)),)
    assert second.handed_on(Offset(160)) == (Former("A", Offset(100)), Former("B", Offset(160)))
    assert second.committed_by("A", Offset(160)) == 100
