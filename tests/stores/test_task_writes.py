"""One task: what is cut, filtered, written, reported, and what a failure leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.stores.database import Database, PartitionsLockedError
from pyspark_kafka_group.stores.offset_rows import OffsetRows
from pyspark_kafka_group.stores.task_writes import from_offset, partition_runs, write_task

ROWS = OffsetRows(consumer="etl", table="kafka_offsets")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    found = Database.checked(f"sqlite:///{tmp_path}/rows.db", lock_timeout_s=0.0, idle_timeout_s=60.0)
    with found.transaction() as connection:
        ROWS.create(connection)
        connection.exec_driver_sql("CREATE TABLE seen (topic TEXT, part INTEGER, off INTEGER)")
    return found


def records(*rows: tuple[str | None, int, int]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [pa.array(topics, pa.string()), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, ["topic", "partition", "offset"])


def see(connection: Any, rows: pa.RecordBatch) -> None:
    for row in rows.to_pylist():
        connection.exec_driver_sql("INSERT INTO seen VALUES (?, ?, ?)", tuple(row.values()))


def seen(database: Database) -> list[tuple[str, int, int]]:
    with database.transaction() as connection:
        return [(r[0], r[1], r[2]) for r in connection.exec_driver_sql("SELECT * FROM seen ORDER BY 1, 2, 3")]


def write(database: Database, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [report for found in write_task(database, ROWS, see, iter(batches)) for report in found.to_pylist()]


def test_rows_are_cut_where_the_partition_changes() -> None:
    found = list(partition_runs(records(("a", 0, 5), ("a", 0, 6), ("a", 1, 6), ("b", 1, 6))))
    assert [(str(tp), run.num_rows) for tp, run in found] == [("a-0", 2), ("a-1", 1), ("b-1", 1)]


def test_one_row_is_one_run() -> None:
    assert [(tp, run.num_rows) for tp, run in partition_runs(records(("a", 3, 5)))] == [(TopicPartition("a", 3), 1)]


def test_a_row_that_does_not_say_where_it_comes_from_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="rows without topic, partition or offset"):
        list(partition_runs(records(("a", 0, 5), (None, 0, 6))))


def test_rows_from_the_stored_offset_on_are_new() -> None:
    found = from_offset(records(("a", 0, 5), ("a", 0, 6), ("a", 0, 8)), Offset(6))
    assert found.column("offset").to_pylist() == [6, 8]


def test_what_comes_again_is_left_out_and_gaps_are_allowed(database: Database) -> None:
    assert write(database, records(("a", 0, 5), ("a", 0, 9)), records(("a", 0, 12), ("b", 0, 0))) == [
        {"topic": "a", "partition": 0, "stored": 0, "next_offset": 13, "written": 3, "filtered": 0},
        {"topic": "b", "partition": 0, "stored": 0, "next_offset": 1, "written": 1, "filtered": 0},
    ]
    assert write(database, records(("a", 0, 9), ("a", 0, 12), ("a", 0, 20), ("b", 0, 0))) == [
        {"topic": "a", "partition": 0, "stored": 13, "next_offset": 21, "written": 1, "filtered": 2},
        {"topic": "b", "partition": 0, "stored": 1, "next_offset": 1, "written": 0, "filtered": 1},
    ]
    assert seen(database) == [("a", 0, 5), ("a", 0, 9), ("a", 0, 12), ("a", 0, 20), ("b", 0, 0)]


def test_several_rows_of_a_record_are_written_together_also_across_pieces(database: Database) -> None:
    write(database, records(("a", 0, 5), ("a", 0, 5)), records(("a", 0, 5), ("a", 0, 6)))
    assert seen(database) == [("a", 0, 5)] * 3 + [("a", 0, 6)]
    write(database, records(("a", 0, 5), ("a", 0, 5)), records(("a", 0, 5), ("a", 0, 6)))
    assert len(seen(database)) == 4


def test_another_consumer_has_offsets_of_its_own(database: Database) -> None:
    write(database, records(("a", 0, 5)))
    list(write_task(database, OffsetRows(consumer="audit", table="kafka_offsets"), see, [records(("a", 0, 5))]))
    assert seen(database) == [("a", 0, 5)] * 2


def test_a_failure_leaves_neither_rows_nor_offsets(database: Database) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield records(("a", 0, 5))
        raise RuntimeError("Spark has ended the task")

    with pytest.raises(RuntimeError):
        list(write_task(database, ROWS, see, batches()))
    assert seen(database) == []
    with database.transaction() as connection:
        assert ROWS.read(connection) == {}
    write(database, records(("a", 0, 5)))
    assert seen(database) == [("a", 0, 5)]


def test_a_task_without_rows_opens_no_connection() -> None:
    nowhere = Database.checked("sqlite:////no/such/folder/rows.db", lock_timeout_s=0.0, idle_timeout_s=60.0)
    assert write(nowhere) == []
    assert write(nowhere, records()) == []


def test_a_writer_that_waits_too_long_says_for_whom(database: Database) -> None:
    with database.transaction() as connection:
        ROWS.lock(connection, TopicPartition("a", 0))
        with pytest.raises(PartitionsLockedError, match=r"another writer.*\(lock_timeout_s\)"):
            write(database, records(("a", 0, 5)))
    assert seen(database) == []
