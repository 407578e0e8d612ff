"""Each note is read as its kind, and no other program's text is taken for a note.

A note of a newer version is refused: it is no metadata of another program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.commit_metadata import CommitNote, Former
from pyspark_kafka_group.offsets.errors import OffsetFormatError
from pyspark_kafka_group.offsets.notes import BookmarkNote, Note, ResetNote, SkipNote, read, read_commit
from pyspark_kafka_group.offsets.skip_markers import SkipMarker
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

BROKERS_ALLOW = 4096
LONGEST = 2**63 - 1
YEAR_10000_MS = 253_402_300_800_000
UUID, TOPIC_ID = "6f2c1c1e-95c7-4a0e-bb0d-1f7f2d1f1a55", "QtOXfeWAR9uadceaKEMIPw"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"

COMMIT = CommitNote("6f2c", TOPIC_ID, 6, Offset(100), "1f0c")
RESET = ResetNote("alice@laptop", 1_767_225_600_000, Offset(100))


def marker(start: int, until: int, rewinds: int) -> SkipMarker:
    return SkipMarker(OffsetRange(Offset(start), Offset(until)), rewinds)


GOLDEN: dict[str, Note] = {
    '{"v":1,"q":"6f2c","t":"QtOXfeWAR9uadceaKEMIPw","n":6,"l":"1f0c","s":100,"f":[]}': COMMIT,
    '{"v":1,"q":"6f2c","n":6,"l":"1f0c","s":100,"f":[["",7],["9b1d",100]]}': COMMIT._replace(
        topic_id=None, former=(Former("", Offset(7)), Former("9b1d", Offset(100)))
    ),
    '{"v":1,"q":"6f2c","t":"QtOXfeWAR9uadceaKEMIPw","n":6,"l":"1f0c","i":true,"s":100,"f":[]}': COMMIT._replace(
        intended=True
    ),
    '{"v":1,"reset":{"by":"alice@laptop","at":1767225600000,"from":100}}': RESET,
    '{"v":1,"reset":{"by":"alice@laptop","at":1767225600000,"from":100,"intended":true}}': RESET._replace(
        intended=True
    ),
    '{"v":1,"bookmark":{"t":"QtOXfeWAR9uadceaKEMIPw","n":6,"e":4}}': BookmarkNote(TOPIC_ID, 6, 4),
    '{"v":1,"q":"6f2c","t":"QtOXfeWAR9uadceaKEMIPw","c":"4L6g3nShT-eMCtK--X86sw","n":6,"l":"1f0c","s":100,"f":[]}': (
        COMMIT._replace(cluster_id=CLUSTER_ID)
    ),
    '{"v":1,"bookmark":{"t":"QtOXfeWAR9uadceaKEMIPw","n":6,"e":4,"c":"4L6g3nShT-eMCtK--X86sw"}}': BookmarkNote(
        TOPIC_ID, 6, 4, CLUSTER_ID
    ),
    '{"v":1,"m":[[3,9,2],[9,12,2]]}': SkipNote((marker(3, 9, 2), marker(9, 12, 2))),
}
"""Texts that users' groups have.  They must never change."""

offsets = st.integers(0, LONGEST).map(Offset)
texts = st.text(max_size=40)
notes: dict[str, st.SearchStrategy[Note]] = {
    "commit": st.builds(
        CommitNote,
        *(texts, st.none() | texts, st.integers(0, 2**31 - 1), offsets, texts),
        st.lists(st.builds(Former, texts, offsets), max_size=4).map(tuple),
        st.booleans(),
        st.none() | texts,
    ),
    "reset": st.builds(ResetNote, st.text(max_size=200), st.integers(0, YEAR_10000_MS - 1), st.none() | offsets),
    "bookmark": st.builds(
        BookmarkNote,
        *(st.none() | texts, st.integers(0, 2**31 - 1), st.none() | st.integers(0, 2**31 - 1), st.none() | texts),
    ),
    "skip": st.builds(
        lambda pairs, rewinds: SkipNote(tuple(marker(min(pair), max(pair), rewinds) for pair in pairs)),
        st.lists(st.tuples(offsets, offsets), max_size=2),
        st.integers(0, 99),
    ),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_the_text_of_a_note_never_changes(text: str) -> None:
    assert GOLDEN[text].encode() == text


@pytest.mark.parametrize("kind", notes)
@settings(max_examples=50)
@given(data=st.data())
def test_a_note_is_read_as_its_kind(kind: str, data: st.DataObject) -> None:
    note = data.draw(notes[kind])
    found = read(note.encode())
    assert (type(found), found) == (type(note), note)
    assert (read_commit(note.encode()) is not None) == (kind == "commit")


@pytest.mark.parametrize("text", GOLDEN)
def test_only_a_note_that_names_another_cluster_is_no_note(text: str) -> None:
    """Regression: with the metadata that MirrorMaker copies, an offset counted as one of a deleted topic."""
    for cluster_id in (None, CLUSTER_ID):
        assert read(text, None, cluster_id) == GOLDEN[text]
    assert read(text, None, "another") == (None if CLUSTER_ID in text else GOLDEN[text])


@pytest.mark.parametrize("reader", [read, read_commit])
@pytest.mark.parametrize("text", GOLDEN)
@pytest.mark.parametrize("more", [{}, {"x": [1]}])
def test_note_of_a_newer_version_is_refused(
    reader: Callable[[str, TopicPartition], object], text: str, more: dict[str, object]
) -> None:
    """Regression: it was read as version 1, as a reset by another program, or as a batch that has skipped nothing."""
    said = r"offset of orders-0 cannot be read: its format version is 2, not 1\. A newer version of pyspark-kafka-"
    with pytest.raises(OffsetFormatError, match=said):
        reader(json.dumps({**json.loads(text), **more, "v": 2}), TopicPartition("orders", 0))


@pytest.mark.parametrize(
    "metadata",
    [
        *(None, "", " ", "x", "[]", "7", "null", "true", '"q"', "{}", "{", "\ud800", '{"v":2}', '{"v":2,"other":1}'),
        *('{"q":"6f2c","n":6}', '{"v":1,"q":"6f2c","n":6}', '{"v":1,"q":"6f2c","n":6,"l":"1f0c","s":100,"f":[]'),
        *('{"v":1,"reset":[]}', '{"v":1,"reset":{"by":1,"at":2}}', '{"v":1,"reset":{"by":"a","at":true}}'),
        *('{"v":1,"bookmark":[]}', '{"v":1,"bookmark":{"n":true}}', '{"v":1,"bookmark":{"t":"x"}}'),
        *('{"v":1,"m":7}', '{"v":1,"m":[3,9,2]}', '{"v":1,"m":[[3,9]]}', '{"v":1,"m":[[3,9,2,1]]}'),
        *('{"v":1,"m":[["3","9",2]]}', '{"v":1,"m":[[-1,3,2]]}', '{"v":1,"m":[[3,9,2],[9,3,2]]}'),
        *("[" * BROKERS_ALLOW, '{"q":' * (BROKERS_ALLOW // 5), '{"v":1,"q":"6f2c","n":6,"s":' + "[" * 4000),
        '{"q":"6f2c","n":' + "9" * 100_000 + "}",
        # Regression: a key that another program uses for something else counted as a note of a newer version.
        *('{"v":2,"m":"host-17"}', '{"v":2,"m":[7]}', '{"v":2,"q":1,"l":2}', '{"v":2,"q":"6f2c"}'),
        *('{"v":2,"reset":true}', '{"v":2,"bookmark":"page 7"}'),
    ],
    ids=lambda text: repr(text)[:40],
)
def test_metadata_of_another_program_is_no_note(metadata: str | None) -> None:
    assert read(metadata) is None


@settings(max_examples=100)
@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_text_is_an_error(text: str) -> None:
    read(text)


@pytest.mark.parametrize(
    "wrong", [True, 1.5, -5, "text", ["x"], [["x"]], [[5, 5]], [["x", -5]], [["x", 5, 5]]], ids=str
)
@pytest.mark.parametrize("key", ["q", "t", "c", "n", "l", "s", "f"])
def test_what_has_the_wrong_type_is_no_note_of_a_commit(key: str, wrong: Any) -> None:
    """One of these values is a negative offset, which cannot begin a range."""
    well = key in ("q", "t", "c", "l") and wrong == "text"
    found = read_commit(json.dumps({**json.loads(COMMIT.encode()), key: wrong}))
    assert (found is not None) == well


def test_a_note_that_others_could_not_inherit_is_damaged() -> None:
    """Regression: a foreign lineage of 4 kB went into the query's own commits, which the broker then refused.

    And so did numbers of 4 kB, and names that are short as UTF-8 and long as JSON.
    """
    changes = {"l": "x" * 41}, {"f": [["x" * 41, 7]]}, {"f": [["", n] for n in range(6)]}, {"n": 2**63}, {"s": 2**63}
    for change in (*changes, {"f": [["x", 2**63]]}):
        assert read_commit(json.dumps({**json.loads(COMMIT.encode()), **change})) is None
    name = "\U0001f600" * 40
    former = tuple(Former(name, Offset(LONGEST)) for _ in range(5))
    inherited = CommitNote(UUID, "Q" * 22, 2**31 - 1, Offset(LONGEST), name, former, True, "Q" * 22)
    assert read_commit(inherited.encode()) == inherited
    assert len(inherited.encode()) <= BROKERS_ALLOW


def test_fields_of_a_reset_and_a_bookmark_that_are_missing_or_wrong_are_unknown() -> None:
    assert read(RESET.encode().replace("100}", '100,"intended":"yes"}')) == RESET
    for odd in ("-1", str(YEAR_10000_MS), "1" * 400):
        assert read(RESET.encode().replace("1767225600000", odd)) is None
    assert read(RESET.encode().replace("100}", "-1}")) == RESET._replace(previous=None)
    # Regression: an epoch that no request can carry ended the run.
    for epoch in ("", ',"e":-5', ',"e":2147483648', ',"e":true'):
        assert read(f'{{"v":1,"bookmark":{{"t":"x","n":6{epoch}}}}}') == BookmarkNote("x", 6)


@pytest.mark.parametrize(
    ("note", "most"),
    [
        # Ids of topics and clusters have 22 characters, and ids of queries and starts have at most 36.
        (CommitNote(UUID, "Q" * 22, 2**31 - 1, Offset(LONGEST), UUID, (), True, "Q" * 22), 240),
        # Even if its names were as long as those of topics, and each character took six bytes.
        (CommitNote("\u00e9" * 200, "\u00e9" * 200, 2**31 - 1, Offset(LONGEST), "\u00e9" * 200), BROKERS_ALLOW),
        (SkipNote((marker(LONGEST - 1, LONGEST, 2**31 - 1),) * 2), 200),
        (ResetNote("\u00e9" * 5000, YEAR_10000_MS - 1, Offset(LONGEST)), BROKERS_ALLOW),
    ],
    ids=["commit", "long names", "skip", "reset"],
)
def test_the_longest_note_is_below_what_brokers_allow(note: Note, most: int) -> None:
    assert len(note.encode().encode()) <= most


def test_a_reset_tells_people_who_set_what_and_when() -> None:
    assert str(RESET) == "alice@laptop set it with 'kafka-group' at 2026-01-01 00:00:00 UTC; it was 100 before"
    odd = str(ResetNote("a\x1b[2J", YEAR_10000_MS - 1, None))
    assert odd.isprintable()
    assert odd.endswith("at 9999-12-31 23:59:59 UTC; there was none before")
