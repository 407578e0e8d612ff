"""The source process's end of the control socket."""

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
from pyspark_kafka_group.control.names import PREFIX, SOCKET, publish, withdraw

_log = logging.getLogger(__name__)

# How long a caller may take to say what it wants.
_REQUEST_PATIENCE_S = 5.0


class ControlSocket:
    """Listens for what the user's Python says.  Each request is served on a thread of its own.

    Parameters
    ----------
    stop : callable
        Stops the query between two batches, within so many seconds, and tells whether it could.
    finish : callable
        Takes the end offset, as Spark logs it, of a batch that is durably finished.
    report : callable
        Returns what the query's progress would show now, see :mod:`pyspark_kafka_group.query.progress_report`; None
        if there is nothing to show.
    query_id : str, optional
        The query's name, under which the socket is found as well.
    batch : callable
        Takes the end offset, as Spark logs it, of the batch in flight.  Returns what the batch reads, see
        :func:`~pyspark_kafka_group.control.messages.ranges_to_json`; None if another batch is in flight, or none.
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
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # nobody else may enter it
        self.address = str(self._folder / SOCKET)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(self.address)
            self._socket.listen()
        except OSError:  # most often: the path is longer than the 107 bytes that a Unix socket may have
            self.close()
            raise
        if query_id is not None:
            try:
                publish(query_id, self.address)
            except OSError as problem:  # then the progress alone tells the address
                _log.debug("%s: %r", self.address, problem)
        # A daemon: nothing here may keep the process alive.
        threading.Thread(target=self._serve, name="kafka-group-control", daemon=True).start()

    def close(self) -> None:
        """Stop listening.  A request that is being answered continues."""
        with suppress(OSError):  # it does not listen yet
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts; closing alone does not
        self._socket.close()
        if self._query_id is not None:
            withdraw(self._query_id, self.address)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        for connection in self._connections():
            # Deliberate: a thread for each.  A stop waits for the word that its batch is finished.
            threading.Thread(
                target=self._serve_one, args=(connection,), name="kafka-group-control-request", daemon=True
            ).start()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(_REQUEST_PATIENCE_S)
                with connection.makefile("rb") as lines:
                    answer = self._answer(json.loads(lines.readline()))
                send(connection, answer)
        except Exception as problem:  # whatever one caller sends or breaks, the others are served
            _log.debug("control socket: %r", problem)

    def _connections(self) -> Iterator[socket.socket]:
        while True:
            try:
                yield self._socket.accept()[0]
            except OSError:
                return  # closed

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
