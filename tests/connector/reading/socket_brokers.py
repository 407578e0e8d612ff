"""Brokers in this process that listen on loopback, answer readers, and count who is connected to them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.types import Address
from tests.connector.reading.scripted_broker import Answer, text

_HOST = "127.0.0.1"


class SocketBrokers:
    """A cluster whose partitions hold one record batch each, led by the brokers in turn.

    Parameters
    ----------
    count : int
        How many brokers.
    topic : str
        Its only topic.
    partitions : int
        How many that has.
    batch : bytes
        The record batch, which begins with offset 0; asked for any offset a broker answers with it, so moved.

    Attributes
    ----------
    connections : dict of Address to int
        How many connections each broker has now.
    accepted : int
        How many connections there have been.
    """

    def __init__(self, count: int, topic: str, partitions: int, batch: bytes) -> None:
        self.accepted = 0
        self._topic = topic
        self._partitions = partitions
        self._batch = batch
        self._lock = threading.Lock()
        self._listeners = [socket.create_server((_HOST, 0)) for _ in range(count)]
        self.addresses = [Address(*listener.getsockname()) for listener in self._listeners]
        self.connections = dict.fromkeys(self.addresses, 0)
        self._accepting = [
            threading.Thread(target=self._accept, args=(listener, address), daemon=True)
            for listener, address in zip(self._listeners, self.addresses, strict=True)
        ]
        for thread in self._accepting:
            thread.start()

    @property
    def bootstrap_servers(self) -> str:
        """The first of them."""
        host, port = self.addresses[0]
        return f"{host}:{port}"

    @property
    def connected(self) -> int:
        """How many connections there are now."""
        with self._lock:
            return sum(self.connections.values())

    def leader(self, partition: int) -> Address:
        """Who leads a partition."""
        return self.addresses[partition % len(self.addresses)]

    def close(self) -> None:
        """Listen no more; connections end when their clients close them."""
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self._accepting:
            thread.join()

    def _accept(self, listener: socket.socket, address: Address) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self.accepted += 1
                    self.connections[address] += 1
                threading.Thread(target=self._serve, args=(connection, address), daemon=True).start()

    def _serve(self, connection: socket.socket, address: Address) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                for api, correlation_id, body in _requests(connection):
                    answer = struct.pack(">i", correlation_id) + self._answer(api, body)
                    connection.sendall(struct.pack(">i", len(answer)) + answer)
        finally:
            with self._lock:
                self.connections[address] -= 1

    def _answer(self, api: int, body: bytes) -> bytes:
        if api == protocol.API_VERSIONS:
            known = [(key, 0, 99) for key in protocol.VERSIONS]
            return struct.pack(">hi", 0, len(known)) + b"".join(struct.pack(">hhh", *one) for one in known)
        return self._metadata() if api == protocol.METADATA else self._fetched(body)

    def _metadata(self) -> bytes:
        found = struct.pack(">ii", 0, len(self.addresses))
        for node, (host, port) in enumerate(self.addresses):
            found += struct.pack(">i", node) + text(host) + struct.pack(">ih", port, -1)
        found += struct.pack(">hiih", -1, 0, 1, 0) + text(self._topic) + b"\0" + struct.pack(">i", self._partitions)
        for n in range(self._partitions):
            found += struct.pack(">hiiiiii", 0, n, n % len(self.addresses), 0, 0, 0, 0)
        return found

    def _fetched(self, body: bytes) -> bytes:
        at = struct.calcsize(">iiiibiii")
        topics = struct.unpack_from(">i", body, at - 4)[0]
        answers = b""
        for _ in range(topics):
            size = struct.unpack_from(">h", body, at)[0]
            name = body[at : at + 2 + size]
            count = struct.unpack_from(">i", body, at + 2 + size)[0]
            at += 6 + size
            answers += name + struct.pack(">i", count)
            for _ in range(count):
                partition, _, offset, _, _ = struct.unpack_from(">iiqqi", body, at)
                at += struct.calcsize(">iiqqi")
                # Deliberate: the base offset is not in the checksum, so the same batch may stand anywhere.
                records = struct.pack(">q", offset) + self._batch[8:]
                answer = Answer(log_end=offset + 1_000_000, records=records)
                answers += struct.pack(">ihqqqi", partition, 0, answer.log_end, answer.log_end, 0, 0)
                answers += struct.pack(">i", len(answer.records)) + answer.records
        return struct.pack(">ihii", 0, 0, 0, topics) + answers


def _requests(connection: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Yield key, correlation id and body of each request until the client hangs up."""
    stream = connection.makefile("rb")
    while size := stream.read(4):
        frame = stream.read(struct.unpack(">i", size)[0])
        api, _, correlation_id, client = struct.unpack_from(">hhih", frame)
        yield api, correlation_id, frame[10 + max(0, client) :]


@contextlib.contextmanager
def socket_brokers(count: int, topic: str, partitions: int, batch: bytes) -> Iterator[SocketBrokers]:
    """Yield such a cluster, and end it."""
    brokers = SocketBrokers(count, topic, partitions, batch)
    try:
        yield brokers
    finally:
        brokers.close()
