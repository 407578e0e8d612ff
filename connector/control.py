"""Stopping a query between two batches: a word from the user's process to the source process.

``query.stop()`` interrupts the running batch, and Spark tells the source nothing but a signal.  The sink may have been
written by then, and the members that take the partitions over would process the same records again.  So the source
process listens on a private Unix socket, whose path it publishes in the query's progress, and :func:`stop` asks it to
plan nothing more, to let the running batch finish, to commit it, and to leave the group; only then is the query
stopped.

The protocol is one JSON object and a newline in each direction.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

# Longer waits are as good as for ever, and more than a lock can take would be an error.
_LONGEST_S = 7 * 24 * 3600.0

# How long a caller may take to say what it wants.
_REQUEST_PATIENCE_S = 5.0

# How often stop() looks whether a query that has just begun has its first progress.
_PROGRESS_PAUSE_S = 0.1


def stop(query: StreamingQuery, timeout_s: float = 60.0) -> bool:
    """Stop a query between two batches, so that nobody repeats what it has done.

    The query plans nothing more, finishes and commits the running batch, leaves the group, and is stopped.  Call it
    where the query was started, in the driver's Python.

    Parameters
    ----------
    query : StreamingQuery
        A query with at least one ``kafka-group`` source.
    timeout_s : float
        How long the running batch may take, in seconds.  After that the query is stopped all the same.

    Returns
    -------
    bool
        Whether the batch was finished in time.  If not, the next owners of the partitions repeat it.
    """
    deadline = time.monotonic() + min(timeout_s, _LONGEST_S)
    try:
        addresses = _addresses(query)
        while not addresses and query.isActive and time.monotonic() < deadline:
            time.sleep(_PROGRESS_PAUSE_S)  # the first progress comes with the end of the first batch
            addresses = _addresses(query)
        drained = [_drain(address, deadline) for address in addresses]
    finally:
        query.stop()  # also on Ctrl-C: a query whose member has left would idle for ever
    return bool(drained) and all(drained)


def _addresses(query: StreamingQuery) -> list[str]:
    """Return the control sockets that the last progress names, one per ``kafka-group`` source."""
    progress = query.lastProgress
    if progress is None:
        return []
    found = []
    for source in json.loads(progress.json)["sources"]:
        latest = source.get("latestOffset")
        if isinstance(latest, str):
            with contextlib.suppress(ValueError):
                latest = json.loads(latest)
        if isinstance(latest, dict) and isinstance(latest.get("control"), str):
            found.append(latest["control"])
    return found


def _drain(address: str, deadline: float) -> bool:
    """Ask one source process to drain; tell whether it did in time."""
    left = max(0.1, deadline - time.monotonic())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(left + 1.0)
            connection.connect(address)
            connection.sendall(json.dumps({"command": "drain", "timeout_s": left}).encode() + b"\n")
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline() or b"{}").get("drained") is True
    except (OSError, ValueError):
        return False  # the source process has ended


class ControlSocket:
    """The source process's side.

    Parameters
    ----------
    drain : callable
        Drains the member within so many seconds and tells whether it did.  Called on a thread of its own.
    """

    def __init__(self, drain: Callable[[float], bool]) -> None:
        self._drain = drain
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-group-"))  # nobody else may enter it
        self.address = str(self._folder / "control")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(self.address)
            self._socket.listen()
        except OSError:  # most often: the path is longer than the 107 bytes that a Unix socket may have
            self.close()
            raise
        # A daemon: nothing here may keep the process alive.
        threading.Thread(target=self._serve, name="kafka-group-control", daemon=True).start()

    def close(self) -> None:
        """Stop listening.  A request that is being answered goes on."""
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        for connection in self._connections():
            try:
                with connection:
                    connection.settimeout(_REQUEST_PATIENCE_S)
                    with connection.makefile("rb") as lines:
                        answer = self._answer(json.loads(lines.readline()))
                    connection.sendall(json.dumps(answer).encode() + b"\n")
            except Exception as problem:  # whatever one caller sends or breaks, the next one is served
                _log.debug("control socket: %r", problem)

    def _connections(self) -> Iterator[socket.socket]:
        while True:
            try:
                yield self._socket.accept()[0]
            except OSError:
                return  # closed

    def _answer(self, request: Any) -> dict[str, Any]:
        if isinstance(request, dict) and request.get("command") == "drain":
            return {"drained": self._drain(float(request["timeout_s"]))}
        return {"error": "unknown command"}
