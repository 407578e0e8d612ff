"""Batch reads of Spark's own source and of this one, side by side in one session: an application of its own.

Spark's source needs jars on the class path when the JVM starts, which the other tests do without.  Prints one JSON
object: for each scenario what either source gave, its rows or the text of its error.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_jars import builtin_source_jars

SOURCES = ("kafka", "kafka-group")
_AT_A_TIME = 4
SCENARIOS: dict[str, Callable[[Run], Any]] = {}


def scenario(function: Callable[[Run], Any]) -> Callable[[Run], Any]:
    """Add a scenario; what it returns is compared."""
    SCENARIOS[function.__name__] = function
    return function


class Run:
    """One scenario with one source; topics are its own."""

    def __init__(self, spark: SparkSession, servers: str, source: str) -> None:
        self.spark, self.servers, self.source = spark, servers, source
        self.admin = AdminClient({"bootstrap.servers": servers})

    def topic(self, partitions: int = 3) -> str:
        """Create a topic; its name does not depend on the source, except for its end."""
        name = f"topic-{uuid.uuid4().hex[:8]}"
        for future in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result()
        return name

    def send(self, topic: str, values: Any, partition: int, **record: Any) -> None:
        """Produce values to a partition."""
        producer = Producer({"bootstrap.servers": self.servers})
        for value in values:
            producer.produce(topic, value=str(value), partition=partition, **record)
        assert producer.flush(30) == 0

    def filled(self) -> str:
        """Return a topic with 0 to 20 in three partitions."""
        topic = self.topic()
        self.send(topic, range(10), 0)
        self.send(topic, range(10, 20), 1)
        self.send(topic, [20], 2)
        return topic

    def timed(self) -> tuple[str, list[int]]:
        """Return a topic with 0 to 29 in three partitions, and the times of each ten of them and one after that."""
        topic = self.topic()
        first = int(time.time() * 1000) - 5000
        for n in range(3):
            for partition in range(3):
                values = [v for v in range(10 * n, 10 * n + 10) if v % 3 == partition]
                self.send(topic, values, partition, timestamp=first + 1000 * n)
        return topic, [first + 1000 * n for n in range(4)]

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records below an offset."""
        for future in self.admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            future.result()

    def read(self, **options: Any) -> DataFrame:
        """Return a DataFrame."""
        given = {key.replace("__", "."): str(value) for key, value in options.items() if value is not None}
        return self.spark.read.format(self.source).options(**{"kafka.bootstrap.servers": self.servers, **given}).load()

    def values(self, **options: Any) -> list[str]:
        """Return the values that are read."""
        return values(self.read(**options))


def values(records: DataFrame) -> list[str]:
    """Return the values of records, in order."""
    return sorted((row[0] for row in records.selectExpr("CAST(value AS STRING)").collect()), key=int)


def shown(records: DataFrame, *columns: str) -> list[str]:
    """Return some columns of records, as text."""
    return sorted(str(row) for row in records.select(*columns).collect())


def each(topic: str, *per_partition: int) -> str:
    """Return JSON with a number for each partition."""
    return json.dumps({topic: {str(n): number for n, number in enumerate(per_partition)}})


def read_twice(run: Run, change: Callable[[str], None], **options: Any) -> dict[str, Any]:
    """Read a DataFrame, change the topic, and read the same DataFrame again, and then a new one of the same options."""
    topic = options["subscribe"]
    records = run.read(**options).selectExpr("CAST(value AS STRING)")
    before = values(records)
    change(topic)
    try:
        same: Any = values(records)
    except Exception as problem:  # compared
        same = str(problem)
    return {"before": before, "same": same, "new": run.values(**options)}


@scenario
def read_again_after_more_records(run: Run) -> Any:
    return read_twice(run, lambda topic: run.send(topic, range(21, 30), 2), subscribe=run.filled())


@scenario
def read_again_in_cut_partitions(run: Run) -> Any:
    change = partial(run.send, values=range(21, 31), partition=0)
    return read_twice(run, change, subscribe=run.filled(), minPartitions=6)


@scenario
def read_again_after_records_were_deleted(run: Run) -> Any:
    topic = run.topic(1)
    run.send(topic, range(10), 0)

    def change(topic: str) -> None:
        run.delete_below(topic, 0, 10)
        run.send(topic, range(10, 20), 0)

    return read_twice(run, change, subscribe=topic)


@scenario
def defaults(run: Run) -> Any:
    return run.values(subscribe=run.filled())


@scenario
def schema(run: Run) -> Any:
    topic = run.filled()
    run.send(topic, ["x"], 0, key="k", headers=[("a", b"b"), ("a", None)])
    return [
        run.read(subscribe=topic).schema.json(),
        run.read(subscribe=topic, includeHeaders="true").schema.json(),
        shown(run.read(subscribe=topic, includeHeaders="true").where("key = 'k'"), "key", "value", "headers"),
        shown(run.read(subscribe=topic).where("offset = 3"), "partition", "offset", "timestampType"),
    ]


@scenario
def explicit_offsets(run: Run) -> Any:
    topic = run.filled()
    options = {"startingOffsets": each(topic, -2, -2, 0), "endingOffsets": each(topic, -1, -1, 1)}
    found = [run.values(subscribe=topic, **options)]
    run.send(topic, range(31, 40), 2)
    found.append(run.values(subscribe=topic, **options))
    run.send(topic, range(21, 31), 1)
    return [*found, run.values(subscribe=topic, **options)]


@scenario
def headers(run: Run) -> Any:
    topic = run.topic()
    run.send(topic, [1], 0)
    run.send(topic, [2], 1, headers=[("a", b"b"), ("c", b"d")])
    run.send(topic, [3], 2, headers=[("e", b"f"), ("e", b"g")])
    rows = run.read(subscribe=topic, includeHeaders="true").selectExpr("CAST(value AS STRING)", "headers").collect()
    return sorted(str(row) for row in rows)


@scenario
def times_at_both_ends(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(
        subscribe=topic,
        startingOffsetsByTimestamp=each(topic, *[at[1]] * 3),
        endingOffsetsByTimestamp=each(topic, *[at[2]] * 3),
    )


@scenario
def time_and_ending_offsets(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(
        subscribe=topic,
        startingOffsetsByTimestamp=each(topic, *[at[0]] * 3),
        endingOffsets=each(topic, -1, -1, 1),
    )


@scenario
def starting_offsets_and_time(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(
        subscribe=topic,
        startingOffsets=each(topic, -2, -2, 0),
        endingOffsetsByTimestamp=each(topic, *[at[2]] * 3),
    )


@scenario
def only_a_starting_time(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(subscribe=topic, startingOffsetsByTimestamp=each(topic, *[at[1]] * 3))


@scenario
def only_an_ending_time(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(subscribe=topic, endingOffsetsByTimestamp=each(topic, *[at[2]] * 3))


@scenario
def one_time_for_all(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(subscribe=topic, startingTimestamp=at[1], endingTimestamp=at[2])


@scenario
def precedence(run: Run) -> Any:
    topic, at = run.timed()
    by_partition = each(topic, *[at[1]] * 3)
    return [
        run.values(
            subscribe=topic,
            startingTimestamp=at[2],
            startingOffsetsByTimestamp=by_partition,
            startingOffsets="earliest",
        ),
        run.values(subscribe=topic, startingOffsetsByTimestamp=by_partition, startingOffsets="earliest"),
        run.values(
            subscribe=topic,
            endingTimestamp=at[1],
            endingOffsetsByTimestamp=each(topic, *[at[2]] * 3),
            endingOffsets="latest",
        ),
        run.values(subscribe=topic, endingOffsetsByTimestamp=by_partition, endingOffsets="latest"),
    ]


@scenario
def no_record_of_the_starting_time(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(subscribe=topic, startingOffsetsByTimestamp=each(topic, at[1], at[1], 2**63 - 1))


@scenario
def no_record_of_the_starting_time_and_latest(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(
        subscribe=topic,
        startingOffsetsByTimestamp=each(topic, at[1], at[1], at[3] + 10**9),
        startingOffsetsByTimestampStrategy="latest",
    )


@scenario
def no_record_of_the_ending_time(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(subscribe=topic, endingOffsetsByTimestamp=each(topic, at[1], at[1], 2**63 - 1))


@scenario
def the_same_records_twice_in_one_query(run: Run) -> Any:
    records = run.read(subscribe=run.filled())
    return values(records.union(records))


def _transactions(run: Run, level: str) -> Any:
    topic = run.topic(1)
    read = partial(run.values, subscribe=topic, kafka__isolation__level=level)
    producer = Producer({"bootstrap.servers": run.servers, "transactional.id": f"t-{uuid.uuid4().hex}"})
    producer.init_transactions(30)
    found = []
    for begin, end in ((1, "commit"), (6, "abort"), (11, "commit")):
        producer.begin_transaction()
        for n in range(begin, begin + 5):
            producer.produce(topic, value=str(n))
        producer.flush(30)
        found.append(read())
        if end == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        found.append(read())
    return found


@scenario
def transactions_read_committed(run: Run) -> Any:
    return _transactions(run, "read_committed")


@scenario
def transactions_read_uncommitted(run: Run) -> Any:
    return _transactions(run, "read_uncommitted")


@scenario
def min_partitions(run: Run) -> Any:
    topic = run.filled()
    records = run.read(subscribe=topic, minPartitions=6)
    return records.rdd.getNumPartitions() >= 6, values(records)


@scenario
def at_most_so_many_records_in_a_task(run: Run) -> Any:
    topic = run.filled()
    records = run.read(subscribe=topic, maxRecordsPerPartition=4)
    return values(records)


@scenario
def assigned(run: Run) -> Any:
    topic = run.filled()
    return run.values(assign=json.dumps({topic: [0, 2]}))


@scenario
def a_pattern(run: Run) -> Any:
    one, other = run.filled(), run.filled()
    return run.values(subscribePattern=f"{one}|{other}")


@scenario
def a_pattern_that_nothing_matches(run: Run) -> Any:
    return run.values(subscribePattern="no-such-.*")


@scenario
def several_topics(run: Run) -> Any:
    return run.values(subscribe=f"{run.filled()}, {run.filled()}")


@scenario
def an_empty_topic(run: Run) -> Any:
    return run.values(subscribe=run.topic())


@scenario
def filters(run: Run) -> Any:
    """Queries with several filters on one DataFrame; Spark pushes them to Python sources if it is told to."""
    topic = run.filled()
    pushing = ("false",) if run.source == "kafka" else ("false", "true")
    found = []
    for pushed in pushing:
        run.spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
        try:
            records = run.read(subscribe=topic)
            first = records.where("partition = 0 AND offset >= 5")
            second = records.where(f"partition = 1 AND topic = '{topic}' AND timestamp > '2001-01-01'")
            found.append([values(first), values(first.union(second)), records.count()])
        finally:
            run.spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    return found if len(found) > 1 else found * 2


@scenario
def options_of_streams_are_ignored(run: Run) -> Any:
    return run.values(subscribe=run.filled(), maxOffsetsPerTrigger=5, minOffsetsPerTrigger=2, maxTriggerDelay="5m")


@scenario
def group_names(run: Run) -> Any:
    topic = run.filled()
    return run.values(subscribe=topic, groupIdPrefix="mine"), run.values(subscribe=topic, kafka__group__id="mine")


@scenario
def deleted_records_and_no_fail_on_data_loss(run: Run) -> Any:
    topic = run.topic(1)
    run.send(topic, range(10), 0)
    run.delete_below(topic, 0, 4)
    return run.values(
        subscribe=topic,
        startingOffsets=each(topic, 0),
        failOnDataLoss="false",
        kafkaConsumer__pollTimeoutMs=1000,
    )


@scenario
def an_end_behind_the_log_and_no_fail_on_data_loss(run: Run) -> Any:
    topic = run.topic(1)
    run.send(topic, range(10), 0)
    return run.values(
        subscribe=topic, endingOffsets=each(topic, 100), failOnDataLoss="false", kafkaConsumer__pollTimeoutMs=1000
    )


@scenario
def an_empty_range(run: Run) -> Any:
    topic = run.filled()
    return run.values(subscribe=topic, startingOffsets=each(topic, 3, 3, 0), endingOffsets=each(topic, 3, 4, 0))


@scenario
def columns_in_any_order(run: Run) -> Any:
    records = run.read(subscribe=run.filled())
    rows = records.groupBy("partition").count().orderBy("partition").collect()
    return [str(row) for row in rows], records.select("offset", "partition").where("offset > 8").count()


# What is refused.


@scenario
def refused_deleted_records(run: Run) -> Any:
    topic = run.topic(1)
    run.send(topic, range(10), 0)
    run.delete_below(topic, 0, 4)
    return run.values(subscribe=topic, startingOffsets=each(topic, 0), kafkaConsumer__pollTimeoutMs=1000)


@scenario
def refused_an_end_behind_the_log(run: Run) -> Any:
    topic = run.topic(1)
    run.send(topic, range(10), 0)
    return run.values(subscribe=topic, endingOffsets=each(topic, 100), kafkaConsumer__pollTimeoutMs=1000)


@scenario
def refused_a_start_behind_the_log(run: Run) -> Any:
    topic = run.topic()
    return run.values(subscribe=topic, startingOffsets=each(topic, 1, 1, 1))


@scenario
def refused_a_start_behind_an_ending_time(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(
        subscribe=topic,
        startingOffsets=each(topic, 5, 5, 5),
        endingOffsetsByTimestamp=each(topic, *[at[1]] * 3),
    )


@scenario
def refused_a_partition_that_is_not_named(run: Run) -> Any:
    topic = run.filled()
    return run.values(subscribe=topic, startingOffsets=each(topic, 0, 0))


@scenario
def refused_a_partition_that_does_not_exist(run: Run) -> Any:
    topic = run.filled()
    return run.values(subscribe=topic, startingOffsets=each(topic, 0, 0, 0, 0))


@scenario
def refused_a_time_for_a_partition_too_few(run: Run) -> Any:
    topic, at = run.timed()
    return run.values(subscribe=topic, startingOffsetsByTimestamp=each(topic, at[0], at[0]))


@scenario
def refused_other_partitions_at_the_end(run: Run) -> Any:
    return run.values(subscribe="test", startingOffsets=each("test", 1, 1, 1), endingOffsets=each("test", 0, 0))


@scenario
def refused_a_start_above_the_end(run: Run) -> Any:
    return run.values(subscribe="test", startingOffsets=each("test", 1, 1), endingOffsets=each("test", 0, 0))


@scenario
def refused_a_starting_time_above_the_end(run: Run) -> Any:
    return run.values(
        subscribe="test",
        startingOffsetsByTimestamp=each("test", 2, 2),
        endingOffsetsByTimestamp=each("test", 1, 1),
    )


@scenario
def refused_a_topic_that_does_not_exist(run: Run) -> Any:
    return run.values(subscribe="no-such-topic", fetchOffset__numRetries=1)


BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "start_latest": {"subscribe": "t", "startingOffsets": "latest"},
    "start_latest_json": {"subscribe": "t", "startingOffsets": each("t", -1)},
    "end_earliest": {"subscribe": "t", "endingOffsets": "earliest"},
    "end_earliest_json": {"subscribe": "t", "endingOffsets": each("t", -2)},
    "no_strategy": {},
    "two_strategies": {"subscribe": "t", "subscribePattern": "t.*"},
    "subscribe_and_assign": {"subscribe": "t", "assign": '{"a":[0]}'},
    "no_assignment": {"assign": ""},
    "no_topic": {"subscribe": ""},
    "no_pattern": {"subscribePattern": ""},
    "min_partitions": {"subscribe": "t", "minPartitions": "0"},
    "max_records": {"subscribe": "t", "maxRecordsPerPartition": "0"},
    "malformed_json": {"subscribe": "t", "startingOffsets": '{"t": '},
    "malformed_time": {"subscribe": "t", "startingTimestamp": "now"},
    "auto_offset_reset": {"subscribe": "t", "kafka__auto__offset__reset": "latest"},
    "key_deserializer": {"subscribe": "t", "kafka__key__deserializer": "x"},
    "value_deserializer": {"subscribe": "t", "kafka__value__deserializer": "x"},
    "enable_auto_commit": {"subscribe": "t", "kafka__enable__auto__commit": "true"},
    "interceptors": {"subscribe": "t", "kafka__interceptor__classes": "x"},
    "min_above_max": {"subscribe": "t", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
}


@scenario
def bad_options(run: Run) -> Any:
    """Return which are accepted: none."""
    accepted = []
    for name, options in BAD_OPTIONS.items():
        try:
            run.read(**options).collect()
            accepted.append(name)
        except (PySparkException, Exception):  # what a JVM source raises is of many kinds
            continue
    return accepted


def main(servers: str, names: list[str]) -> None:
    """Run the scenarios, all if none is named."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = [str(jar) for jar in builtin_source_jars()]
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("parity")
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.extraClassPath", ":".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")

    def outcome(name: str, source: str) -> dict[str, Any]:
        begin = time.monotonic()
        try:
            found = {"rows": SCENARIOS[name](Run(spark, servers, source))}
        except Exception as problem:  # compared
            found = {"error": str(problem)}
        print(f"{name} {source} {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        return found

    # Several at a time: most of what a small query takes is waiting.
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        running = {
            name: {source: pool.submit(outcome, name, source) for source in SOURCES} for name in names or SCENARIOS
        }
        found = {name: {source: one.result() for source, one in of.items()} for name, of in running.items()}
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
