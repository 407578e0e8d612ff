"""Kafka to Delta by landing: real streams of several applications, with kills, pauses, replays and joins."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_kafka_group
from integration.cluster import Stream, produce
from integration.landing_tables import landing_in, rows_of
from integration.pipelines import PATIENCE_S, Application, wait_for
from integration.spark_fixtures import classic_protocol, either_protocol
from pyspark_kafka_group import stop
from pyspark_kafka_group.landing import DeltaLanding
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from tests.docs.blocks import run_by

Start = Callable[..., StreamingQuery]


def each_once(topic: str, ends: dict[int, int]) -> Counter[tuple[str, int, int]]:
    return Counter((topic, partition, offset) for partition, end in ends.items() for offset in range(end))


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / getattr(request, "param", "delta")


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """Return a session of its own.  Landing registers the listener, and other tests need a session without one."""
    return spark.newSession()


@pytest.fixture
def start(session: SparkSession, tmp_path: Path, table: Path, options: dict[str, str]) -> Iterator[Start]:
    """Yield a function that starts a landing: ``start(topic, name, trigger, **options)``."""
    started: list[StreamingQuery] = []

    def begin(topic: str, name: str = "query", *, trigger: dict[str, Any] | None = None, **more: Any) -> StreamingQuery:
        landing = more.pop("landing", None) or landing_in(table)
        given = {"subscribe": topic, "kafka.client.id": name, **options, **more}
        writer = landing.stream(session, given).option("checkpointLocation", str(tmp_path / f"{name}.checkpoint"))
        started.append(writer.trigger(**(trigger or {"processingTime": "200 milliseconds"})).start())
        return started[-1]

    yield begin
    for query in started:
        query.stop()


def run_available(start: Start, topic: str, name: str = "query", **more: Any) -> None:
    query = start(topic, name, trigger={"availableNow": True}, **more)
    assert query.awaitTermination(int(PATIENCE_S))


@either_protocol
def test_members_share_a_topic_join_and_leave(kafka: Kafka, topic: TopicFactory, start: Start, table: Path) -> None:
    name, ends = topic(4), dict.fromkeys(range(4), 0)

    def more(count: int) -> None:
        produce(kafka.bootstrap_servers, name, dict.fromkeys(ends, count))
        for partition in ends:
            ends[partition] += count
        wait_for(lambda: rows_of(table).total() >= sum(ends.values()), "all records are in the table")

    one = start(name, "one")
    more(50)
    two = start(name, "two")
    more(50)
    three = start(name, "three")
    more(50)
    assert stop(three)
    more(50)
    assert stop(two)
    more(50)
    assert stop(one)
    assert rows_of(table) == each_once(name, ends)
    uncommitted = {path.name for path in table.rglob("topic-*/**/*.parquet")}
    assert len(uncommitted) == len(DeltaTable(table).file_uris()), "no orphan is left"


@either_protocol
@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_a_deleted_checkpoint_and_a_lost_commit(
    kafka: Kafka, topic: TopicFactory, start: Start, table: Path, tmp_path: Path
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 40, 1: 40})
    run_available(start, name)
    newest = max((tmp_path / "query.checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    produce(kafka.bootstrap_servers, name, {0: 10})
    run_available(start, name)  # repeats the batch
    shutil.rmtree(tmp_path / "query.checkpoint")
    produce(kafka.bootstrap_servers, name, {1: 10})
    run_available(start, name, maxRecordsPerPartition="7")
    assert rows_of(table) == each_once(name, {0: 50, 1: 50})
    # A new group reads everything again, and the table takes nothing.
    run_available(start, name, "other", **{"kafka.group.id": f"{name}-other"})
    assert rows_of(table) == each_once(name, {0: 50, 1: 50})


@either_protocol
def test_typed_values_and_a_condition(kafka: Kafka, topic: TopicFactory, start: Start, table: Path) -> None:
    name = topic(2)
    values = [b'{"id": %d, "item": {"name": "a"}, "tags": ["x"]}' % n for n in range(30)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(name, value, partition=0)
    assert producer.flush(30) == 0
    landing = DeltaLanding(str(table), day_column="day", partition_by=["day"])
    more = {"valueFormat": "json", "valueSchema": "id BIGINT, item STRUCT<name: STRING>, tags ARRAY<STRING>"}
    more["where"] = "value.id % 3 = 0"
    run_available(start, name, landing=landing, **more)
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert [row["value"] for row in rows] == [{"id": n, "item": {"name": "a"}, "tags": ["x"]} for n in range(0, 30, 3)]
    assert landing.total.records == 10
    assert {row["day"] for row in rows} == {row["timestamp"].date() for row in rows}


def test_the_program_of_the_page(
    kafka: Kafka, topic: TopicFactory, group: str, session: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, {0: 30, 1: 30})
    (text,) = run_by("integration/test_landing.py")
    for old, new in {
        "lake/orders": str(table),
        "localhost:9092": kafka.bootstrap_servers,
        "orders-etl-landing": group,
        '"orders"': f'"{name}"',
        '"checkpoint"': f'"{table}.checkpoint"',
    }.items():
        assert old in text
        text = text.replace(old, new)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)  # what the program's getOrCreate() returns
    monkeypatch.setattr(pyspark_kafka_group, "run_until_signal", lambda query: query.processAllAvailable())
    names: dict[str, Any] = {}
    exec(text, names)
    assert stop(names["query"])
    assert rows_of(table) == each_once(name, {0: 30, 1: 30})


@pytest.mark.timeout(600)  # starts Spark four times
@classic_protocol  # its clients choose the session timeout
def test_applications_are_suspended_and_killed_in_their_commits(
    kafka: Kafka,
    topic: TopicFactory,
    application: Callable[..., Application],
    tmp_path: Path,
    table: Path,
) -> None:
    """One sleeps past its session in a commit, and one is killed between its commit and Spark's."""
    name = topic(6)
    session = {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "1500"}
    first, second, third = (application(name, f"app{n}", **session).configure(landing=str(table)) for n in range(3))

    def rows() -> int:
        return rows_of(table).total()

    with Stream(kafka.bootstrap_servers, {name: 6}, per_second=200) as stream:
        first.start()
        second.start()
        for one in (first, second):
            one.wait_for_ownership(3)
        wait_for(lambda: first.events("finished") and len(second.events("finished")) > 1, "both have landed")

        second.slow_down(before_s=3.0)
        wait_for(lambda: not (tmp_path / "app1.nap").exists(), "it is in its commit")
        second.send(signal.SIGSTOP)
        first.wait_for_ownership(6)
        asleep = {
            (int(tp.rpartition("-")[2]), until - 1) for tp, (_, until) in second.events("planned")[-1]["ranges"].items()
        }
        wait_for(
            lambda: asleep <= {(number, offset) for _, number, offset in rows_of(table)},
            "the new owner lands what the zombie has not",
        )
        second.send(signal.SIGCONT)
        wait_for(lambda: "did not take a commit. Looking again" in second.log_since(0), "its commit fails")
        second.wait_for_ownership(3)

        first.slow_down(after_s=20.0)
        wait_for(lambda: not (tmp_path / "app0.nap").exists(), "it is in its commit")
        before = rows()
        wait_for(lambda: rows() > before, "a commit")
        first.kill()
        third.start()
        third.wait_for_ownership(3)
        first.start()
        for one in (second, third):  # the log of the first one has what it owned when it was killed
            one.wait_for_ownership(2)
        third.stop()
    second.wait_for_ownership(3)
    ends = {partition: stream.produced[name, partition] for partition in range(6)}
    wait_for(lambda: rows() >= sum(ends.values()), "all records are in the table")
    first.stop()
    second.stop()
    assert rows_of(table) == each_once(name, ends)
