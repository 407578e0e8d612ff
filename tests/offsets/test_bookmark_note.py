"""The metadata of the offsets that a bookmark commits."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.notes import BookmarkNote, ResetNote, read, read_commit
from pyspark_kafka_group.offsets.types import Offset


@pytest.mark.parametrize("topic_id", ["QtOXfeWAR9uadceaKEMIPw", None])
def test_a_note_is_read_as_it_was_written(topic_id: str | None) -> None:
    for epoch in (None, 0, 7):
        note = BookmarkNote(topic_id, 6, epoch)
        assert read(note.encode()) == note


def test_the_text_never_changes() -> None:
    assert BookmarkNote("QtOXfeWAR9uadceaKEMIPw", 6, 4).encode() == (
        '{"v":1,"bookmark":{"t":"QtOXfeWAR9uadceaKEMIPw","n":6,"e":4}}'
    )
    assert read('{"v":1,"bookmark":{"t":"x","n":6}}') == BookmarkNote("x", 6)


@pytest.mark.parametrize(
    "other",
    [
        *(
            None,
            "",
            "text",
            "[]",
            '{"bookmark":[]}',
            '{"bookmark":{"n":true}}',
            '{"bookmark":{"t":"x"}}',
            "[" * 100_000,
        ),
        CommitNote("q", "t", 6, Offset(0), "l").encode(),
        ResetNote("alice", 1, None).encode(),
    ],
)
def test_what_others_wrote_is_no_note(other: str | None) -> None:
    assert not isinstance(read(other), BookmarkNote)


def test_others_take_it_for_a_decision_of_somebody() -> None:
    text = BookmarkNote("t", 6).encode()
    assert read_commit(text) is None
    assert not isinstance(read(text), ResetNote)
