"""A broker with the answers of a test, over a real socket.

:class:`FakeBroker` serves all tests that need one.  :mod:`tests.wire.fake_group` fills it with a topic and a group,
:mod:`tests.wire.login_broker` adds TLS and logins, and :mod:`tests.connector.reading.socket_brokers` adds records.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark_kafka_group.wire import messages
from pyspark_kafka_group.wire.config_requests import DescribeConfigs
from pyspark_kafka_group.wire.describe_requests import ConsumerGroupDescribe, DescribeGroups, ListGroups
from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import FindCoordinator, OffsetCommit, OffsetFetch
from pyspark_kafka_group.wire.produce_requests import AddPartitionsToTransaction
from pyspark_kafka_group.wire.requests import Request
from pyspark_kafka_group.wire.topic_requests import ListOffsets, Metadata, OffsetForLeaderEpoch
from pyspark_kafka_group.wire.transaction_requests import DescribeProducers
from pyspark_kafka_group.wire.transactions import (
    AddOffsetsToTransaction,
    CommitOffsetsInTransaction,
    DescribeTransactions,
    EndTransaction,
    InitProducerId,
    ListTransactions,
)
from pyspark_kafka_group.wire.types import Address

REQUESTS: tuple[type[Request[Any]], ...] = (
    Metadata,
    ListOffsets,
    OffsetForLeaderEpoch,
    FindCoordinator,
    OffsetFetch,
    OffsetCommit,
    ListGroups,
    DescribeGroups,
    ConsumerGroupDescribe,
    DescribeConfigs,
    DescribeProducers,
    DescribeTransactions,
    EndTransaction,
    ListTransactions,
    InitProducerId,
    AddPartitionsToTransaction,
    AddOffsetsToTransaction,
    CommitOffsetsInTransaction,
)
APIS = {request.api.key: request.api for request in REQUESTS}

_UNSUPPORTED_VERSION = 35

SILENCE = object()
"""Do not answer."""

HANG_UP = object()
"""Close the connection."""

Answer = Callable[[Writer, int], None]
"""Writes the fields of an answer, in the given version."""


@dataclass
class Asked:
    """A request that the broker has received."""

    api: int
    version: int
    client_id: str
    body: bytes


@dataclass
class ByRequest:
    """An answer that depends on the request."""

    of: Callable[[Asked], Any]


@dataclass
class FakeBroker:
    """Answers each kind of request from `answers`: with fields, raw bytes, or one of the above.

    A list contains one answer for each request.  Its last answer repeats.

    Attributes
    ----------
    offered : dict of int to (int, int)
        The versions that the broker offers.
    asked : list of Asked
        The requests that the broker has received.
    connections : list of socket
        The open connections.
    accepted : int
        The number of connections so far.
    """

    answers: dict[int, Any] = field(default_factory=dict)
    offered: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {key: (api.oldest, api.newest) for key, api in APIS.items()}
    )
    asked: list[Asked] = field(default_factory=list)
    connections: list[socket.socket] = field(default_factory=list)
    accepted: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Deliberate: shut down first.  Otherwise a thread that waits in accept() would keep the port open.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.disconnect()

    def disconnect(self) -> None:
        """Close all connections, as a broker closes idle ones."""
        for connection in [*self.connections]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def kinds(self) -> list[str]:
        """Return the names of the requests that the broker has received."""
        return [APIS[asked.api].name for asked in self.asked]

    def answer_to(self, asked: Asked) -> Any:
        """Return the answer to a request, in one of the forms above."""
        answer = self.answers.get(asked.api, SILENCE)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer.of(asked) if isinstance(answer, ByRequest) else answer

    def secured(self, client: socket.socket) -> socket.socket:
        """Return the socket for a client that has connected."""
        return client

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, self.secured(client) as talking:
            self.connections.append(talking)
            try:
                self._talk(talking)
            finally:
                self.connections.remove(talking)

    def _talk(self, client: socket.socket) -> None:
        with client.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(int.from_bytes(size, "big"))
                if len(frame) < int.from_bytes(size, "big"):
                    return  # the client has closed the connection, or speaks another protocol
                request = Reader(memoryview(frame))
                key, version, correlation_id = request.int16(), request.int16(), request.int32()
                client_id = request.text()
                answer = self._answer(key, version, client_id, request)
                if answer is SILENCE:
                    continue
                if answer is HANG_UP:
                    return
                self.deliver(client, key, struct.pack(">ii", 4 + len(answer), correlation_id) + answer)

    def deliver(self, client: socket.socket, api: int, answer: bytes) -> None:
        """Send an answer, with its size and header."""
        client.sendall(answer)

    def _answer(self, key: int, version: int, client_id: str, request: Reader) -> Any:
        if key == messages.API_VERSIONS:
            if version > 0:
                return struct.pack(">hi", _UNSUPPORTED_VERSION, 0)  # librdkafka then asks with version 0
            offered = [struct.pack(">hhh", api, *versions) for api, versions in self.offered.items()]
            return struct.pack(">hi", 0, len(offered)) + b"".join(offered)
        flexible = key in APIS and version >= APIS[key].flexible
        if flexible:
            assert not request.int8(), "no tagged fields in the header"
        asked = Asked(key, version, client_id, bytes(request.bytes(request.left)))
        self.asked.append(asked)
        answer = self.answer_to(asked)
        if not callable(answer):
            return answer
        out = Writer(flexible=flexible)
        out.end()  # of the header
        answer(out, version)
        return bytes(out)
