"""Finds what a test has left open, and closes it, so that one fault is one failure.

An open socket of a failed test would fail a later one, when the garbage collector finds it.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_ENDING_S = 20.0
"""How long stopped threads may take to end: the timeouts of some requests, if brokers are gone."""

_HASTE_S = 1.0
"""How long the threads of a failed test may take."""

_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


@contextmanager
def usual_signals() -> Iterator[None]:
    """Handle signals as in a terminal, whatever the parent of this process ignores, and undo changes at the end."""
    before = {number: signal.signal(number, handler) for number, handler in _HANDLERS.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class LeftBehind:
    """Knows the sockets, processes and threads of a test.

    Sockets and processes count from :meth:`watch`, threads from the creation of this object.
    """

    def __init__(self) -> None:
        self._before = {*threading.enumerate()}
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._processes: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note all sockets and processes that are made."""
        connect, start = socket.socket.__init__, subprocess.Popen.__init__
        made_by: Any = socket.socket
        started_by: Any = subprocess.Popen

        def connected(made: socket.socket, *args: Any, **kwargs: Any) -> None:
            connect(made, *args, **kwargs)
            self._sockets.add(made)

        def started(made: subprocess.Popen[bytes], *args: Any, **kwargs: Any) -> None:
            start(made, *args, **kwargs)
            self._processes.add(made)

        made_by.__init__, started_by.__init__ = connected, started
        try:
            yield
        finally:
            made_by.__init__, started_by.__init__ = connect, start

    def end(self, *, failed: bool) -> str:
        """Close everything, and return what was open; empty if the test has failed anyway."""
        threads = [] if failed else self._threads(_ENDING_S)
        sockets = [made for made in self._sockets if made.fileno() >= 0]
        processes = [made for made in self._processes if made.poll() is None]
        for process in processes:
            process.kill()
            process.communicate()
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for it
            one.close()
        if failed:
            self._threads(_HASTE_S)
            return ""
        found = [f"thread {thread.name}" for thread in threads]
        found += [f"process {process.args!r}" for process in processes]
        found += [f"socket {one!r}" for one in sockets]
        return ", ".join(sorted(found))

    def _threads(self, wait_s: float) -> list[threading.Thread]:
        """Wait for the threads that have begun since, and return those that do not end."""
        deadline = time.monotonic() + wait_s
        for thread in self._started():
            thread.join(max(0.0, deadline - time.monotonic()))
        return self._started()

    def _started(self) -> list[threading.Thread]:
        # Python names a thread of librdkafka that has called it Dummy, and never notices its end.
        return [t for t in threading.enumerate() if t not in self._before and not t.name.startswith("Dummy-")]
