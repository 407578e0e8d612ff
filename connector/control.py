"""Words from the user's process to the source process, over a private Unix socket.

The source process listens on the socket and publishes its path in the query's progress.  Two things are said there:

* *drain*: ``query.stop()`` interrupts the running batch, and Spark tells the source nothing but a signal.  The sink may
  have been written by then, and the members that take the partitions over would process the same records again.  So
  :func:`stop` asks the source to plan nothing more, to let the running batch finish, to commit it, and to leave the
  group; only then is the query stopped.
* *finished*: a batch is durably finished.  Spark itself says so only with its next trigger; its progress, which only
  the user's process sees, says so at once.

The protocol is one JSON object and a newline in each direction.  *finished* needs no answer.
"""

from __future__ import annotations

import json
import logging
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

# Longer waits are as good as for ever, and more than a lock can take would be an error.
_LONGEST_S = 7 * 24 * 3600.0

# How long a caller may take to say what it wants.
_REQUEST_PATIENCE_S = 5.0

# How often stop() looks at the query's progress.
_PROGRESS_PAUSE_S = 0.1

# How long a source process may take to accept a word.  It is on the same machine and has a thread for nothing else, and
# whoever speaks may be Spark's listener bus, which serves all listeners one after another.
_TELL_PATIENCE_S = 0.5

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A ``kafka-group`` source, as a progress shows it.

    Attributes
    ----------
    address : str
        Its control socket.
    end : dict or None
        The end of the last finished batch.
    """

    address: str
    end: Json | None


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
        sources = _sources(query)
        while not sources and query.isActive and time.monotonic() < deadline:
            time.sleep(_PROGRESS_PAUSE_S)  # the first progress comes with the end of the first batch
            sources = _sources(query)
        with _telling_what_finishes(query):
            drained = [_drain(source.address, deadline) for source in sources]
    finally:
        query.stop()  # also on Ctrl-C: a query whose member has left would idle for ever
    return bool(drained) and all(drained)


def sources_of(progress: str) -> list[Source]:
    """Return the ``kafka-group`` sources that a progress, as JSON text, shows."""
    found = []
    for source in json.loads(progress)["sources"]:
        latest = _object(source.get("latestOffset"))
        if latest is not None and isinstance(latest.get("control"), str):
            found.append(Source(address=latest["control"], end=_object(source.get("endOffset"))))
    return found


def tell_finished(source: Source) -> None:
    """Tell a source process that the batch that ends at ``source.end`` is durably finished; never raises.

    An end that is not that of the batch in flight is ignored there, so it may be said more than once, and late.
    """
    if source.end is None:
        return
    try:
        with _connected(source.address, _TELL_PATIENCE_S) as connection:
            _send(connection, {"command": "finished", "end": source.end})
    except OSError as problem:
        _log.debug("%s: %r", source.address, problem)  # most often the source process has ended


def _object(value: Any) -> Json | None:
    """Return a JSON object that Spark shows as an object or as text; None for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _sources(query: StreamingQuery) -> list[Source]:
    """Return the ``kafka-group`` sources that the last progress shows."""
    progress = query.lastProgress
    return [] if progress is None else sources_of(progress.json)


@contextmanager
def _telling_what_finishes(query: StreamingQuery) -> Iterator[None]:
    """Meanwhile, tell the sources what the query's progress shows as finished.

    Without this a drain would wait for Spark's next trigger, unless a listener is registered.
    """
    done = threading.Event()

    def tell() -> None:
        while True:
            try:
                for source in _sources(query):
                    tell_finished(source)
            except Exception as problem:  # the driver's JVM has ended, say: then so has the source
                _log.debug("no progress: %r", problem)
            if done.wait(_PROGRESS_PAUSE_S):
                return

    teller = threading.Thread(target=tell, name="kafka-group-stop", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join(_TELL_PATIENCE_S)


@contextmanager
def _connected(address: str, patience_s: float) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        connection.connect(address)
        yield connection


def _send(connection: socket.socket, message: Json) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _drain(address: str, deadline: float) -> bool:
    """Ask one source process to drain; tell whether it did in time."""
    left = max(0.1, deadline - time.monotonic())
    try:
        with _connected(address, left + 1.0) as connection:
            _send(connection, {"command": "drain", "timeout_s": left})
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline() or b"{}").get("drained") is True
    except (OSError, ValueError):
        return False  # the source process has ended


class ControlSocket:
    """The source process's side.  Each request is served on a thread of its own.

    Parameters
    ----------
    drain : callable
        Drains the member within so many seconds and tells whether it did.
    finish : callable
        Takes the end offset, as Spark logs it, of a batch that is durably finished.
    """

    def __init__(self, drain: Callable[[float], bool], finish: Callable[[Json], None]) -> None:
        self._drain = drain
        self._finish = finish
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
            # Deliberate: a thread for each.  A drain waits for the word that its batch is finished.
            threading.Thread(
                target=self._serve_one, args=(connection,), name="kafka-group-control-request", daemon=True
            ).start()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(_REQUEST_PATIENCE_S)
                with connection.makefile("rb") as lines:
                    answer = self._answer(json.loads(lines.readline()))
                _send(connection, answer)
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
            case {"command": "drain", "timeout_s": timeout_s}:
                return {"drained": self._drain(float(timeout_s))}
            case {"command": "finished", "end": end}:
                self._finish(end)
                return {}
            case _:
                return {"error": "unknown command"}
