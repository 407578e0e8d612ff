"""The connections of this process to others on the same machine."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

_LOOPBACK = ("127.", "::1", "::ffff:127.")


def acknowledge() -> None:
    """Let the kernel acknowledge now what has come from others on this machine; to be called while a task is unpickled.

    Spark's JVM (4.3.0) writes to a Python worker what a task is, and then, in another write, what it reads.  By Nagle's
    algorithm the second one waits until the first is acknowledged, and the kernel delays that by 40 ms, because it
    hopes for an answer that could carry it.  So half of all tasks begin 40 ms late.  Spark gives Python neither the
    socket nor a setting for it, but unpickles what was sent first before it reads on.  Other machines are left alone.
    Does nothing but on Linux, and with ``spark.python.unix.domain.socket.enabled`` there is nothing to do.
    """
    # A socket made with a default timeout would change how the file behaves for those who have it open.
    if not hasattr(socket, "TCP_QUICKACK") or socket.getdefaulttimeout() is not None:
        return
    with contextlib.suppress(OSError):  # no such folder
        for name in os.listdir("/proc/self/fd"):
            _acknowledge(int(name))


def _acknowledge(file: int) -> None:
    try:
        found = socket.socket(fileno=file)
    except OSError:
        return  # it is not a socket, or closed by now
    try:
        peer = found.getpeername()
        if found.type == socket.SOCK_STREAM and isinstance(peer, tuple) and str(peer[0]).startswith(_LOOPBACK):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    except OSError:
        return  # not connected
    finally:
        found.detach()  # whose it is closes it


class AcknowledgedOnArrival:
    """What Spark sends to each task: when it is unpickled, what came with it is acknowledged."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()
