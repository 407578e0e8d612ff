"""The sink with real Kafka: it writes rows once or not at all, and reports failures."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from integration.cluster import Stream, has_open_transactions
from integration.pipelines import Application, Pipeline, wait_for
from integration.processes import Part
from pyspark_kafka_group.cluster import transactions
from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.offsets.errors import DeliveryError, SinkTransactionError
from pyspark_kafka_group.testing import ExistingKafka, Kafka, LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.writing import batch_transactions
from pyspark_kafka_group.writing.batch_transactions import BatchTransactions
from pyspark_kafka_group.writing.commit_decision import TaskMessage, Transaction
from pyspark_kafka_group.writing.options import WriterSettings, parse_write_options
from pyspark_kafka_group.writing.producer import SinkProducer
from pyspark_kafka_group.writing.producer_cache import open_producer
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import RecordColumns, Rows, record_rows
from pyspark_kafka_group.writing.row_digest import digest_of

PRODUCE, TXN_OFFSET_COMMIT = 0, 28  # Kafka's API keys

EXACTLY_ONCE = {"delivery": "exactly-once"}


def values(kafka: Kafka, topic: str) -> Counter[str]:
    """Return how often a consumer with ``read_committed`` reads each value."""
    return Counter((record.value or b"").decode() for record in kafka.read(topic))


def wait_for_values(kafka: Kafka, topic: str, expected: Mapping[str, int]) -> None:
    """Wait until no transaction is open, and compare the values.

    A broker acknowledges the end of a transaction before the end reaches all partitions.
    """
    wait_for(lambda: not has_open_transactions(kafka.bootstrap_servers, topic), f"{topic} without open transactions")
    assert values(kafka, topic) == expected


# ------------------------------------------------------------ transactions, without Spark


class Query:
    """Runs the steps of the tasks and of the driver of a query, one by one.

    Parameters
    ----------
    kafka, topic, name
        The cluster, the output topic, and the id of the query.
    options
        More options of the sink.
    """

    def __init__(self, kafka: Kafka, topic: str, name: str, **options: str) -> None:
        self.topic, self.name = topic, name
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **EXACTLY_ONCE}
        self.settings: WriterSettings = parse_write_options(
            given | {name.replace("__", "."): value for name, value in options.items()}
        )

    def transactions(self) -> BatchTransactions:
        return BatchTransactions(self.settings, self.name)

    def producer(self, task: int, attempt: int = 0) -> tuple[SinkProducer, Transaction]:
        """Return a producer with an open transaction."""
        config = producer_config(self.settings.properties)
        with self.transactions() as transactions:
            slot, _ = transactions.free_slot(task, attempt)
            producer = open_producer({**config, "transactional.id": transactions.transactional_id(task, slot)})
            producer.begin_transaction()
            return producer, transactions.opened(task, slot)

    def rows(self, found: list[str], topic: str | None = None) -> Rows:
        batch = pa.record_batch({"value": pa.array(found, pa.string())})
        return record_rows(batch, RecordColumns(value=0), topic or self.topic)

    def send(self, producer: SinkProducer, found: list[str], topic: str | None = None) -> None:
        producer.send(self.rows(found, topic))
        producer.flush()

    def task(
        self, batch: int | None, task: int, found: list[str], *, attempt: int = 0, topic: str | None = None
    ) -> TaskMessage:
        """Write the rows of a task in a transaction, and return its message to the driver."""
        digest = digest_of(self.rows(found, topic))
        with self.transactions() as transactions:
            if batch is not None and transactions.was_decided(batch):
                return TaskMessage(rows=0, name=self.name, decided=True, digest=digest)
        producer, transaction = self.producer(task, attempt)
        self.send(producer, found, topic)
        producer.close()
        return TaskMessage(len(found), self.name, (topic or self.topic,), transaction, digest=digest)

    def commit(self, messages: list[TaskMessage], batch: int | None) -> None:
        """Commit the transactions of the tasks, as the driver does."""
        with self.transactions() as transactions:
            transactions.commit(messages, batch)

    def run(self, batch: int, tasks: list[list[str]]) -> None:
        """Run the tasks of a batch and commit it."""
        self.commit([self.task(batch, number, found) for number, found in enumerate(tasks)], batch)

    def die(self, messages: list[TaskMessage], batch: int, step: str) -> None:
        """Commit like the driver, but die before a step."""

        def dying(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(BatchTransactions, step, dying)
            self.commit(messages, batch)


@pytest.fixture
def query(kafka: Kafka, topic: TopicFactory, group: str) -> Query:
    return Query(kafka, topic(2), group)


def test_nothing_can_be_seen_before_the_driver_commits(kafka: Kafka, query: Query) -> None:
    messages = [query.task(0, 0, ["a"]), query.task(0, 1, ["b"])]
    assert not values(kafka, query.topic)
    query.commit(messages, 0)
    wait_for_values(kafka, query.topic, {"a": 1, "b": 1})


def test_a_crash_before_the_decision_leaves_nothing_however_tasks_change(
    kafka: Kafka, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four tasks have written, and the driver dies during its decision."""
    monkeypatch.setattr(batch_transactions, "_DECISION_S", 3.0)
    query.run(0, [["0"], ["1"], ["2"], ["3"]])
    query.die([query.task(1, number, [found]) for number, found in enumerate(["a", "b", "c", "d"])], 1, "_decide")
    # The next run has other tasks, and Spark retries one of them.  Its commit aborts all other transactions.
    query.task(1, 0, ["a", "c"])
    query.commit([query.task(1, 0, ["a", "c"], attempt=1), query.task(1, 1, ["b", "d"])], 1)
    wait_for_values(kafka, query.topic, dict.fromkeys("0123abcd", 1))


def test_a_crash_behind_the_decision_is_finished_by_the_next_run(kafka: Kafka, query: Query) -> None:
    """The driver dies after it has committed one of three transactions.  The next run has other tasks."""
    messages = [query.task(0, number, [str(number)]) for number in range(3)]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        end = Cluster.end

        def die(self: Cluster, producers: Mapping[str, Any], **more: Any) -> Any:
            if len(producers) == 1:  # the decision
                return end(self, producers, **more)
            end(self, dict([*producers.items()][:1]), **more)
            raise KeyboardInterrupt

        patch.setattr(Cluster, "end", die)
        query.commit(messages, 0)
    wait_for(lambda: values(kafka, query.topic).total() == 1, "one of three")
    killed, _ = query.producer(7)  # an attempt that was killed in the first run
    query.send(killed, ["killed"])
    killed.close()
    query.run(0, [["0", "1", "2"]])
    wait_for_values(kafka, query.topic, {"0": 1, "1": 1, "2": 1})
    query.run(0, [["0"], ["1", "2"]])  # the same batch once more
    query.run(1, [["3"]])
    wait_for_values(kafka, query.topic, {"0": 1, "1": 1, "2": 1, "3": 1})


def test_a_task_never_takes_a_transaction_that_is_open(kafka: Kafka, query: Query) -> None:
    """Regression: after Spark lost a stage, two attempts had the same transactional id.

    A late attempt then aborted the transaction that the driver had decided to commit.
    """
    message = query.task(0, 0, ["a"])
    late, opened = query.producer(0)  # the same number of task and attempt
    assert message.transaction is not None
    assert opened.slot != message.transaction.slot
    query.send(late, ["late"])
    query.die([message], 0, "_commit_all")
    later, _ = query.producer(0)  # an attempt that resumes after the decision
    query.send(later, ["later"])
    query.run(0, [["a"]])
    late.close()
    later.close()
    wait_for_values(kafka, query.topic, {"a": 1})


def test_what_the_driver_does_not_commit_is_aborted_for_good(kafka: Kafka, query: Query) -> None:
    """At the commit of the batch, an abandoned attempt still writes, and another attempt is about to begin."""
    given_up, _ = query.producer(0)
    query.send(given_up, ["early"])
    empty, _ = query.producer(9)
    query.run(0, [["a"]])
    wait_for_values(kafka, query.topic, {"a": 1})  # until then, late records still belong to the aborted transaction
    for producer in (given_up, empty):
        with pytest.raises(DeliveryError, match=r"FENCED|INVALID_PRODUCER_EPOCH"):
            query.send(producer, ["late"])
        producer.close()
    wait_for_values(kafka, query.topic, {"a": 1})


@pytest.mark.parametrize("stream", [True, False])
def test_what_attempts_have_left_open_is_aborted_when_the_job_fails(kafka: Kafka, query: Query, stream: bool) -> None:
    """Regression: the abort skipped an attempt if the previous one had not begun.  Readers waited for 15 minutes."""
    for task, attempt, found in ((0, 1, ["a"]), (1, 0, ["b"])):
        producer, _ = query.producer(task, attempt)
        query.send(producer, found)
        producer.close()
    empty, _ = query.producer(2, 3)  # a producer that has sent nothing yet
    with query.transactions() as transactions:
        transactions.abort_all(stream=stream)
    with pytest.raises(DeliveryError):
        query.send(empty, ["late"])
    empty.close()
    wait_for_values(kafka, query.topic, {})


def test_an_old_copy_of_the_checkpoint_is_refused(query: Query) -> None:
    query.run(0, [["a"]])
    query.run(1, [["b"]])
    with pytest.raises(SinkTransactionError, match="restored from an older copy"):
        query.run(0, [["c"]])


def test_a_copy_of_the_checkpoint_that_writes_to_another_topic_is_refused(
    kafka: Kafka, topic: TopicFactory, query: Query, group: str
) -> None:
    """Regression: the original took a batch of the copy for its own and did not write it, so its rows were lost."""
    query.run(0, [["a"]])
    Query(kafka, topic(1), group).run(1, [["b"]])
    with pytest.raises(SinkTransactionError, match="another query runs with a copy of this checkpoint"):
        query.run(1, [["b"]])


@pytest.fixture(scope="module")
def behind_a_proxy() -> Iterator[LocalKafka]:
    """Yield a broker with a proxy."""
    with LocalKafka(proxied=True) as cluster:
        yield cluster


def test_a_decision_that_arrives_late_changes_nothing(
    behind_a_proxy: LocalKafka, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the sink retried a request without an answer.

    The first request arrived after the next decision and overwrote it, and the sink wrote the next batch twice.
    """
    monkeypatch.setattr(transactions, "_ATTEMPT_S", 1.0)
    cluster = behind_a_proxy
    cluster.create_topic(group, 1)
    direct = Query(cluster, group, group)
    proxied = Query(cluster, group, group, kafka__bootstrap__servers=cluster.proxied_bootstrap_servers)
    direct.run(0, [["a"]])
    messages = [proxied.task(1, 0, ["b"])]
    held = cluster.proxy.hold(TXN_OFFSET_COMMIT)
    proxied.commit(messages, 1)
    assert held.wait(0), "the first request never arrived"
    direct.run(2, [["c"]])
    held.release()
    time.sleep(1)  # no event to wait for: the broker answers on a closed connection
    direct.run(2, [["c"]])
    wait_for_values(cluster, group, {"a": 1, "b": 1, "c": 1})


def test_of_two_drivers_one_decides(kafka: Kafka, query: Query) -> None:
    """Regression: both drivers checked before either had decided, and both committed their rows."""
    mine, others = [query.task(0, 0, ["a"]), query.task(0, 1, ["b"])], [query.task(0, 5, ["a", "b"])]
    decide = BatchTransactions._decide

    def late(self: BatchTransactions, *given: Any) -> None:
        patch.undo()
        query.commit(others, 0)
        decide(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchTransactions, "_decide", late)
        with pytest.raises(SinkTransactionError, match="checkpoint is in use twice"):
            query.commit(mine, 0)
    wait_for_values(kafka, query.topic, {"a": 1, "b": 1})


# ---------------------------------------------------------------------- faults, without Spark


def test_a_request_that_arrives_late_is_not_written_twice(behind_a_proxy: LocalKafka, group: str) -> None:
    """The connection breaks, and the producer sends the batch again before the broker gets the first request."""
    cluster = behind_a_proxy
    cluster.create_topic(group, 1)
    query = Query(cluster, group, group, kafka__bootstrap__servers=cluster.proxied_bootstrap_servers)
    producer = open_producer(producer_config(query.settings.properties))
    query.send(producer, ["a"])
    with ThreadPoolExecutor(1) as thread:
        for number in range(3):
            held = cluster.proxy.hold(PRODUCE)
            sent = thread.submit(query.send, producer, [f"b{number}", f"c{number}"])
            assert held.wait(10), "no request"
            held.disconnect()
            sent.result()
            held.release()
            query.send(producer, [f"d{number}"])
    producer.close()
    time.sleep(1)  # no event to wait for: the broker answers on a closed connection
    found = [(record.value or b"").decode() for record in cluster.read(group)]
    assert found == ["a", *(f"{letter}{number}" for number in range(3) for letter in "bcd")]


def test_leaders_that_die_lose_repeat_and_reorder_nothing(group: str) -> None:
    with LocalKafka(3) as cluster, ThreadPoolExecutor(1) as thread:
        cluster.create_topic("t", 3, replication_factor=3, config={"min.insync.replicas": "2"})
        query = Query(cluster, "t", group)
        producer = open_producer(producer_config({**query.settings.properties, "batch.size": "1000"}))
        ends = threading.Event()

        def write() -> int:
            count = 0
            while not ends.is_set():
                rows = pa.record_batch(
                    {
                        "value": pa.array([str(n) for n in range(count, count + 300)], pa.string()),
                        "partition": pa.array([n % 3 for n in range(count, count + 300)], pa.int32()),
                    }
                )
                producer.send(record_rows(rows, RecordColumns(value=0, partition=1), "t"))
                producer.flush()
                count += 300
                time.sleep(0.05)
            return count

        writing = thread.submit(write)
        try:
            for broker_id in (1, 2):
                time.sleep(1)
                cluster.kill(broker_id)
                time.sleep(1)
                cluster.restart(broker_id)
        finally:
            ends.set()
        count = writing.result()
        producer.close()
        found: dict[int, list[str]] = {0: [], 1: [], 2: []}
        for record in cluster.read("t"):
            found[record.partition].append((record.value or b"").decode())
        assert found == {number: [str(n) for n in range(number, count, 3)] for number in range(3)}


# ---------------------------------------------------------------------------- with Spark


@pytest.fixture
def write(spark: SparkSession, kafka: Kafka) -> Callable[..., None]:
    """Return a function that writes rows as a batch job."""

    def save(rows: DataFrame | str, mode: str | None = "append", **options: str) -> None:
        found = spark.sql(rows) if isinstance(rows, str) else rows
        given = {name.replace("__", "."): value for name, value in options.items()}
        writer = found.write.format("kafka-group").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        (writer if mode is None else writer.mode(mode)).options(**given).save()

    return save


def failing(folder: Path, kafka: Kafka, topic: str) -> Any:
    """Return a function for ``mapInArrow`` that fails once in partition 1, after other tasks have written records."""
    servers = kafka.bootstrap_servers

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        failed = folder / "failed"
        if context is not None and context.partitionId() == 1 and not failed.exists():
            failed.touch()
            wait_for(
                lambda: ExistingKafka(servers).read(topic, isolation_level="read_uncommitted"), "what others write"
            )
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
    """A task fails, Spark's commit log loses a batch, and the number of tasks changes each time."""
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
    # Without exactly-once, the sink writes the same rows twice.
    run(twice, 2, "twice")
    forget("twice")
    run(twice, 2, "twice")
    wait_for_values(kafka, twice, {str(n): 2 for n in range(60)})


def test_a_query_that_is_stopped_before_a_task_has_ended_holds_nobody_up(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, tmp_path: Path
) -> None:
    """Regression: the task took the end of its connection for the end of its rows and succeeded.

    Its transaction then stayed open for 15 minutes.
    """
    out, servers = topic(1), kafka.bootstrap_servers
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("a\nb")

    def never_done(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        for _ in range(20):  # enough that Spark passes some to the sink
            yield pa.record_batch({"value": ["x" * 100] * 10_000})
        time.sleep(600)

    rows = spark.readStream.text(str(tmp_path / "in"))
    writer = rows.mapInArrow(never_done, rows.schema).writeStream.format("kafka-group")
    writer = writer.option("kafka.bootstrap.servers", servers).options(topic=out, **EXACTLY_ONCE)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_for(lambda: has_open_transactions(servers, out), "a transaction is open")
    query.stop()
    wait_for(lambda: not has_open_transactions(servers, out), "the transaction has ended", timeout_s=30)
    assert not values(kafka, out)


@pytest.fixture
def protocol() -> str:
    """Return one protocol only: the sink does not depend on it."""
    return "consumer"


@pytest.fixture
def cluster() -> Iterator[LocalKafka]:
    """Yield a cluster for this test, which restarts its broker."""
    with LocalKafka() as kafka:
        yield kafka


@pytest.mark.timeout(900)  # starts an application twice; each start takes a minute on a busy machine
def test_copies_under_restarts_lose_nothing_and_double_nothing(
    cluster: LocalKafka, options: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """Like Kafka's own group_mode_transactions_test: a transactional copy, with restarts of copier and broker.

    The last copier runs in the test's own session, from the checkpoint of the application that was killed.
    """
    servers = cluster.bootstrap_servers
    cluster.create_topic("input", 4)
    cluster.create_topic("output", 3)
    options = {**options, "kafka.bootstrap.servers": servers, "subscribe": "input", "maxOffsetsPerTrigger": "200"}
    write = {"kafka.bootstrap.servers": servers, "topic": "output", **EXACTLY_ONCE}
    copier = Application(tmp_path, "copier", options, trigger="500 milliseconds").configure(write=write)
    last = Pipeline(spark, tmp_path, options, "copier")

    def copied() -> Counter[str]:
        return values(cluster, "output")

    def more_than(count: int) -> Callable[[], bool]:
        def reached() -> bool:
            copier.check()
            return copied().total() > count

        return reached

    try:
        # Deliberate: a low rate.  Records also arrive while Spark starts three times, and the copier has small batches.
        with Stream(servers, {"input": 4}, per_second=40) as stream:
            copier.start()
            wait_for(more_than(0), "a first batch")
            copier.send(signal.SIGKILL, Part.WORKER)  # kills the tasks: the running batch fails, and then the query
            copier.kill()
            before = copied().total()
            copier.start()
            wait_for(more_than(before), "more after a restart")
            cluster.restart(1)
            copier.kill()
            before = copied().total()
            writer = last.load().select("key", "value").writeStream.format("kafka-group").options(**write)
            writer = writer.option("checkpointLocation", str(last.checkpoint))
            last.query = writer.trigger(processingTime="500 milliseconds").start()
            wait_for(lambda: copied().total() > before, "more after another restart")
        produced = sum(stream.produced.values())
        wait_for(lambda: copied().total() >= produced, "everything is copied")
        last.stop_cleanly()
    finally:
        copier.kill()
        last.stop()
    found = copied()
    sent = Counter((record.value or b"").decode() for record in cluster.read("input"))
    assert found == sent
    assert set(found.values()) == {1}


# ------------------------------------------------------------------------------- errors


def test_sparks_default_mode_is_refused(write: Callable[..., None]) -> None:
    """Spark refuses its default ErrorIfExists for every Python data source.  For the others, see `test_parity_sink`."""
    with pytest.raises(PySparkException, match='"ErrorIfExists" mode'):
        write("select 'x' as value", None, topic="t")
