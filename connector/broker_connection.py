"""One connection to a broker, for one request at a time."""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import struct
import time

from pyspark_kafka_group import kafka_protocol as protocol
from pyspark_kafka_group.connection_security import Login, Security
from pyspark_kafka_group.kafka_protocol import Address, ProtocolError

_MOST_BYTES = 1 << 30
"""Largest response that is believed: far above Kafka's largest records, far below what TLS or HTTP look like here."""

_LOGIN_SHARE = 0.85
"""How much of the time for which a login counts a connection is used."""


class BrokerConnection:
    """A connection.

    Parameters
    ----------
    address
        Where the broker listens.
    client_id
        What the broker's logs and quotas call us.
    timeout_s
        How long connecting, sending, and waiting for an answer may take, each.
    security
        How to encrypt and authenticate.

    Attributes
    ----------
    good_until : float
        When the login ends, by the monotonic clock (KIP-368).

    Raises
    ------
    OSError
        It cannot be reached, or its certificate is not to be trusted.
    ProtocolError
        It does not speak our versions of Kafka's protocol, or refuses the credentials.
    """

    def __init__(self, address: Address, client_id: str, timeout_s: float, security: Security) -> None:
        self._client_id = client_id
        self._correlation_ids = itertools.count()
        self._correlation_id = 0
        self.good_until = math.inf
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except UnicodeError:
            raise ProtocolError(f"{address.host!r} is no host name") from None
        try:
            self._begin(address, timeout_s, security)
        except BaseException:
            self._socket.close()
            raise

    def request(self, api: int, body: bytes) -> protocol.Reader:
        """Send a request and return the answer.

        Raises
        ------
        OSError
            The connection is lost, or no answer came in time.
        ProtocolError
            What came is no answer.
        """
        self.send(api, body)
        return self.receive()

    def send(self, api: int, body: bytes) -> None:
        """Send a request; its answer has to be received before the next one is sent."""
        self._correlation_id = next(self._correlation_ids)
        self._socket.sendall(protocol.framed(api, self._correlation_id, self._client_id, body))

    def receive(self) -> protocol.Reader:
        """Wait for the answer to the request that was sent last."""
        import pyarrow as pa

        size = bytearray(4)
        self._receive(memoryview(size))
        length = int.from_bytes(size, "big")
        if not 4 <= length <= _MOST_BYTES:
            raise ProtocolError(f"a response of {length} bytes")
        answer = memoryview(pa.allocate_buffer(length)).cast("B")
        self._receive(answer)
        if int.from_bytes(answer[:4], "big") != self._correlation_id:
            raise ProtocolError("an answer to another request")
        return protocol.Reader(answer[4:])

    def interrupt(self) -> None:
        """Let a request under way in another thread fail, and all that follow."""
        with contextlib.suppress(OSError):  # it is not connected any more
            # Deliberate: not that of an SSLSocket, which would go on without encryption.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _begin(self, address: Address, timeout_s: float, security: Security) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security.tls:
            self._receive_flags = 0
            self._socket = security.tls.wrap_socket(self._socket, server_hostname=address.host)
        else:
            # Blocking for the kernel, too, so that one call receives a whole response.
            self._receive_flags = socket.MSG_WAITALL
            self._let_the_kernel_time(timeout_s)
        needed = [protocol.FETCH, protocol.LIST_OFFSETS, protocol.METADATA]
        if security.login:
            needed += [protocol.SASL_HANDSHAKE, protocol.SASL_AUTHENTICATE]
        protocol.check_api_versions(self.request(protocol.API_VERSIONS, b""), needed)
        if security.login:
            self._log_in(security.login)

    def _let_the_kernel_time(self, timeout_s: float) -> None:
        self._socket.settimeout(None)
        fraction, seconds = math.modf(timeout_s)
        timeout = struct.pack("@ll", int(seconds), int(fraction * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def _log_in(self, login: Login) -> None:
        protocol.check_sasl_handshake(
            self.request(protocol.SASL_HANDSHAKE, protocol.sasl_handshake_request(login.mechanism))
        )
        conversation = login.talk()
        message = next(conversation)
        with contextlib.suppress(StopIteration):  # it is content
            while True:
                request = protocol.sasl_authenticate_request(message)
                said = protocol.sasl_authenticated(self.request(protocol.SASL_AUTHENTICATE, request))
                if said.lifetime_ms > 0:
                    self.good_until = time.monotonic() + _LOGIN_SHARE * said.lifetime_ms / 1000
                message = conversation.send(said.message)

    def _receive(self, into: memoryview) -> None:
        while into:
            try:
                received = self._socket.recv_into(into, len(into), self._receive_flags)
            except BlockingIOError:
                raise TimeoutError("no answer") from None
            if received == 0:
                raise ConnectionError("the broker closed the connection")
            into = into[received:]
