"""The client of the control socket: requests of the user's Python to a source process."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark_kafka_group.control.messages import Json, Source, send
from pyspark_kafka_group.control.names import query_ids, resolve
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# How long a source process may take to answer.  It is on the same machine and has a thread for this.  The caller may be
# Spark's listener bus, which serves all listeners one after another.
TELL_PATIENCE_S = 0.5

# The same for a probe.  A busy machine must not look like a query that was paused.
_HEALTH_PATIENCE_S = 5.0

# The same for a request without whose answer a batch cannot be written.  It holds up only that batch.
_BATCH_PATIENCE_S = 30.0


Ask = Callable[[str, Json, float], Json | None]
"""Sends a message to the control socket at an address and returns the answer.  The third argument is the timeout in
seconds.  Returns None without an answer.  Never raises."""


def ask_directly(address: str, message: Json, patience_s: float) -> Json | None:
    """Ask a source process on this machine; an :data:`Ask`."""
    try:
        with _connected(address, patience_s) as connection:
            send(connection, message)
            with connection.makefile("rb") as answer:
                found = json.loads(answer.readline() or b"null")
    except (OSError, ValueError) as problem:
        _log.debug("%s: %r", address, problem)  # mostly the source process has ended
        return None
    return found if isinstance(found, dict) else None


def tell_finished(source: Source, ask: Ask = ask_directly) -> bool:
    """Tell a source process that the batch that ends at ``source.end`` is durably finished.  Never raises.

    The source process ignores the end of any batch but the one in flight.  So a repeated or a late call does no harm.

    Returns
    -------
    bool
        True if there was such a batch, and the source process has answered.
    """
    if source.end is None:
        return False
    return ask(source.address, {"command": "finished", "end": source.end}, TELL_PATIENCE_S) is not None


def ask_to_stop(address: str, deadline: Deadline, ask: Ask = ask_directly) -> bool:
    """Ask one source process to stop between two batches.  Return whether it did before ``deadline``."""
    left = max(0.1, deadline.left_s)
    answer = ask(address, {"command": "stop", "timeout_s": left}, left + 1.0)
    return answer is not None and answer.get("stopped") is True


def ask_for_report(address: str) -> Json | None:
    """Return the current report of one source process; None if it does not answer, or has nothing to report."""
    found = ask_directly(address, {"command": "report"}, TELL_PATIENCE_S)
    report = None if found is None else found.get("report")
    return report if isinstance(report, dict) else None


def running_queries() -> dict[str, Json | None]:
    """Return the current report of each query of this user on this machine, by the query's id.

    A query that starts has an empty report.  None if its source process does not answer, for example because it was
    paused.  A process that has ended is left out.
    """
    found: dict[str, Json | None] = {}
    for query_id in query_ids():
        try:
            with _connected(query_id, _HEALTH_PATIENCE_S) as connection:
                send(connection, {"command": "report"})
                with connection.makefile("rb") as answer:
                    said = json.loads(answer.readline() or b"null")
        except (ConnectionRefusedError, FileNotFoundError):
            continue  # it was killed
        except (OSError, ValueError) as problem:
            _log.debug("%s: %r", query_id, problem)
            said = None
        found[query_id] = (said.get("report") or {}) if isinstance(said, dict) else None
    return found


def ask_for_batch(address: str, end: Json) -> Json | None:
    """Return the ranges of the batch that ends at ``end``, see :func:`.messages.ranges_from_json`.

    Returns
    -------
    dict or None
        None if the source process does not answer, or if this batch is not in flight.
    """
    found = ask_directly(address, {"command": "batch", "end": end}, _BATCH_PATIENCE_S)
    batch = None if found is None else found.get("batch")
    return batch if isinstance(batch, dict) else None


@contextmanager
def _connected(address: str, patience_s: float) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        connection.connect(resolve(address))
        yield connection
