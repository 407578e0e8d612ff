"""Threads for calls of libraries without a timeout.  The caller may leave such a thread behind."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable


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
