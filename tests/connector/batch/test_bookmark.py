"""A group as the bookmark of a job: when what is committed."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from pyspark_kafka_group.batch import bookmark
from pyspark_kafka_group.batch.bookmark import Bookmark
from pyspark_kafka_group.offsets.cluster.group_description import Member
from pyspark_kafka_group.offsets.errors import ActiveGroupError, BookmarkMovedError, BrokerError, OptionError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from tests.connector.batch.fake_lookup import FakeLookup, logs

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {"kafka.bootstrap.servers": "x:1", "kafka.group.id": "g", "subscribe": "t"}


@pytest.fixture
def lookup(monkeypatch: pytest.MonkeyPatch) -> FakeLookup:
    made = FakeLookup(logs(5, 7), {P0: Offset(2)})
    monkeypatch.setattr(bookmark, "open_lookup", lambda _: made)
    return made


def made(**options: str) -> Bookmark:
    return Bookmark(cast(SparkSession, MagicMock()), {**OPTIONS, **options})


def test_the_records_are_just_the_ranges(lookup: FakeLookup) -> None:
    spark = MagicMock()
    new = Bookmark(spark, {**OPTIONS, "includeHeaders": "true"})
    assert new.ranges == {("t", 0): (2, 5), ("t", 1): (0, 7)}
    given: dict[str, Any] = spark.read.format.return_value.options.call_args.kwargs
    assert given == {
        "kafka.bootstrap.servers": "x:1",
        "kafka.group.id": "g",
        "includeHeaders": "true",
        "assign": '{"t": [0, 1]}',
        "startingOffsets": '{"t": {"0": 2, "1": 0}}',
        "endingOffsets": '{"t": {"0": 5, "1": 7}}',
    }


def test_an_empty_range_is_not_asked_for(lookup: FakeLookup) -> None:
    """The committed offset may be behind the first open transaction, where the log ends for this reader."""
    lookup.stored[P0] = Offset(5)
    spark = MagicMock()
    new = Bookmark(spark, OPTIONS)
    assert new.ranges == {("t", 0): (5, 5), ("t", 1): (0, 7)}
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
        assert lookup.stored == {P0: 2}
    assert lookup.stored == {P0: 5, P1: 7}


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_whatever_leaves_the_block_commits_nothing(lookup: FakeLookup, kind: type[BaseException]) -> None:
    with pytest.raises(kind), made():
        raise kind
    assert lookup.stored == {P0: 2}


def test_a_commit_of_somebody_else_is_not_overwritten(lookup: FakeLookup) -> None:
    new = made()
    lookup.stored[P1] = Offset(3)
    with pytest.raises(BookmarkMovedError, match="t-1: the group 'g' had committed nothing"):
        new.commit()
    assert lookup.stored == {P0: 2, P1: 3}


def test_two_runs_whose_commits_cross_repeat_and_lose_nothing(
    lookup: FakeLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = made()
    lookup.logs = logs(50, 70)
    larger = made()
    commit = lookup.commit

    def crossed(offsets: dict[TopicPartition, Offset]) -> None:
        monkeypatch.setattr(lookup, "commit", commit)
        larger.commit()
        assert lookup.stored == {P0: 50, P1: 70}
        commit(offsets)

    monkeypatch.setattr(lookup, "commit", crossed)
    smaller.commit()
    assert lookup.stored == {P0: 5, P1: 7}
    assert made().ranges == {("t", 0): (5, 50), ("t", 1): (7, 70)}


def test_a_commit_without_an_answer_may_be_tried_again(lookup: FakeLookup) -> None:
    new = made()
    lookup.problem = BrokerError("nobody knows")
    with pytest.raises(BrokerError):
        new.commit()
    lookup.problem = None
    new.commit()
    lookup.stored[P0] = Offset(1)
    new.commit()  # does nothing any more
    assert lookup.stored == {P0: 1, P1: 7}


def test_a_group_with_members_is_left_alone(lookup: FakeLookup) -> None:
    new = made()
    lookup.present = (Member(member_id="m", instance_id=None, client_id="app", host="/h", assignment=frozenset()),)
    for attempt in (new.commit, made):
        with pytest.raises(ActiveGroupError, match=r"has members \(app\)"):
            attempt()
    assert lookup.stored == {P0: 2}


def test_a_view_has_no_bookmark(lookup: FakeLookup) -> None:
    with pytest.raises(OptionError, match=r"'show': a bookmark reads records\. Remove it\."):
        made(show="lag")
