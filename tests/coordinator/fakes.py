"""Fakes for the collaborators of the group thread, without threads and connections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.start_answers import StartAnswers
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover.inputs import Input
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.offsets.errors import KafkaGroupError
from pyspark_kafka_group.offsets.start_inputs import PartitionInfo
from pyspark_kafka_group.offsets.types import LeaderEpoch, TopicPartition
from pyspark_kafka_group.wire.threads import complete
from tests.coordinator.machine import POLICY

P = ParamSpec("P")
T = TypeVar("T")


class InlineWorker(DaemonExecutor):
    """Runs each call at once, in the thread that submits it; with ``waits``, keeps it until :meth:`run`."""

    def __init__(self, *, waits: bool = False) -> None:
        self.waits = waits
        self.waiting: list[Callable[[], None]] = []

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self.waiting.append(lambda: complete(future, lambda: call(*args, **kwargs)))
        if not self.waits:
            self.run()
        return future

    def run(self) -> None:
        """Run the waiting calls, but not the calls that these submit."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()

    def close(self) -> None:
        pass


class FakeLoop:
    """Runs each command at once, and keeps each input and error."""

    def __init__(self, state: Callable[[], State] = lambda: State(policy=POLICY)) -> None:
        self._state = state
        self.emit = EventLog("c", None)
        self.fed: list[Input] = []
        self.failed: list[KafkaGroupError] = []

    @property
    def state(self) -> State:
        return self._state()

    def post(self, command: Callable[[], None]) -> None:
        command()

    def feed(self, given: Input) -> None:
        self.fed.append(given)

    def fail(self, error: KafkaGroupError) -> None:
        self.failed.append(error)

    def fail_later(self, error: KafkaGroupError) -> None:
        self.failed.append(error)

    def drain(self) -> bool:
        return False


class FakeOffsets:
    """Gives the test's answers in place of :class:`GroupOffsets`, and records each request."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.topics: dict[str, int] = {}
        self.found: dict[TopicPartition, PartitionInfo] = {}
        self.missing: frozenset[str] = frozenset()
        self.vanished: frozenset[TopicPartition] = frozenset()  # of topics that exist
        self.wanted: list[Mapping[TopicPartition, set[LeaderEpoch]]] = []
        self.times_ms: Mapping[TopicPartition, int] = {}
        self.problem: Exception | None = None
        self.failed: dict[TopicPartition, str] = {}
        self.rebalances = 0  # how many more requests find a running rebalance

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.problem is not None:
            raise self.problem

    def matching(self, pattern: str) -> dict[str, int]:
        self._ask(f"matching {pattern}")
        return self.topics

    def partition_info(
        self, wanted: Mapping[TopicPartition, set[LeaderEpoch]], times_ms: Mapping[TopicPartition, int]
    ) -> StartAnswers:
        self.wanted.append(wanted)
        self.times_ms = times_ms
        self._ask("info")
        found = {tp: info for tp, info in self.found.items() if tp in wanted}
        return StartAnswers(found, self._missing_of(wanted), "nobody knows", self.failed)

    def missing_partitions(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        self._ask(f"missing {' '.join(map(str, sorted(partitions)))}")
        return self._missing_of(partitions)

    def _missing_of(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(tp for tp in partitions if tp.topic in self.missing or tp in self.vanished)

    def missing_topics(self, topics: Collection[str]) -> frozenset[str]:
        self._ask(f"missing {' '.join(sorted(topics))}")
        return self.missing & frozenset(topics)

    def rebalancing(self) -> bool:
        self._ask("rebalancing")
        self.rebalances -= 1
        return self.rebalances >= 0

    def describe(self) -> None:
        self._ask("describe")

    def serve(self) -> None:
        self.asked.append("serve")

    def close(self) -> None:
        self.asked.append("close")
