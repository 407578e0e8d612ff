"""The loop of the group thread: what its parts may do with it, and the commands of other threads."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from pyspark_kafka_group.cluster.daemon_executor import complete
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.handover.inputs import Input
from pyspark_kafka_group.coordinator.handover.state import State
from pyspark_kafka_group.offsets.errors import KafkaGroupError

T = TypeVar("T")


class Loop(Protocol):
    """What the parts of the group thread use of it."""

    @property
    def state(self) -> State:
        """The newest state; never changed in place.  Any thread."""

    @property
    def emit(self) -> EventLog:
        """Takes the events.  Any thread."""

    def post(self, command: Callable[[], None]) -> None:
        """Run ``command`` on the group thread, and return at once.  Any thread."""

    def feed(self, given: Input) -> None:
        """Feed the state machine and carry out its outputs.  On the group thread."""

    def fail(self, error: KafkaGroupError) -> None:
        """Remember why the query must end, and leave.  On the group thread."""

    def fail_later(self, error: KafkaGroupError) -> None:
        """Do the same, and return at once.  Any thread."""

    def drain(self) -> bool:
        """Let a turn pass without a poll; return whether draining partitions may still be finished and committed.

        On the group thread, inside a callback of the member.
        """


class Mailbox:
    """Takes commands from any thread and runs them on one."""

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def post(self, command: Callable[[], None]) -> None:
        """Queue ``command``, and return at once.  Any thread, also in a signal handler."""
        self._commands.put(command)

    def call(self, command: Callable[[], T]) -> Future[T]:
        """Queue ``command``, and return the future of its result.  Any thread."""
        future: Future[T] = Future()
        self.post(lambda: complete(future, command))
        return future

    def run(self, wait_s: float) -> None:
        """Run the commands that have arrived.  If there is none, wait for one, at most ``wait_s``."""
        try:
            command = self._commands.get(timeout=wait_s) if wait_s > 0 else self._commands.get_nowait()
            while True:
                command()
                command = self._commands.get_nowait()
        except queue.Empty:
            pass
