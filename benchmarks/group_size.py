"""A group of 10 to 100 members: the time to settle, the commit rate, and the load of the coordinator.

The benchmark runs without Spark.  Each member is a query as in the source process, and plans a batch once a second
(:mod:`benchmarks.group_members`).  One producer adds records to a tenth of the partitions every second, so that each
member commits about once a second.  The benchmark compares the classic protocol with our heartbeats, the classic
protocol with the heartbeats of Java's client, and KIP-848.

For each size, all members start at once in a new group.  They idle, then they commit, and then one leaves.  Finally all
stop, and start again at once in the same group.  Each partition must then start at its committed offset.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.environment import BenchmarkKafka, Say
from benchmarks.group_members import ask, member_process
from benchmarks.processes import Part, Watch
from benchmarks.results import Cell, Result

ARMS: dict[str, dict[str, str]] = {
    "classic, 250 ms": {"kafka.group.protocol": "classic"},
    "classic, 500 ms": {"kafka.group.protocol": "classic", "kafka.heartbeat.interval.ms": "500"},
    "classic, 1 s": {"kafka.group.protocol": "classic", "kafka.heartbeat.interval.ms": "1000"},
    "classic, 3 s": {"kafka.group.protocol": "classic", "kafka.heartbeat.interval.ms": "3000"},
    "KIP-848": {"kafka.group.protocol": "consumer"},
}
"""Our default, two between it and that of Java's client, and KIP-848, where the broker decides the interval."""

PATIENCE_S = 240.0

_MEMBERS_PER_PROCESS = 25

# A broker's defaults instead of those for tests, because KIP-848 members learn their partitions with a heartbeat.
_PROPERTIES = {
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.assignment.interval.ms": "1000",
    "message.max.bytes": "10485880",
}

QUICK: dict[str, Any] = {"members": [3], "partitions": 30, "seconds": 3.0, "arms": [*ARMS]}

Tell = Callable[[str], list[Any]]
"""Sends a line to all processes, and returns their answers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--members", type=int, nargs="*", default=[10, 25, 50, 100], help="(default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=1000, help="of the topic (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a window (default: %(default)s)")
    parser.add_argument("--arms", nargs="*", choices=[*ARMS], default=[*ARMS], help="(default: all)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    result.notes.append(
        "brokers tell members of KIP-848 to send a heartbeat every 5 s, as they do by default; without "
        "group.initial.rebalance.delay.ms"
    )
    say("starting a broker")
    with BenchmarkKafka(properties=_PROPERTIES) as kafka:
        for count in args.members:
            cell = Cell(name=f"{count} members", factors={"members": count, "partitions": args.partitions})
            result.cells.append(cell)
            for arm in args.arms:
                with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
                    run = Run(kafka.bootstrap_servers, f"size-{uuid.uuid4().hex[:8]}", args.partitions, Path(folder))
                    # A small index, because a broker maps two index files into memory for each of 10,000 partitions.
                    kafka.create_topic(run.topic, args.partitions, config={"segment.index.bytes": "1048576"})
                    cell.add(arm, run.measure(count, ARMS[arm], args.seconds))
                    kafka.delete_topic(run.topic)
                say(f"{cell.name}, {arm}: {_told(cell, arm)}")


def _told(cell: Cell, arm: str) -> str:
    return ", ".join(f"{name} {samples[-1]:.4g}" for name, samples in cell.arms[arm].items() if samples[-1] is not None)


class Run:
    """Measures one group of one size, from its first start to its end.

    Parameters
    ----------
    servers, topic : str
        The cluster and the topic.  The group has the name of the topic.
    partitions : int
        Number of partitions of the topic.
    folder : Path
        The folder for event logs.
    rest_s : float
        Seconds that the group rests before a window.
    """

    def __init__(self, servers: str, topic: str, partitions: int, folder: Path, *, rest_s: float = 2.0) -> None:
        self.topic = topic
        self._servers = servers
        self._partitions = partitions
        self._folder = folder
        self._rest_s = rest_s

    def measure(self, members: int, options: Mapping[str, str], seconds: float) -> dict[str, float | None]:
        """Return the figures of this size."""
        names = [f"m{n:03}" for n in range(members)]
        self._produce(range(self._partitions))
        with Watch(pause_s=0.5) as watch:
            with self._started(names, options, "earliest", "first") as tell:
                settle_s = self._settled(tell, names, time.monotonic())
                time.sleep(self._rest_s)
                idle = self._window(tell, watch, seconds)
                with self._producing():
                    time.sleep(self._rest_s)
                    busy = self._window(tell, watch, seconds)
                left_at = time.monotonic()
                tell(f"stop {names[-1]}")
                leave_s = self._settled(tell, names[:-1], left_at)
            committed = self._committed()
            self._produce(range(self._partitions))
            # A member that falls back to startingOffsets starts at the end, not at the committed offset.
            with self._started(names, options, "latest", "second") as tell:
                again_s = self._settled(tell, names, time.monotonic())
        fell_back = fallen_back(first_positions(self._folder / "second"), committed)
        if fell_back:
            raise RuntimeError(f"did not begin where the group had committed: {fell_back[:5]}")
        return {
            "settle_s": settle_s,
            "again_s": again_s,
            "leave_s": leave_s,
            "idle_broker_percent": idle["broker_percent"],
            "busy_broker_percent": busy["broker_percent"],
            "idle_member_percent": idle["members_percent"] / members,
            "busy_member_percent": busy["members_percent"] / members,
            "commits_per_s": busy["commits_per_s"],
            "commit_ms": busy["commit_ms"],
            "fell_back": float(len(fell_back)),
        }

    def _window(self, tell: Tell, watch: Watch, seconds: float) -> dict[str, float]:
        """Return the figures of a window of time."""
        before, begin = _sum(tell("state")), time.time()
        time.sleep(seconds)
        after, end = _sum(tell("state")), time.time()
        time.sleep(0.6)  # until the watch has taken its last sample
        commits = after["commits"] - before["commits"]
        took_ms = after["committing_ms"] - before["committing_ms"]
        return {
            "broker_percent": 100 * watch.cpu_s(Part.BROKER, begin, end) / (end - begin),
            "members_percent": 100 * (after["cpu_s"] - before["cpu_s"]) / (end - begin),
            "commits_per_s": commits / (end - begin),
            "commit_ms": took_ms / commits if commits else 0.0,
        }

    def _settled(self, tell: Tell, names: Sequence[str], since: float) -> float:
        """Wait until each member has its share and its start positions, and return the time since ``since``."""
        low, high = self._partitions // len(names), -(-self._partitions // len(names))
        while True:
            states = tell("state")
            problems = [problem for state in states for problem in state["problems"]]
            if problems:
                raise RuntimeError(f"members have ended: {problems[:3]}")
            owned = {name: count for state in states for name, count in state["owned"].items()}
            # An assignor may give a member one partition more or less than the others.
            fair = all(low - 1 <= count <= high + 1 for count in owned.values())
            if len(owned) == len(names) and sum(owned.values()) == self._partitions and fair:
                return time.monotonic() - since
            if time.monotonic() > since + PATIENCE_S:
                raise TimeoutError(f"the group has not settled within {PATIENCE_S:g} s: {owned}")
            time.sleep(0.1)

    @contextlib.contextmanager
    def _started(self, names: Sequence[str], options: Mapping[str, str], start: str, run: str) -> Iterator[Tell]:
        """Start the members, and yield a function that sends commands to their processes."""
        folder = self._folder / run
        folder.mkdir()
        given = {
            "kafka.bootstrap.servers": self._servers,
            "kafka.group.id": self.topic,
            "subscribe": self.topic,
            "startingOffsets": start,
            **options,
        }
        shares = [names[at : at + _MEMBERS_PER_PROCESS] for at in range(0, len(names), _MEMBERS_PER_PROCESS)]
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(shares)) as pool:
            processes = [stack.enter_context(member_process(share, given, folder)) for share in shares]

            def tell(line: str) -> list[Any]:
                stopped = line.split()[1:]
                asked = zip(processes, shares, strict=True)
                if stopped:
                    asked = ((process, share) for process, share in asked if {*stopped} & {*share})  # type: ignore[assignment]
                return [*pool.map(lambda one: ask(one[0], line), [*asked])]

            tell("start")
            yield tell
            tell("stop")

    def _produce(self, partitions: Sequence[int]) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 20})
        for partition in partitions:
            producer.produce(self.topic, partition=partition, value=b"value")
            producer.poll(0)
        if producer.flush(60):
            raise RuntimeError("the broker does not take records")

    @contextlib.contextmanager
    def _producing(self) -> Iterator[None]:
        """Produce a record to a tenth of the partitions each second, at random: not to those of a few members."""
        over = threading.Event()

        def run() -> None:
            producer = Producer({"bootstrap.servers": self._servers})
            chance = random.Random(0)
            while not over.wait(1.0):
                for partition in chance.sample(range(self._partitions), self._partitions // 10):
                    producer.produce(self.topic, partition=partition, value=b"value")
                producer.poll(0)
            producer.flush(30)

        thread = threading.Thread(target=run, name="producer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _committed(self) -> dict[str, int]:
        """Return the committed offsets of the group, which has no members."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": self.topic})
        try:
            every = [TopicPartition(self.topic, n) for n in range(self._partitions)]
            return {f"{tp.topic}-{tp.partition}": tp.offset for tp in consumer.committed(every, timeout=30)}
        finally:
            consumer.close()


def fallen_back(positions: Mapping[str, int], committed: Mapping[str, int]) -> list[str]:
    """Return the partitions that did not start at their committed offset, as text with both offsets.

    Parameters
    ----------
    positions : mapping of str to int
        The offset of each partition at its first owner.
    committed : mapping of str to int
        The committed offsets before the start.
    """
    return [
        f"{tp}: began at {positions.get(tp)}, committed was {offset}"
        for tp, offset in sorted(committed.items())
        if positions.get(tp) != offset
    ]


def first_positions(folder: Path) -> dict[str, int]:
    """Return the offset at which each partition started, with its first owner."""
    events = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    started = sorted((event for event in events if event["event"] == "started"), key=lambda event: -event["time"])
    return {tp: offset for event in started for tp, offset in event["positions"].items()}


def _sum(states: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {key: sum(state[key] for state in states) for key in ("commits", "committing_ms", "cpu_s")}
