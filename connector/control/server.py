"""The server of the control socket, in the source process."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark_kafka_group.control.messages import Json, send
from pyspark_kafka_group.control.names import PREFIX, SOCKET, keep, publish, withdraw
from pyspark_kafka_group.wire.deadline import Deadline

_log = logging.getLogger(__name__)

# How long a caller may take to send its request.
_REQUEST_PATIENCE_S = 5.0

# The pause after a failed accept, for a process that is short of files.  Shorter than callers wait for an answer.
_ACCEPT_PAUSE_S = 0.1
_WARN_PAUSE_S = 10.0


class ControlSocket:
    """Listens for requests of the user's Python.  A thread serves each request.

    Parameters
    ----------
    stop : callable
        Stops the query between two batches.  Its argument is the timeout in seconds.  Returns whether it succeeded.
    finish : callable
        Notes a durably finished batch.  Its argument is the end offset, in the form of Spark's log.
    report : callable
        Returns the current report.  None if there is none.  See :mod:`pyspark_kafka_group.query.progress_report`.
    query_id : str, optional
        The query's id.  It is the second address of the socket.
    batch : callable
        Returns the ranges of a batch.  None if this batch is not in flight.  Its argument is the end offset, in the
        form of Spark's log.  See :func:`~pyspark_kafka_group.control.messages.ranges_to_json`.
    """

    def __init__(
        self,
        stop: Callable[[float], bool],
        finish: Callable[[Json], None],
        report: Callable[[], Json | None] = lambda: None,
        query_id: str | None = None,
        *,
        batch: Callable[[Json], Json | None] = lambda _end: None,
    ) -> None:
        self._stop = stop
        self._finish = finish
        self._report = report
        self._batch = batch
        self._query_id = query_id
        self._closed = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # only this user may enter it
        self.address = str(self._folder / SOCKET)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(self.address)
            self._socket.listen()
        except OSError:  # mostly: the path is longer than the limit of a Unix socket, 107 bytes
            self.close()
            raise
        if query_id is not None:
            try:
                publish(query_id, self.address)
            except OSError as problem:  # then only the progress shows the address
                _log.debug("%s: %r", self.address, problem)
        # A daemon: nothing here may keep the process alive.
        threading.Thread(target=self._serve, name="kafka-group-control", daemon=True).start()

    def keep_address(self) -> None:
        """Keep the second address.  Call this with each batch, before the user's Python asks about it."""
        if self._query_id is not None:
            with suppress(OSError):  # as in the constructor
                keep(self._query_id, self.address)

    def close(self) -> None:
        """Stop listening.  A request that is being answered continues."""
        self._closed.set()
        with suppress(OSError):  # not listening yet
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which close() does not
        self._socket.close()
        if self._query_id is not None:
            withdraw(self._query_id, self.address)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        for connection in self._connections():
            # Deliberate: a thread for each request.  A stop waits for the request that reports its batch as finished.
            server = threading.Thread(
                target=self._serve_one, args=(connection,), name="kafka-group-control-request", daemon=True
            )
            try:
                server.start()
            except RuntimeError as problem:
                _log.warning("control socket: %r", problem)  # no more threads
                connection.close()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(_REQUEST_PATIENCE_S)
                with connection.makefile("rb") as lines:
                    answer = self._answer(json.loads(lines.readline()))
                send(connection, answer)
        except Exception as problem:  # an error of one caller must not affect the others
            _log.debug("control socket: %r", problem)

    def _connections(self) -> Iterator[socket.socket]:
        warn_at = Deadline.after(0)
        while True:
            try:
                yield self._socket.accept()[0]
            except OSError as problem:
                if self._closed.wait(_ACCEPT_PAUSE_S):
                    return
                if warn_at.passed:
                    _log.warning("control socket: %r", problem)  # for example, too many open files
                    warn_at = Deadline.after(_WARN_PAUSE_S)

    def _answer(self, request: Any) -> Json:
        match request:
            case {"command": "stop", "timeout_s": timeout_s}:
                return {"stopped": self._stop(float(timeout_s))}
            case {"command": "finished", "end": end}:
                self._finish(end)
                return {}
            case {"command": "report"}:
                return {"report": self._report()}
            case {"command": "batch", "end": end}:
                return {"batch": self._batch(end)}
            case _:
                return {"error": "unknown command"}
