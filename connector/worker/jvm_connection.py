"""Checks whether Spark still listens to this task.

When Spark kills a task, its JVM closes the connection to the Python worker.  In Python this looks like the end of the
rows: pyarrow reports no error if an Arrow stream ends between two batches.  So a task that commits must ask first.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from types import FrameType

_WORKER = os.path.join("pyspark", "worker.py")


def jvm_is_gone() -> bool:
    """Return whether the JVM has closed its connection to this worker; False if unknown."""
    found = _connection()
    if found is None:
        return False
    try:
        connection = socket.socket(fileno=os.dup(found))
    except OSError:
        return False
    with connection:
        if hasattr(select, "POLLRDHUP"):  # Linux; works even if unread bytes are left
            poll = select.poll()
            poll.register(connection, select.POLLRDHUP)
            return bool(poll.poll(0))
        try:
            return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _connection() -> int | None:
    """Return the file descriptor of the connection.  Only the outermost function of Spark's worker has it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_WORKER) and "outfile" in frame.f_locals:
            try:
                return int(frame.f_locals["outfile"].fileno())
            except (AttributeError, OSError, ValueError):
                return None
        frame = frame.f_back
    return None
