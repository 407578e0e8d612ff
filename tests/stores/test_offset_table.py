"""What the driver does by itself; `write` needs Spark and is tested in integration/test_offset_table.py."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path

import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.stores import OffsetTable


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
    offsets.forget("orders")
    assert offsets.offsets() == {TopicPartition("returns", 0): 5}
    assert other.offsets() == {TopicPartition("orders", 0): 1}


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
        (f'{_COLUMNS}, PRIMARY KEY (consumer, topic, "partition")', "lacks the column topic_id"),
        (f"{_COLUMNS}, topic_id TEXT", r"lacks its key.*add PRIMARY KEY \(consumer, topic, partition\)"),
        ("id INTEGER", "lacks the column consumer, topic"),
    ],
)
def test_another_table_of_this_name_is_refused(tmp_path: Path, columns: str, problem: str) -> None:
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute(f"CREATE TABLE kafka_offsets ({columns})")
    with pytest.raises(ConfigurationError, match=problem):
        table(tmp_path).create()


def test_a_unique_key_is_as_good_as_a_primary_one(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "rows.db") as database:
        columns = f"{_COLUMNS}, topic_id TEXT"
        database.execute(f'CREATE TABLE kafka_offsets ({columns}, UNIQUE (topic, "partition", consumer))')
    table(tmp_path).set_offsets("orders", {0: 5})
    assert table(tmp_path).offsets() == {TopicPartition("orders", 0): 5}
