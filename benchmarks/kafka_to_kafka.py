"""Latency from topic to topic: the three queries of databricks-solutions/latency-benchmarks, in micro-batches.

Each query reads a topic, transforms each record, and writes it to another topic.  It uses Spark's sink with ``kafka``,
and this project's sink with ``kafka-group``.  A header of each record contains the time of its creation.  The latency
is the time from then until the broker appends the output.  The queries are:

* *stateless*: encode the value in base 64;
* *join*: the same, after a broadcast join with a static table of 10,000 rows, by a random key;
* *count*: the same, after counting records by value and time of creation, so that the query has state.  Here both
  sources write to Spark's sink, because Spark refuses Python sinks in update mode.

The original runs in Scala on Databricks clusters, against a cluster of three brokers, with 40 partitions and for 30
minutes.  It also uses Real-Time Mode, which Spark refuses for Python sources.

The warm-up is long because the JVM needs that long on two busy cores: batches after 3 seconds take twice as long as
later ones.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import Reading, batches_of, progress_of, rotated, running, stream, wait_for
from benchmarks.records import Shape
from benchmarks.results import Cell, Result
from benchmarks.samples import percentile, spread
from benchmarks.steady_producer import producing
from benchmarks.views import BUILTIN, OURS

ASYNC = "kafka, async progress"
ARMS = (BUILTIN, ASYNC, OURS)
STATELESS, JOIN, COUNT = QUERIES = ("stateless", "join", "count")

PARTITIONS = 8
SHAPE = Shape(value_size=1200)
CODEC = "snappy"
CREATED = "source-timestamp"
STATIC_ROWS = 10_000
MOST_BYTES = 500_000

SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}

QUICK: dict[str, Any] = {"rate": 500, "seconds": 2, "warm_up": 1, "repetitions": 1, "queries": [STATELESS, COUNT]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--queries", nargs="*", choices=QUERIES, default=list(QUERIES), help="(default: all)")
    parser.add_argument("--rate", type=int, default=10_000, help="records per second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="measured in each repetition (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=25, help="seconds before that (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=2, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    with bench(say) as place:
        for arm in (BUILTIN, OURS):
            say(f"warming up {arm}")
            run(place, arm, STATELESS, rate=args.rate, warm_up_s=0, seconds=args.warm_up)
        for query in args.queries:
            cell = Cell(name=query, factors={"rate": args.rate, "partitions": PARTITIONS, "bytes": SHAPE.value_size})
            result.cells.append(cell)
            # Spark refuses asynchronous progress tracking for queries with state.
            arms = [arm for arm in ARMS if (arm, query) != (ASYNC, COUNT)]
            for repetition in range(args.repetitions):
                for arm in rotated(arms, repetition):
                    measured = run(place, arm, query, rate=args.rate, warm_up_s=args.warm_up, seconds=args.seconds)
                    cell.add(arm, measured)
                    say(f"{query}, {arm}: p50 {measured['p50_ms']} ms, p99 {measured['p99_ms']} ms")


def transformed(records: DataFrame, query: str) -> DataFrame:
    """Return the output of the query for these records: columns ``value`` and ``headers``."""
    found = records.select("timestamp", f.substring("value", 0, MOST_BYTES).alias("value"))
    if query == JOIN:
        static = found.sparkSession.range(STATIC_ROWS).selectExpr("id as key", "id * 2 as twice")
        found = found.withColumn("joined", (f.rand() * STATIC_ROWS).cast("bigint"))
        found = found.join(f.broadcast(static), f.expr("joined = key"))
    if query == COUNT:
        found = found.groupBy("timestamp", "value").count()
        found = found.withColumn("value", f.concat(f.col("count").cast("string"), f.lit(","), f.col("value")))
    created = f.unix_millis("timestamp").cast("string").cast("binary")
    headers = f.array(f.struct(f.lit(CREATED).alias("key"), created.alias("value")))
    return found.select(f.base64("value").alias("value"), headers.alias("headers"))


def latencies(records: list[tuple[int, int]], *, warm_up_s: float, seconds: float) -> Counter[float]:
    """Return how often each latency occurred, in ms, in the window that begins ``warm_up_s`` after the first record.

    Parameters
    ----------
    records : list of (int, int)
        For each record, the time of its creation and of its output's append, in ms since 1970.
    """
    begin = min((created for created, _ in records), default=0) + warm_up_s * 1000
    end = begin + seconds * 1000
    return Counter(float(appended - created) for created, appended in records if begin <= created < end)


def run(place: Bench, arm: str, query: str, *, rate: int, warm_up_s: float, seconds: float) -> dict[str, float | None]:
    """Run one query on topics of its own.  Return its latencies in ms, and its batches and records."""
    source = OURS if arm == OURS else BUILTIN
    incoming = place.topic(PARTITIONS)
    outgoing = place.topic(PARTITIONS, **{"message.timestamp.type": "LogAppendTime"})
    reading = Reading(topics=incoming, partitions=PARTITIONS, shape=SHAPE)
    # The query that counts needs update mode, and Spark refuses Python sinks in it.
    sink = BUILTIN if query == COUNT else source
    mode = "update" if query == COUNT else "append"
    writer = _written(place, transformed(stream(place, source, reading), query), sink, outgoing, mode)
    if arm == ASYNC:
        writer = writer.option("asyncProgressTrackingEnabled", "true")
    with running(writer) as started:
        # Both sources start on an empty topic.  The warm-up contains the first batch and the start of its processes.
        with producing(place.servers, incoming, PARTITIONS, rate, value_size=SHAPE.value_size, codec=CODEC):
            time.sleep(warm_up_s + seconds)
        produced = sum(_log_ends(place.servers, incoming).values())

        def done() -> bool:
            return sum(batch.rows for batch in batches_of(progress_of(started))) >= produced

        wait_for(started, done, "all records are read")
        batches = batches_of(progress_of(started))
    found = latencies(list(_appended(place.servers, outgoing)), warm_up_s=warm_up_s, seconds=seconds)
    for topic in (incoming, outgoing):
        place.kafka.delete_topic(topic)
    durations = spread([batch.trigger_s * 1000 for batch in batches])
    return {
        **{metric: percentile(found, share) for metric, share in SHARES.items()},
        "batch_ms": durations.median if durations else None,
        "records": sum(found.values()),
    }


def _written(place: Bench, records: DataFrame, sink: str, topic: str, mode: str) -> DataStreamWriter:
    writer = records.writeStream.format(sink).outputMode(mode).option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", place.servers).option("kafka.compression.type", CODEC)
    return writer.option("checkpointLocation", place.checkpoint())


@contextmanager
def _consumer(servers: str) -> Iterator[Consumer]:
    made = Consumer({"bootstrap.servers": servers, "group.id": "latency", "enable.auto.commit": False})
    try:
        yield made
    finally:
        made.close()


def _log_ends(servers: str, topic: str) -> dict[int, int]:
    with _consumer(servers) as consumer:
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return {tp.partition: consumer.get_watermark_offsets(tp, timeout=30)[1] for tp in tps}


def _appended(servers: str, topic: str) -> Iterator[tuple[int, int]]:
    """Yield for each record the time of its creation and of its output's append, in ms since 1970."""
    left = {number: end for number, end in _log_ends(servers, topic).items() if end}
    with _consumer(servers) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        while left:
            for message in consumer.consume(10_000, timeout=30):
                if message.error():
                    raise RuntimeError(f"{topic} cannot be read: {message.error()}")
                yield int(dict(message.headers() or [])[CREATED] or 0), message.timestamp()[1]
                number, offset = message.partition(), message.offset()
                assert number is not None
                assert offset is not None
                if offset + 1 >= left[number]:
                    del left[number]
