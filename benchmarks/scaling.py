"""Scaling by applications: throughput with 1, 2 and 4 of them, and the pauses of partitions as they start and stop.

Each application is Spark with ``local[1]``, and all share a group.  The comparison is one application with Spark's own
source and as many cores.  All run on the cores of one machine, together with the broker.  So the benchmark shows the
cost of sharing a group, not the gain from more machines.

A topic is full, but its records are in two open transactions.  When all applications have their partitions, the
benchmark commits the first transaction, as a warm-up.  When the applications have read it, the benchmark commits the
second one, and measures the time until the last record.  For the pauses, records arrive steadily while applications
start and stop.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.application import Application, rows_of, settled, wait_until
from benchmarks.environment import BenchmarkKafka, Say
from benchmarks.queries import PATIENCE_S, rotated
from benchmarks.results import Cell, Result
from benchmarks.views import BUILTIN, OURS
from integration.cluster import Stream
from integration.hand_overs import hand_overs, pauses, percentile
from integration.oracles import Member
from integration.pipelines import Application as Pipeline

ARMS = (OURS, BUILTIN)

_VALUE = b"v" * 100
_TRANSACTION_TIMEOUT_MS = 900_000
_REST_S = 5.0

QUICK: dict[str, Any] = {
    "applications": [1, 2],
    "warm_up": 10_000,
    "records": 20_000,
    "repetitions": 1,
    "steps": [1, 2, 1],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--applications", type=int, nargs="*", default=[1, 2, 4], help="(default: %(default)s)")
    parser.add_argument(
        "--warm-up", type=int, default=3_000_000, help="records that do not count (default: %(default)s)"
    )
    parser.add_argument("--records", type=int, default=6_000_000, help="(default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=8, help="of the topic (default: %(default)s)")
    parser.add_argument("--per-batch", type=int, default=500_000, help="of an application (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=2, help="(default: %(default)s)")
    text = "how many applications there are, one after the other, while records come (default: %(default)s)"
    parser.add_argument("--steps", type=int, nargs="*", default=[1, 2, 4, 2], help=text)


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    result.notes.append("all applications and the broker share the cores of one machine")
    say("starting a broker")
    with BenchmarkKafka() as kafka, tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        for count in args.applications:
            cell = Cell(name=f"{count} x local[1]; or local[{count}]", factors={"applications": count})
            result.cells.append(cell)
            for repetition in range(args.repetitions):
                for arm in rotated(ARMS, repetition):
                    measured = _throughput(kafka, Path(folder), arm, count, args)
                    cell.add(arm, measured)
                    say(f"{cell.name}, {arm}: {measured}")
        cell = Cell(name=f"{' to '.join(map(str, args.steps))} applications", factors={"steps": args.steps})
        result.cells.append(cell)
        cell.add(OURS, _pauses(kafka, Path(folder), args, say))


# ------------------------------------------------------------------------------------- throughput


def _throughput(
    kafka: BenchmarkKafka, folder: Path, arm: str, count: int, args: argparse.Namespace
) -> dict[str, float | None]:
    """Let one arm read a whole topic, and return the figures."""
    name = f"scaling-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, args.partitions)
    first = _filled(kafka.bootstrap_servers, f"{name}-first", name, args.partitions, args.warm_up)
    rest = _filled(kafka.bootstrap_servers, f"{name}-rest", name, args.partitions, args.records)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    number, cores = (count, 1) if arm == OURS else (1, count)
    options["maxOffsetsPerTrigger"] = str(args.per_batch * cores)
    if arm == OURS:
        options["kafka.group.id"] = name
    with contextlib.ExitStack() as stack:
        settings = {"source": arm, "cores": cores, "options": options}
        readers = [Application(f"{name}-{n}", folder, settings) for n in range(number)]
        for reader in readers:
            stack.callback(reader.close)
        deadline = time.monotonic() + PATIENCE_S
        for reader in readers:
            wait_until(lambda reader=reader: reader.take(1.0), deadline, "an application is up")  # type: ignore[misc]
        if arm == OURS:
            wait_until(lambda: settled(readers, args.partitions), deadline, "each application has its share")
        first.commit_transaction(60)
        wait_until(lambda: rows_of(readers) >= args.warm_up, deadline, f"{arm} is warm")
        for reader in readers:
            reader.rows = 0
        time.sleep(_REST_S)
        cpu_s, begin = sum(reader.cpu_s for reader in readers), time.time()
        rest.commit_transaction(60)
        wait_until(lambda: rows_of(readers) >= args.records, deadline + PATIENCE_S, f"{arm} has read the topic")
        took_s = max(reader.ended_at for reader in readers) - begin
        cpu_s = sum(reader.cpu_s for reader in readers) - cpu_s
        shares = [reader.rows for reader in readers]
    kafka.delete_topic(name)
    return {
        "records_per_s": args.records / took_s,
        "cpu_s": 1e6 * cpu_s / args.records,
        "least_share": min(shares) * len(shares) / args.records,
    }


def _filled(servers: str, transactional_id: str, topic: str, partitions: int, records: int) -> Producer:
    """Fill a topic within a transaction, and return the producer that can commit it."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            "linger.ms": 20,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for n in range(records):
        while True:
            try:
                producer.produce(topic, value=_VALUE, partition=n % partitions)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if not n % 10_000:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker does not take records")
    return producer


# ----------------------------------------------------------------------------------------- pauses


def _pauses(kafka: BenchmarkKafka, folder: Path, args: argparse.Namespace, say: Say) -> dict[str, float | None]:
    """Start and stop applications while records arrive, and return the pauses of partitions."""
    topic = f"scaling-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, args.partitions)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.group.id": topic,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    running: list[Pipeline] = []
    every: list[Pipeline] = []
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(Stream(kafka.bootstrap_servers, {topic: args.partitions}, per_second=500))
        for count in args.steps:
            while len(running) < count:
                one = Pipeline(folder, f"{topic}-{len(every)}", options).start()
                stack.callback(one.kill)
                running.append(one)
                every.append(one)
            while len(running) > count:
                running.pop().stop()
            deadline = time.monotonic() + PATIENCE_S
            wait_until(lambda: _shared(running, args.partitions), deadline, f"{count} applications share the topic")
            since = time.time()
            wait_until(lambda since=since: _all_write(running, since), deadline, f"all {count} write")  # type: ignore[misc]
            time.sleep(_REST_S)
            say(f"{count} applications share the topic")
        stream.close()
    members = [Member(one.name, one.events(), one.deliveries) for one in every]
    moved, stayed = hand_overs(members), [pause.seconds for pause in pauses(members)]
    return {
        "moved": float(len(moved)),
        "hand_over_p50_s": percentile([move.net_s for move in moved], 0.5),
        "hand_over_max_s": max((move.net_s for move in moved), default=None),
        "stayed_p50_s": percentile(stayed, 0.5),
        "stayed_p99_s": percentile(stayed, 0.99),
    }


def _shared(running: Sequence[Pipeline], partitions: int) -> bool:
    for one in running:
        one.check()
    shares = [len(one.owned()) for one in running]
    return sum(shares) == partitions and max(shares) - min(shares) <= 1


def _all_write(running: Sequence[Pipeline], since: float) -> bool:
    return all(any(delivery.time > since for delivery in one.deliveries) for one in running)
