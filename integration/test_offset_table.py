"""The offset table with a real PostgreSQL and a real Spark.  These tests need no Kafka."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from integration.pipelines import wait_for
from integration.postgres import execute
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.stores import OffsetTable, into
from pyspark_kafka_group.stores.database import Database
from pyspark_kafka_group.stores.errors import (
    CopyError,
    DatabaseError,
    PartitionsLockedError,
    RefusedRecordError,
    TableBehindError,
    TransactionEndedError,
)
from pyspark_kafka_group.stores.offset_rows import OffsetRows
from pyspark_kafka_group.stores.task_writes import Work, WriteRows, write_task
from tests.stores.writers import CREATE_ROWS, ROWS, Faulty, Record, World

ROOT = Path(__file__).parents[1]
TP = TopicPartition("orders", 0)


# -------------------------------------------------------------------------------- PostgreSQL's locks


def run(url: str, seed: int, faulty: Faulty, happened: Counter[str]) -> tuple[list[Record], list[Record]]:
    database = Database.checked(url, lock_timeout_s=0.001, idle_timeout_s=60.0)
    world = World(seed, database, faulty)
    with database.transaction() as connection:
        world.offset_rows.create(connection)
    world.run()
    happened.update(world.happened)
    found = execute(url, f"SELECT * FROM {ROWS} WHERE topic = '{world.topic}'")
    return world.judge([(r[0], r[1], r[2], r[3]) for r in found])


def test_no_row_is_lost_or_doubled_in_any_order_of_writers(url: str) -> None:
    """The same as tests/stores/test_exactly_once.py with SQLite, but with PostgreSQL's row locks."""
    execute(url, CREATE_ROWS)
    happened: Counter[str] = Counter()
    for seed in range(10):
        assert run(url, seed, Faulty(), happened) == ([], []), f"seed {seed}"
    assert happened["filtered"] > 50
    assert happened["failed"] > 20


def test_without_the_locks_of_rows_writers_double(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(url, CREATE_ROWS)
    monkeypatch.setattr(sa.Select, "with_for_update", lambda query, **_: query)

    def doubles(seed: int) -> bool:
        try:
            return bool(run(url, seed, Faulty(), Counter())[1])
        except TableBehindError:
            return False  # a writer lowered the offset of another one, and the table detected it

    assert any(doubles(seed) for seed in range(30))


def test_a_suspended_writer_loses_its_locks_after_the_idle_timeout(url: str) -> None:
    """The suspended writer does not block the next owner for ever, and cannot write after it resumes."""
    rows = OffsetRows(consumer="etl", table="kafka_offsets")
    sleeper = Database.checked(url, lock_timeout_s=60.0, idle_timeout_s=0.5)
    other = Database.checked(url, lock_timeout_s=30.0, idle_timeout_s=60.0)
    with sleeper.transaction() as connection:
        rows.create(connection)
    ended = pytest.raises(DatabaseError, match=r"did nothing .* for 0\.5 s .*raise idle_timeout_s")
    with ended, sleeper.transaction() as late:
        rows.lock(late, TP)
        with other.transaction() as connection:
            rows.lock(connection, TP)  # waits until PostgreSQL has terminated the sleeper
            rows.store(connection, TP, 7)  # type: ignore[arg-type]
        rows.store(late, TP, 5)  # type: ignore[arg-type]
    with other.transaction() as connection:
        assert rows.read(connection) == {TP: 7}


def test_a_wait_for_a_lock_ends_with_an_error_that_tells_what_to_do(url: str) -> None:
    rows = OffsetRows(consumer="etl", table="kafka_offsets")
    database = Database.checked(url, lock_timeout_s=0.2, idle_timeout_s=60.0)
    with database.transaction() as connection:
        rows.create(connection)
    with database.transaction() as holder:
        rows.lock(holder, TP)
        with pytest.raises(PartitionsLockedError, match=r"held a lock for 0\.2 s .*pg_terminate_backend"):
            _lock(database, rows)


def _lock(database: Database, rows: OffsetRows) -> None:
    with database.transaction() as connection:
        rows.lock(connection, TP)


@pytest.mark.parametrize(
    ("role", "used"), [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")]
)
def test_a_commit_waits_for_the_disk_whatever_the_role_says(url: str, role: str, used: str) -> None:
    """The commit also waits for the disk of a synchronous standby."""
    relaxed = f"{url}%20-csynchronous_commit%3D{role}"
    assert execute(relaxed, "SHOW synchronous_commit") == [(role,)]
    database = Database.checked(relaxed, lock_timeout_s=1.0, idle_timeout_s=1.0)
    with database.transaction() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == used
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"


# ------------------------------------------------------------------------- what a task does in PostgreSQL


def one_record(**columns: pa.Array) -> pa.RecordBatch:
    """Return a batch with these columns, as records of ``orders-0`` starting at offset 0."""
    count = len(next(iter(columns.values())))
    source = {
        "topic": pa.array(["orders"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
    }
    return pa.RecordBatch.from_pydict({**source, **columns})


def task(url: str, write_rows: WriteRows, rows: pa.RecordBatch, *, lock_timeout_s: float = 5.0, **work: Any) -> None:
    database = Database.checked(url, lock_timeout_s=lock_timeout_s, idle_timeout_s=60.0)
    offset_rows = OffsetRows(consumer="etl", table="kafka_offsets")
    with database.transaction() as connection:
        offset_rows.create(connection)
    list(write_task(database, Work(offset_rows=offset_rows, write_rows=write_rows, **work), [rows]))


@pytest.mark.parametrize("where", ["database", "role", "environment"])
def test_text_is_utf_8_whatever_the_client_encoding(
    postgres: str, url: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A LATIN1 database also gets correct text, and refuses characters that LATIN1 lacks."""
    if where == "database":
        execute_apart(postgres, "DROP DATABASE IF EXISTS latin")
        execute_apart(postgres, "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        url = postgres.rpartition("/")[0] + "/latin"
    elif where == "role":
        url = f"{url}%20-cclient_encoding%3Dlatin1"
    else:
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    execute(url, "CREATE TABLE t (a text)")
    task(url, into("t"), one_record(a=pa.array(["Zürich"])))
    assert execute(url, "SELECT a, length(a) FROM t") == [("Zürich", 6)]
    if where == "database":
        other = one_record(a=pa.array(["Zürich", "5 €"]))
        with pytest.raises(RefusedRecordError, match=r"orders-0, offset 1: .*UntranslatableCharacter"):
            task(url, into("t"), other)


def execute_apart(url: str, statement: str) -> None:
    """Run a statement that PostgreSQL does not allow in a transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


@pytest.mark.parametrize("what", ["rollback", "commit"])
def test_a_function_that_ends_the_transaction_through_the_driver_is_noticed(url: str, what: str) -> None:
    """Programs of psycopg usually skip a row this way.  Here it would lose earlier rows and raise the offset."""
    execute(url, "CREATE TABLE t (id bigint PRIMARY KEY)")
    execute(url, "INSERT INTO t VALUES (2)")

    def skip(connection: sa.Connection, rows: pa.RecordBatch) -> None:
        driver: Any = connection.connection.driver_connection
        for row in rows.to_pylist():
            try:
                driver.execute("INSERT INTO t VALUES (%s)", (row["id"],))
            except psycopg.errors.UniqueViolation:
                getattr(driver, what)()

    with pytest.raises(TransactionEndedError, match="refused="):
        task(url, skip, one_record(id=pa.array([1, 2, 3])))
    assert execute(url, "SELECT id FROM t") == [(2,)]
    assert execute(url, "SELECT next_offset FROM kafka_offsets") == []


REFUSED = {
    "null": (pa.array(["fine", None]), "text NOT NULL", "NotNullViolation (23502), table t, column v"),
    "zero": (pa.array(["fine", "secret\0"]), "text", "CharacterNotInRepertoire (22021)"),
    "json": (pa.array(["1", '"secret\\u0000"']), "jsonb", "UntranslatableCharacter (22P05), column v"),
    "number": (pa.array(["1", "secret"]), "int", "InvalidTextRepresentation (22P02), column v"),
    "twice": (pa.array(["secret", "secret"]), "text UNIQUE", "UniqueViolation (23505), table t, constraint t_v_key"),
    "check": (pa.array([1, 9]), "int CHECK (v < 5)", "CheckViolation (23514), table t, constraint t_v_check"),
    "year": (pa.array([0, 2**62], pa.timestamp("us", "UTC")), "timestamptz", "column 'v' has a time outside"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_record_is_named_without_its_data_and_can_be_set_aside(url: str, case: str) -> None:
    values, column, names = REFUSED[case]
    execute(url, f"CREATE TABLE t (v {column})")
    execute(url, 'CREATE TABLE refused (topic text, partition int, "offset" bigint, error text)')
    with pytest.raises(RefusedRecordError) as named:
        task(url, into("t"), one_record(v=values))
    shown = "".join(traceback.format_exception(named.value))
    assert "orders-0, offset 1: " in shown
    assert names in shown
    assert "secret" not in shown
    assert execute(url, "SELECT * FROM t") == []
    aside = into("refused", columns=["topic", "partition", "offset", "error"])
    task(url, into("t"), one_record(v=values), refused=aside)
    assert execute(url, "SELECT count(*) FROM t") == [(1,)]
    ((topic, partition, offset, error),) = execute(url, "SELECT * FROM refused")
    assert (topic, partition, offset) == ("orders", 0, 1)
    assert names in error
    assert execute(url, "SELECT next_offset FROM kafka_offsets") == [(2,)]


def test_a_lock_on_the_target_is_named_too(url: str) -> None:
    execute(url, "CREATE TABLE t (a text)")
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE t")
        with pytest.raises(PartitionsLockedError, match=r"held a lock for 0\.3 s"):
            task(url, into("t"), one_record(a=pa.array(["x"])), lock_timeout_s=0.3)


def test_a_missing_table_is_named(url: str) -> None:
    with pytest.raises(CopyError, match=r"COPY into 't': UndefinedTable .*relation \"t\" does not exist"):
        task(url, into("t"), one_record(a=pa.array(["x"])))


def test_names_may_have_any_character(url: str) -> None:
    execute(url, 'CREATE TABLE "50% ""a"";" ("c%s d" text)')
    task(url, into('50% "a";'), one_record(**{"c%s d": pa.array(["x"])}))
    assert execute(url, 'SELECT * FROM "50% ""a"";"') == [("x",)]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_timestamp_without_a_zone_is_utc_on_all_executors(
    url: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTZ", zone)
    execute(url, "CREATE TABLE t (at timestamptz)")
    noon = datetime(2024, 1, 1, 12)
    task(url, into("t"), one_record(at=pa.array([noon], pa.timestamp("us"))))
    assert execute(url, "SELECT at FROM t") == [(noon.replace(tzinfo=UTC),)]


def test_a_table_that_has_lost_its_key_is_refused(url: str) -> None:
    """The offset table refuses it at its first use; later the server refuses the statement."""
    execute(url, "CREATE TABLE t (a text)")
    rows = one_record(a=pa.array(["x"]))
    task(url, into("t"), rows)
    execute(url, "CREATE TABLE copy AS SELECT * FROM kafka_offsets")
    with pytest.raises(ConfigurationError, match=r"'copy' lacks its key.*PRIMARY KEY \(consumer, topic, partition\)"):
        OffsetTable(url, "etl", table="copy").create()
    work = Work(offset_rows=OffsetRows(consumer="other", table="copy"), write_rows=into("t"))
    with pytest.raises(sa.exc.ProgrammingError, match="InvalidColumnReference"):
        list(write_task(Database.checked(url, lock_timeout_s=1.0, idle_timeout_s=9.0), work, [rows]))
    assert execute(url, "SELECT count(*) FROM t") == [(1,)]
    execute(url, "CREATE UNIQUE INDEX some_rows ON copy (topic, consumer, partition) WHERE next_offset > 5")
    with pytest.raises(ConfigurationError, match="'copy' lacks its key"):
        OffsetTable(url, "etl", table="copy").create()
    # Regression: PostgreSQL also accepts a unique index.  The check accepted only a primary key or a constraint.
    execute(url, "CREATE UNIQUE INDEX key ON copy (topic, consumer, partition)")
    OffsetTable(url, "other", table="copy").set_offsets("orders", {0: 7})


def test_the_offset_table_is_that_of_the_driver_wherever_executors_look_first(url: str) -> None:
    """The user's function or an executor's environment may change the search path."""
    execute(url, "CREATE TABLE t (a text)")
    offsets = OffsetTable(url, "etl")
    offsets.set_offsets("orders", {0: 0})
    assert offsets._rows.schema == execute(url, "SELECT current_schema()")[0][0]


# ------------------------------------------------------------------------------------ Spark's batches


def records(spark: SparkSession, *, partitions: int = 3, start: int = 0, count: int = 100) -> DataFrame:
    """Return a batch like one of the source, with the records of each partition in many tasks."""
    columns = ["'orders' AS topic", f"CAST(id % {partitions} AS INT) AS partition", f"id DIV {partitions} AS offset"]
    return spark.range(start * partitions, (start + count) * partitions).selectExpr(*columns).repartition(5)


@pytest.fixture
def orders(url: str) -> str:
    """Return the URL of a schema with the table ``orders``."""
    execute(url, 'CREATE TABLE orders (topic TEXT, "partition" INTEGER, "offset" BIGINT)')
    return url


def count(url: str) -> tuple[int, int]:
    """Return the number of rows in ``orders``, and of different ones."""
    rows, different = execute(url, 'SELECT count(*), count(DISTINCT ("partition", "offset")) FROM orders')[0]
    return rows, different


@pytest.mark.parametrize("by_id", [True, False], ids=["", "Spark 4.0"])
def test_a_batch_is_written_once_however_its_rows_are_spread(
    spark: SparkSession, orders: str, monkeypatch: pytest.MonkeyPatch, *, by_id: bool
) -> None:
    """Regression: without ``repartitionById``, which Spark 4.0 lacks, the first write ended with an AttributeError."""
    if not by_id and hasattr(DataFrame, "repartitionById"):
        for kind in {type(records(spark)), DataFrame}:
            monkeypatch.delattr(kind, "repartitionById")
    offsets = OffsetTable(orders, "etl")
    write = into("orders", columns=["topic", "partition", "offset"])
    first = offsets.write(records(spark), 0, write)
    assert sorted((w.partition, w.stored, w.next_offset, w.written, w.filtered) for w in first) == [
        (partition, 0, 100, 100, 0) for partition in range(3)
    ]
    again = OffsetTable(orders, "etl").write(records(spark, start=50), 1, write)
    assert sorted((w.partition, w.stored, w.next_offset, w.written, w.filtered) for w in again) == [
        (partition, 100, 150, 50, 50) for partition in range(3)
    ]
    assert count(orders) == (450, 450)


def test_a_warm_up_connects_from_the_tasks_and_writes_nothing(spark: SparkSession, url: str) -> None:
    offsets = OffsetTable(url, "etl", connections=3)
    offsets.create()
    # Deliberate: one connection for all questions, because each new one would count.
    with psycopg.connect(url, autocommit=True) as connection:

        def sessions() -> int:
            statement = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
            return int(connection.execute(statement).fetchall()[0][0])

        sessions()
        time.sleep(1.5)  # PostgreSQL counts late, once a second
        before = sessions()
        offsets._warm_up(spark)
        wait_for(lambda: sessions() == before + 3, "three tasks have connected")
    assert offsets.offsets() == {}


def test_what_failed_is_written_by_the_next_run(spark: SparkSession, orders: str) -> None:
    """A task fails after it has written its rows.  The database rolls them back, and keeps the rows of other tasks."""

    def fail_for_one(connection: Any, rows: Any) -> None:
        into("orders", columns=["topic", "partition", "offset"])(connection, rows)
        if rows.column("partition")[0].as_py() == 1:
            raise RuntimeError("the disk is full")

    offsets = OffsetTable(orders, "etl")
    with pytest.raises(Exception, match="the disk is full"):
        offsets.write(records(spark), 0, fail_for_one)
    offsets.write(records(spark), 0, into("orders", columns=["topic", "partition", "offset"]))
    assert count(orders) == (300, 300)


def test_a_batch_that_does_not_say_where_its_rows_come_from_is_refused(spark: SparkSession, orders: str) -> None:
    rows = records(spark).selectExpr("topic", "CAST(partition AS STRING) AS partition")
    with pytest.raises(ConfigurationError, match="another type: partition, offset"):
        OffsetTable(orders, "etl").write(rows, 0, into("orders"))


def test_values_of_all_types_reach_postgresql(spark: SparkSession, url: str) -> None:
    execute(
        url,
        'CREATE TABLE "odd ""name" (text text, "a ""b" text, raw bytea, at timestamptz, local timestamp, day date, '
        "price numeric, ratio double precision, flag boolean, document jsonb, id uuid)",
    )
    batch = spark.sql(
        """SELECT 'orders' AS topic, 0 AS partition, id AS offset, * EXCEPT (id) FROM VALUES
        (0L, 'a "b",\\nc\\\\N', '', X'00FF', TIMESTAMP '2024-01-01 12:00:00.000001Z',
         TIMESTAMP_NTZ '2024-07-01 12:00:00',
         DATE '2024-01-01', 1.20BD, double('NaN'), true, '{"a": 1}', '00000000-0000-0000-0000-000000000001'),
        (1L, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        AS t (id, text, `a "b`, raw, at, local, day, price, ratio, flag, document, id2)"""
    ).withColumnRenamed("id2", "id")
    OffsetTable(url, "etl").write(batch, 0, into('odd "name'))
    row, nulls = execute(url, 'SELECT *, ratio::text FROM "odd ""name" ORDER BY text NULLS LAST')
    assert row[0] == 'a "b",\nc\\N'
    assert row[1:3] == ("", b"\x00\xff")
    assert row[3] == datetime(2024, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
    assert str(row[4]) == "2024-07-01 12:00:00"
    assert [str(value) for value in row[5:7]] == ["2024-01-01", "1.20"]
    assert row[8:10] == (True, {"a": 1})
    assert row[-1] == "NaN"
    assert set(nulls) == {None}


def test_a_batch_runs_again_also_if_the_function_names_a_job_group(spark: SparkSession, tmp_path: Path) -> None:
    """Regression: the job group was taken for the run, so the batch counted as written in the same run, for ever."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("a")
    url = f"sqlite:///{tmp_path}/etl.db"
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("CREATE TABLE items (value TEXT)"))
    table, fails = OffsetTable(url, "etl"), [True]

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.sparkSession.sparkContext.setJobGroup("etl", "writes a batch")
        rows = batch.selectExpr("'orders' AS topic", "0 AS partition", "bigint(7) AS offset", "value")
        table.write(rows, batch_id, into("items"))
        if fails:
            fails.pop()
            raise RuntimeError("the second sink is away")

    def run() -> None:
        rows = spark.readStream.format("text").load(str(tmp_path / "in"))
        writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="the second sink is away"):
        run()
    run()
    with sa.create_engine(url).begin() as connection:
        assert connection.execute(sa.text("SELECT value FROM items")).all() == [("a",)]
