"""Applications race for one Delta or Iceberg table, which gets each record once.  See docs/lake-tables.md.

Most tests need no Kafka: they check which application commits which records.  They compare all rows, without a key.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from integration.cluster import committed, produce, recreate, reset
from integration.compatibility import lake_writer
from integration.compatibility.lake_writer import CATALOG, FORMAT, records, session, table
from integration.compatibility.rest_catalog import rest_catalog
from integration.pipelines import Pipeline, wait_for
from integration.processes import send
from integration.processes import session as processes_of
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.read_range import ReadRange
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.session.running_batch import RunningBatch
from pyspark_kafka_group.stores import LakeTable, LakeWrite, lake_formats, lake_table, query_run
from pyspark_kafka_group.stores.errors import LakeConflictError, RefusedRecordError, TableBehindError
from pyspark_kafka_group.stores.lake_formats import around, inside
from pyspark_kafka_group.stores.lake_history import OffsetSpan
from pyspark_kafka_group.stores.lake_table import spans_of
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

ROOT = Path(__file__).parents[2]
Create = Callable[..., str]
Pipelines = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("lake")
    with rest_catalog(folder) if CATALOG == "rest" else nullcontext():
        yield folder


@pytest.fixture(scope="module")
def spark(lake: Path) -> Iterator[SparkSession]:
    """Yield a session with the format.  The tests also create their tables with it."""
    found = session(lake)
    yield found
    found.stop()


@pytest.fixture
def create(spark: SparkSession, lake: Path) -> Create:
    return partial(lake_writer.create, spark, lake)


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each write be of another run of a query.  Most tests write as several applications in one session."""
    monkeypatch.setattr(query_run, "run_of", lambda _: object())


def rows_of(spark: SparkSession, name: str) -> list[tuple[int, int, int | None]]:
    """Return all rows as partition, offset and number."""
    if FORMAT == "iceberg":  # Iceberg's catalog caches snapshots in the session; for a path of Delta the call fails
        spark.catalog.refreshTable(name)
    rows = spark.table(name).select("partition", "offset", "number").collect()
    return sorted((tuple(row) for row in rows), key=lambda row: (row[0], row[1], row[2] or 0))


def expected(until: int) -> list[tuple[int, int, int]]:
    return [(partition, offset, number) for partition in range(2) for offset in range(until) for number in range(2)]


def compact(spark: SparkSession, lake: Path, name: str) -> None:
    """Compact the table, like a maintenance job."""
    if FORMAT == "delta":
        spark.sql(f"OPTIMIZE {table(lake, name)}")
    else:
        options = "options => map('rewrite-all', 'true')"
        spark.sql(f"CALL lake.system.rewrite_data_files(table => 'db.{name}', {options})")


@pytest.mark.timeout(600)  # Spark starts six times
def test_a_suspended_and_a_killed_application(spark: SparkSession, lake: Path, create: Create, tmp_path: Path) -> None:
    """Suspend one application in its commit while the next owner writes the same records and more.

    Kill another application in its commit.
    """
    name = create("orders")
    started: list[subprocess.Popen[bytes]] = []

    def start(first: int, until: int, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "integration.compatibility.lake_writer", str(lake), str(first), str(until)]
        with (tmp_path / "log").open("ab") as log:
            started.append(
                subprocess.Popen([*command, *more], cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
            )
        return started[-1]

    def wait_until_it_writes() -> None:
        wait_for((lake / "started").exists, "it is in the job of its commit")
        (lake / "started").unlink()

    try:
        # The first commit must fail although the table is empty.
        sleeper = start(0, 60, "--wait")
        wait_until_it_writes()
        send(signal.SIGSTOP, processes_of(sleeper.pid))
        assert start(0, 100).wait(120) == 0, (tmp_path / "log").read_text()[-3000:]
        compact(spark, lake, "orders")
        (lake / "go").touch()
        send(signal.SIGCONT, processes_of(sleeper.pid))
        assert sleeper.wait(120) == 0, (tmp_path / "log").read_text()[-3000:]
        assert "Trying again" in (tmp_path / "log").read_text()
        assert rows_of(spark, name) == expected(100)

        (lake / "go").unlink()
        killed = start(100, 150, "--wait")
        wait_until_it_writes()
        send(signal.SIGKILL, processes_of(killed.pid))
        killed.wait()
        assert rows_of(spark, name) == expected(100)
        assert start(50, 170).wait(120) == 0, (tmp_path / "log").read_text()[-3000:]
        assert rows_of(spark, name) == expected(170)
    finally:
        for process in started:
            send(signal.SIGKILL, processes_of(process.pid))
            process.wait()


def test_a_batch_that_runs_again_adds_nothing(
    spark: SparkSession, lake: Path, create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    """Repeat batches, also after maintenance, and with rows of other records between their own."""
    name = create("again")
    target = LakeTable(name)
    assert target.write(records(spark, 0, 10).where("partition = 0"), 0) == LakeWrite(written=20, skipped=0)
    assert target.write(records(spark, 5, 15), 1) == LakeWrite(written=30, skipped=10)
    compact(spark, lake, "again")
    assert target.write(records(spark, 0, 20), 2) == LakeWrite(written=30, skipped=50)
    assert target.write(records(spark, 0, 20), 2) == LakeWrite(written=0, skipped=80)
    assert rows_of(spark, name) == expected(20)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"Batch 1: 10 rows of its records are already in {name}, so these records were skipped." in told


def test_a_second_write_of_a_batch(spark: SparkSession, create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the table had the records from the first write, so the rows of the second one were left out."""
    monkeypatch.setattr(query_run, "run_of", lambda _: "run")
    name, batch = create("twice"), records(spark, 0, 10)
    LakeTable(name).write(batch.where("number = 0"), 0)
    with pytest.raises(ConfigurationError, match="batch 0 was already written to"):
        LakeTable(name).write(batch.where("number = 1"), 0)
    LakeTable(name).write(records(spark, 10, 20).where("partition = 0"), 1)
    LakeTable(name).write(records(spark, 10, 20).where("partition = 1"), 1)
    found = rows_of(spark, name)
    assert found == [row for row in expected(20) if row[1] >= 10 or row[2] == 0]


@pytest.mark.parametrize("partitions", [1, 3000])
def test_the_check_of_rows_costs_the_same_with_many_partitions(spark: SparkSession, partitions: int) -> None:
    """Also with gaps, with several topics, and at the borders of the ranges."""
    spans = {TopicPartition(topic, 2 * n): OffsetSpan(5, 9) for n in range(partitions) for topic in ("it's", "b")}
    rows = spark.sql(
        f"SELECT t.topic, CAST(p.id AS INT) AS partition, o.id AS offset FROM range(-1, {2 * partitions + 2}) p, "
        "range(3, 11) o, VALUES (\"it's\"), ('b'), ('other'), (NULL) AS t(topic)"
    )
    assert rows.where(inside(spans)).count() == 2 * partitions * 4
    assert rows.where(around(spans)).where(inside(spans)).count() == 2 * partitions * 4
    plan = rows.where(inside(spans))._jdf.queryExecution().optimizedPlan().toString()
    assert "from_json" not in plan, "it is evaluated once, and not for each row"


def test_a_topic_that_was_created_again(
    kafka: Kafka, topic: TopicFactory, group: str, spark: SparkSession, create: Create, pipeline: Pipelines
) -> None:
    """Regression: the new records counted as written, because the old ones had the same offsets."""
    name, source = create(f"again_{group}".replace("-", "_")), topic(1)
    target = LakeTable(name)

    def run(member: str) -> None:
        options: dict[str, Any] = {"kafka.group.id": f"{group}-{member}"}
        one = pipeline(source, name=member, **options)
        rows = one.load().selectExpr("topic", "partition", "offset", "0L AS number")
        writer = rows.writeStream.foreachBatch(target.write).option("checkpointLocation", str(one.checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(60)

    produce(kafka.bootstrap_servers, source, {0: 20})
    run("one")
    run("one")
    recreate(kafka.bootstrap_servers, source, 1)
    produce(kafka.bootstrap_servers, source, {0: 30})
    with pytest.raises(Exception, match=rf"has rows of another topic '{source}'") as found:
        run("two")
    # The remedy of the error.
    rename, unset = re.findall(r"(UPDATE .*?'), run (ALTER TABLE .*?\))", str(found.value))[-1]
    if FORMAT == "iceberg":
        spark.catalog.refreshTable(name)  # this session knows an older state
    spark.sql(rename)
    spark.sql(unset)
    run("three")
    assert len(rows_of(spark, name)) == 50


def newest(spark: SparkSession, name: str) -> int:
    """Return the newest version or snapshot."""
    if FORMAT == "delta":
        return int(spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"])
    spark.catalog.refreshTable(name)
    return int(spark.table(f"{name}.refs").where("name = 'main'").collect()[0]["snapshot_id"])


def roll_back(spark: SparkSession, name: str, to: int, *, by_time: bool = False) -> None:
    if FORMAT == "delta" and by_time:
        history = spark.sql(f"DESCRIBE HISTORY {name}").where(F.col("version") == to)
        (row,) = history.selectExpr("CAST(timestamp AS STRING) AS time").collect()
        spark.sql(f"RESTORE TABLE {name} TO TIMESTAMP AS OF '{row['time']}'")
    elif FORMAT == "delta":
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {to}")
    else:
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{name.removeprefix('lake.')}', {to})")


def test_a_rollback_is_noticed_until_the_records_are_written_again(
    spark: SparkSession, lake: Path, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the rollback and the next run, maintenance and another program commit.  Each `LakeTable` is a new run."""
    monkeypatch.setattr(lake_formats, "_VERSIONS", 5)  # so Delta first reads only versions after the lost ones
    name = create("rolled_back")
    LakeTable(name).write(records(spark, 0, 10), 0)
    good = newest(spark, name)
    LakeTable(name).write(records(spark, 10, 20), 1)
    LakeTable(name).write(records(spark, 20, 30).where("partition = 1"), 2)
    roll_back(spark, name, good)
    compact(spark, lake, "rolled_back")
    spark.sql(f"INSERT INTO {name} VALUES ('others', 0, 0, 0)")
    assert LakeTable(name).write(records(spark, 5, 10), 3).skipped == 20
    running = LakeTable(name)
    with pytest.raises(TableBehindError, match=r"orders-0 10 to 19; orders-1 10 to 29\. Nothing"):
        running.write(records(spark, 30, 35), 4)
    again = LakeTable(name)
    again.write(records(spark, 10, 30).where("partition = 1"), 5)
    with pytest.raises(TableBehindError, match=r"these offsets: orders-0 10 to 19\. Nothing"):
        running.write(records(spark, 30, 35), 4)
    again.write(records(spark, 10, 30).where("partition = 0"), 6)
    running.write(records(spark, 30, 35), 4)
    spark.sql(f"DELETE FROM {name} WHERE topic = 'others'")
    assert rows_of(spark, name) == expected(35)


def test_a_rollback_can_be_accepted(spark: SparkSession, create: Create) -> None:
    name = create("accepted")
    LakeTable(name).write(records(spark, 0, 5), 0)
    good = newest(spark, name)
    for first in (5, 15):  # with a gap, so each partition has two lost ranges
        LakeTable(name).write(records(spark, first, first + 5), 1)
    roll_back(spark, name, good, by_time=True)
    target = LakeTable(name)
    with pytest.raises(TableBehindError, match="orders-0 5 to 9, 15 to 19; orders-1 5 to 9, 15 to 19"):
        target.write(records(spark, 20, 25), 2)
    target.accept_rollback(spark)
    target.write(records(spark, 20, 25), 2)
    assert rows_of(spark, name) == sorted({*expected(25)} - {*expected(20)} | {*expected(5)})


def test_lost_records_are_read_again_in_other_batches(
    spark: SparkSession, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a batch whose records the query leaves out has no commit in Delta, and so seemed not to be read."""
    name, zero = create("other_batches"), TopicPartition("orders", 0)

    def write(target: LakeTable, first: int, until: int, rows: str = "true") -> None:
        planned = ReadRange(Offset(first), Offset(until), finished=Offset(first), begun=True)
        monkeypatch.setattr(lake_table, "running_batch", lambda *_: RunningBatch({zero: planned}))
        target.write(records(spark, first, until).where("partition = 0").where(rows), 0)

    write(LakeTable(name), 0, 5)
    good = newest(spark, name)
    write(LakeTable(name), 5, 10, "offset = 9")
    roll_back(spark, name, good)
    again = LakeTable(name)
    write(again, 5, 8, "offset = 9")
    write(again, 8, 10, "offset = 9")
    write(LakeTable(name), 10, 12)
    assert [offset for _, offset, _ in rows_of(spark, name)] == sorted(2 * [*range(5), 9, 10, 11])


def test_a_users_own_metadata_stay(spark: SparkSession, create: Create) -> None:
    """Commits have no note then.  Only `accept_rollback` writes one, and puts the user's setting back."""
    setting = "spark.databricks.delta.commitInfo.userMetadata"
    target = LakeTable(create("own_metadata"))
    target.write(records(spark, 0, 5), 0)
    good = newest(spark, target._table)
    target.write(records(spark, 5, 10), 1)
    spark.conf.set(setting, "mine")
    try:
        roll_back(spark, target._table, good)
        with pytest.raises(TableBehindError):
            LakeTable(target._table).write(records(spark, 10, 15), 2)
        target.accept_rollback(spark)
        LakeTable(target._table).write(records(spark, 10, 15), 2)
        assert spark.conf.get(setting) == "mine"
    finally:
        spark.conf.unset(setting)


def test_what_looks_like_a_rollback_and_is_none(
    spark: SparkSession, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that the query leaves out, batches that are not written, deleted rows, and notes that are gone."""
    name, zero = create("no_rollback"), TopicPartition("orders", 0)

    def write(first: int, until: int, rows: str = "true") -> None:
        planned = ReadRange(Offset(first), Offset(until), finished=Offset(first), begun=True)
        monkeypatch.setattr(lake_table, "running_batch", lambda *_: RunningBatch({zero: planned}))
        LakeTable(name).write(records(spark, first, until).where("partition = 0").where(rows), 0)

    write(0, 10, "offset < 5")
    write(10, 20, "false")
    good = newest(spark, name)
    spark.sql(f"DELETE FROM {name} WHERE offset < 3")
    write(40, 50)
    if FORMAT == "iceberg":
        roll_back(spark, name, good)
        everything = "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
        spark.sql(f"CALL lake.system.expire_snapshots(table => '{name.removeprefix('lake.')}', {everything})")
    write(60, 70)


def test_rows_that_the_table_does_not_take(spark: SparkSession, lake: Path, create: Create) -> None:
    """The error names the column and the remedy, and the remedy of the documentation works."""
    needed = "topic STRING NOT NULL, partition INT NOT NULL, offset BIGINT NOT NULL, number BIGINT NOT NULL"
    name = create("strict", needed)
    batch = records(spark, 0, 5).withColumn("number", F.when(F.col("offset") != 3, F.col("number")))
    with pytest.raises(RefusedRecordError, match=r"strict.* does not take a row .*number.*second LakeTable"):
        LakeTable(name).write(batch, 0)
    if FORMAT == "delta":
        spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT few CHECK (number < 1)")
        with pytest.raises(RefusedRecordError, match=r"CHECK constraint few .*second LakeTable"):
            LakeTable(name).write(records(spark, 0, 5), 0)
    assert rows_of(spark, name) == []
    fine = F.coalesce(F.expr("number IS NOT NULL AND number < 1"), F.lit(False))
    refused = LakeTable(create("refused_rows"))
    for _ in range(2):
        refused.write(batch.where(~fine), 0)
        LakeTable(name).write(batch.where(fine), 0)
    assert rows_of(spark, name) == [row for row in expected(5) if row[1] != 3 and row[2] < 1]
    not_fine = [(p, o, n if o != 3 else None) for p, o, n in expected(5) if o == 3 or n == 1]
    assert rows_of(spark, table(lake, "refused_rows")) == not_fine


@pytest.mark.skipif(FORMAT != "delta", reason="a setting of Delta")
def test_a_setting_that_makes_delta_leave_out_a_batch_is_an_error(spark: SparkSession, create: Create) -> None:
    """With these settings, Delta runs no MERGE with a version that it has seen, and reports no error."""
    target, settings = LakeTable(create("versioned")), {"txnAppId": "etl", "txnVersion": "1"}
    for name, value in settings.items():
        spark.conf.set(f"spark.databricks.delta.write.{name}", value)
    try:
        target.write(records(spark, 0, 5), 0)
        with pytest.raises(ConfigurationError, match="has seen the version that is set before"):
            target.write(records(spark, 5, 10), 1)
    finally:
        for name in settings:
            spark.conf.unset(f"spark.databricks.delta.write.{name}")


def test_new_columns(spark: SparkSession, create: Create) -> None:
    """An application has the new program before the table has the column.  Another one still has the old program."""
    name = create("evolves")
    new = LakeTable(name)
    new.write(records(spark, 0, 5), 0)
    batch = records(spark, 5, 10).withColumn("extra", F.lit("x"))
    with pytest.raises(ConfigurationError, match=r"has no column extra, but the batch has\. Add it with ALTER TABLE"):
        new.write(batch, 1)
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (extra STRING)")
    new.write(batch, 1)
    LakeTable(name).write(records(spark, 10, 15), 2)
    assert rows_of(spark, name) == expected(15)
    filled = spark.table(name).groupBy("extra").agg(F.min("offset"), F.max("offset"), F.count("*")).collect()
    assert {tuple(row) for row in filled} == {(None, 0, 14, 40), ("x", 5, 9, 20)}


def test_a_table_of_another_program_gets_the_columns_of_the_records(spark: SparkSession, create: Create) -> None:
    """The newest snapshot of the table is older than its columns."""
    name = create("of_another", "number BIGINT")
    spark.range(3).toDF("number").writeTo(name).append()
    with pytest.raises(ConfigurationError, match=r"has no column topic, partition, offset, but the batch has\. Add it"):
        LakeTable(name).write(records(spark, 0, 5), 0)
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (topic STRING, partition INT, offset BIGINT)")
    assert LakeTable(name).write(records(spark, 0, 5), 0) == LakeWrite(20, 0)
    assert LakeTable(name).write(records(spark, 0, 10), 1) == LakeWrite(20, 20)
    assert spark.table(name).count() == 43


def test_a_new_group_starts_where_the_rows_end(spark: SparkSession, create: Create) -> None:
    target = LakeTable(create("new_group"))
    assert target.starting_offsets(spark, "orders") == "earliest"
    target.write(records(spark, 0, 7), 0)
    target.write(records(spark, 7, 10).where("partition = 1"), 1)
    assert json.loads(target.starting_offsets(spark, "orders", "other")) == {"orders": {"0": 7, "1": 10}}
    assert target.starting_offsets(spark, "other") == "earliest"


def test_four_threads_that_write_the_same_records(spark: SparkSession, create: Create) -> None:
    name = create("threads")
    problems: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for n in range(3):
                LakeTable(name).write(records(spark, n * 10 + first, n * 10 + 10), n)
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 0, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(problem) for problem in problems] == []
    assert rows_of(spark, name) == expected(30)


@either_protocol
def test_members_of_one_group_fill_one_table(
    kafka: Kafka, topic: TopicFactory, group: str, spark: SparkSession, create: Create, pipeline: Pipelines
) -> None:
    """A second member takes half of the partitions.  After a reset of the group, both read everything again."""
    name, source = create("from_kafka"), topic(2)
    target = LakeTable(name)

    def start(member: str) -> Pipeline:
        member_of = pipeline(source, name=member, onOffsetRewind="group")
        rows = member_of.load().selectExpr("topic", "partition", "offset", "explode(array(0L, 1L)) AS number")
        writer = rows.writeStream.foreachBatch(target.write)
        member_of.query = writer.option("checkpointLocation", str(member_of.checkpoint)).start()
        return member_of

    def has_read(until: int) -> None:
        def done() -> bool:
            assert all(member.started.exception() is None for member in members)
            return committed(kafka.bootstrap_servers, group, source, range(2)) == {0: until, 1: until}

        wait_for(done, f"the group has committed {until}")

    produce(kafka.bootstrap_servers, source, {0: 40, 1: 40})
    members = [start("one")]
    has_read(40)
    members.append(start("two"))
    for member in members:
        member.wait_for_ownership(1)
    produce(kafka.bootstrap_servers, source, {0: 20, 1: 20}, start=40)
    has_read(60)
    for member in members:
        member.stop_cleanly()
    assert rows_of(spark, name) == expected(60)
    reset(kafka.bootstrap_servers, group, source, {0: 0, 1: 0})
    produce(kafka.bootstrap_servers, source, {0: 5, 1: 5}, start=60)
    members = [start("one"), start("two")]
    has_read(65)
    assert any(member.events("rewound") for member in members)
    assert rows_of(spark, name) == expected(65)


def while_it_runs(spark: SparkSession, rows: DataFrame, write: Callable[[DataFrame], None], other: DataFrame) -> None:
    """Write ``rows``, and write ``other`` in the middle of the job that commits ``rows``."""
    folder = Path(tempfile.mkdtemp())

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (folder / "started").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        yield from batches

    def meanwhile() -> None:
        try:
            wait_for((folder / "started").exists, "the job runs")
            write(other)
        finally:
            (folder / "go").touch()

    thread = threading.Thread(target=meanwhile)
    thread.start()
    try:
        write(rows.mapInArrow(waits, rows.schema))
    finally:
        (folder / "go").touch()
        thread.join()


def test_a_writer_without_patience_gets_an_error(
    spark: SparkSession, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = create("impatient")
    spans = spans_of(records(spark, 0, 5), None)
    monkeypatch.setattr(lake_table, "spans_of", lambda batch, running: spans)  # skips the run that counts rows
    target = LakeTable(name, patience_s=0.0)
    with pytest.raises(LakeConflictError, match=f"{name} have won 1 times in 0 s"):
        while_it_runs(spark, records(spark, 0, 5), lambda rows: target.write(rows, 0), records(spark, 0, 3))
    assert rows_of(spark, name) == expected(3)


@pytest.mark.skipif(FORMAT != "iceberg", reason="with Delta, LakeTable itself uses such a MERGE")
def test_why_iceberg_gets_no_merge(spark: SparkSession, create: Create) -> None:
    """Spark plans a MERGE that only inserts as an append, so two of them commit the same records."""
    name = create("merged")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.merge.isolation-level' = 'serializable')")

    def merge(rows: DataFrame) -> None:
        same = "t.topic = s.topic AND t.partition = s.partition AND t.offset = s.offset"
        statement = f"MERGE INTO {name} t USING {{s}} s ON {same} WHEN NOT MATCHED THEN INSERT *"
        spark.sql(statement, s=rows)

    while_it_runs(spark, records(spark, 0, 5), merge, records(spark, 0, 5))
    assert rows_of(spark, name) == sorted(expected(5) * 2)


def test_what_cannot_be_written_is_an_error(spark: SparkSession, create: Create, tmp_path: Path) -> None:
    name = create("refused")
    target = LakeTable(name)
    batch = records(spark, 0, 5)
    with pytest.raises(ConfigurationError, match="has no column extra, but the batch has"):
        target.write(batch.withColumn("extra", F.lit(1)), 0)
    # Spark wraps the error of a task differently for each format.
    with pytest.raises(Exception, match="a row names a record that this batch does not read"):
        target.write(batch.withColumn("offset", F.when(F.col("offset") != 3, F.col("offset"))), 0)
    spark.range(1).selectExpr("'t' AS topic", "0 AS partition", "id AS offset").write.option(
        "path", str(tmp_path / "plain")
    ).saveAsTable("plain")
    with pytest.raises(ConfigurationError, match="has the format parquet"):
        LakeTable("spark_catalog.default.plain").write(batch.drop("number"), 0)
    assert rows_of(spark, name) == []


def test_rows_of_a_batch_without_ranges_are_an_error(
    spark: SparkSession, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row names its topic, or a stateful operator returns rows in a batch that reads nothing."""
    name = create("no_ranges")
    target, batch, problem = LakeTable(name), records(spark, 0, 5), "names a record that this batch does not read"
    with pytest.raises(Exception, match=problem):
        target.write(batch.withColumn("topic", F.lit(None).cast("string")), 0)
    monkeypatch.setattr(lake_table, "running_batch", lambda *_: RunningBatch({}))
    target.write(batch.where("false"), 1)
    with pytest.raises(Exception, match=problem):
        target.write(batch, 2)
    assert rows_of(spark, name) == []
