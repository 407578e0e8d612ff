"""The history of a group's offsets, step by step, from its log."""

from __future__ import annotations

from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.notes import BookmarkNote
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.tools.analysis.group_records import LoggedRecord, decode
from pyspark_kafka_group.tools.analysis.group_view import PartitionView
from pyspark_kafka_group.tools.analysis.history import (
    DEFAULT_RETENTION_S,
    Entry,
    History,
    Move,
    merged,
)
from pyspark_kafka_group.tools.analysis.membership import Owner
from pyspark_kafka_group.wire.types import TopicPartition
from tests.tools.analysis import records
from tests.tools.analysis.records import GROUP, TOPIC_ID, TP

OTHER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
OTHER = TopicPartition("clicks", 0)
Pair = tuple[bytes, bytes | None]


def commit(offset: int, time_ms: int = 1_000, tp: TopicPartition = TP, metadata: str = "", version: int = 3) -> Pair:
    return records.offset_key(tp=tp), records.offset_value(
        offset, time_ms=time_ms, metadata=metadata, version=version, expires=9_000
    )


def ours(offset: int, query_id: str = "query-1", topic_id: str | None = TOPIC_ID) -> Pair:
    note = CommitNote(query_id, topic_id, 1, Offset(0), "l")
    return commit(offset, metadata=note.encode())


def by_bookmark(offset: int, topic_id: str | None = TOPIC_ID) -> Pair:
    """Return a commit of a bookmark: brokers store it without a topic id, because it has a time of expiry."""
    return commit(offset, metadata=BookmarkNote(topic_id, 2, 4).encode(), version=1)


def gone(tp: TopicPartition = TP) -> Pair:
    return records.offset_key(tp=tp), None


def group(*members: str) -> Pair:
    """Return the record of a classic group whose first member owns the partition."""
    given = {name: records.assignment([TP] if name == members[0] else []) for name in members}
    return records.key(2, GROUP), records.classic_value(given)


def log(*pairs: Pair, time_ms: int = 2_000) -> list[LoggedRecord]:
    return [LoggedRecord(100 + at, time_ms, decode(*pair)) for at, pair in enumerate(pairs)]


def history(*pairs: Pair, topic_id: str | None = TOPIC_ID, time_ms: int = 2_000) -> list[Entry]:
    told = History({"orders": topic_id, "clicks": None})
    return list(told.entries(log(*pairs, time_ms=time_ms)))


def moves(entries: list[Entry]) -> list[tuple[Move, int | None, int | None]]:
    return [(entry.move, entry.previous, entry.offset) for entry in entries]


def test_offsets_go_forth_and_back_and_stay() -> None:
    assert moves(history(commit(5), commit(9), commit(9), commit(3))) == [
        (Move.FIRST, None, 5),
        (Move.FORTH, 5, 9),
        (Move.SAME, 9, 9),
        (Move.BACK, 9, 3),
    ]


def test_partitions_have_histories_of_their_own() -> None:
    found = history(commit(5), commit(7, tp=OTHER), commit(6))
    assert [(entry.tp, entry.previous) for entry in found] == [(TP, None), (OTHER, None), (TP, 5)]
    assert [entry.log_offset for entry in found] == [100, 101, 102]


def test_who_has_committed_is_told_by_the_metadata_and_by_the_groups_records() -> None:
    unknown, member, query, nobody = history(commit(1), group("a", "b"), commit(2), ours(3), group_empty(), commit(1))
    assert (unknown.owner, unknown.member_count, unknown.by_outsider) == (None, None, False)
    assert (member.owner, member.member_count) == (Owner("a", "client-a", "/10.0.0.1"), 2)
    assert (query.query_id, query.topic_id) == ("query-1", TOPIC_ID)
    assert (nobody.owner, nobody.member_count, nobody.by_outsider) == (None, 0, True)


def group_empty() -> Pair:
    return records.key(2, GROUP), records.classic_value({})


def test_a_zero_byte_after_our_metadata_does_not_hide_it() -> None:
    """librdkafka's Python binding commits the zero byte with the metadata."""
    key, _ = ours(3)
    note = CommitNote("query-1", TOPIC_ID, 1, Offset(0), "l").encode()
    (entry,) = history((key, records.offset_value(3, metadata=f"{note}\0")))
    assert entry.query_id == "query-1"


def test_the_note_of_a_newer_version_is_shown_as_the_metadata_of_any_program() -> None:
    """Regression: ``describe``, ``history``, ``rewinds`` and ``groups`` failed, because of one such offset."""
    newer = CommitNote("query-1", TOPIC_ID, 1, Offset(0), "l").encode().replace('"v":1', '"v":2')
    entry = history(commit(2), commit(5, metadata=newer))[-1]
    assert (entry.move, entry.query_id, entry.metadata) == (Move.FORTH, None, newer)
    assert PartitionView(tp=TP, committed_offset=5, metadata=newer).query_id is None


def test_an_offset_that_nobody_used_for_so_long_has_expired() -> None:
    late = int(DEFAULT_RETENTION_S * 1000) + 1_000
    assert moves(history(commit(5), gone(), time_ms=late))[-1] == (Move.EXPIRED, 5, None)
    assert moves(history(commit(5), gone(), time_ms=late - 1))[-1] == (Move.DELETED, 5, None)


def test_an_expiry_that_the_commit_asked_for_counts_more_than_the_retention() -> None:
    old = commit(5, version=1)
    assert history(old, gone(), time_ms=9_000)[-1].move is Move.EXPIRED
    assert history(old, gone(), time_ms=8_999)[-1].move is Move.DELETED


def test_the_offset_of_a_topic_that_is_gone_or_was_created_again_has_ended_with_it() -> None:
    missing = TopicPartition("no-more", 0)
    assert history(commit(5, tp=missing), gone(missing))[-1].move is Move.TOPIC_DELETED
    assert history(ours(5), gone(), topic_id=OTHER_ID)[-1].move is Move.TOPIC_DELETED
    assert history(ours(5), gone())[-1].move is Move.DELETED


def test_a_lower_offset_of_a_topic_that_was_created_again_did_not_go_back() -> None:
    assert moves(history(ours(5), ours(1, topic_id=OTHER_ID)))[-1] == (Move.RECREATED, 5, 1)
    assert moves(history(ours(5), commit(3), ours(1, topic_id=OTHER_ID)))[-1] == (Move.RECREATED, 3, 1)


def test_the_topic_id_of_a_bookmark_is_in_its_metadata() -> None:
    """Regression: the offset of a deleted topic looked like one that a user had deleted."""
    assert [entry.move for entry in history(by_bookmark(9, OTHER_ID), gone())][-1] is Move.TOPIC_DELETED
    assert [entry.move for entry in history(by_bookmark(9, OTHER_ID), by_bookmark(3))][-1] is Move.RECREATED


def test_a_tombstone_of_what_was_not_there_says_nothing() -> None:
    assert history(gone()) == []
    assert moves(history(commit(5), gone(), gone(), commit(2))) == [
        (Move.FIRST, None, 5),
        (Move.DELETED, 5, None),
        (Move.FIRST, None, 2),
    ]


def test_what_cannot_be_decoded_is_kept_and_the_rest_goes_on() -> None:
    told = History({"orders": TOPIC_ID})
    found = list(told.entries(log(commit(5), (records.offset_key(), b"\0\7"), commit(6))))
    assert moves(found) == [(Move.FIRST, None, 5), (Move.FORTH, 5, 6)]
    assert [logged.log_offset for logged in told.undecodable] == [101]


def test_a_query_that_commits_the_same_offset_again_is_said_once() -> None:
    found = history(group("a"), commit(5), commit(5), commit(5), group("b"), commit(5), commit(5), commit(6))
    assert len(found) == 6
    assert [(entry.move, entry.owner and entry.owner.member_id) for entry in merged(found)] == [
        (Move.FIRST, "a"),
        (Move.SAME, "b"),
        (Move.FORTH, "b"),
    ]
