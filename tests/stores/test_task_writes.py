"""One task cuts, filters, writes and reports its rows, and leaves nothing behind after a failure."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.session.running_batch import RunningBatch
from pyspark_kafka_group.stores.database import Database
from pyspark_kafka_group.stores.errors import (
    LateRowsError,
    OtherGroupError,
    OtherTopicError,
    PartitionsLockedError,
    RefusedRecordError,
    TableBehindError,
    TaskEndedError,
    TransactionEndedError,
)
from pyspark_kafka_group.stores.offset_rows import OffsetRows
from pyspark_kafka_group.stores.task_writes import TaskWrites, Work, partition_runs, raise_rest, write_task

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


def write(database: Database, *batches: pa.RecordBatch, **work: Any) -> list[dict[str, Any]]:
    given = Work(**{"offset_rows": ROWS, "write_rows": see, **work})
    return [report for found in write_task(database, given, iter(batches)) for report in found.to_pylist()]


def test_rows_are_cut_where_the_partition_changes() -> None:
    found = list(partition_runs(records(("a", 0, 5), ("a", 0, 6), ("a", 1, 6), ("b", 1, 6))))
    assert [(str(tp), run.num_rows) for tp, run in found] == [("a-0", 2), ("a-1", 1), ("b-1", 1)]
    with pytest.raises(ConfigurationError, match="some rows have no topic, partition or offset"):
        list(partition_runs(records(("a", 0, 5), (None, 0, 6))))


def test_what_comes_again_is_left_out_and_gaps_are_allowed(database: Database) -> None:
    def report(*values: object) -> dict[str, object]:
        names = ("topic", "partition", "stored", "next_offset", "written", "filtered", "refused")
        return dict(zip(names, values, strict=True))

    assert write(database, records(("a", 0, 5), ("a", 0, 9)), records(("a", 0, 12), ("b", 0, 0))) == [
        report("a", 0, 0, 13, 3, 0, 0),
        report("b", 0, 0, 1, 1, 0, 0),
    ]
    assert write(database, records(("a", 0, 9), ("a", 0, 12), ("a", 0, 20), ("b", 0, 0))) == [
        report("a", 0, 13, 21, 1, 2, 0),
        report("b", 0, 1, 1, 0, 1, 0),
    ]
    assert seen(database) == [("a", 0, 5), ("a", 0, 9), ("a", 0, 12), ("a", 0, 20), ("b", 0, 0)]


def test_several_rows_of_a_record_are_written_together_also_across_pieces(database: Database) -> None:
    write(database, records(("a", 0, 5), ("a", 0, 5)), records(("a", 0, 5), ("a", 0, 6)))
    assert seen(database) == [("a", 0, 5)] * 3 + [("a", 0, 6)]
    write(database, records(("a", 0, 5), ("a", 0, 5)), records(("a", 0, 5), ("a", 0, 6)))
    assert len(seen(database)) == 4


def test_another_consumer_has_offsets_of_its_own(database: Database) -> None:
    write(database, records(("a", 0, 5)))
    write(database, records(("a", 0, 5)), offset_rows=OffsetRows(consumer="audit", table="kafka_offsets"))
    assert seen(database) == [("a", 0, 5)] * 2


def test_a_task_that_spark_has_ended_writes_nothing(database: Database) -> None:
    """Regression: it took the end of its connection for the end of its rows, and committed the end of the range."""
    worker, jvm = socket.socketpair()
    given = Work(offset_rows=ROWS, write_rows=see, batch=reads(0, 20))

    def batches() -> Iterator[pa.RecordBatch]:
        yield records(("a", 0, 5))
        jvm.close()

    scope: dict[str, Any] = {"write": lambda: list(write_task(database, given, batches()))}
    exec(compile("def main(outfile):\n    return write()", "/x/pyspark/worker.py", "exec"), scope)
    with worker, worker.makefile("rwb", 0) as outfile, pytest.raises(TaskEndedError):
        scope["main"](outfile)
    assert seen(database) == []


def test_a_failure_leaves_neither_rows_nor_offsets(database: Database) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield records(("a", 0, 5))
        raise RuntimeError("Spark has ended the task")

    with pytest.raises(RuntimeError):
        list(write_task(database, Work(offset_rows=ROWS, write_rows=see), batches()))
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


# ------------------------------------------------------------------------- known ranges of the batch


def reads(
    start: int,
    until: int,
    *,
    finished: int = 0,
    begun: bool = False,
    topic_id: str | None = None,
    group: str | None = "etl",
) -> RunningBatch:
    found = ReadRange(Offset(start), Offset(until), Offset(finished), begun, topic_id, group)
    return RunningBatch({TopicPartition("a", 0): found})


def offsets(database: Database) -> dict[TopicPartition, Offset]:
    with database.transaction() as connection:
        return dict(ROWS.read(connection))


def test_the_end_of_the_range_is_stored_and_not_that_of_the_last_row(database: Database) -> None:
    (report,) = write(database, records(("a", 0, 5)), batch=reads(0, 20))
    assert (report["next_offset"], report["written"]) == (20, 1)
    assert offsets(database) == {TopicPartition("a", 0): 20}


def test_a_partition_without_a_row_is_raised_by_the_driver(database: Database) -> None:
    work = Work(offset_rows=ROWS, write_rows=see, batch=reads(0, 20))
    (report,) = raise_rest(database, work, [])
    assert report == ("a", 0, 0, 20, 0, 0, 0)
    assert raise_rest(database, work, [report]) == []
    assert offsets(database) == {TopicPartition("a", 0): 20}


def test_many_partitions_without_rows_are_raised_with_a_few_statements(database: Database) -> None:
    """Regression: each one took two statements, and so two round trips between the driver and the database."""
    partitions = [TopicPartition(topic, n) for topic in ("a", "b") for n in range(1500)]
    statements: list[str] = []
    for start in (0, 10):
        ranges = {
            tp: ReadRange(Offset(start), Offset(start + 10), Offset(start), start > 0, "id", "etl") for tp in partitions
        }
        statements.clear()
        with database.transaction() as connection:
            sa.event.listen(connection, "before_cursor_execute", lambda *given: statements.append(given[2]))
            writes = TaskWrites(connection, Work(offset_rows=ROWS, write_rows=see, batch=RunningBatch(ranges)))
            writes.raise_rest(partitions)
            assert len(writes.finish()) == 3000
        assert len(statements) <= 8
        assert offsets(database) == dict.fromkeys(partitions, start + 10)


@pytest.mark.parametrize("stored", [None, 100])
def test_a_table_that_has_gone_back_is_an_error(database: Database, stored: int | None) -> None:
    if stored is not None:
        write(database, records(("a", 0, stored - 1)))
    before = seen(database)
    gone_back = reads(200, 300, finished=200, begun=True)
    with pytest.raises(TableBehindError, match=r"a-0 is finished up to 200.*set_offsets\('a', \{0: 200\}\)") as behind:
        write(database, records(("a", 0, 250)), batch=gone_back)
    assert f"the table has {'no row' if stored is None else stored}." in str(behind.value)
    with pytest.raises(TableBehindError):
        raise_rest(database, Work(offset_rows=ROWS, write_rows=see, batch=gone_back), [])
    assert seen(database) == before


def test_a_row_is_missing_even_if_the_group_has_finished_only_one_record(database: Database) -> None:
    with pytest.raises(TableBehindError, match=r"a-0 is finished up to 1"):
        write(database, records(("a", 0, 1)), batch=reads(1, 2, finished=1, begun=True))


@pytest.mark.parametrize("started", [True, False])
def test_a_partition_that_nobody_has_begun_needs_no_row(database: Database, started: bool) -> None:
    """The partition starts at the end of its log, or another program has raised the group's offset."""
    if started:
        write(database, records(("a", 0, 4)))
    (report,) = write(database, records(("a", 0, 500)), batch=reads(500, 501))
    assert report["next_offset"] == 501


def test_partitions_of_other_sources_are_compared_with_the_last_batch(database: Database) -> None:
    with pytest.raises(TableBehindError):
        write(database, records(("a", 0, 5)), seen={TopicPartition("a", 0): Offset(3)})


@pytest.mark.parametrize(("partition", "offset"), [(0, 19), (0, 30), (1, 20)])
def test_rows_that_are_not_of_this_batch_are_late(database: Database, partition: int, offset: int) -> None:
    with pytest.raises(
        LateRowsError, match=f"a row of a-{partition}, offset {offset} is not of a record of this batch"
    ):
        write(database, records(("a", partition, offset)), batch=reads(20, 30, finished=20))
    assert seen(database) == []


def test_rows_of_another_kind_of_source_may_be_beside_them(database: Database) -> None:
    batch = replace(reads(20, 30), foreign=True, topics=frozenset("a"))
    write(database, records(("a", 0, 20), ("b", 0, 3)), batch=batch)
    with pytest.raises(LateRowsError):
        write(database, records(("a", 1, 20)), batch=batch)
    assert seen(database) == [("a", 0, 20), ("b", 0, 3)]


def test_another_topic_of_this_name_is_an_error(database: Database) -> None:
    write(database, records(("a", 0, 5)), batch=reads(0, 50, topic_id="old"))
    with pytest.raises(OtherTopicError, match=r"another topic 'a' \(topic id old\).*\(topic id new\).*forget\('a'\)"):
        write(database, records(("a", 0, 5)), batch=reads(0, 30, topic_id="new"))
    write(database, records(("a", 0, 60)), batch=reads(50, 70, finished=50, begun=True))  # old brokers send no id


# --------------------------------------------------------------- the user's function and the target


def test_the_name_of_another_group_is_an_error(database: Database) -> None:
    """Regression: the second group under one name wrote nothing, and ended well."""
    write(database, records(("a", 0, 5)), batch=reads(0, 50, group="loader"))
    other = reads(0, 60, group="auditor")
    with pytest.raises(OtherGroupError, match=r"'etl' belongs to the group 'loader'.*take_over\('a', 'auditor'\)"):
        write(database, records(("a", 0, 55)), batch=other)
    with pytest.raises(OtherGroupError):
        raise_rest(database, Work(offset_rows=ROWS, write_rows=see, batch=other), [])
    assert offsets(database) == {TopicPartition("a", 0): 50}
    write(database, records(("b", 0, 1)))
    with database.transaction() as connection:
        assert ROWS.give(connection, "a", "auditor") == 1, "not those of other topics"
    write(database, records(("a", 0, 5), ("a", 0, 55)), batch=other)
    assert seen(database) == [("a", 0, 5), ("a", 0, 55), ("b", 0, 1)]
    write(database, records(("a", 0, 65)), batch=reads(60, 70, group=None))  # the source does not know it
    with pytest.raises(OtherGroupError, match="belongs to the group 'auditor'"):
        write(database, records(("a", 0, 70)), batch=reads(50, 80, group="loader"))


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "ROLLBACK; BEGIN"])
def test_a_function_that_ends_the_transaction_is_noticed(database: Database, statement: str) -> None:
    def end(connection: Any, rows: pa.RecordBatch) -> None:
        see(connection, rows)
        for one in statement.split("; "):
            connection.connection.driver_connection.execute(one)

    with pytest.raises(TransactionEndedError, match="has committed or rolled back the transaction"):
        write(database, records(("a", 0, 5)), write_rows=end)
    assert not any(offsets(database).values())


def test_a_function_may_roll_back_what_it_has_begun_itself(database: Database) -> None:
    def skip(connection: Any, rows: pa.RecordBatch) -> None:
        see(connection, rows.slice(0, 1))
        with connection.begin_nested() as nested:
            see(connection, rows.slice(1))
            nested.rollback()

    write(database, records(("a", 0, 5), ("a", 0, 6)), write_rows=skip)
    assert seen(database) == [("a", 0, 5)]


def no_sevens(connection: Any, rows: pa.RecordBatch) -> None:
    see(connection, rows)
    connection.exec_driver_sql("INSERT INTO no_sevens SELECT off FROM seen")
    connection.exec_driver_sql("DELETE FROM no_sevens")


def set_aside(connection: Any, rows: pa.RecordBatch) -> None:
    for row in rows.to_pylist():
        connection.exec_driver_sql("INSERT INTO aside VALUES (?, ?)", (row["offset"], row["error"]))


@pytest.fixture
def picky(database: Database) -> Database:
    with database.transaction() as connection:
        connection.exec_driver_sql("CREATE TABLE no_sevens (off INTEGER CHECK (off % 10 != 7))")
        connection.exec_driver_sql("CREATE TABLE aside (off INTEGER, error TEXT NOT NULL)")
    return database


def test_a_record_that_the_target_refuses_is_named(picky: Database) -> None:
    rows = records(*(("a", 0, n) for n in range(20)))
    with pytest.raises(RefusedRecordError, match=r"rows of a-0, offset 7: CHECK constraint failed.*refused="):
        write(picky, rows, write_rows=no_sevens)
    assert seen(picky) == []
    assert offsets(picky) == {}


def test_a_record_that_the_target_refuses_can_be_set_aside(picky: Database) -> None:
    rows = records(*(("a", 0, n) for n in (5, 6, 6, 7, 7, 8, 17, 18)))
    (report,) = write(picky, rows, write_rows=no_sevens, refused=set_aside)
    assert (report["written"], report["refused"], report["next_offset"]) == (5, 3, 19)
    assert [row[2] for row in seen(picky)] == [5, 6, 6, 8, 18]
    with picky.transaction() as connection:
        found = connection.exec_driver_sql("SELECT * FROM aside").all()
    assert [row[0] for row in found] == [7, 7, 17]
    assert all("CHECK constraint" in row[1] for row in found)


def test_all_rows_of_a_refused_record_are_set_aside_also_across_pieces(picky: Database) -> None:
    """Regression: the rows before the refused one were written if they were in another piece."""
    with picky.transaction() as connection:
        connection.exec_driver_sql("CREATE UNIQUE INDEX no_second_row ON seen (off)")
    pieces = [records(*(("a", 0, n) for n in piece)) for piece in [(5, 7), (7,), (7, 8), (9,)]]
    (report,) = write(picky, *pieces, refused=set_aside)
    assert (report["written"], report["refused"], report["next_offset"]) == (3, 3, 10)
    assert [row[2] for row in seen(picky)] == [5, 8, 9]
    with picky.transaction() as connection:
        assert connection.exec_driver_sql("SELECT off FROM aside").scalars().all() == [7, 7, 7]


def test_what_is_no_matter_of_rows_is_not_tried_again(picky: Database) -> None:
    calls = []

    def fail(_connection: Any, rows: pa.RecordBatch) -> None:
        calls.append(rows.num_rows)
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        write(picky, records(("a", 0, 5), ("a", 0, 6)), write_rows=fail, refused=set_aside)
    assert calls == [2]
