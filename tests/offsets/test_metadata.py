"""The note beside each committed offset: found again, readable for ever, and nobody else's text is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.metadata import CommitNote, differ
from pyspark_kafka_group.offsets.types import Offset

BROKERS_ALLOW = 4096

NOTE = CommitNote("6f2c", "QtOXfeWAR9uadceaKEMIPw", 6, Offset(100), "1f0c")

texts = st.text(max_size=40)
notes = st.builds(
    CommitNote,
    texts,
    st.none() | texts,
    st.integers(0, 2**31 - 1),
    st.none() | st.integers(0, 2**63 - 1).map(Offset),
    st.none() | texts,
)


def test_text_of_a_note_is_exact_to_the_byte() -> None:
    assert NOTE.encode() == '{"v":2,"q":"6f2c","t":"QtOXfeWAR9uadceaKEMIPw","n":6,"l":"1f0c","s":100}'


def test_what_is_not_known_is_left_out() -> None:
    assert CommitNote("6f2c", None, 6, None).encode() == '{"v":2,"q":"6f2c","n":6}'


@settings(max_examples=100, deadline=None)
@given(notes)
def test_note_survives_its_text(note: CommitNote) -> None:
    assert CommitNote.decode(note.encode()) == note


def test_note_of_version_1_stays_readable() -> None:
    assert CommitNote.decode('{"v":1,"q":"6f2c","n":6}') == CommitNote("6f2c", None, 6, None, None)


def test_note_of_a_newer_version_says_what_is_understood_of_it() -> None:
    """Deliberate: members of two versions share a group while one is being replaced by the other."""
    newer = json.dumps({**json.loads(NOTE.encode()), "v": 3, "x": [1]})
    assert CommitNote.decode(newer) == NOTE


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
        '{"q":5,"n":6}',
        '{"q":null,"n":6}',
        '{"q":"6f2c","n":"6"}',
        '{"q":"6f2c","n":6.0}',
        '{"q":"6f2c","n":true}',
        '{"q":"6f2c","n":null}',
        '{"q":"6f2c","n":6',
        "\ud800",
        "[" * BROKERS_ALLOW,
        '{"q":' * (BROKERS_ALLOW // 5),
        '{"v":2,"q":"6f2c","n":6,"s":' + "[" * 4000,
        '{"q":"6f2c","n":' + "9" * 100_000 + "}",
    ],
    ids=lambda text: repr(text)[:30],
)
def test_what_another_program_committed_is_no_note(text: str | None) -> None:
    assert CommitNote.decode(text) is None


@pytest.mark.parametrize("wrong", [[], {}, True, 1.5, [["x"]]], ids=str)
@pytest.mark.parametrize("key", ["t", "s", "l"])
def test_what_has_the_wrong_type_is_not_known(key: str, wrong: Any) -> None:
    text = json.dumps({**json.loads(NOTE.encode()), key: wrong})
    expected = {"t": NOTE._replace(topic_id=None), "s": NOTE._replace(since=None), "l": NOTE._replace(lineage=None)}
    assert CommitNote.decode(text) == expected[key]


@pytest.mark.parametrize("key", ["t", "l"])
def test_a_number_is_no_name(key: str) -> None:
    found = CommitNote.decode(json.dumps({**json.loads(NOTE.encode()), key: 7}))
    assert found is not None
    assert None in (found.topic_id, found.lineage)


def test_a_negative_offset_is_not_known() -> None:
    """It would be the beginning of a range, which no offset below zero can be."""
    assert CommitNote.decode('{"v":2,"q":"6f2c","n":6,"s":-5}') == CommitNote("6f2c", None, 6, None)


@settings(max_examples=100, deadline=None)
@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_text_is_an_error(text: str) -> None:
    CommitNote.decode(text)


def test_the_longest_note_is_far_below_what_brokers_allow() -> None:
    """Names of topics are not in it; ids of topics are 22 characters, those of queries and starts 36 at most."""
    uuid = "6f2c1c1e-95c7-4a0e-bb0d-1f7f2d1f1a55"
    longest = CommitNote(uuid, "Q" * 22, 2**31 - 1, Offset(2**63 - 1), uuid)
    assert len(longest.encode().encode()) < 200


def test_a_note_keeps_below_what_brokers_allow_even_if_its_names_were_as_long_as_those_of_topics() -> None:
    """Also where each character takes six bytes."""
    name = "\u00e9" * 200
    assert len(CommitNote(name, name, 2**31 - 1, Offset(2**63 - 1), name).encode().encode()) <= BROKERS_ALLOW


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [("a", "b", True), ("a", "a", False), ("a", None, False), (None, "b", False), (None, None, False)],
)
def test_what_is_not_known_does_not_differ(one: str | None, other: str | None, told: bool) -> None:
    assert differ(one, other) is told
