"""A query reads back the note of each committed offset, and takes no other program's text for a note."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.commit_metadata import ANYBODY, CommitNote, Former, differ
from pyspark_kafka_group.offsets.notes import read_commit
from pyspark_kafka_group.offsets.types import Offset

BROKERS_ALLOW = 4096

NOTE = CommitNote("6f2c", "QtOXfeWAR9uadceaKEMIPw", 6, Offset(100), "1f0c")

texts = st.text(max_size=40)
notes = st.builds(
    CommitNote,
    texts,
    st.none() | texts,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1).map(Offset),
    texts,
    st.lists(st.builds(Former, texts, st.integers(0, 2**63 - 1).map(Offset)), max_size=5).map(tuple),
)


def test_text_of_a_note_is_exact_to_the_byte() -> None:
    assert NOTE.encode() == '{"v":1,"q":"6f2c","t":"QtOXfeWAR9uadceaKEMIPw","n":6,"l":"1f0c","s":100,"f":[]}'


def test_former_owners_are_in_its_text() -> None:
    text = NOTE._replace(former=(Former("", Offset(7)), Former("9b1d", Offset(100)))).encode()
    assert text.endswith(',"s":100,"f":[["",7],["9b1d",100]]}')


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


def test_commit_of_a_start_is_not_one_of_something_processed() -> None:
    note = CommitNote("q", "t", 1, Offset(12), "l", (Former("q", Offset(5)), Former("x", Offset(12))))
    assert note.handed_on(Offset(12)) == note.former


def test_nobody_has_committed_what_was_truncated_since() -> None:
    note = CommitNote("x", "t", 1, Offset(12), "l", (Former("q", Offset(12)),))
    assert note.handed_on(Offset(8)) == (Former("q", Offset(8)),)


def test_a_topic_id_that_is_not_known_is_left_out() -> None:
    assert NOTE._replace(topic_id=None).encode() == '{"v":1,"q":"6f2c","n":6,"l":"1f0c","s":100,"f":[]}'


@settings(max_examples=100)
@given(notes)
def test_note_survives_its_text(note: CommitNote) -> None:
    assert read_commit(note.encode()) == note


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        " ",
        "someone else's",
        "[]",
        "1",
        "null",
        "true",
        '"q"',
        "{}",
        '{"q":"6f2c"}',
        '{"n":6}',
        '{"v":1,"q":"6f2c","n":6}',
        '{"v":1,"q":"6f2c","n":6,"l":"1f0c","s":100,"f":[]',
        "\ud800",
        "[" * BROKERS_ALLOW,
        '{"q":' * (BROKERS_ALLOW // 5),
        '{"v":1,"q":"6f2c","n":6,"s":' + "[" * 4000,
        '{"q":"6f2c","n":' + "9" * 100_000 + "}",
    ],
    ids=lambda text: repr(text)[:30],
)
def test_what_another_program_committed_is_no_note(text: str | None) -> None:
    assert read_commit(text) is None


@pytest.mark.parametrize(
    "wrong", [True, 1.5, -5, "text", ["x"], [["x"]], [[5, 5]], [["x", -5]], [["x", 5, 5]]], ids=str
)
@pytest.mark.parametrize("key", ["q", "t", "n", "l", "s", "f"])
def test_what_has_the_wrong_type_is_no_note(key: str, wrong: Any) -> None:
    """One of these values is a negative offset, which cannot begin a range."""
    well = key in ("q", "t", "l") and wrong == "text"
    found = read_commit(json.dumps({**json.loads(NOTE.encode()), key: wrong}))
    assert (found is not None) == well


@settings(max_examples=100)
@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_text_is_an_error(text: str) -> None:
    read_commit(text)


def test_the_longest_note_is_far_below_what_brokers_allow() -> None:
    """A note has no topic names.  Topic ids have 22 characters, and ids of queries and starts have at most 36."""
    uuid = "6f2c1c1e-95c7-4a0e-bb0d-1f7f2d1f1a55"
    longest = CommitNote(uuid, "Q" * 22, 2**31 - 1, Offset(2**63 - 1), uuid)
    assert len(longest.encode().encode()) < 200


def test_a_note_keeps_below_what_brokers_allow_even_if_its_names_were_as_long_as_those_of_topics() -> None:
    """The limit also holds if each character takes six bytes."""
    name = "\u00e9" * 200
    assert len(CommitNote(name, name, 2**31 - 1, Offset(2**63 - 1), name).encode().encode()) <= BROKERS_ALLOW


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
