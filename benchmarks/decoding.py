"""Throughput and memory of decoding the commits in ``__consumer_offsets``, and of making a history from them.

The benchmark needs no broker: it makes the bytes of Kafka 4.3, with the metadata of this project, for 1,000 partitions
in turn.  Each arm runs in a separate process.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.environment import Say
from benchmarks.processes import forget_peaks, peak_mb, resident_mb
from benchmarks.results import Cell, Result
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.tools.analysis.group_records import LoggedRecord, decode, is_of_group
from pyspark_kafka_group.tools.analysis.history import History
from pyspark_kafka_group.wire.fields import Writer

GROUP, TOPIC, TOPIC_ID = "orders-etl", "orders", "QtOXfeWAR9uadceaKEMIPw"
ARMS = ("another group's", "decoded", "in a history")
"""The arms: skip a record, decode it into an object, or make a step of a history from it."""

_PARTITIONS = 1_000
_DIFFERENT = 100_000
"""Number of different records, which the benchmark reads repeatedly.  More of them would only measure memory."""

_TIME_MS = 1_767_225_600_000

QUICK: dict[str, Any] = {"commits": 20_000, "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--commits", type=int, default=10_000_000, help="(default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    if load > 1:
        result.notes.append(f"other programs kept the machine busy: a load average of {load:.1f} on {cores} cores")
    cell = Cell(name=f"{args.commits:,} commits", factors={"commits": args.commits})
    result.cells.append(cell)
    spawned = multiprocessing.get_context("spawn")
    for _ in range(args.repetitions):
        for arm in ARMS:
            with spawned.Pool(1) as pool:
                measured = pool.apply(run, (arm, args.commits))
            cell.add(arm, measured)
            say(f"{cell.name}, {arm}: {measured['records_per_s']:,.0f} a second, {measured['extra_mb']:.0f} MB")


def commits(different: int) -> list[tuple[bytes, bytes]]:
    """Return keys and values of commits, for the partitions in turn."""
    return [_commit(n) for n in range(different)]


def _commit(number: int) -> tuple[bytes, bytes]:
    key, head, value = Writer(flexible=False), Writer(flexible=False), Writer(flexible=True)
    key.int16(1)
    key.text(GROUP)
    key.text(TOPIC)
    key.int32(number % _PARTITIONS)
    head.int16(4)
    value.int64(number)
    value.int32(7)
    query = "0b7f1b1e-33f5-4f3c-9a53-4df65f0f7a11"
    value.text(CommitNote(query, TOPIC_ID, _PARTITIONS, Offset(0), "1f0c", ()).encode())
    value.int64(_TIME_MS + number)
    value.varint(1)
    value.varint(0)
    value.varint(16)
    value.uuid(TOPIC_ID)
    return bytes(key), bytes(head) + bytes(value)


def run(arm: str, count: int) -> dict[str, float | None]:
    """Read ``count`` commits in this process, and return the figures."""
    records = commits(min(count, _DIFFERENT))
    source = itertools.islice(itertools.cycle(records), count)
    wanted = is_of_group(GROUP if arm != ARMS[0] else "payments")
    before = resident_mb(os.getpid())
    forget_peaks([os.getpid()])
    begin = time.monotonic()

    def logged() -> Iterator[LoggedRecord]:
        for offset, (key, value) in enumerate(source):
            if wanted(key):
                yield LoggedRecord(offset, _TIME_MS, decode(key, value))

    history = History({TOPIC: TOPIC_ID})
    done = sum(1 for _ in (history.entries(logged()) if arm == ARMS[2] else logged()))
    seconds = time.monotonic() - begin
    if done != (0 if arm == ARMS[0] else count) or history.undecodable:
        raise RuntimeError(f"{done} of {count} records were read")
    return {
        "records_per_s": count / seconds,
        "extra_mb": max(0.0, peak_mb(os.getpid()) - before),
    }
