"""Threads that may be abandoned, for calls of libraries that have no timeout."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable


def start_daemon(run: Callable[[], None], name: str) -> None:
    """Run a call on a thread that does not keep the process alive.

    Raises
    ------
    OSError
        If the system has no more threads or memory.  That may pass, so a caller must be able to try again.
    """
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as problem:
        raise OSError(errno.EAGAIN, f"{problem}: is the limit of threads or of memory too low?") from None
