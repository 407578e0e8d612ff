"""The driver's part of the table.  `write` needs Spark; integration/test_offset_table.py tests it."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest.mock import MagicMock

import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.stores import OffsetTable, offset_table
from pyspark_kafka_group.stores.task_writes import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table(folder: Path, consumer: str = "etl") -> OffsetTable:
    return OffsetTable(f"sqlite:///{folder}/rows.db", consumer)


def test_offsets_are_set_read_and_forgotten(tmp_path: Path) -> None:
    offsets, other = table(tmp_path), table(tmp_path, "audit")
    assert offsets.offsets() == {}
    offsets.set_offsets("orders", {1: 70, 0: 50})
    offsets.set_offsets("orders", {1: 60})
    offsets.set_offsets("returns", {0: 5})
    other.set_offsets("orders", {0: 1})
    expected = {TopicPartition("orders", 0): 50, TopicPartition("orders", 1): 60, TopicPartition("returns", 0): 5}
    assert offsets.offsets() == expected
    offsets.take_over("orders", "etl-2")
    assert offsets.offsets() == expected
    offsets.forget("orders")
    assert offsets.offsets() == {TopicPartition("returns", 0): 5}
    assert other.offsets() == {TopicPartition("orders", 0): 1}


@pytest.mark.parametrize(
    "call", [lambda offsets: offsets.forget("order"), lambda offsets: offsets.take_over("order", "g")]
)
def test_a_topic_without_offsets_is_refused(tmp_path: Path, call: Callable[[OffsetTable], None]) -> None:
    """Regression: with a mistyped topic, nothing was changed, and the call seemed to succeed."""
    offsets = table(tmp_path)
    offsets.set_offsets("orders", {0: 5})
    with pytest.raises(
        ConfigurationError, match=r"no offsets of the topic 'order' for 'etl'.*It has those of: orders\."
    ):
        call(offsets)


@pytest.mark.parametrize("offsets", [{0: -5}, {-1: 5}])
def test_negative_offsets_are_refused(tmp_path: Path, offsets: dict[int, int]) -> None:
    with pytest.raises(ConfigurationError, match="has negative numbers"):
        table(tmp_path).set_offsets("orders", offsets)


def test_a_new_group_can_start_where_the_table_says(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    assert offsets.starting_offsets("orders") == "earliest"
    offsets.set_offsets("orders", {0: 5, 11: 7})
    offsets.set_offsets("payments", {0: 9})
    given = {"kafka.bootstrap.servers": "x", "kafka.group.id": "g", "subscribe": "orders"}
    start = parse({**given, "startingOffsets": offsets.starting_offsets("orders")}).group.start
    assert start.explicit == {TopicPartition("orders", 0): 5, TopicPartition("orders", 11): 7}


def test_it_travels_and_shows_no_url(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.set_offsets("orders", {0: 50})
    assert pickle.loads(pickle.dumps(offsets)).offsets() == {TopicPartition("orders", 0): 50}
    assert repr(offsets) == "OffsetTable('etl', table='kafka_offsets')"


def test_no_connection_is_too_few(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="connections=0"):
        OffsetTable(f"sqlite:///{tmp_path}/rows.db", "etl", connections=0)


@pytest.mark.parametrize("name", ["lock_timeout_s", "idle_timeout_s"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_wait_without_an_end_is_refused(tmp_path: Path, name: str, seconds: float) -> None:
    with pytest.raises(ConfigurationError, match=name):
        OffsetTable(f"sqlite:///{tmp_path}/rows.db", "etl", **{name: seconds})  # type: ignore[arg-type]


_COLUMNS = 'consumer TEXT, topic TEXT, "partition" INTEGER, next_offset BIGINT, updated_at TIMESTAMP'


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (f'{_COLUMNS}, PRIMARY KEY (consumer, topic, "partition")', "lacks the column topic_id, group_id"),
        (f"{_COLUMNS}, topic_id TEXT, group_id TEXT", r"lacks its key.*add PRIMARY KEY \(consumer, topic, partition\)"),
        ("id INTEGER", "lacks the column consumer, topic"),
    ],
)
def test_another_table_of_this_name_is_refused(tmp_path: Path, columns: str, problem: str) -> None:
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute(f"CREATE TABLE kafka_offsets ({columns})")
    with pytest.raises(ConfigurationError, match=problem):
        table(tmp_path).create()


@pytest.mark.parametrize("key", ["", ', UNIQUE (topic, "partition", consumer)'])
def test_a_unique_key_or_index_is_as_good_as_a_primary_one(tmp_path: Path, key: str) -> None:
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute(f"CREATE TABLE kafka_offsets ({_COLUMNS}, topic_id TEXT, group_id TEXT{key})")
        if not key:
            database.execute('CREATE UNIQUE INDEX offsets_key ON kafka_offsets (consumer, topic, "partition")')
    table(tmp_path).set_offsets("orders", {0: 5})
    assert table(tmp_path).offsets() == {TopicPartition("orders", 0): 5}


def test_a_unique_index_over_some_rows_only_is_no_key(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute(f"CREATE TABLE kafka_offsets ({_COLUMNS}, topic_id TEXT, group_id TEXT)")
        database.execute(
            'CREATE UNIQUE INDEX offsets_key ON kafka_offsets (consumer, topic, "partition") WHERE next_offset > 5'
        )
    with pytest.raises(ConfigurationError, match="lacks its key"):
        table(tmp_path).create()


class Written:
    """A DataFrame whose session outlives the run of a query."""

    dtypes = (("topic", "string"), ("partition", "int"), ("offset", "bigint"))

    def __init__(self, session: MagicMock, run: str | None) -> None:
        session.sparkContext.getLocalProperty.return_value = run
        self.sparkSession = session

    def mapInArrow(self, *_: object) -> MagicMock:  # Spark's name
        return MagicMock(collect=lambda: [("orders", 0, 5, 9, 4, 0, 0)])


@pytest.fixture
def offsets(tmp_path: Path) -> OffsetTable:
    return table(tmp_path)


@pytest.fixture
def written(offsets: OffsetTable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Work]:
    """Return a function that writes a batch without Spark, and returns the work of its tasks."""
    given: list[Work] = []
    monkeypatch.setattr(offset_table, "running_batch", lambda *_: None)
    monkeypatch.setattr(OffsetTable, "_by_partition", lambda _, batch: batch)
    monkeypatch.setattr(OffsetTable, "_task", lambda _, work: given.append(work))
    session = MagicMock()

    def write(run: str | None, batch_id: int = 7, through: OffsetTable = offsets) -> Work:
        batch = cast("DataFrame", Written(session, run))
        through.write(batch, batch_id, lambda *_: None)
        return given[-1]

    return write


def test_a_batch_that_runs_again_after_a_restart_is_written(written: Callable[..., Work]) -> None:
    """Regression: with a DataFrame of the global session, each replay in one process counted as "a second write"."""
    written("run-1")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="batch 7 was already written for 'etl'"):
            written("run-1")
    written("run-2")
    written("run-2", batch_id=8)


def test_a_second_object_cannot_write_the_batch_either(written: Callable[..., Work], tmp_path: Path) -> None:
    """Regression: only the object remembered the batch, so the rows for the second table were lost."""
    written("run-1")
    with pytest.raises(ConfigurationError, match=r"batch 7 was already written for 'etl'.*its own consumer name"):
        written("run-1", through=table(tmp_path))
    written("run-1", through=table(tmp_path, "audit"))
    written("run-1", batch_id=8, through=table(tmp_path))


def test_a_write_that_fails_can_be_tried_again(
    written: Callable[..., Work], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = table(tmp_path)
    broken.create()
    with monkeypatch.context() as patch:
        patch.setattr(offset_table, "raise_rest", MagicMock(side_effect=RuntimeError("disk full")))
        with pytest.raises(RuntimeError):
            written("run-1", through=broken)
    written("run-1")


def test_a_second_write_in_a_thread_of_ones_own_is_refused_too(written: Callable[..., Work]) -> None:
    written(None)
    with pytest.raises(ConfigurationError, match="was already written for"):
        written(None)


def test_another_thread_may_write_while_tasks_read_what_was_seen(written: Callable[..., Work]) -> None:
    first = written("run-1")
    second = written("run-1", batch_id=8)
    assert first.seen == {}
    assert second.seen == {TopicPartition("orders", 0): 9}


@pytest.mark.parametrize("forgets", [False, True])
def test_offsets_that_the_user_has_lowered_have_not_gone_back(
    offsets: OffsetTable, written: Callable[..., Work], forgets: bool
) -> None:
    """The next write compares the rows of the table with the offsets after the last one."""
    offsets.set_offsets("orders", {0: 9})
    written("run-1")
    if forgets:
        offsets.forget("orders")
    else:
        offsets.set_offsets("orders", {0: 5})
    assert written("run-1", batch_id=8).seen == {}
