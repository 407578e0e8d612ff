"""What the driver does by itself; `write` needs Spark and is tested in integration/test_offset_table.py."""

from __future__ import annotations

import pickle
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
