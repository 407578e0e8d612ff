"""The sink against real Kafka: what is written once, what is not written at all, and how failures are told."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from integration.cluster import Stream, has_open_transactions, records
from integration.pipelines import Application, wait_for
from integration.processes import Part
from pyspark_kafka_group.offsets.errors import DeliveryError, SinkTransactionError
from pyspark_kafka_group.testing import Kafka, LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions, TaskMessage
from pyspark_kafka_group.writing.columns import RecordColumns
from pyspark_kafka_group.writing.decisions import Transaction, sink_transactional_id
from pyspark_kafka_group.writing.native_producer import open_producer
from pyspark_kafka_group.writing.options import WriterSettings, parse_write_options
from pyspark_kafka_group.writing.producer import SinkProducer
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import record_rows

EXACTLY_ONCE = {"delivery": "exactly-once"}


def values(kafka: Kafka, topic: str) -> Counter[str]:
    """How often each value can be read by consumers that read what is committed."""
    return Counter((record.value or b"").decode() for record in records(kafka.bootstrap_servers, topic))


def wait_for_values(kafka: Kafka, topic: str, expected: Mapping[str, int]) -> None:
    """Wait until no transaction is open, for its end reaches the partitions after it was acknowledged; then compare."""
    wait_for(lambda: not has_open_transactions(kafka.bootstrap_servers, topic), f"{topic} without open transactions")
    assert values(kafka, topic) == expected


# ------------------------------------------------------------ transactions, without Spark


class Query:
    """What the tasks and the driver of a query do, step by step.

    Parameters
    ----------
    kafka, topic, name
        The cluster, where to write, and the id of the query.
    """

    def __init__(self, kafka: Kafka, topic: str, name: str) -> None:
        self.topic, self.name = topic, name
        self.settings: WriterSettings = parse_write_options(
            {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **EXACTLY_ONCE}
        )

    def transactions(self) -> BatchTransactions:
        return BatchTransactions(self.settings, self.name)

    def producer(self, task: int, attempt: int = 0) -> tuple[SinkProducer, Transaction]:
        """Return a producer in a transaction."""
        config = producer_config(self.settings.properties)
        producer = open_producer({**config, "transactional.id": sink_transactional_id(self.name, task, attempt)})
        producer.begin_transaction()
        with self.transactions() as transactions:
            return producer, transactions.opened(task, attempt)

    def send(self, producer: SinkProducer, found: list[str]) -> None:
        batch = pa.record_batch({"value": pa.array(found, pa.string())})
        producer.send(record_rows(batch, RecordColumns(value=0), self.topic))
        producer.flush()

    def task(self, batch: int, task: int, found: list[str], *, attempt: int = 0) -> TaskMessage:
        """Do what a task does."""
        with self.transactions() as transactions:
            if transactions.was_decided(batch):
                return TaskMessage(rows=0, name=self.name, decided=True)
        producer, transaction = self.producer(task, attempt)
        self.send(producer, found)
        producer.close()
        return TaskMessage(rows=len(found), name=self.name, topic=self.topic, transaction=transaction)

    def run(self, batch: int, tasks: list[list[str]]) -> None:
        """Do what a batch does."""
        messages = [self.task(batch, number, found) for number, found in enumerate(tasks)]
        with self.transactions() as transactions:
            transactions.commit(messages, batch)


@pytest.fixture
def query(kafka: Kafka, topic: TopicFactory, group: str) -> Query:
    return Query(kafka, topic(2), group)


def test_nothing_can_be_seen_before_the_driver_commits(kafka: Kafka, query: Query) -> None:
    messages = [query.task(0, 0, ["a"]), query.task(0, 1, ["b"])]
    assert not values(kafka, query.topic)
    with query.transactions() as transactions:
        transactions.commit(messages, 0)
    wait_for_values(kafka, query.topic, {"a": 1, "b": 1})


def test_a_crash_before_the_decision_leaves_nothing_however_tasks_change(kafka: Kafka, query: Query) -> None:
    """Four tasks have written, one in its second attempt, a fifth has not, and the driver is gone."""
    query.run(0, [["0"], ["1"], ["2"], ["3"]])
    for number, found in enumerate(["a", "b", "c", "d"]):
        query.task(1, number, [found])
    # The next run has other tasks, of which one is tried again; the others' transactions are aborted when it commits.
    tried = query.task(1, 0, ["a", "c"])
    messages = [query.task(1, 0, ["a", "c"], attempt=1), query.task(1, 1, ["b", "d"])]
    assert tried.transaction is not None
    with query.transactions() as transactions:
        transactions.commit(messages, 1)
    wait_for_values(kafka, query.topic, dict.fromkeys("0123abcd", 1))


def test_a_crash_behind_the_decision_is_finished_by_the_next_run(kafka: Kafka, query: Query) -> None:
    """The driver dies when one of three transactions is committed; the next run has other tasks."""
    messages = [query.task(0, number, [str(number)]) for number in range(3)]
    with query.transactions() as transactions, pytest.MonkeyPatch.context() as patch:
        commit = BatchTransactions._end
        ended: list[int] = []

        def die(self: BatchTransactions, transaction: Transaction, **more: Any) -> str:
            if ended:
                raise KeyboardInterrupt
            ended.append(transaction.task)
            return commit(self, transaction, **more)

        patch.setattr(BatchTransactions, "_end", die)
        with pytest.raises(KeyboardInterrupt):
            transactions.commit(messages, 0)
    wait_for(lambda: values(kafka, query.topic).total() == 1, "one of three")
    query.run(0, [["0", "1", "2"]])
    wait_for_values(kafka, query.topic, {"0": 1, "1": 1, "2": 1})
    query.run(0, [["0"], ["1", "2"]])  # and once more
    query.run(1, [["3"]])
    wait_for_values(kafka, query.topic, {"0": 1, "1": 1, "2": 1, "3": 1})


def test_a_task_whose_place_was_taken_writes_nothing_any_more(kafka: Kafka, query: Query) -> None:
    """A zombie wakes up when the next run of its task has begun, and the other way round."""
    zombie, _ = query.producer(0)
    query.send(zombie, ["early"])
    message = query.task(0, 0, ["a"])
    with pytest.raises(DeliveryError, match=r"_FENCED.*Another attempt of this task"):
        query.send(zombie, ["late"])
    zombie.close()
    # Here the late one comes when the task was done, and before the driver has committed.
    late, _ = query.producer(0)
    query.send(late, ["late"])
    with (
        query.transactions() as transactions,
        pytest.raises(SinkTransactionError, match="Nothing of the batch can be seen"),
    ):
        transactions.commit([message], 0)
    late.close()
    query.run(0, [["a"]])
    wait_for_values(kafka, query.topic, {"a": 1})


def test_a_decision_that_came_too_late_for_a_transaction_says_what_is_lost(kafka: Kafka, query: Query) -> None:
    messages = [query.task(0, 0, ["a"]), query.task(0, 1, ["b"])]
    with query.transactions() as transactions, pytest.MonkeyPatch.context() as patch:

        def decide_and_die(self: BatchTransactions, *_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(BatchTransactions, "_commit_all", decide_and_die)
        with pytest.raises(KeyboardInterrupt):
            transactions.commit(messages, 0)
    query.producer(1)[0].close()  # aborts it, as the coordinator does after kafka.transaction.timeout.ms
    with pytest.raises(SinkTransactionError, match=r"transactions of tasks \[1\] are gone"):
        query.run(0, [["a"], ["b"]])
    wait_for_values(kafka, query.topic, {"a": 1})


def test_an_old_copy_of_the_checkpoint_is_refused(query: Query) -> None:
    query.run(0, [["a"]])
    query.run(1, [["b"]])
    with pytest.raises(SinkTransactionError, match="restored from an older copy"):
        query.run(0, [["c"]])


# ---------------------------------------------------------------------------- with Spark


@pytest.fixture
def write(spark: SparkSession, kafka: Kafka) -> Callable[..., None]:
    """Write rows as a batch job."""

    def save(rows: DataFrame | str, mode: str | None = "append", **options: str) -> None:
        found = spark.sql(rows) if isinstance(rows, str) else rows
        given = {name.replace("__", "."): value for name, value in options.items()}
        writer = found.write.format("kafka-group").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        (writer if mode is None else writer.mode(mode)).options(**given).save()

    return save


def failing(folder: Path, kafka: Kafka, topic: str) -> Any:
    """Return a function for ``mapInArrow`` that fails once in partition 1, when other tasks have written something."""
    servers = kafka.bootstrap_servers

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        failed = folder / "failed"
        if context is not None and context.partitionId() == 1 and not failed.exists():
            failed.touch()
            wait_for(lambda: records(servers, topic, isolation_level="read_uncommitted"), "what others write")
            raise RuntimeError("on purpose")

    return pass_on


def test_a_batch_job_that_fails_leaves_nothing(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, write: Callable[..., None], tmp_path: Path
) -> None:
    def rows(target: str) -> DataFrame:
        found = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as value")
        return found.mapInArrow(failing(tmp_path, kafka, target), found.schema)

    whole, partly = topic(2), topic(2)
    with pytest.raises(PySparkException, match="on purpose"):
        write(rows(partly), topic=partly)
    assert values(kafka, partly)  # as with Spark's own sink
    (tmp_path / "failed").unlink()
    with pytest.raises(PySparkException, match="on purpose"):
        write(rows(whole), topic=whole, **EXACTLY_ONCE)
    wait_for_values(kafka, whole, {})
    write(rows(whole), topic=whole, **EXACTLY_ONCE)
    wait_for_values(kafka, whole, {str(n): 1 for n in range(100)})


def test_a_stream_writes_each_row_once_whatever_fails(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, tmp_path: Path
) -> None:
    """A task fails; the driver forgets that a batch was committed; the number of tasks changes each time."""
    out, twice = topic(3), topic(3)
    numbers, failures = tmp_path / "numbers", tmp_path / "failures"
    numbers.mkdir()
    failures.mkdir()

    def run(target: str, tasks: int, name: str, **more: str) -> None:
        rows = spark.readStream.text(str(numbers)).repartition(tasks)
        rows = rows.mapInArrow(failing(failures, kafka, target), rows.schema)
        writer = rows.writeStream.format("kafka-group").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer = writer.options(topic=target, checkpointLocation=str(tmp_path / name), **more)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(90)

    def forget(name: str) -> None:
        newest = max(int(file.name) for file in (tmp_path / name / "commits").glob("[0-9]*"))
        for file in (tmp_path / name / "commits").glob(f"*{newest}*"):
            file.unlink()

    (numbers / "a").write_text("\n".join(map(str, range(50))))
    with pytest.raises(PySparkException, match="on purpose"):
        run(out, 2, "once", **EXACTLY_ONCE)
    assert not values(kafka, out)
    run(out, 3, "once", **EXACTLY_ONCE)
    wait_for_values(kafka, out, {str(n): 1 for n in range(50)})
    forget("once")
    run(out, 5, "once", **EXACTLY_ONCE)
    (numbers / "b").write_text("\n".join(map(str, range(50, 60))))
    run(out, 2, "once", **EXACTLY_ONCE)
    wait_for_values(kafka, out, {str(n): 1 for n in range(60)})
    # Without it the same is written twice.
    run(twice, 2, "twice")
    forget("twice")
    run(twice, 2, "twice")
    wait_for_values(kafka, twice, {str(n): 2 for n in range(60)})


@pytest.fixture
def protocol() -> str:
    """The sink does not care."""
    return "consumer"


@pytest.fixture
def cluster() -> Iterator[LocalKafka]:
    """Yield a cluster of the test's own, whose broker is restarted."""
    with LocalKafka() as kafka:
        yield kafka


@pytest.mark.timeout(900)  # three starts of an application, each of which takes a minute on a machine that is busy
def test_copies_under_restarts_lose_nothing_and_double_nothing(
    cluster: LocalKafka, options: dict[str, str], tmp_path: Path
) -> None:
    """As Kafka's own group_mode_transactions_test: a copy by transactions, with bounces of copier and broker."""
    servers = cluster.bootstrap_servers
    cluster.create_topic("input", 4)
    cluster.create_topic("output", 3)
    options = {**options, "kafka.bootstrap.servers": servers, "subscribe": "input", "maxOffsetsPerTrigger": "200"}
    copier = Application(tmp_path, "copier", options, trigger="500 milliseconds").configure(
        write={"kafka.bootstrap.servers": servers, "topic": "output", **EXACTLY_ONCE}
    )

    def copied() -> Counter[str]:
        return values(cluster, "output")

    def more_than(count: int) -> Callable[[], bool]:
        def reached() -> bool:
            copier.check()
            return copied().total() > count

        return reached

    try:
        # Deliberate: no faster.  Records come while Spark starts three times, and are copied in small batches.
        with Stream(servers, {"input": 4}, per_second=40) as stream:
            copier.start()
            wait_for(more_than(0), "a first batch")
            copier.send(signal.SIGKILL, Part.WORKER)  # the tasks: the running batch fails, and with it the query
            copier.kill()
            before = copied().total()
            copier.start()
            wait_for(more_than(before), "more after a restart")
            cluster.restart(1)
            copier.kill()
            before = copied().total()
            copier.start()
            wait_for(more_than(before), "more after another restart")
        produced = sum(stream.produced.values())
        wait_for(lambda: copied().total() >= produced, "everything is copied")
        copier.stop()
    finally:
        copier.kill()
    found = copied()
    sent = Counter((record.value or b"").decode() for record in records(servers, "input"))
    assert found == sent
    assert set(found.values()) == {1}


def test_the_examples_of_the_page_run(spark: SparkSession, kafka: Kafka, topic: TopicFactory, tmp_path: Path) -> None:
    page = Path(__file__).parents[1] / "docs" / "sink.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "a").write_text("c\nd")
    given = {
        "spark": spark,
        "servers": kafka.bootstrap_servers,
        "topic": topic(),
        "stream": spark.readStream.text(str(tmp_path / "numbers")).selectExpr("value as key", "value"),
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    for example in examples:
        exec(example, given)
    query: Any = given["query"]
    query.awaitTermination(60)
    assert values(kafka, str(given["topic"])) == {"1": 1, "2": 1, "C": 1, "D": 1}


# ------------------------------------------------------------------------------- errors


def test_a_topic_that_does_not_exist(write: Callable[..., None]) -> None:
    with pytest.raises(PySparkException, match=r"(?s)no-such-topic.*UNKNOWN_TOPIC.*Create it, correct the name"):
        write("select 'x' as value", topic="no-such-topic", kafka__max__block__ms="1000")


def test_an_unreachable_cluster_is_told_in_bounded_time(write: Callable[..., None]) -> None:
    begin = time.monotonic()
    with pytest.raises(PySparkException, match=r"(?s)_MSG_TIMED_OUT.*Check kafka\.bootstrap\.servers"):
        write(
            "select 'x' as value",
            topic="t",
            kafka__bootstrap__servers="127.0.0.1:1",
            kafka__delivery__timeout__ms="2000",
            kafka__sasl__password="hunter22",
        )
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("overwrite", "Save mode Overwrite not allowed for Kafka"),
        ("ignore", '"Ignore" mode'),
        (None, '"ErrorIfExists" mode'),
    ],
)
def test_save_modes_that_kafka_or_spark_cannot_do(write: Callable[..., None], mode: str | None, text: str) -> None:
    """Spark itself refuses ErrorIfExists, its default, for every Python data source."""
    with pytest.raises(PySparkException) as raised:
        write("select 'x' as value", mode, topic="t")
    assert text in str(raised.value)


def test_a_misspelt_option_of_a_write(write: Callable[..., None]) -> None:
    with pytest.raises(PySparkException, match="Did you mean 'topic'"):
        write("select 'x' as value", topics="t")
