"""How long a partition stands still when it moves: joins, clean leaves, a rolling restart and a killed member.

The benchmark runs without Spark.  Each member is a query as in the source process, in a process of its own, and plans a
batch every 100 ms (:mod:`benchmarks.group_members`).  Its batches take no time, so the figures have no running batch in
them.  Records arrive steadily.

A partition stands still from the moment when its owner may no longer plan it.  This ends when the new owner knows where
to start.  The group notices a kill only after the session timeout, so then it begins when the timeout is over.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.environment import BenchmarkKafka, Say
from benchmarks.group_members import ask, member_process
from benchmarks.results import Cell, Result
from benchmarks.samples import percentile
from integration.cluster import Stream

_SESSION_S = 6.0
_SESSION_MS = f"{1000 * _SESSION_S:.0f}"
_REST_S = 1.0
_TRIGGER_S = 0.1
_PATIENCE_S = 90.0
_SESSIONS = {"group.min.session.timeout.ms": _SESSION_MS, "group.consumer.session.timeout.ms": _SESSION_MS}
_DEFAULTS = {
    **_SESSIONS,
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000",
}
"""The defaults of Kafka 4.3 under KIP-848, except for the session timeout.  With 45 s each kill would take as long."""


class Arm(NamedTuple):
    """The options of the members, and the settings of the broker and of the group."""

    options: Mapping[str, str]
    broker: Mapping[str, str]
    group: Mapping[str, str] = MappingProxyType({})


_CONSUMER = {"kafka.group.protocol": "consumer"}

ARMS: Mapping[str, Arm] = {
    "classic": Arm({"kafka.group.protocol": "classic", "kafka.session.timeout.ms": _SESSION_MS}, _DEFAULTS),
    "KIP-848, defaults": Arm(_CONSUMER, _DEFAULTS),
    "KIP-848, brokers' heartbeats": Arm({**_CONSUMER, "kafka.heartbeat.interval.ms": "5000"}, _DEFAULTS),
    "KIP-848, best of the group": Arm(_CONSUMER, _DEFAULTS, {"consumer.assignment.interval.ms": "0"}),
    "KIP-848, tuned brokers": Arm(
        _CONSUMER,
        {
            **_DEFAULTS,
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.assignment.interval.ms": "0",
        },
    ),
}
"""Under KIP-848 the broker decides how often a member must ask for its partitions.  Our members ask more often, except
with "brokers' heartbeats".  "Best of the group" has what a broker with defaults accepts for one group.
"""

JOIN, LEAVE, ROLLING, KILL = STEPS = ("join", "leave", "rolling restart", "kill, beyond the session timeout of 6 s")

QUICK: dict[str, Any] = {"members": [2], "partitions": 8, "repetitions": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--members", type=int, nargs="*", default=[2, 8], help="before a join (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=40, help="of the topic (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="of all steps (default: %(default)s)")
    parser.add_argument("--arms", nargs="*", choices=[*ARMS], default=[*ARMS], help="(default: all)")


def measure(args: argparse.Namespace, result: Result, say: Say) -> None:
    """Run the benchmark and add a cell for each case to the result."""
    for members in args.members:
        factors = {"members": members, "partitions": args.partitions}
        cells = {step: Cell(name=f"{members} members, {step}", factors=factors) for step in STEPS}
        result.cells += cells.values()
        for arm in args.arms:
            say(f"{members} members, {arm}: starting a broker")
            with (
                BenchmarkKafka(properties=dict(ARMS[arm].broker)) as kafka,
                tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
            ):
                found = _Run(kafka, Path(folder), ARMS[arm], args, members).pauses()
            for step, seconds in found.items():
                cells[step].add(
                    arm,
                    {
                        **{f"p{share}_s": percentile(Counter(seconds), share / 100) for share in (50, 90, 99)},
                        "max_s": max(seconds, default=None),
                        "moved": float(len(seconds)),
                    },
                )
                say(f"{cells[step].name}, {arm}: {cells[step].arms[arm]}")


class Move(NamedTuple):
    """A partition that has got another owner: the time when it stood still, and when it was started again."""

    since: float
    started: float


def moves(events: Iterable[Mapping[str, Any]], kills: Mapping[str, float]) -> list[Move]:
    """Return the moves of partitions.

    Parameters
    ----------
    events : iterable of mapping
        The events of all members.
    kills : mapping of str to float
        When the group lost each killed member.  The names are without the suffixes that make them unique.
    """
    killed = [{"time": time, "member": name, "event": "killed"} for name, time in kills.items()]
    owners: dict[str, str] = {}
    still: dict[str, float] = {}
    found = []
    for event in sorted([*events, *killed], key=lambda event: event["time"]):
        time, member = event["time"], event["member"]
        match event["event"]:
            case "started":
                for tp in event["positions"]:
                    since, before = still.pop(tp, None), owners.get(tp)
                    if since is not None and before != member:
                        found.append(Move(since, time))
                    owners[tp] = member
            case "draining" | "released" | "lost":
                for tp in event["partitions"]:
                    if owners.get(tp) == member:
                        still.setdefault(tp, time)
            case "killed":
                for tp, owner in owners.items():
                    if owner.startswith(f"{member}-"):
                        still.setdefault(tp, time)
    return found


class _Run:
    """Runs all steps with one arm."""

    def __init__(self, kafka: BenchmarkKafka, folder: Path, arm: Arm, args: argparse.Namespace, members: int) -> None:
        self._kafka = kafka
        self._topic = f"hand-over-{uuid.uuid4().hex[:8]}"
        self._folder = folder
        self._options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.group.id": self._topic,
            "subscribe": self._topic,
            "startingOffsets": "earliest",
            **arm.options,
        }
        self._group = arm.group
        self._args = args
        self._members = members
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._kills: dict[str, float] = {}
        self._number = 0
        self._windows: list[tuple[str, float, float]] = []

    def pauses(self) -> dict[str, list[float]]:
        """Return how long partitions stood still, by step."""
        self._kafka.create_topic(self._topic, self._args.partitions)
        if self._group:
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in self._group.items()
            ]
            resource = ConfigResource(ResourceType.GROUP, self._topic, incremental_configs=entries)
            admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers})
            admin.incremental_alter_configs([resource])[resource].result(30)
        with (
            contextlib.ExitStack() as stack,
            Stream(self._kafka.bootstrap_servers, {self._topic: self._args.partitions}, per_second=200),
        ):
            for _ in range(self._members):
                self._start(stack)
            self._settle()
            for _ in range(self._args.repetitions):
                with self._step(JOIN):
                    newest = self._start(stack)
                with self._step(LEAVE):
                    self._stop(newest)
                for name in [*self._running]:
                    with self._step(ROLLING):
                        self._stop(name)
                        self._start(stack)
                with self._step(KILL):
                    name, process = self._running.popitem()
                    self._kills[name] = time.time() + _SESSION_S
                    process.kill()
                self._start(stack)
                self._settle()
        events = [
            json.loads(line) for file in self._folder.glob("*.jsonl") for line in file.read_text().splitlines() if line
        ]
        found = moves(events, self._kills)
        return {
            step: [
                move.started - move.since
                for move in found
                if any(name == step and begin <= move.started < end for name, begin, end in self._windows)
            ]
            for step in STEPS
        }

    @contextlib.contextmanager
    def _step(self, step: str) -> Iterator[None]:
        begin = time.time()
        yield
        self._settle()
        self._windows.append((step, begin, time.time()))

    def _start(self, stack: contextlib.ExitStack) -> str:
        name = f"m{self._number:03}"
        self._number += 1
        process = stack.enter_context(member_process([name], self._options, self._folder, _TRIGGER_S))
        ask(process, "start")
        self._running[name] = process
        return name

    def _stop(self, name: str) -> None:
        ask(self._running.pop(name), f"stop {name}")

    def _settle(self) -> None:
        """Wait until each partition has an owner that knows where to start, and then a little."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            states = [ask(process, "state") for process in self._running.values()]
            problems = [problem for state in states for problem in state["problems"]]
            if problems:
                raise RuntimeError(f"members have ended: {problems[:3]}")
            owned = [count for state in states for count in state["owned"].values()]
            if sum(owned) == self._args.partitions and max(owned) - min(owned) <= 1:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"the group has not settled within {_PATIENCE_S:g} s: {owned}")
            time.sleep(0.1)
        time.sleep(_REST_S)
