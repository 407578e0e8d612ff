"""A query moves from Spark's own Kafka source to this one and back, and reads each record once.

These tests also run the Python code of ``docs/migration.md``.
"""

from __future__ import annotations

import re
import textwrap
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_INVALID, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration.cluster import committed, lag, produce, reset
from integration.parity import BUILT_IN, OURS, with_builtin_source
from integration.pipelines import PATIENCE_S, TOO_BUSY
from pyspark_kafka_group import stop
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.tools.commands import kafka_group

PAGE = Path(__file__).parents[1] / "docs" / "migration.md"

Records = Counter[tuple[str, int, int]]
"""How often each record was read: by topic, partition and offset."""


def all_of(topic: str, counts: dict[int, int]) -> Records:
    return Counter((topic, partition, offset) for partition, count in counts.items() for offset in range(count))


class Sink:
    """Counts the records that queries read.  It fails in batch ``fails_in``, if set."""

    def __init__(self) -> None:
        self.finished: Records = Counter()
        self.fails_in: int | None = None

    def take(self, batch: DataFrame, number: int) -> None:
        rows = [tuple(row) for row in batch.select("topic", "partition", "offset").collect()]
        if number == self.fails_in:
            raise RuntimeError("the sink fails")
        self.finished.update(rows)

    def run(self, stream: DataFrame, checkpoint: Path, *, fails_in: int | None = None) -> None:
        """Run a query until it has read everything, or until the sink fails."""
        self.fails_in = fails_in
        writer = stream.writeStream.foreachBatch(self.take).option("checkpointLocation", str(checkpoint))
        try:
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(int(PATIENCE_S)), "the query does not end"
        except StreamingQueryException as failure:
            if TOO_BUSY in str(failure):
                self.run(stream, checkpoint, fails_in=fails_in)
            elif "the sink fails" not in str(failure):
                raise
        else:
            assert fails_in is None, "the query has fewer batches"


def command(kafka: Kafka, name: str, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Run ``kafka-group`` and return its standard output and standard error."""
    found = CliRunner().invoke(kafka_group, [name, "-b", kafka.bootstrap_servers, *arguments])
    assert found.exit_code == code, found.output
    return found.stdout, found.stderr


@pytest.fixture(scope="module")
def with_jars(spark: SparkSession) -> SparkSession:
    """Return the session with Spark's own source."""
    return with_builtin_source(spark)


@pytest.fixture
def stream(with_jars: SparkSession, kafka: Kafka, group: str) -> Callable[..., DataFrame]:
    """Return a function that makes streams: ``stream(BUILT_IN, topic, **options)``."""

    def make(source: str, topic: str, **options: str) -> DataFrame:
        of_group = {"kafka.group.id": group, "kafka.group.protocol": "consumer"} if source == OURS else {}
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **of_group, **options}
        return with_jars.readStream.format(source).options(**given).load()

    return make


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Yield a function that sets a configuration of the session for this test."""
    names: set[str] = set()

    def set_one(name: str, value: str) -> None:
        names.add(name)
        spark.conf.set(name, value)

    yield set_one
    for name in names:
        spark.conf.unset(name)


# -- from Spark's own source to this one


def test_a_query_continues_where_one_of_sparks_own_source_has_stopped(
    kafka: Kafka,
    topic: TopicFactory,
    group: str,
    stream: Callable[..., DataFrame],
    conf: Callable[[str, str], None],
    tmp_path: Path,
) -> None:
    """The new query starts after the last finished batch, also in partitions that the old query has not seen.

    Spark's log has version 2 here, and version 1, the default, in the other tests.
    """
    conf("spark.sql.streaming.offsetLog.formatVersion", "2")
    name, old, sink = topic(3), tmp_path / "old", Sink()
    produce(kafka.bootstrap_servers, name, {0: 30, 1: 30})
    limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    sink.run(stream(BUILT_IN, name, **limited), old, fails_in=2)
    assert sum(sink.finished.values()) == 40
    assert (old / "offsets" / "2").read_text().startswith("v2")
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5}, start=30)
    produce(kafka.bootstrap_servers, name, {2: 5})
    kafka.add_partitions(name, 4)
    produce(kafka.bootstrap_servers, name, {3: 5})
    shown, said = command(kafka, "import-checkpoint", "--group", group, str(old))
    assert f"Nothing was changed. --execute sets 4 offsets of {group}." in shown
    assert "these are the offsets after batch 1" in said
    assert "batch 2 was begun and not finished" in said
    assert f"{name}-3: not in the checkpoint" in said
    assert {*committed(kafka.bootstrap_servers, group, name, range(4)).values()} == {OFFSET_INVALID}
    command(kafka, "import-checkpoint", "--group", group, "--execute", f"file://{old}")
    sink.run(stream(OURS, name, startingOffsets="latest"), tmp_path / "new")
    assert sink.finished == all_of(name, {0: 35, 1: 35, 2: 5, 3: 5})
    assert lag(kafka.bootstrap_servers, group, name, range(4)) == 0


def test_records_of_an_open_transaction_that_spark_has_read_are_not_read_again(
    kafka: Kafka, topic: TopicFactory, group: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Spark's own source reads uncommitted records.  It may stop behind the last offset that this one may read."""
    name, sink = topic(1), Sink()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for n in range(5):
        producer.produce(name, str(n), partition=0)
    producer.flush(30)
    sink.run(stream(BUILT_IN, name, startingOffsets="earliest"), tmp_path / "old")
    assert sink.finished == all_of(name, {0: 5})
    command(kafka, "import-checkpoint", "--group", group, "-y", str(tmp_path / "old"))
    sink.run(stream(OURS, name, startingOffsets="earliest"), tmp_path / "new")
    assert sink.finished == all_of(name, {0: 5})
    producer.produce(name, "5", partition=0)
    producer.commit_transaction(30)
    sink.run(stream(OURS, name, startingOffsets="earliest"), tmp_path / "new")
    assert sink.finished == all_of(name, {0: 6})


# -- and back


# -- sinks


def test_a_file_sink_needs_a_new_path_with_a_new_checkpoint(
    kafka: Kafka,
    topic: TopicFactory,
    group: str,
    with_jars: SparkSession,
    stream: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """Spark's file sink skips the batch numbers that it has, also those of another query.  The page warns of this."""
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 5})

    def run(source: str, checkpoint: str, path: str) -> int:
        writer = stream(source, name, startingOffsets="earliest").select("offset").writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / path)).option("checkpointLocation", str(tmp_path / checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(int(PATIENCE_S))
        return with_jars.read.parquet(str(tmp_path / path)).count()

    assert run(BUILT_IN, "old", "out") == 5
    command(kafka, "import-checkpoint", "--group", group, "-y", str(tmp_path / "old"))
    produce(kafka.bootstrap_servers, name, {0: 5}, start=5)
    assert run(OURS, "new", "out") == 5, "Spark has written the batch: the warning of the page can go"
    command(kafka, "import-checkpoint", "--group", group, "-y", str(tmp_path / "old"))
    assert run(OURS, "newer", "new-out") == 5


# -- the code of the page


def blocks(heading: str) -> list[str]:
    """Return the Python code of a section of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^( *)```python\n(.*?)^\1```$", section, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(code) for _, code in found]


class Page:
    """Runs code of the page with the topic, group and folders of a test."""

    def __init__(self, spark: SparkSession, kafka: Kafka, topic: str, group: str, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._meant = {
            "localhost:9092": kafka.bootstrap_servers,
            '"orders"': f'"{topic}"',
            '"orders-etl"': f'"{group}"',
        }

    def code(self, written: str) -> str:
        for found, meant in self._meant.items():
            written = written.replace(found, meant)
        return re.sub(r'"([\w-]+-(?:checkpoint|out))"', lambda found: f'"{self._folder / found[1]}"', written)

    def run(self, written: str, **names: Any) -> None:
        """Run the code, and wait until its query has read everything."""
        found: dict[str, Any] = {"spark": self._spark, **names}
        exec(self.code(written), found)
        query: StreamingQuery = found["query"]
        try:
            query.processAllAvailable()
            if 'format("kafka-group")' in written:
                assert stop(query)
        except StreamingQueryException as failure:
            if TOO_BUSY not in str(failure):
                raise
            self.run(written, **names)
        finally:
            query.stop()

    def written_to(self, folder: str) -> Records:
        rows = self._spark.read.parquet(str(self._folder / folder)).select("topic", "partition", "offset").collect()
        return Counter(tuple(row) for row in rows)


@pytest.fixture
def orders(topic: TopicFactory) -> str:
    return topic(2)


@pytest.fixture
def page(with_jars: SparkSession, kafka: Kafka, orders: str, group: str, tmp_path: Path) -> Page:
    return Page(with_jars, kafka, orders, group, tmp_path)


def test_the_code_moves_a_query_there_and_back(
    kafka: Kafka, orders: str, group: str, page: Page, tmp_path: Path
) -> None:
    before, after = blocks('From `format("kafka")`')
    (back,) = blocks("Back to Spark's own source")
    produce(kafka.bootstrap_servers, orders, {0: 5, 1: 3})
    page.run(before)
    assert page.written_to("old-out") == all_of(orders, {0: 5, 1: 3})
    command(kafka, "import-checkpoint", "--group", group, "--execute", str(tmp_path / "old-checkpoint"))
    produce(kafka.bootstrap_servers, orders, {0: 3}, start=5)
    produce(kafka.bootstrap_servers, orders, {1: 2}, start=3)
    page.run(after)
    assert page.written_to("new-out") == all_of(orders, {0: 8, 1: 5}) - all_of(orders, {0: 5, 1: 3})
    starts, _ = command(kafka, "export-checkpoint", group)
    shown = '{"orders":{"0":8,"1":5}}'
    assert starts.strip() == shown.replace("orders", orders)
    produce(kafka.bootstrap_servers, orders, {0: 1}, start=8)
    page.run(back.replace(shown, starts.strip()))
    assert page.written_to("last-out") == Counter({(orders, 0, 8): 1})


def test_the_code_continues_where_a_dstream_has_committed(
    kafka: Kafka, orders: str, group: str, page: Page, tmp_path: Path
) -> None:
    """A DStream commits like any program that is not a member of the group."""
    (after,) = blocks("From a DStream")
    produce(kafka.bootstrap_servers, orders, {0: 5, 1: 3})
    reset(kafka.bootstrap_servers, group, orders, {0: 4, 1: 1})
    folder = tmp_path / "written"
    folder.mkdir()

    def write(rows: Iterator[Any]) -> None:
        lines = [row.value for row in rows]
        (folder / uuid.uuid4().hex).write_text("\n".join(lines), encoding="utf-8")

    page.run(after, write=write)
    found = sorted(line for file in folder.iterdir() for line in file.read_text(encoding="utf-8").splitlines())
    assert found == ["0:4", "1:1", "1:2"]


def test_the_code_continues_where_a_consumer_has_committed(kafka: Kafka, orders: str, group: str, page: Page) -> None:
    before, after = blocks("From a plain consumer")
    produce(kafka.bootstrap_servers, orders, {0: 5, 1: 3})
    handled: list[bytes] = []
    names: dict[str, Any] = {"running": True}

    def handle(_key: bytes, value: bytes) -> None:
        handled.append(value)
        names["running"] = len(handled) < 4

    names["handle"] = handle
    exec(page.code(before), names)
    assert len(handled) == 4
    page.run(after, handle=handle)
    assert sorted(handled) == [b"0:0", b"0:1", b"0:2", b"0:3", b"0:4", b"1:0", b"1:1", b"1:2"]
