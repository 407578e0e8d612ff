"""Each note is read as its kind.  One of a newer version is refused: it is no metadata of another program."""

from __future__ import annotations

import json

import pytest

from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.notes import BookmarkNote, Note, ResetNote, SkipNote, read, read_commit
from pyspark_kafka_group.offsets.skip_markers import SkipMarker
from pyspark_kafka_group.offsets.types import Offset, OffsetRange

NOTES: list[Note] = [
    CommitNote("q", None, 1, Offset(0), "l"),
    ResetNote("alice", 1, None),
    BookmarkNote("t", 1),
    SkipNote((SkipMarker(OffsetRange(Offset(3), Offset(9)), 2),)),
]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_note_is_read_as_its_kind(note: Note) -> None:
    found = read(note.encode())
    assert (type(found), found) == (type(note), note)
    assert (read_commit(note.encode()) is not None) == isinstance(note, CommitNote)


@pytest.mark.parametrize("reader", [read, read_commit])
@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
@pytest.mark.parametrize("more", [{}, {"x": [1]}])
def test_note_of_a_newer_version_is_refused(reader: object, note: Note, more: dict[str, object]) -> None:
    """Regression: it was read as version 1, as a reset by another program, or as a batch that has skipped nothing."""
    newer = json.dumps({**json.loads(note.encode()), **more, "v": 2})
    assert callable(reader)
    with pytest.raises(OffsetFormatError, match=r"its format version is 2, not 1\. A newer version of pyspark-kafka-"):
        reader(newer)


@pytest.mark.parametrize("metadata", [None, "", "x", "[]", "7", '{"v":2}', '{"v":2,"other":1}', '{"q":1}', "[" * 4096])
def test_metadata_of_another_program_is_no_note(metadata: str | None) -> None:
    assert read(metadata) is None
