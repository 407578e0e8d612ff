"""Time from assigned to started in a large group while many producers commit.

A member requests the stable committed offsets of its assigned partitions.  While a transaction is open, a broker
refuses the stable offsets of its partitions.  So requests for a whole topic would fail most of the time.  The
benchmark also sends such requests after each start.  It runs without Spark, and calls the reader like Spark's runner in
the source process.

The member has an instance id, so that it gets the same partitions at each start.  In a separate process, one producer
for each other partition commits in a loop, in transactions.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.environment import BenchmarkKafka, Say
from benchmarks.queries import PATIENCE_S, rotated
from benchmarks.results import Cell, Result
from pyspark_kafka_group.cluster.cluster import connect
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.source import KafkaGroupDataSource

PROTOCOLS = ("classic", "consumer")
"""``consumer`` is the protocol of KIP-848."""

_OTHER_MEMBERS = 5
_MOST_STARTS = 10
_ASKS = 20
"""Number of requests for stable offsets after each start."""

_ASK_AGAIN_S = 0.1
"""A query retries refused partitions after the same pause."""

_GIVE_UP_S = 10.0
_SETTLE_S = 1.0

# The session must outlast a restart, so that the group does not reassign the member's partitions.
_SESSION_MS = 45_000

QUICK: dict[str, Any] = {"repetitions": 1, "producers": 5, "partitions": 12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--repetitions", type=int, default=20, help="starts (default: %(default)s)")
    parser.add_argument("--producers", type=int, default=50, help="that commit (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=60, help="of the topic (default: %(default)s)")
    text = "commits of each producer; without a pace they fill two cores (default: %(default)s)"
    parser.add_argument("--per-second", type=float, default=20.0, help=text)


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    counts = {"0 producers": 0, f"{args.producers} producers": args.producers}
    cells = {name: Cell(name=name, factors={"producers": count}) for name, count in counts.items()}
    result.cells += cells.values()
    result.notes.append(f"each producer commits {args.per_second:g} times a second at most")
    say("starting a broker")
    properties = {"group.consumer.session.timeout.ms": str(_SESSION_MS)}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, BenchmarkKafka(properties=properties) as kafka:
        for protocol in PROTOCOLS:
            topic, group = f"busy-{protocol}", f"bench-{uuid.uuid4().hex[:8]}"
            kafka.create_topic(topic, args.partitions)
            starter = _Starter(kafka.bootstrap_servers, topic, group, protocol, Path(folder))
            busy = {"servers": kafka.bootstrap_servers, "topic": topic, "group": group, "protocol": protocol}
            with _busy(**busy, members=_OTHER_MEMBERS, per_second=args.per_second) as tell, _signals_restored():
                tell(f"members {args.partitions}")
                own = _settled(starter, args.partitions // (_OTHER_MEMBERS + 1))
                others = [n for n in range(args.partitions) if TopicPartition(topic, n) not in own]
                if len(others) < args.producers:
                    raise RuntimeError(f"{len(others)} partitions are left for {args.producers} producers")
                tell(" ".join(["producers", *map(str, others[: args.producers])]))
                say(f"{protocol}: the member has {len(own)} partitions, and the producers are ready")
                for repetition in range(args.repetitions):
                    for name in rotated(tuple(counts), repetition):
                        measured = _measured(starter, own, args.partitions, tell if counts[name] else None)
                        cells[name].add(protocol, measured)
                        say(f"{protocol}, start {repetition + 1}, {name}: {measured['start_ms']:.0f} ms")


class _Start:
    """One start of the member, read from its event log."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        assigned = [event for event in events if event["event"] == "assigned"]
        positions = {tp: event["time"] for event in events if event["event"] == "started" for tp in event["positions"]}
        names = {tp for event in assigned for tp in event["partitions"]}
        self.over = bool(names) and names <= positions.keys()
        self.partitions = frozenset(_named(name) for name in names)
        self.ms = 1000 * (max(positions.values()) - assigned[0]["time"]) if self.over else 0.0


class _Starter:
    """Starts the measured member, each time as a new query."""

    def __init__(self, servers: str, topic: str, group: str, protocol: str, folder: Path) -> None:
        self.topic = topic
        self.group = group
        requests = connect({"bootstrap.servers": servers}, client_id="bench-asks")
        self.requests = requests
        self._folder = folder
        self._options = {
            "kafka.bootstrap.servers": servers,
            "kafka.group.id": group,
            "kafka.group.instance.id": "measured",
            "kafka.group.protocol": protocol,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        if protocol == "classic":
            self._options["kafka.session.timeout.ms"] = str(_SESSION_MS)

    def start(self) -> _Start:
        """Start the member, wait until all its assigned partitions have started, and stop it."""
        log = self._folder / f"{uuid.uuid4().hex}.jsonl"
        source = KafkaGroupDataSource({**self._options, "eventLog": str(log)})
        reader = source.streamReader(source.schema())
        deadline = time.monotonic() + PATIENCE_S
        try:
            position = json.loads(json.dumps(reader.initialOffset()))
            while True:
                position = json.loads(json.dumps(reader.latestOffset(position, reader.getDefaultReadLimit())))
                found = _Start([json.loads(line) for line in log.read_text().splitlines()])
                if found.over:
                    return found
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the member has not started within {PATIENCE_S:g} s")
        finally:
            reader.stop()

    def refused(self, partitions: frozenset[TopicPartition]) -> bool:
        """Request stable offsets, and return whether the broker refused a partition."""
        return bool(self.requests.committed(self.group, partitions, require_stable=True).failed)


def _settled(starter: _Starter, share: int) -> frozenset[TopicPartition]:
    """Start the member until it gets the same full share as before, and return its partitions."""
    own = starter.start().partitions  # waits for a rebalance, and commits the start of its partitions
    for _ in range(_MOST_STARTS):
        before, own = own, starter.start().partitions
        if own == before and len(own) == share:
            return own
    raise RuntimeError(f"the group still moves partitions after {_MOST_STARTS} starts")


def _measured(
    starter: _Starter, own: frozenset[TopicPartition], count: int, tell: Callable[[str], str] | None
) -> dict[str, float | None]:
    everything = frozenset(TopicPartition(starter.topic, n) for n in range(count))
    if tell is not None:
        tell("go")
        time.sleep(_SETTLE_S)
    start = starter.start()
    if start.partitions != own:
        raise RuntimeError(f"the group has moved partitions: {sorted(start.partitions)}")
    refused = {"own": 0, "all": 0}
    for _ in range(_ASKS):
        refused["own"] += starter.refused(own)
        refused["all"] += starter.refused(everything)
        time.sleep(_ASK_AGAIN_S)
    begin = time.monotonic()
    while starter.refused(everything) and time.monotonic() < begin + _GIVE_UP_S:
        time.sleep(_ASK_AGAIN_S)
    took_s = min(_GIVE_UP_S, time.monotonic() - begin)
    commits = None
    if tell is not None:
        committed, seconds = tell("pause").split()
        commits = int(committed) / float(seconds)
    return {
        "start_ms": start.ms,
        "all_stable_ms": 1000 * took_s,
        "refused_own_percent": 100 * refused["own"] / _ASKS,
        "refused_all_percent": 100 * refused["all"] / _ASKS,
        "commits_per_s": commits,
    }


def _named(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


@contextlib.contextmanager
def _busy(**settings: Any) -> Iterator[Callable[[str], str]]:
    """Run the other members and the producers.  Yield a function that sends a command and returns the answer."""
    command = [sys.executable, "-m", "benchmarks.busy_group", json.dumps(settings)]
    # The process ends at the end of its input, so it cannot outlive this process.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        given, answers = process.stdin, process.stdout
        assert given is not None
        assert answers is not None

        def tell(line: str) -> str:
            print(line, file=given, flush=True)
            answer = answers.readline().strip()
            if not answer:
                raise RuntimeError(f"the busy group has ended at {line.split(maxsplit=1)[0]!r}")
            return answer

        try:
            yield tell
        finally:
            given.close()
            process.wait(30)


@contextlib.contextmanager
def _signals_restored() -> Iterator[None]:
    """Restore the signal handler that a reader replaces.  Only Spark's processes need the reader's handler."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
