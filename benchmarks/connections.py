"""The number of connections from an executor to a cluster of many brokers, counted by the brokers.

The benchmark runs without Spark and Kafka.  It uses the readers of 8 Python workers, and brokers in this process that
speak Kafka's protocol over loopback.  As in Spark, the workers get the tasks of each batch in random order.  Each
partition has a few new records in each batch, so that small ranges share tasks.  The benchmark compares:

* readers that keep every connection for as long as they read;
* readers that close unused connections;
* the same readers, with tasks grouped by leader.

All figures are for one executor.  A hundred executors have a hundred times as many connections.
"""

from __future__ import annotations

import argparse
import math
import random
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from benchmarks.environment import Say
from benchmarks.queries import rotated
from benchmarks.results import Cell, Result
from pyspark_kafka_group.offsets.task_ranges import Task, TaskSizes, pack
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition
from pyspark_kafka_group.reading import fetcher
from pyspark_kafka_group.reading.client_cache import open_client
from pyspark_kafka_group.reading.reader_client import ReaderClient, Records
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.wire.types import Address
from tests.connector.columns.batches import batch_of
from tests.connector.columns.test_from_messages import record
from tests.connector.reading.socket_brokers import SocketBrokers, socket_brokers

KEPT, CLOSED, BY_LEADER = "all are kept", "unused ones close", "and tasks by leader"
ARMS = (KEPT, CLOSED, BY_LEADER)

TOPIC = "connections"
_RECORDS = 10
_WAIT_S = 5.0

QUICK: dict[str, Any] = {"brokers": 6, "partitions": 60, "triggers": [0.2], "seconds": 1.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--brokers", type=int, default=30, help="(default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=3000, help="(default: %(default)s)")
    parser.add_argument("--workers", type=int, default=8, help="of the executor (default: %(default)s)")
    parser.add_argument(
        "--triggers", type=float, nargs="*", default=[1.0, 10.0], help="seconds between batches (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run (default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    batch = batch_of([record(offset, value=b"value") for offset in range(_RECORDS)])
    for at, trigger_s in enumerate(args.triggers):
        cell = Cell(name=f"a batch every {trigger_s:g} s", factors={"trigger_s": trigger_s})
        result.cells.append(cell)
        for arm in rotated(ARMS, at):
            with socket_brokers(args.brokers, TOPIC, args.partitions, batch) as brokers, _as_in(arm):
                found = _run(brokers, args, trigger_s, by_leader=arm == BY_LEADER)
            cell.add(arm, found)
            say(f"{cell.name}, {arm}: {found}")


@contextmanager
def _as_in(arm: str) -> Iterator[None]:
    with ExitStack() as stack:
        if arm == KEPT:
            stack.enter_context(mock.patch.object(fetcher, "IDLE_S", threading.TIMEOUT_MAX))
            stack.enter_context(mock.patch.object(fetcher, "MOST_KEPT", 1_000_000))
        yield


def _run(
    brokers: SocketBrokers, args: argparse.Namespace, trigger_s: float, *, by_leader: bool
) -> dict[str, float | None]:
    """Run batches for some time, and return the counts of the brokers."""
    partitions = [TopicPartition(TOPIC, n) for n in range(args.partitions)]
    leaders: Mapping[TopicPartition, Address] = (
        {tp: brokers.leader(tp.partition) for tp in partitions} if by_leader else {}
    )
    # One task for each worker.
    sizes = TaskSizes(min_records=math.ceil(args.partitions * _RECORDS / args.workers))
    config = reader_config({"bootstrap.servers": brokers.bootstrap_servers}, TOPIC)
    workers = [open_client(config) for _ in range(args.workers)]
    draw = random.Random(1)
    counted: list[int] = []
    took: list[float] = []
    tasks: list[Task] = []
    over = threading.Event()

    def count() -> None:
        while not over.wait(0.05):
            counted.append(brokers.connected)

    counter = threading.Thread(target=count, daemon=True)
    try:
        with ThreadPoolExecutor(args.workers) as pool:
            begin = time.monotonic()
            for number in range(math.ceil(args.seconds / trigger_s)):
                time.sleep(max(0.0, begin + number * trigger_s - time.monotonic()))
                if number == 1:
                    counter.start()  # the first batch also connects to find the leaders
                ranges = {tp: _range(number) for tp in partitions}
                tasks = pack(ranges, sizes, leaders)
                draw.shuffle(tasks)
                started = time.monotonic()
                for _ in pool.map(_read, workers, tasks):
                    pass
                took.append(time.monotonic() - started)
            time.sleep(max(0.0, begin + args.seconds - time.monotonic()))
    finally:
        over.set()
        counter.join()
        for worker in workers:
            worker.close()
    return {
        "most": max(counted),
        "mean": sum(counted) / len(counted),
        "brokers_of_a_task": sum(len({brokers.leader(tp.partition) for tp in task}) for task in tasks) / len(tasks),
        "opened_per_s": brokers.accepted / args.seconds,
        "batch_ms": 1000 * sorted(took)[len(took) // 2],
    }


def _range(number: int) -> OffsetRange:
    return OffsetRange(Offset(number * _RECORDS), Offset((number + 1) * _RECORDS))


def _read(worker: ReaderClient, task: Task) -> None:
    ends = {tp: int(wanted.until) for tp, wanted in task.items()}
    worker.assign(task, ("value",))
    while ends:
        found = worker.poll(ends, _WAIT_S)
        assert isinstance(found, Records), f"a broker of this benchmark does not answer: {found}"
        if found.position >= ends[found.tp]:
            del ends[found.tp]
            worker.unassign(found.tp)
    worker.unassign_all()
