"""Threads for calls of libraries without a timeout.  The caller may leave such a thread behind."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start_daemon(run: Callable[[], None], name: str) -> None:
    """Run a call on a new thread, which does not keep the process alive.

    Raises
    ------
    OSError
        If the system has no more threads or memory.  The caller may try again later.
    """
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as problem:
        raise OSError(errno.EAGAIN, f"{problem}. Raise the limit of threads or of memory") from None


def in_background(call: Callable[[], T], name: str) -> Future[T]:
    """Run a call on a new thread, which does not keep the process alive, and return its future.

    The future raises OSError if the system has no more threads or memory.
    """
    future: Future[T] = Future()
    try:
        start_daemon(lambda: complete(future, call), name)
    except OSError as problem:
        future.set_exception(problem)
    return future


def complete(future: Future[T], call: Callable[[], T]) -> None:
    """Run ``call`` and give ``future`` its result or its exception."""
    try:
        result = call()
    except Exception as problem:  # goes to the caller that waits
        future.set_exception(problem)
    else:
        future.set_result(result)
