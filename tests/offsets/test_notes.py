"""Notes of a newer version are refused, and do not look like the metadata of another program."""

from __future__ import annotations

import json

import pytest

from pyspark_kafka_group.offsets.bookmark_note import BookmarkNote
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.reset_note import ResetNote
from pyspark_kafka_group.offsets.skip_markers import SkipMarker, decode, encode
from pyspark_kafka_group.offsets.types import Offset, OffsetRange

NOTES = [
    CommitNote("q", None, 1, Offset(0), "l").encode(),
    ResetNote("alice", 1, None).encode(),
    BookmarkNote("t", 1).encode(),
    encode([SkipMarker(OffsetRange(Offset(3), Offset(9)), 2)]),
]
READERS = [CommitNote.decode, ResetNote.decode, BookmarkNote.decode, decode]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("more", [{}, {"x": [1]}])
def test_note_of_a_newer_version_is_refused(read: object, note: str, more: dict[str, object]) -> None:
    """Regression: it was read as version 1, as a reset by another program, or as a batch that has skipped nothing."""
    newer = json.dumps({**json.loads(note), **more, "v": 2})
    assert callable(read)
    with pytest.raises(OffsetFormatError, match=r"its format version is 2, not 1\. A newer version of pyspark-kafka-"):
        read(newer)


@pytest.mark.parametrize("metadata", [None, "", "x", "[]", "7", '{"v":2}', '{"v":2,"other":1}', '{"q":1}', "[" * 4096])
def test_metadata_of_another_program_is_no_note(metadata: str | None) -> None:
    for read in READERS[:3]:
        assert read(metadata) is None
