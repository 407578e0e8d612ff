"""Writes of Spark's own sink and of this one, side by side in one session: an application of its own.

Spark's sink needs jars on the class path when the JVM starts, which the other tests do without.  Prints one JSON
object: for each scenario what either sink has left in Kafka, or the text of its error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark_jars import builtin_source_jars
from integration.cluster import records

SINKS = ("kafka", "kafka-group")
_AT_A_TIME = 4
SCENARIOS: dict[str, Callable[[Run], Any]] = {}


def scenario(function: Callable[[Run], Any]) -> Callable[[Run], Any]:
    """Add a scenario; what it returns is compared."""
    SCENARIOS[function.__name__] = function
    return function


class Run:
    """One scenario with one sink; topics are its own."""

    def __init__(self, spark: SparkSession, servers: str, sink: str) -> None:
        self.spark, self.servers, self.sink = spark, servers, sink

    def topic(self, partitions: int = 4) -> str:
        """Create a topic."""
        name = f"parity-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        return name

    def write(self, rows: DataFrame, mode: str = "append", **options: str) -> None:
        """Write a batch; ``__`` stands for ``.`` in names of options."""
        given = {name.replace("__", "."): value for name, value in options.items()}
        writer = rows.write.format(self.sink).option("kafka.bootstrap.servers", self.servers).options(**given)
        writer.mode(mode).save()

    def stream(self, *expressions: str, mode: str = "append", grouped: bool = False, **options: str) -> Any:
        """Write the numbers 1 to 5 as text in a stream, and then 6 to 10; return how many rows its progress shows."""
        given = {name.replace("__", "."): value for name, value in options.items()}
        with tempfile.TemporaryDirectory() as folder:
            numbers = Path(folder) / "numbers"
            numbers.mkdir()
            rows = self.spark.readStream.text(str(numbers))
            if grouped:
                rows = rows.groupBy("value").count().selectExpr("value as key", "cast(count as string) as value")
            shown = 0
            for at in (1, 6):
                (numbers / f"{at}.txt").write_text("\n".join(map(str, range(at, at + 5))))
                query = (
                    rows.selectExpr(*expressions or ("value",))
                    .writeStream.format(self.sink)
                    .option("kafka.bootstrap.servers", self.servers)
                    .option("checkpointLocation", f"{folder}/checkpoint")
                    .options(**given)
                    .outputMode(mode)
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination(60)
                shown += sum(progress["sink"]["numOutputRows"] for progress in query.recentProgress)
            return shown

    def records(self, topic: str) -> list[Any]:
        """Return the partition, key, value and headers of what is in a topic, in no order."""
        return sorted(
            ([r.partition, _text(r.key), _text(r.value), [[k, _text(v)] for k, v in r.headers or []]])
            for r in records(self.servers, topic)
        )

    def written(self, topic: str) -> list[Any]:
        """Return what :meth:`records` does, without the partitions."""
        return sorted(record[1:] for record in self.records(topic))

    def sql(self, query: str) -> DataFrame:
        return self.spark.sql(query)


def _text(value: bytes | None) -> str:
    return "null" if value is None else "=" + value.decode()


@scenario
def stream_with_a_topic_column(run: Run) -> Any:
    topic = run.topic()
    return [run.stream(f"'{topic}' as topic", "value"), run.written(topic)]


@scenario
def stream_with_a_topic_option(run: Run) -> Any:
    topic = run.topic()
    return [run.stream(topic=topic), run.written(topic)]


@scenario
def stream_where_the_option_overrides_the_column(run: Run) -> Any:
    topic = run.topic()
    return [run.stream("'foo' as topic", "value", topic=topic), run.written(topic)]


@scenario
def stream_in_complete_mode(run: Run) -> Any:
    topic = run.topic()
    return [run.stream("key", "value", mode="complete", grouped=True, topic=topic), run.written(topic)]


@scenario
def stream_without_any_topic(run: Run) -> Any:
    return run.stream("value as key", "value")


@scenario
def stream_without_a_value(run: Run) -> Any:
    return run.stream("'t' as topic", "value as key")


@scenario
def stream_with_a_topic_of_a_wrong_type(run: Run) -> Any:
    return run.stream("CAST('1' as INT) as topic", "value")


@scenario
def stream_with_a_value_of_a_wrong_type(run: Run) -> Any:
    return run.stream("'t' as topic", "CAST(value as INT) as value")


@scenario
def stream_with_a_key_of_a_wrong_type(run: Run) -> Any:
    return run.stream("'t' as topic", "CAST(value as INT) as key", "value")


@scenario
def stream_with_a_partition_of_a_wrong_type(run: Run) -> Any:
    return run.stream("'t' as topic", "value", "value as partition")


@scenario
def stream_to_a_topic_that_does_not_exist(run: Run) -> Any:
    return run.stream(topic="no-such-topic", kafka__max__block__ms="1500")


@scenario
def stream_with_a_key_serializer(run: Run) -> Any:
    return run.stream(topic="t", kafka__key__serializer="foo")


@scenario
def stream_with_a_value_serializer(run: Run) -> Any:
    return run.stream(topic="t", kafka__value__serializer="foo")


@scenario
def batch_with_headers(run: Run) -> Any:
    topic = run.topic()
    rows = run.sql(
        f"""select '{topic}' as topic, value, headers from values
        ('1', array(named_struct('key', 'a', 'value', binary('b')))),
        ('2', array(named_struct('key', 'c', 'value', binary('d')), named_struct('key', 'e', 'value', binary('f')))),
        ('3', array(named_struct('key', 'g', 'value', binary('h')), named_struct('key', 'g', 'value', binary('i')))),
        ('4', null),
        ('5', array()),
        ('6', array(named_struct('key', 'ä', 'value', cast(null as binary)))),
        ('7', array(named_struct('key', '', 'value', binary(''))))
        as t(value, headers)"""
    )
    run.write(rows, topic=topic, includeHeaders="true")
    return run.written(topic)


@scenario
def batch_partitioned_by_key(run: Run) -> Any:
    """Each record is where Kafka's own partitioner puts it."""
    topic = run.topic(7)
    keys = "select case id when 0 then '' when 1 then 'ключ' else concat('key-', id) end as key, string(id) as value"
    run.write(run.sql(f"{keys} from range(500)"), topic=topic)
    return run.records(topic)


@scenario
def batch_with_a_partition_column(run: Run) -> Any:
    topic = run.topic()
    run.write(run.sql("select string(id) as key, string(id) as value, 2 as partition from range(20)"), topic=topic)
    return run.records(topic)


@scenario
def batch_with_some_partitions_null(run: Run) -> Any:
    topic = run.topic()
    partition = "case when id % 2 = 0 then cast(null as int) else 3 end as partition"
    run.write(run.sql(f"select string(id) as key, string(id) as value, {partition} from range(50)"), topic=topic)
    return run.records(topic)


@scenario
def batch_without_keys(run: Run) -> Any:
    topic = run.topic(2)
    run.write(run.sql("select cast(null as string) as key, string(id) as value from range(1000)"), topic=topic)
    return run.written(topic)


@scenario
def batch_of_nulls_and_empty_values(run: Run) -> Any:
    topic = run.topic()
    rows = "('a', null), ('b', ''), ('', 'c'), ('d', 'd')"
    run.write(run.sql(f"select key, value from values {rows} as t(key, value)"), topic=topic)
    return run.written(topic)


@scenario
def batch_of_bytes(run: Run) -> Any:
    topic = run.topic()
    run.write(run.sql("select binary(string(id)) as key, binary(string(id)) as value from range(9)"), topic=topic)
    return run.records(topic)


@scenario
def batch_to_several_topics(run: Run) -> Any:
    one, two = run.topic(), run.topic()
    topics = f"case when id % 3 = 0 then '{one}' else '{two}' end as topic"
    run.write(run.sql(f"select {topics}, string(id) as key, string(id) as value from range(30)"))
    return [run.records(one), run.records(two)]


@scenario
def batch_with_more_columns(run: Run) -> Any:
    topic = run.topic()
    run.write(run.sql("select string(id) as value, id as offset, 'x' as VALUE2, id as Key from range(5)"), topic=topic)
    return run.written(topic)


@scenario
def batch_with_a_topic_in_blanks(run: Run) -> Any:
    topic = run.topic()
    run.write(run.sql("select 'x' as value"), topic=f" {topic} ")
    return run.written(topic)


@scenario
def batch_of_an_analyzed_plan(run: Run) -> Any:
    topic = run.topic()
    run.write(run.spark.range(1, 1000).selectExpr("to_json(struct(*)) as value"), topic=topic)
    return run.written(topic)


@scenario
def batch_without_rows(run: Run) -> Any:
    topic = run.topic()
    run.write(run.sql("select string(id) as value from range(0)"), topic=topic)
    return run.written(topic)


@scenario
def batch_with_a_null_topic(run: Run) -> Any:
    return run.write(run.sql("select cast(null as string) as topic, '1' as value"))


@scenario
def batch_with_a_value_in_capitals(run: Run) -> Any:
    return run.write(run.sql("select '1' as Value"), topic="t")


@scenario
def batch_with_headers_of_a_wrong_type(run: Run) -> Any:
    return run.write(run.sql("select '1' as value, array('a') as headers"), topic="t")


@scenario
def batch_that_overwrites(run: Run) -> Any:
    return run.write(run.sql("select '1' as value"), mode="overwrite", topic="t")


@scenario
def batch_that_ignores(run: Run) -> Any:
    return run.write(run.sql("select '1' as value"), mode="ignore", topic="t")


@scenario
def batch_of_a_record_that_is_too_large(run: Run) -> Any:
    topic = run.topic()
    return run.write(run.sql("select repeat('x', 2000000) as value"), topic=topic)


@scenario
def batch_to_a_partition_that_does_not_exist(run: Run) -> Any:
    topic = run.topic()
    return run.write(run.sql("select '1' as value, 9 as partition"), topic=topic, kafka__max__block__ms="1500")


@scenario
def batch_to_a_negative_partition(run: Run) -> Any:
    topic = run.topic()
    return run.write(run.sql("select '1' as value, -1 as partition"), topic=topic)


@scenario
def batch_without_servers(run: Run) -> Any:
    return run.sql("select '1' as value").write.format(run.sink).option("topic", "t").mode("append").save()


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

    def outcome(name: str, sink: str) -> dict[str, Any]:
        begin = time.monotonic()
        try:
            found = {"records": SCENARIOS[name](Run(spark, servers, sink))}
        except Exception as problem:  # compared
            found = {"error": str(problem)}
        print(f"{name} {sink} {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        return found

    def activate() -> None:
        """Make the session that of this thread: Spark looks there for sinks in Python."""
        spark.createDataFrame([], "value STRING")

    # Several at a time: much of what a small write takes is waiting.
    with ThreadPoolExecutor(_AT_A_TIME, initializer=activate) as pool:
        running = {name: {sink: pool.submit(outcome, name, sink) for sink in SINKS} for name in names or SCENARIOS}
        found = {name: {sink: one.result() for sink, one in of.items()} for name, of in running.items()}
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
