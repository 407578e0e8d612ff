"""A reset writes a note beside an offset, and no query takes it for the note of a commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_group.offsets.notes import ResetNote, read, read_commit
from pyspark_kafka_group.offsets.types import Offset

NOTE = ResetNote("alice@laptop", 1_767_225_600_000, Offset(100))
GOLDEN = '{"v":1,"reset":{"by":"alice@laptop","at":1767225600000,"from":100}}'


def test_the_form_stays() -> None:
    assert NOTE.encode() == GOLDEN
    assert read(GOLDEN) == NOTE
    assert str(NOTE) == ("alice@laptop set it with 'kafka-group' at 2026-01-01 00:00:00 UTC; it was 100 before")
    assert str(NOTE._replace(previous=None)).endswith("there was none before")


def test_that_a_reset_is_intended_is_a_field_that_others_do_not_have() -> None:
    intended = NOTE._replace(intended=True)
    assert intended.encode() == GOLDEN.replace("100}", '100,"intended":true}')
    assert read(intended.encode()) == intended
    assert read(GOLDEN.replace("100}", '100,"intended":"yes"}')) == NOTE


@given(st.text(), st.integers(-(2**63), 2**63), st.none() | st.integers(0, 2**63 - 1))
def test_no_reset_looks_like_a_commit_of_a_query_and_each_fits(by: str, time_ms: int, previous: int | None) -> None:
    note = ResetNote(by, time_ms, None if previous is None else Offset(previous))
    text = note.encode()
    assert read(text) == note._replace(by=by[:200])
    assert read_commit(text) is None
    assert len(text.encode()) < 4096
    assert str(note).isprintable()


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "note",
        "[1]",
        "{",
        '{"v":1,"q":"q-1","n":6}',
        '{"reset":[]}',
        '{"reset":{"by":1,"at":2}}',
        '{"reset":{"by":"a","at":true}}',
        "[" * 100_000,
    ],
)
def test_what_others_write_is_no_reset(metadata: str | None) -> None:
    assert read(metadata) is None
