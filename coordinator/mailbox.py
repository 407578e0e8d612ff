"""Commands of other threads, which the group thread runs one after the other."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pyspark_kafka_group.cluster.daemon_executor import complete

T = TypeVar("T")


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
