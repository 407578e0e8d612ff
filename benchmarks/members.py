"""The lag of healthy partitions beside a slow one, with one and with several members in one application.

A batch ends only after its slowest record.  So a partition with slow records delays the other partitions of its member,
but not those of other members.  Each record of partition 0 takes a fixed time, as with a slow service behind the sink.
The batch sleeps for this time, and uses no CPU.  All partitions get more records than the slow one can process, so the
slow partition always falls behind.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.environment import Bench, Say, bench
from benchmarks.queries import PATIENCE_S, rotated
from benchmarks.results import Cell, Result
from benchmarks.steady_producer import producing
from pyspark_kafka_group.metrics import current

QUICK: dict[str, Any] = {"repetitions": 1, "members": [1, 2], "partitions": 4, "seconds": 6.0}

_SETTLE_S = 15.0
_LOOK_PAUSE_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--repetitions", type=int, default=3, help="of each case (default: %(default)s)")
    parser.add_argument("--members", type=int, nargs="*", default=[1, 2, 4], help="of the group (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=8, help="of the topic (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=100, help="records/s of each partition (default: %(default)s)")
    parser.add_argument("--slow-ms", type=float, default=20.0, help="of a record of partition 0 (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a window (default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    result.notes.append(f"a record of partition 0 takes {args.slow_ms:g} ms, and those of the others no time")
    cells = {
        count: Cell(name=f"{count} member{'s' * (count > 1)}", factors={"members": count}) for count in args.members
    }
    result.cells += cells.values()
    with bench(say) as environment:
        for repetition in range(args.repetitions):
            for name in rotated([str(count) for count in args.members], repetition):
                cells[int(name)].add("kafka-group", _run(environment, int(name), args))
                say(f"repetition {repetition + 1}, {name} members")


def _run(environment: Bench, members: int, args: argparse.Namespace) -> dict[str, float | None]:
    topic = environment.topic(args.partitions)
    slow_s = args.slow_ms / 1000

    def take(batch: DataFrame, _batch_id: int) -> None:
        counts: dict[int, int] = dict(batch.groupBy("partition").count().collect())
        time.sleep(counts.get(0, 0) * slow_s)

    group = f"bench-{uuid.uuid4().hex[:8]}"
    options = {
        "kafka.bootstrap.servers": environment.servers,
        "kafka.group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "warmUp": "false",
    }
    with _queries(environment, options, members, take) as queries:
        _wait_for_shares(queries, args.partitions)
        with (
            producing(environment.servers, topic, args.partitions, args.rate * args.partitions),
            closing(Consumer({"bootstrap.servers": environment.servers, "group.id": group})) as tool,
        ):
            time.sleep(_SETTLE_S)
            healthy: list[int] = []
            until = time.monotonic() + args.seconds
            while time.monotonic() < until:
                healthy += _lags(tool, topic, range(1, args.partitions))
                time.sleep(_LOOK_PAUSE_S)
    healthy.sort()
    return {"lag_p50": healthy[len(healthy) // 2], "lag_max": healthy[-1]}


@contextmanager
def _queries(environment: Bench, options: dict[str, str], members: int, take: Any) -> Iterator[list[StreamingQuery]]:
    queries: list[StreamingQuery] = []
    try:
        for _ in range(members):
            stream = environment.spark.readStream.format("kafka-group").options(**options).load()
            writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", environment.checkpoint())
            queries.append(writer.start())
        yield queries
    finally:
        for query in queries:
            query.stop()


def _wait_for_shares(queries: list[StreamingQuery], partitions: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = [sum(map(len, report["assigned"].values())) for query in queries for report in current(query)]
        if len(found) == len(queries) and set(found) == {partitions // len(queries)}:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the members have {found} of {partitions} partitions after {PATIENCE_S:g} s")
        time.sleep(_LOOK_PAUSE_S)


def _lags(tool: Consumer, topic: str, partitions: Iterable[int]) -> list[int]:
    """Return log end minus committed offset of each partition, like Kafka's own tools."""
    committed = tool.committed([TopicPartition(topic, n) for n in partitions], timeout=10)
    ends = (tool.get_watermark_offsets(tp, timeout=10)[1] for tp in committed)
    return [end - max(0, tp.offset) for tp, end in zip(committed, ends, strict=True)]
