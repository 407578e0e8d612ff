"""The user's end of the control socket: what is asked of a source process, or told to it."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_kafka_group.control.messages import Json, Source, send

_log = logging.getLogger(__name__)

# How long a source process may take to accept a word.  It is on the same machine and has a thread for nothing else, and
# whoever speaks may be Spark's listener bus, which serves all listeners one after another.
TELL_PATIENCE_S = 0.5


def tell_finished(source: Source) -> None:
    """Tell a source process that the batch that ends at ``source.end`` is durably finished; never raises.

    An end that is not that of the batch in flight is ignored there, so it may be said more than once, and late.
    """
    if source.end is None:
        return
    try:
        with _connected(source.address, TELL_PATIENCE_S) as connection:
            send(connection, {"command": "finished", "end": source.end})
    except OSError as problem:
        _log.debug("%s: %r", source.address, problem)  # most often the source process has ended


def ask_to_stop(address: str, deadline: float) -> bool:
    """Ask one source process to stop between two batches; tell whether it did before ``deadline`` (monotonic clock)."""
    left = max(0.1, deadline - time.monotonic())
    try:
        with _connected(address, left + 1.0) as connection:
            send(connection, {"command": "stop", "timeout_s": left})
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline() or b"{}").get("stopped") is True
    except (OSError, ValueError):
        return False  # the source process has ended


def ask_for_report(address: str) -> Json | None:
    """Ask one source process what the progress would show now; None if it does not answer, or has nothing to show."""
    try:
        with _connected(address, TELL_PATIENCE_S) as connection:
            send(connection, {"command": "report"})
            with connection.makefile("rb") as answer:
                found = json.loads(answer.readline() or b"{}")
    except (OSError, ValueError) as problem:
        _log.debug("%s: %r", address, problem)  # most often the source process has ended
        return None
    report = found.get("report") if isinstance(found, dict) else None
    return report if isinstance(report, dict) else None


@contextmanager
def _connected(address: str, patience_s: float) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        connection.connect(address)
        yield connection
