"""A daemon thread that runs one call after another.

The interpreter joins the threads of :mod:`concurrent.futures` when it exits.  A call to a broker that does not answer
would then keep a dead query's process, and its group member, alive.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from pyspark_kafka_group.offsets.errors import GroupError
from pyspark_kafka_group.wire.threads import complete

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class ClosedError(RuntimeError):
    """The executor was closed before this call was submitted; the call is not run."""


class DaemonExecutor:
    """Runs submitted calls in order, on one daemon thread.

    Parameters
    ----------
    name : str
        The name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the next; the queue gets no call after its end
        self._closed = False
        # A daemon: nothing here may keep the process alive.
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue ``call`` and return its future, which raises :class:`ClosedError` if the executor is closed."""
        future: Future[T] = Future()
        with self._lock:
            if not self._closed:
                self._calls.put(lambda: complete(future, lambda: call(*args, **kwargs)))
                return future
        future.set_exception(ClosedError("closed"))
        return future

    def post(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Future[object]:
        """Queue ``call`` like :meth:`submit`, and log its exception, because its caller does not wait for it."""
        future: Future[object] = self.submit(call, *args, **kwargs)
        future.add_done_callback(_log_failure)
        return future

    def close(self) -> None:
        """End the thread after the queued calls, and return at once.  May be called more than once."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # releases its objects before the next call arrives


def _log_failure(future: Future[object]) -> None:
    problem = future.exception()
    if problem is not None and not isinstance(problem, ClosedError):
        _log.error("an unexpected error in the background: %r. This is a bug.", problem, exc_info=problem)


def unexpected(doing: str, fail: Callable[[GroupError], None]) -> Callable[[Future[object]], None]:
    """Return a callback that ends the query if a call has failed and its caller does not wait for it.

    Parameters
    ----------
    doing : str
        What the call does, as the subject of a sentence.
    fail : callable
        Takes the error that ends the query.  Any thread.
    """

    def check(future: Future[object]) -> None:
        problem = future.exception()
        if problem is not None and not isinstance(problem, ClosedError):
            fail(GroupError(f"{doing} failed: {problem!r}. This is a bug."))

    return check
