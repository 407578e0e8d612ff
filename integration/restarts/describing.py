"""Whether describing a group survives broker restarts: processes ask many times a second while brokers go and come.

librdkafka's admin client does not survive it: with ``--ask admin-client`` processes die of SIGABRT
(confluentinc/librdkafka#4605 and #3663), which shows that the run is hard enough to tell.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from pyspark_kafka_group.offsets.cluster.cluster_requests import open_cluster_requests
from pyspark_kafka_group.offsets.cluster.describe_process import describe_elsewhere
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.testing import LocalKafka

GROUP, TOPIC = "restarts", "restarts"
_PARTITIONS = [TopicPartition(TOPIC, n) for n in range(4)]
_TIMEOUT_S = 5.0
_END_S = 30.0
"""How long a process may take to end: a call, and the start and end of a Python on a busy machine."""

Ask = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the processes fared.

    Attributes
    ----------
    exits : tuple of int
        How each process ended; below zero: of which signal.
    answers, failures : int
        How many calls were answered, and how many have to be tried again.
    answered_after_restarts : bool
        Whether each process was answered again after the last restart.
    """

    exits: tuple[int, ...]
    answers: int
    failures: int
    answered_after_restarts: bool

    @property
    def signals(self) -> list[str]:
        """The names of the signals that processes died of."""
        return [signal.Signals(-code).name for code in self.exits if code < 0]


def _own(properties: Mapping[str, str]) -> Ask:
    requests = open_cluster_requests(properties, client_id=GROUP)
    assert requests is not None

    def ask() -> None:
        requests.describe_group(GROUP, timeout_s=_TIMEOUT_S)
        requests.committed(GROUP, _PARTITIONS, require_stable=True, timeout_s=_TIMEOUT_S)

    return ask


def _admin_client(properties: Mapping[str, str]) -> Ask:
    admin = AdminClient({**properties, "log_level": 0})

    def ask() -> None:
        try:
            admin.describe_consumer_groups([GROUP], request_timeout=_TIMEOUT_S)[GROUP].result()
        except KafkaException as problem:
            raise TryAgainError(str(problem)) from None

    return ask


def _child_process(properties: Mapping[str, str]) -> Ask:
    return lambda: describe_elsewhere(properties, GROUP, _TIMEOUT_S)


WAYS = {"own": _own, "child-process": _child_process, "admin-client": _admin_client}


def _process(way: str, properties: Mapping[str, str], per_second: float, over: Event, done: Any) -> None:
    """Ask until it is over, then tell how often that was answered, and when last."""
    ask = WAYS[way](properties)
    counts: Counter[str] = Counter()
    answered_at = 0.0
    while not over.is_set():
        begin = time.monotonic()
        try:
            ask()
            counts["answers"] += 1
            answered_at = time.monotonic()
        except TryAgainError:
            counts["failures"] += 1
        over.wait(max(0.0, begin + 1 / per_second - time.monotonic()))
    done.put((counts["answers"], counts["failures"], answered_at))


def run(
    *,
    way: str = "own",
    processes: int = 5,
    restarts: int = 10,
    per_second: float = 20.0,
    brokers: int = 1,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Let processes describe a group with a member, and restart one broker after the other.

    Parameters
    ----------
    way : str
        How they ask, one of `WAYS`.
    processes, per_second : int, float
        How many ask, and how often each.
    restarts, brokers : int
        How many restarts, of how many brokers in turn.
    say : callable
        Takes a line about each restart.
    """
    context = multiprocessing.get_context("spawn")
    over, done = context.Event(), context.SimpleQueue()
    with LocalKafka(brokers) as kafka:
        kafka.create_topic(TOPIC, len(_PARTITIONS), replication_factor=brokers)
        properties = {"bootstrap.servers": kafka.bootstrap_servers}
        member = Consumer({**properties, "group.id": GROUP, "log_level": 0})
        member.subscribe([TOPIC])
        started = [
            context.Process(target=_process, args=(way, properties, per_second, over, done)) for _ in range(processes)
        ]
        for process in started:
            process.start()
        try:
            _poll_for(member, 3.0)
            for n in range(restarts):
                kafka.restart(n % brokers + 1)
                alive = sum(process.is_alive() for process in started)
                say(f"restart {n + 1} of {restarts}: {alive} of {processes} processes live")
                _poll_for(member, 2.0)
            restarted_at = time.monotonic()
            _poll_for(member, 3.0)
        finally:
            over.set()
            for process in started:
                process.join(_END_S)
                if process.is_alive():
                    process.kill()
                    process.join()
            member.close()
    told = []
    while not done.empty():
        told.append(done.get())
    well = len(told) == processes and all(at > restarted_at for _, _, at in told)
    return Outcome(
        exits=tuple(process.exitcode or 0 for process in started),
        answers=sum(answers for answers, _, _ in told),
        failures=sum(failures for _, failures, _ in told),
        answered_after_restarts=well,
    )


def _poll_for(member: Consumer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        member.poll(0.1)
