"""A group as the bookmark of a job: which offsets the job commits, and when."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from pyspark_kafka_group.batch import bookmark
from pyspark_kafka_group.batch.bookmark import Bookmark
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupMember
from pyspark_kafka_group.errors import (
    ActiveGroupError,
    BookmarkMovedError,
    BrokerError,
    ConfigurationError,
    DataLossError,
    OptionError,
)
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from tests.connector.batch.fake_lookup import FakeLookup, logs

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {"kafka.bootstrap.servers": "x:1", "kafka.group.id": "g", "subscribe": "t"}


@pytest.fixture
def lookup(monkeypatch: pytest.MonkeyPatch) -> FakeLookup:
    made = FakeLookup(logs(5, 7), {P0: Offset(2), P1: Offset(0)})
    monkeypatch.setattr(bookmark, "open_lookup", lambda *_, **__: made)
    return made


def ranges(*spans: tuple[int, int]) -> dict[tuple[str, int], tuple[int, int]]:
    return {("t", n): span for n, span in enumerate(spans)}


def made(**options: str) -> Bookmark:
    return Bookmark(cast(SparkSession, MagicMock()), {**OPTIONS, **options})


def test_the_records_are_just_the_ranges(lookup: FakeLookup) -> None:
    spark = MagicMock()
    new = Bookmark(spark, {**OPTIONS, "includeHeaders": "true"})
    assert new.ranges == ranges((2, 5), (0, 7))
    given: dict[str, Any] = spark.read.format.return_value.options.call_args.kwargs
    assert given == {
        "kafka.bootstrap.servers": "x:1",
        "kafka.group.id": "g",
        "includeHeaders": "true",
        "assign": '{"t": [0, 1]}',
        "startingOffsets": '{"t": {"0": 2, "1": 0}}',
        "endingOffsets": '{"t": {"0": 5, "1": 7}}',
    }


def test_records_that_were_not_read_to_their_end_are_not_committed(lookup: FakeLookup) -> None:
    """Regression: after a `break`, the bookmark committed thousands of records that nobody had read."""
    with pytest.raises(ConfigurationError, match="were not read to their end"), made() as new:
        next(new.noting(range(3)))
    assert lookup.commits == []
    with made() as new:
        new.noting(range(3))
        assert [*new.noting(range(3))] == [0, 1, 2]
    assert lookup.commits == [P0, P1]
    with made() as new:
        next(new.noting(range(3)))
        new.commit()


def test_an_empty_range_is_not_asked_for(lookup: FakeLookup) -> None:
    """The committed offset may be above the first open transaction.  For this reader, the log ends there."""
    lookup.stored[P0] = Offset(5)
    spark = MagicMock()
    new = Bookmark(spark, OPTIONS)
    assert new.ranges == ranges((5, 5), (0, 7))
    assert spark.read.format.return_value.options.call_args.kwargs["assign"] == '{"t": [1]}'


def test_without_anything_to_read_the_columns_are_the_same(lookup: FakeLookup) -> None:
    lookup.stored |= {P0: Offset(5), P1: Offset(7)}
    spark = MagicMock()
    Bookmark(spark, {**OPTIONS, "valueFormat": "json", "valueSchema": "id INT", "columns": "value"})
    _, schema = spark.createDataFrame.call_args.args
    assert schema.simpleString() == "struct<value:struct<id:int>>"


def test_what_comes_meanwhile_is_left_for_the_next_run(lookup: FakeLookup) -> None:
    with made():
        lookup.logs = logs(50, 70)
        assert lookup.stored == {P0: 2, P1: 0}
    assert lookup.stored == {P0: 5, P1: 7}


def test_every_partition_is_committed_at_every_run(lookup: FakeLookup) -> None:
    """Otherwise brokers delete the offset of a partition without new records, some time after its last commit."""
    lookup.stored[P0] = Offset(5)
    made().commit()
    made().commit()
    assert lookup.commits == [P0, P1, P0, P1]


def test_the_first_run_of_a_group_starts_at_the_beginning(lookup: FakeLookup) -> None:
    lookup.stored.clear()
    assert made().ranges == ranges((0, 5), (0, 7))
    assert made(startingOffsetsIfNotCommitted="latest").ranges == ranges((5, 5), (7, 7))


@pytest.mark.parametrize("otherwise", [None, "earliest", "latest", "fail"])
def test_a_partition_that_is_added_starts_at_its_beginning(lookup: FakeLookup, otherwise: str | None) -> None:
    """Regression: with ``latest``, the job skipped the records that had arrived before the run."""
    given = {} if otherwise is None else {"startingOffsetsIfNotCommitted": otherwise}
    made(**given).commit()
    lookup.logs = logs(6, 7, 3)
    assert made(**given).ranges == ranges((5, 6), (7, 7), (0, 3))


def test_a_log_that_was_truncated_and_has_grown_again(lookup: FakeLookup) -> None:
    """Regression: the next run began at the committed offset, and skipped the new records below it."""
    made().commit()
    lookup.logs = logs(9, 7)
    assert made().ranges == ranges((5, 9), (7, 7))
    lookup.truncated = {P0: Offset(3)}
    with pytest.raises(DataLossError, match=r"t-0: offsets \[3, 5\) were truncated"):
        made()
    assert made(failOnDataLoss="false").ranges == ranges((3, 9), (7, 7))


def test_a_partition_that_has_lost_its_offset_is_told(lookup: FakeLookup) -> None:
    made().commit()
    del lookup.stored[P1]
    for given in ({}, {"startingOffsetsIfNotCommitted": "fail"}, {"assign": '{"t": [1]}', "subscribe": ""}):
        with pytest.raises(ConfigurationError, match="'g' has no committed offset for t-1, but for other partitions"):
            Bookmark(cast(SparkSession, MagicMock()), {k: v for k, v in {**OPTIONS, **given}.items() if v})
    assert made(startingOffsetsIfNotCommitted="earliest").ranges[("t", 1)] == (0, 7)
    assert made(startingOffsetsIfNotCommitted="latest").ranges[("t", 1)] == (0, 7)


def test_offsets_that_were_copied_to_another_cluster_count_there(lookup: FakeLookup) -> None:
    """Regression: MirrorMaker copies the notes, and the topic looked like one that was created again."""
    lookup.topic_ids = {"t": "id there"}
    made().commit()
    lookup.topic_ids, lookup.cluster_id = {"t": "id here"}, "another"
    assert made().ranges == ranges((5, 5), (7, 7))


@pytest.mark.parametrize("started", [True, False])
def test_a_topic_that_was_created_again_before_the_commit(lookup: FakeLookup, started: bool) -> None:
    """Regression: the job committed the old topic's end for the new one, and the next run skipped records below it."""
    lookup.topic_ids = {"t": "old"}
    if not started:
        lookup.stored.clear()
    new, before = made(), dict(lookup.stored)
    lookup.topic_ids = {"t": "new"}
    lookup.logs = logs(50, 70)
    with pytest.raises(DataLossError, match="'t' was deleted and created again after this bookmark was made"):
        new.commit()
    assert lookup.stored == before


def test_a_topic_that_is_created_again_while_the_commit_is_under_way(
    lookup: FakeLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit request contains topic names, but no ids.

    The committed offset shows the next run to which log it belongs.
    """
    lookup.topic_ids = {"t": "old"}
    commit = lookup.commit

    def recreated(offsets: dict[TopicPartition, tuple[Offset, str]]) -> None:
        lookup.topic_ids, lookup.logs = {"t": "new"}, logs(50, 70)
        commit(offsets)

    monkeypatch.setattr(lookup, "commit", recreated)
    made().commit()
    with pytest.raises(DataLossError, match="t-0: the topic was deleted and created again"):
        made()
    assert made(failOnDataLoss="false").ranges == ranges((0, 50), (0, 70))


def test_a_topic_that_is_deleted_before_the_commit(lookup: FakeLookup) -> None:
    """Regression: the error named the option ``subscribe``.  The job could commit nothing of its other topics."""
    lookup.logs |= logs(3, topic="other")
    lost, left_out = (made(subscribe="t,other", failOnDataLoss=value) for value in ("true", "false"))
    lookup.logs = logs(5, 7)
    with pytest.raises(DataLossError, match="Topic deleted: other"):
        lost.commit()
    assert lookup.commits == []
    left_out.commit()
    assert lookup.commits == [P0, P1]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_whatever_leaves_the_block_commits_nothing(lookup: FakeLookup, kind: type[BaseException]) -> None:
    with pytest.raises(kind), made():
        raise kind
    assert lookup.stored == {P0: 2, P1: 0}


@pytest.mark.parametrize("theirs", [3, 7], ids=["another offset", "the end of this run"])
def test_a_commit_of_somebody_else_is_not_overwritten(theirs: int, lookup: FakeLookup) -> None:
    new = made()
    lookup.stored[P1] = Offset(theirs)
    with pytest.raises(BookmarkMovedError, match="t-1: the group 'g' had the committed offset 0"):
        new.commit()
    assert lookup.stored == {P0: 2, P1: theirs}


def test_two_runs_whose_commits_cross_repeat_and_lose_nothing(
    lookup: FakeLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = made()
    lookup.logs = logs(50, 70)
    larger = made()
    commit = lookup.commit

    def crossed(offsets: dict[TopicPartition, tuple[Offset, str]]) -> None:
        monkeypatch.setattr(lookup, "commit", commit)
        larger.commit()
        assert lookup.stored == {P0: 50, P1: 70}
        commit(offsets)

    monkeypatch.setattr(lookup, "commit", crossed)
    smaller.commit()
    assert lookup.stored == {P0: 5, P1: 7}
    assert made().ranges == ranges((5, 50), (7, 70))


def test_a_commit_without_an_answer_may_be_tried_again(lookup: FakeLookup) -> None:
    new = made()
    lookup.problem = BrokerError("nobody knows")
    with pytest.raises(BrokerError):
        new.commit()
    lookup.problem = None
    new.commit()
    lookup.stored[P0] = Offset(1)
    new.commit()  # no effect: the bookmark is committed
    assert lookup.stored == {P0: 1, P1: 7}


def test_a_commit_that_fails_for_now_is_repeated_after_another_look(
    lookup: FakeLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was sent again blindly, over the commit of another program."""
    monkeypatch.setattr(bookmark, "_PAUSE_S", 0.0)
    new, other = made(), made()
    commit = lookup.commit
    attempts = []
    meanwhile: dict[TopicPartition, Offset] = {}

    def unclear(offsets: dict[TopicPartition, tuple[Offset, str]]) -> None:
        attempts.append(offsets)
        if len(attempts) < 3:
            lookup.stored |= meanwhile
            raise TryAgainError("no answer")
        commit(offsets)

    monkeypatch.setattr(lookup, "commit", unclear)
    new.commit()
    assert len(attempts) == 3
    assert lookup.stored == {P0: 5, P1: 7}
    attempts.clear()
    lookup.stored = {P0: Offset(2), P1: Offset(0)}
    meanwhile = {P0: Offset(3)}
    with pytest.raises(BookmarkMovedError):
        other.commit()
    assert len(attempts) == 1


def test_a_commit_is_repeated_for_a_minute_at_most(lookup: FakeLookup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookmark, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(bookmark, "_PAUSE_S", 0.0)
    new = made()
    lookup.problem = TryAgainError("COORDINATOR_LOAD_IN_PROGRESS")
    with pytest.raises(BrokerError, match=r"within 0 s.*COORDINATOR_LOAD_IN_PROGRESS.*Call commit\(\) again"):
        new.commit()


def test_a_group_with_members_is_left_alone(lookup: FakeLookup) -> None:
    new = made()
    lookup.present = (GroupMember(member_id="m", instance_id=None, client_id="app", host="/h", assignment=frozenset()),)
    for attempt in (new.commit, made):
        with pytest.raises(ActiveGroupError, match=r"has members \(app\)"):
            attempt()
    assert lookup.stored == {P0: 2, P1: 0}


def test_a_view_has_no_bookmark(lookup: FakeLookup) -> None:
    with pytest.raises(OptionError, match=r"'show': a bookmark reads records\. Remove it\."):
        made(show="lag")
