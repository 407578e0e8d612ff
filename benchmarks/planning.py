"""The cost of planning a batch, and the size of its offset, with many partitions.

The first part runs without Spark.  It calls the reader like Spark's runner in the source process: in one thread, with
offsets as JSON text in both directions, and with pickled input partitions.  Each batch has one new record in each
partition.  A pause between two batches lets the commit finish, so that the next batch does not wait for it.

The broker keeps a file of each partition open: ``ulimit -n`` must be larger than the largest number of partitions.

The second part runs in Spark, and compares with the built-in source.  There one new record in one partition causes a
batch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.environment import Bench, Say, bench
from benchmarks.processes import resident_mb
from benchmarks.queries import (
    PATIENCE_S,
    Reading,
    batches_of,
    noop,
    progress_of,
    rotated,
    running,
    stream,
    wait_for,
)
from benchmarks.records import Shape, load
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, OURS
from pyspark_kafka_group.source import KafkaGroupDataSource
from pyspark_kafka_group.stream_reader import TaskPartition

ARMS = (BUILTIN, OURS)

# A controller refuses more than 10,000 records in one batch, so many partitions need several topics.
_PER_TOPIC = 1_000
_SHAPE = Shape(value_size=10)

_DEFAULT_MAX_BYTES = 1_048_588
"""Kafka's default of message.max.bytes."""

_FIRST_S = 10.0
"""The longest time until a query notices a record.  After that, the benchmark produces another one."""

_VAIN_ROUNDS, _VAIN_CALLS = 3, 4
"""Rounds of polls without new records, and polls in a round.  Each round is a repetition."""

_CALM_S = 0.5
"""The pause between two batches, so that they do not overlap."""

QUICK: dict[str, Any] = {"partitions": [100, 1_000], "repetitions": 2, "pause": 0.5, "spark_batches": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    default = [100, 1_000, 10_000, 15_000]
    parser.add_argument("--partitions", type=int, nargs="*", default=default, help="(default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=10, help="batches without Spark (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two of them (default: %(default)s)")
    text = "of the broker, bounds how many partitions fit into one commit (default: %(default)s)"
    parser.add_argument("--message-max-bytes", type=int, default=10 * _DEFAULT_MAX_BYTES, help=text)
    parser.add_argument("--spark-batches", type=int, default=5, help="batches in Spark (default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    if args.message_max_bytes > _DEFAULT_MAX_BYTES:
        result.notes.append(
            f"the broker has message.max.bytes={args.message_max_bytes}: a coordinator writes all offsets of a commit "
            f"at once, and refuses those of 10,000 partitions at its default of {_DEFAULT_MAX_BYTES}"
        )
    # The broker keeps a file of each log open, and Linux limits their number.  So it must delete the logs of one size
    # before it makes those of the next.
    max_bytes = str(args.message_max_bytes)
    with bench(say, message_max_bytes=max_bytes, log_segment_delete_delay_ms="0") as place:
        for at, count in enumerate(args.partitions):
            cell = Cell(name=f"{count:,} partitions", factors={"partitions": count})
            result.cells.append(cell)
            say(f"{cell.name}: creating and filling topics")
            topics = filled(place, count, per_partition=args.repetitions + 2)
            for measured in driven(place, topics, count, args.repetitions, args.pause):
                cell.add(OURS, measured)
            say(f"{cell.name}, without Spark: {cell.samples(OURS, 'plan_ms')} ms")
            for arm in rotated(ARMS, at):
                for measured in _in_spark(place, arm, topics, count, args.spark_batches):
                    cell.add(arm, measured)
                say(f"{cell.name}, {arm} in Spark: {cell.samples(arm, 'spark_latest_offset_ms')} ms")
            for topic in topics:
                place.kafka.delete_topic(topic)


def filled(place: Bench, count: int, *, per_partition: int) -> list[str]:
    """Create topics with so many partitions in all, fill them, and return their names."""
    topics = []
    for first in range(0, count, _PER_TOPIC):
        partitions = min(_PER_TOPIC, count - first)
        topics.append(place.topic(partitions))
        records = partitions * per_partition
        load(place.servers, topics[-1], shape=_SHAPE, partitions=partitions, records=records)
    return topics


def driven(
    place: Bench, topics: list[str], count: int, repetitions: int, pause_s: float
) -> list[dict[str, float | None]]:
    """Plan batches without Spark, and return the figures of each."""
    # A new process, like Spark's source process: its memory then belongs to one query.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_listed, place.servers, topics, count, repetitions, pause_s).result()


def _listed(*given: Any) -> list[dict[str, float | None]]:
    return [*_drive(*given)]


def _drive(
    servers: str, topics: list[str], count: int, repetitions: int, pause_s: float
) -> Iterator[dict[str, float | None]]:
    before_mb = resident_mb(os.getpid())
    options = {
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": f"bench-{uuid.uuid4().hex[:8]}",
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
    }
    source = KafkaGroupDataSource(options)
    reader = source.streamReader(source.schema())
    try:
        start = _joined(reader, count)
        for _ in range(repetitions):
            begin = time.perf_counter()
            end = json.dumps(reader.latestOffset(json.loads(start), ReadMaxRows(count)))
            planned = time.perf_counter()
            tasks = reader.partitions(json.loads(start), json.loads(end))
            pickled = [pickle.dumps(task) for task in tasks]
            done = time.perf_counter()
            start = end
            if (found := _ranges(tasks)) != count:
                raise RuntimeError(f"planned {found} ranges in {count} partitions, {len(pickled)} tasks")
            yield {
                "plan_ms": (done - begin) * 1000,
                "latest_offset_ms": (planned - begin) * 1000,
                "partitions_ms": (done - planned) * 1000,
                "offset_bytes": len(end.encode()),
            }
            reader.reportLatestOffset()
            time.sleep(pause_s)
        yield from _nothing_new(reader, start)
        yield {"memory_mb": resident_mb(os.getpid()) - before_mb}
    finally:
        reader.stop()


def _ranges(tasks: Sequence[InputPartition]) -> int:
    """Return the number of ranges in these tasks.  Small ranges share a task."""
    return sum(len(task.ranges) for task in tasks if isinstance(task, TaskPartition))


def _joined(reader: DataSourceStreamReader, count: int) -> str:
    """Let the member join, plan the first batch and commit it.  Return the end of that batch."""
    start = json.dumps(reader.initialOffset())
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        end = json.dumps(reader.latestOffset(json.loads(start), ReadMaxRows(count)))
        found = _ranges(reader.partitions(json.loads(start), json.loads(end))) if end != start else 0
        start = end
        time.sleep(_CALM_S)
        if found == count:
            return start
    raise TimeoutError(f"the member has not got {count} partitions within {PATIENCE_S:g} s")


def _nothing_new(reader: DataSourceStreamReader, start: str) -> Iterator[dict[str, float | None]]:
    """Read the remaining records, and then poll without new records.

    Yield the CPU time of the whole process, because such calls wait on purpose.
    """
    while True:
        end = json.dumps(reader.latestOffset(json.loads(start), reader.getDefaultReadLimit()))
        if end == start:
            break
        start = end
    for _ in range(_VAIN_ROUNDS):
        before = time.process_time()
        for _ in range(_VAIN_CALLS):
            reader.latestOffset(json.loads(start), reader.getDefaultReadLimit())
        yield {"nothing_new_ms": (time.process_time() - before) * 1000 / _VAIN_CALLS}


def _in_spark(place: Bench, arm: str, topics: list[str], count: int, batches: int) -> Iterator[dict[str, float | None]]:
    reading = Reading(topics=",".join(topics), partitions=count, latest=True)
    with running(noop(stream(place, arm, reading), place)) as query:
        # A record right after the start may be below the offset that the query takes as the latest.
        while not _batch_after(0, query, place, topics[0], timeout_s=_FIRST_S):
            pass
        for _ in range(batches):
            time.sleep(_CALM_S)
            seen = len(batches_of(progress_of(query)))
            if not _batch_after(seen, query, place, topics[0], timeout_s=PATIENCE_S):
                raise TimeoutError(f"{arm} did not read a record within {PATIENCE_S:g} s")
            batch = batches_of(progress_of(query))[-1]
            yield {
                "spark_latest_offset_ms": batch.durations_ms.get("latestOffset"),
                "spark_batch_ms": batch.trigger_s * 1000,
                "offset_bytes": _offset_bytes(progress_of(query)) if arm == BUILTIN else None,
            }


def _batch_after(seen: int, query: StreamingQuery, place: Bench, topic: str, *, timeout_s: float) -> bool:
    """Produce one record, and return whether it caused a batch after the first ``seen`` ones."""
    load(place.servers, topic, shape=_SHAPE, partitions=1, records=1)
    with contextlib.suppress(TimeoutError):
        wait_for(query, lambda: len(batches_of(progress_of(query))) > seen, "a batch", timeout_s=timeout_s)
        return True
    return False


def _offset_bytes(progress: list[str]) -> int:
    end = json.loads(progress[-1])["sources"][0]["endOffset"]
    return len((end if isinstance(end, str) else json.dumps(end, separators=(",", ":"))).encode())
