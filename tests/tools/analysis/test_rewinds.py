"""Offsets that went back, that an outsider moved forth, or that have ended."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.offsets.notes import ResetNote
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.tools.analysis.history import DEFAULT_RETENTION_S, Entry, Move
from pyspark_kafka_group.tools.analysis.rewinds import EndedOffset, Gap, Rewind, find_incidents
from tests.tools.analysis.test_history import (
    OTHER_ID,
    Pair,
    by_bookmark,
    commit,
    gone,
    group,
    group_empty,
    history,
    ours,
)


def only_rewind(*pairs: Pair) -> Rewind:
    (found,) = find_incidents(history(*pairs))
    assert isinstance(found, Rewind)
    return found


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(history(group("a"), commit(5), commit(5), commit(9)), id="only forth"),
        pytest.param(history(commit(9), gone(), commit(9)), id="deleted, and nothing is read twice"),
        pytest.param(history(ours(9), ours(1, topic_id=OTHER_ID)), id="a topic that was created again"),
        pytest.param(
            history(ours(9), gone(), ours(1, topic_id=OTHER_ID), topic_id=OTHER_ID),
            id="a topic that was created again, after a deletion",
        ),
        # Regression: rewinds reported a gap for ever, although the bookmark had read the records.
        pytest.param(
            history(group("a"), ours(5), group_empty(), by_bookmark(50), by_bookmark(70)),
            id="a bookmark that continues after a stream",
        ),
        pytest.param(history(group_empty(), commit(5), commit(50), commit(70)), id="programs that never join"),
        pytest.param(history(ours(5), commit(50)), id="unknown members"),
    ],
)
def test_no_finding(steps: list[Entry]) -> None:
    assert find_incidents(steps) == []


def test_an_offset_that_goes_back_is_a_rewind_until_it_is_reached_again() -> None:
    back = only_rewind(commit(9), commit(3), commit(8))
    assert (back.high, back.lowest, back.recovered_ms) == (9, 3, None)
    assert only_rewind(commit(9), commit(3), commit(8), commit(9, time_ms=7_000)).recovered_ms == 7_000


def test_what_goes_back_further_is_the_same_rewind() -> None:
    back = only_rewind(commit(9), commit(3), commit(5), commit(1), commit(8))
    assert (back.high, back.lowest, back.entry.offset) == (9, 1, 3)


def test_a_reset_does_not_hide_a_rewind_that_follows_it() -> None:
    """Regression: until the group had reached the offset from before the reset, every rewind counted as the reset."""
    reset = commit(3, metadata=ResetNote("alice@laptop", 0, Offset(9)).encode())
    meant, not_meant = find_incidents(history(commit(9), reset, commit(6), commit(4), commit(5)))
    assert (meant.needs_attention, not_meant.needs_attention) == (False, True)
    assert isinstance(not_meant, Rewind)
    assert (not_meant.high, not_meant.lowest, not_meant.recovered_ms) == (6, 4, None)
    meant, not_meant = find_incidents(history(commit(9), reset, commit(6), commit(4), commit(6)))
    assert (meant.needs_attention, not_meant.needs_attention) == (False, False)


def test_two_rewinds_of_a_partition_are_told_in_their_order() -> None:
    first, second = find_incidents(history(commit(9), commit(3), commit(9), commit(20), commit(5)))
    assert isinstance(first, Rewind)
    assert isinstance(second, Rewind)
    assert (first.high, first.recovered_ms, second.high, second.recovered_ms) == (9, 1_000, 20, None)


def test_an_offset_that_was_deleted_and_begins_anew_below_is_a_rewind_by_deletion() -> None:
    back = only_rewind(commit(9), gone(), commit(3))
    assert (back.high, back.lowest, back.ended) == (9, 3, Move.DELETED)


def test_an_offset_that_has_ended_for_good_is_a_finding_with_its_reason() -> None:
    late = int(DEFAULT_RETENTION_S * 1000) + 1_000
    for time_ms, move in ((2_000, Move.DELETED), (late, Move.EXPIRED)):
        (found,) = find_incidents(history(commit(9), gone(), time_ms=time_ms))
        assert isinstance(found, EndedOffset)
        assert found.entry.move is move


def test_a_rewind_whose_offset_is_deleted_afterwards_is_told_and_so_is_the_end() -> None:
    found = find_incidents(history(commit(9), commit(3), gone()))
    assert [type(finding) for finding in found] == [Rewind, EndedOffset]


def test_an_open_rewind_ends_with_its_topic() -> None:
    (back,) = find_incidents(history(ours(9), ours(3), ours(1, topic_id=OTHER_ID), ours(9, topic_id=OTHER_ID)))
    assert isinstance(back, Rewind)
    assert (back.recovered_ms, back.topic_deleted, back.needs_attention) == (None, True, False)


def test_somebody_who_is_no_member_moves_on_what_members_read() -> None:
    (found,) = find_incidents(history(group("a"), commit(5), group_empty(), commit(50)))
    assert isinstance(found, Gap)
    assert (found.entry.previous, found.entry.offset) == (5, 50)


def test_somebody_who_continues_after_a_bookmark_leaves_a_gap() -> None:
    (gap,) = find_incidents(history(group_empty(), by_bookmark(50), commit(70)))
    assert isinstance(gap, Gap)


def test_what_has_recovered_or_was_meant_needs_no_attention() -> None:
    """Regression: an alert on the exit code of rewinds never ended."""
    reset = commit(3, metadata=ResetNote("alice@laptop", 0, Offset(9)).encode())
    needed = [
        (only_rewind(commit(9), commit(3)), True),
        (only_rewind(commit(9), commit(3), commit(9)), False),
        (only_rewind(commit(9), reset), False),
    ]
    for incident, needs_attention in needed:
        assert incident.needs_attention is needs_attention
    (gap,) = find_incidents(history(group("a"), commit(5), group_empty(), commit(50)))
    assert gap.needs_attention


def test_an_old_rewind_that_goes_back_again_is_not_left_out() -> None:
    """Regression: no alert with ``--since`` told of it until the group had recovered from the first one."""
    steps = history(commit(9), commit(3, time_ms=1_000), commit(8, time_ms=2_000), commit(1, time_ms=5_000))
    for found in (steps, history(commit(9), commit(3, time_ms=5_000))):
        assert len(find_incidents(found, since_ms=5_000)) == 1
        assert find_incidents(found, since_ms=5_001) == [], "it began before"
