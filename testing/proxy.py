"""`FaultProxy`: a TCP proxy on the loopback interface that can be slow, silent, broken or gone.

One daemon thread runs an event loop that owns all connections and faults.  The public methods may be called from any
thread, and return when the change is in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

from pyspark_kafka_group.testing.errors import KafkaTestingError, PortInUseError
from pyspark_kafka_group.testing.ports import HOST, free_ports

if TYPE_CHECKING:
    from types import TracebackType

_T = TypeVar("_T")

_CHUNK_BYTES = 64 * 1024
# What one direction of a connection may hold back: enough for many small requests under a long delay, little enough
# (8 MB) that a sender soon feels a narrow bandwidth.
_CHUNKS_HELD = 128
_THREAD_TIMEOUT_S = 10.0
# Close with a reset instead of an orderly end.
_RESET = struct.pack("ii", 1, 0)
# How a request of Kafka's protocol begins: its size, without these four bytes, and its API key.
_HEAD = struct.Struct(">ih")
# Whatever claims to be larger is not Kafka's protocol; brokers take 100 MB unless told otherwise.
_LARGEST_REQUEST_BYTES = 256 * 1024 * 1024


class HeldRequest:
    """A request that the proxy holds back, or will; see `FaultProxy.hold`.

    Its methods may be called from any thread.
    """

    def __init__(self, api_key: int, apply: Callable[[Callable[[], object]], None]) -> None:
        self.api_key = api_key
        self._apply = apply
        self._caught = threading.Event()
        # Below: touched by the event loop only.
        self._released = asyncio.Event()
        self._connection: _Connection | None = None

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is such a request; return whether there was one in time."""
        return self._caught.wait(timeout_s)

    def disconnect(self) -> None:
        """Close the client's end of its connection; the request stays on its way to the server."""
        self._apply(self._abort)

    def release(self) -> None:
        """Let it pass, if that has not happened yet."""
        self._apply(self._released.set)

    # What follows runs on the event loop.

    def _abort(self) -> None:
        if self._connection is not None:
            self._connection.client.transport.abort()

    def _wants(self, api_key: int) -> bool:
        return api_key == self.api_key and not self._caught.is_set() and not self._released.is_set()

    async def _catch(self, connection: _Connection) -> None:
        self._connection = connection
        self._caught.set()
        await self._released.wait()


class FaultProxy:
    """Forwards TCP connections from a port of 127.0.0.1 to a server, and disturbs them on request.

    A Kafka client connects to the addresses that brokers *advertise*: the broker must advertise the proxy's port, or
    clients go round it after the first request.  ``LocalKafka(proxied=True)`` sets that up.

    Faults add up until `heal`.  The server's end sees the proxy's connections, so a broker that is gone looks to
    clients like a connection that is reset at once.

    Parameters
    ----------
    target
        ``host:port`` of the server.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._port: int | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Below: touched by the event loop only, once the thread runs.
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._delay_s = 0.0
        self._bytes_per_second: float | None = None
        # Per direction: until when the link is busy with what was sent before.
        self._busy_until = {"up": 0.0, "down": 0.0}
        self._passing = asyncio.Event()
        self._passing.set()
        self._holds: list[HeldRequest] = []

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        if self._port is None:
            raise KafkaTestingError("FaultProxy is not started: use it in a with statement, or call start()")
        return self._port

    @property
    def address(self) -> str:
        """``host:port`` that clients connect to."""
        return f"{HOST}:{self.port}"

    def start(self) -> Self:
        """Listen; returns when clients can connect."""
        if self._thread is None:
            [self._port] = free_ports(1)
            self._loop = asyncio.new_event_loop()
            # A daemon: a proxy that nobody stopped must not keep the interpreter alive.
            self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
            self._thread.start()
            try:
                self._run(self._listen())
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Stop listening, reset all connections and end the thread."""
        if self._thread is None or self._loop is None:
            return
        self._run(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_THREAD_TIMEOUT_S)
        self._loop.close()
        self._port = self._thread = self._loop = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def delay(self, seconds: float) -> None:
        """Delay all data in each direction, without limiting the bandwidth."""
        self._apply(lambda: setattr(self, "_delay_s", seconds))

    def bytes_per_second(self, limit: float) -> None:
        """Limit the bandwidth of each direction, over all connections together."""
        if limit <= 0:
            raise ValueError(f"limit={limit}: use blackhole() to let nothing pass")
        self._apply(lambda: setattr(self, "_bytes_per_second", limit))

    def blackhole(self) -> None:
        """Hold back everything while connections stay open and new ones are accepted; `heal` delivers it."""
        self._apply(self._passing.clear)

    def hold(self, api_key: int) -> HeldRequest:
        """Hold back the next request with this API key, and what its connection sends after it.

        The server gets it when you release it, or with `heal`, even if the client has closed the connection before.  A
        slow network delays requests in the same way.  All other data passes.  For Kafka without TLS.
        """
        held = HeldRequest(api_key, self._apply)
        self._apply(lambda: self._holds.append(held))
        return held

    def refuse(self) -> None:
        """Refuse new connections; existing ones stay."""
        self._apply(self._stop_listening)

    def cut(self) -> None:
        """Reset all connections and lose the data in them; clients may connect again at once."""
        self._apply(self._reset_all)

    def heal(self) -> None:
        """End all faults."""
        self._run(self._heal())

    def _run(self, change: Coroutine[None, None, _T]) -> _T:
        if self._loop is None:
            change.close()
            raise KafkaTestingError("FaultProxy is not started: use it in a with statement, or call start()")
        return asyncio.run_coroutine_threadsafe(change, self._loop).result(_THREAD_TIMEOUT_S)

    def _apply(self, change: Callable[[], object]) -> None:
        """Change something on the event loop, which owns all state."""

        async def applied() -> None:
            change()

        self._run(applied())

    # What follows runs on the event loop.

    async def _listen(self) -> None:
        try:
            self._server = await asyncio.start_server(self._accept, HOST, self.port, limit=_CHUNK_BYTES)
        except OSError as problem:
            raise PortInUseError(self.port) from problem

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _reset_all(self) -> None:
        for connection in list(self._connections):
            connection.reset()

    async def _heal(self) -> None:
        self._delay_s = 0.0
        self._bytes_per_second = None
        self._busy_until = dict.fromkeys(self._busy_until, 0.0)
        self._passing.set()
        for hold in self._holds:
            hold._released.set()
        self._holds.clear()
        if self._server is None:
            await self._listen()

    async def _shut_down(self) -> None:
        self._stop_listening()
        # All tasks, as one of them may just be accepting a connection that is not in the set yet.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        self._connections.add(connection)
        try:
            upstream, connection.server = await asyncio.open_connection(*self._target, limit=_CHUNK_BYTES)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, connection.server, "up", connection))
                both.create_task(self._forward(upstream, writer, "down", connection))
            connection.close()
        except (OSError, ExceptionGroup):
            pass  # one end broke; the other is told below
        except asyncio.CancelledError:
            # Deliberate: ends well.  Only stop() cancels, and Python 3.11 logs an error for each one that it ended.
            pass
        finally:
            self._connections.discard(connection)
            connection.reset()

    async def _forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: str, connection: _Connection
    ) -> None:
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_HELD)
        now = asyncio.get_running_loop().time
        requests = _Requests()

        async def receive() -> None:
            data = b"-"
            while data:
                data = await self._read(source, requests)
                await held.put((now() + self._delay_s, data))

        async with asyncio.TaskGroup() as receiving:
            receiving.create_task(receive())
            while True:
                due, data = await held.get()
                await asyncio.sleep(due - now())
                if self._bytes_per_second is not None:
                    start = max(now(), self._busy_until[direction])
                    self._busy_until[direction] = start + len(data) / self._bytes_per_second
                    await asyncio.sleep(self._busy_until[direction] - now())
                await self._passing.wait()
                if not data:
                    sink.write_eof()
                    return
                if direction == "up":
                    data = await self._hold_back(requests, data, sink, connection)
                sink.write(data)
                await sink.drain()

    async def _read(self, source: asyncio.StreamReader, requests: _Requests) -> bytes:
        try:
            return await source.read(_CHUNK_BYTES)
        except OSError:
            if not requests.holding:
                raise
            return b""  # the client has given up; what it has sent is on its way all the same

    async def _hold_back(
        self, requests: _Requests, data: bytes, sink: asyncio.StreamWriter, connection: _Connection
    ) -> bytes:
        """Send the data before a request that shall be held, and return the rest when it is released."""
        sent = 0
        for at, api_key in requests.beginning_in(data):
            hold = next((hold for hold in self._holds if hold._wants(api_key)), None)
            if hold is None:
                continue
            sink.write(data[sent : max(sent, at)])
            await sink.drain()
            sent = max(sent, at)
            requests.holding = True
            await hold._catch(connection)
            requests.holding = False
        return data[sent:]


class _Requests:
    """Where Kafka's requests begin in what one client sends."""

    def __init__(self) -> None:
        self.holding = False
        self._left = 0  # bytes until the next request begins
        self._head = b""  # of a request whose head is not complete yet

    def beginning_in(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where requests begin in ``data``, and their API keys; below zero if the head began before."""
        at = 0
        while at < len(data):
            skipped = min(self._left, len(data) - at)
            self._left -= skipped
            at += skipped
            begin = at - len(self._head)
            taken = data[at : at + _HEAD.size - len(self._head)]
            self._head += taken
            at += len(taken)
            if len(self._head) == _HEAD.size:
                size, api_key = _HEAD.unpack(self._head)
                self._head = b""
                if not 2 <= size <= _LARGEST_REQUEST_BYTES:
                    size = sys.maxsize  # this is not Kafka's protocol: nothing begins any more
                self._left = size - 2
                yield begin, api_key


class _Connection:
    """One client's connection and the one to the server that it feeds."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None

    def close(self) -> None:
        """Close both after the remaining data is sent."""
        self.client.close()
        if self.server is not None:
            self.server.close()

    def reset(self) -> None:
        """Break the open ones, so that the other side notices."""
        for writer in (self.client, self.server):
            if writer is not None and not writer.transport.is_closing():
                with contextlib.suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
