"""Which records a rollback has removed, by the notes of the commits."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores.errors import TableBehindError
from pyspark_kafka_group.stores.lake_history import (
    OffsetSpan,
    Snapshot,
    Spans,
    TableCommit,
    Version,
    as_note,
    before,
    lost,
    noted,
    of_snapshots,
    of_versions,
)

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOON = datetime(2026, 11, 26, 12)


def of(start: int, until: int, tp: TopicPartition = ZERO) -> Spans:
    return {tp: OffsetSpan(start, until)}


def snapshot(number: int, parent: int | None, spans: Spans | None = None, *, added: bool = True) -> Snapshot:
    return Snapshot(number, parent, None if spans is None else as_note(spans), added)


def version(
    number: int, spans: Spans | None = None, *, restored: int | datetime | None = None, added: bool = True
) -> Version:
    note = None if spans is None else as_note(spans)
    return Version(number, NOON + timedelta(minutes=number), restored, note, added)


def test_a_note_keeps_the_spans() -> None:
    spans = {ONE: OffsetSpan(5, 9), TopicPartition('a "topic"', 0): OffsetSpan(0, 2), ZERO: OffsetSpan(3, 4)}
    assert noted(as_note(spans)) == spans
    assert noted(None) == {}


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        ([TableCommit(of(0, 10), counts=True), TableCommit(of(10, 20), counts=True)], {}),
        ([TableCommit(of(0, 10), counts=True), TableCommit(of(10, 20), counts=False)], {ZERO: [(10, 20)]}),
        # the lost commit was a replay in part, and another one has written a part again
        ([TableCommit(of(0, 12), counts=True), TableCommit(of(10, 20), counts=False)], {ZERO: [(12, 20)]}),
        ([TableCommit(of(0, 30), counts=False), TableCommit(of(10, 20), counts=True)], {ZERO: [(0, 10), (20, 30)]}),
        ([TableCommit(of(10, 20), counts=False), TableCommit(of(20, 30), counts=False)], {ZERO: [(10, 30)]}),
        ([TableCommit(of(0, 9, ONE), counts=True), TableCommit(of(0, 9), counts=False)], {ZERO: [(0, 9)]}),
        ([TableCommit({}, counts=False), TableCommit(of(0, 9), counts=True)], {}),
    ],
)
def test_what_only_lost_commits_cover_is_lost(commits: list[TableCommit], found: object) -> None:
    assert lost(commits) == found


def test_only_what_lies_before_the_batch_needs_an_error() -> None:
    gone = {ZERO: [OffsetSpan(5, 8), OffsetSpan(10, 20)]}
    assert before(gone, of(12, 30)) == {ZERO: [(5, 8), (10, 12)]}
    assert before(gone, of(5, 30)) == {}
    assert before(gone, of(50, 60, ONE)) == {}


def test_snapshots_that_were_rolled_back_are_lost() -> None:
    """Maintenance has made snapshot 5; the branch of 6 begins after the rollback to 2."""
    snapshots = [
        snapshot(1, None, of(0, 5)),
        snapshot(2, 1, of(5, 10)),
        snapshot(3, 2, of(10, 20)),
        snapshot(4, 3),
        snapshot(5, 4, of(20, 30)),
        snapshot(6, 2, of(40, 50)),
        snapshot(7, 6, added=False),
    ]
    assert lost(of_snapshots(snapshots, 5)) == {ZERO: [(40, 50)]}
    assert lost(of_snapshots(snapshots, 7)) == {ZERO: [(10, 30)]}
    assert of_snapshots([], None) == []


def test_snapshots_without_a_known_origin_or_rows_are_left_out() -> None:
    """What followed the missing snapshot has perhaps expired, too, and had the records."""
    assert lost(of_snapshots([snapshot(3, 2, of(10, 20)), snapshot(4, 3, of(20, 30)), snapshot(9, 8)], 9)) == {}
    replay = [snapshot(1, None, of(10, 20)), snapshot(2, 1, of(0, 10), added=False)]
    assert lost(of_snapshots(replay, 1)) == {}


@pytest.mark.parametrize("restored", [1, NOON + timedelta(minutes=1, seconds=30)])
def test_versions_before_a_restore_are_lost(restored: int | datetime) -> None:
    versions = [
        version(6, of(40, 50)),
        version(5),
        version(4, restored=restored),
        version(3, of(20, 30), added=False),
        version(2, of(10, 20)),
        version(1, of(0, 10)),
    ]
    assert lost(of_versions(versions)) == {ZERO: [(10, 20)]}
    assert lost(of_versions(versions[3:])) == {}
    # the restore is taken back, and the version after it with it
    assert lost(of_versions([version(7, restored=3), *versions])) == {ZERO: [(40, 50)]}
    # the restored version is older than the known history
    assert lost(of_versions(versions[:-1])) == {ZERO: [(10, 20)]}


def test_the_error_names_the_records_and_the_way_on() -> None:
    problem = str(
        TableBehindError.of_lake("lake.db.t", {ONE: [OffsetSpan(3, 9)], ZERO: [OffsetSpan(10, 20), OffsetSpan(25, 30)]})
    )
    assert "lake.db.t was rolled back" in problem
    assert "orders-0 10 to 19, 25 to 29; orders-1 3 to 8" in problem
    assert "(orders-0 10, orders-1 3) or lower" in problem
    assert "LakeTable('lake.db.t').accept_rollback(spark)" in problem
