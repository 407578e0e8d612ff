"""One plain connection to a broker, for one request at a time."""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import struct
from typing import TYPE_CHECKING

from pyspark_kafka_group import kafka_protocol as protocol
from pyspark_kafka_group.kafka_protocol import Address, ProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BYTES = 1 << 30
"""Largest response that is believed: far above Kafka's largest records, far below what TLS or HTTP look like here."""


class BrokerConnection:
    """A connection without encryption or authentication.

    Parameters
    ----------
    address
        Where the broker listens.
    client_id
        What the broker's logs and quotas call us.
    timeout_s
        How long connecting, sending, and waiting for an answer may take, each.

    Raises
    ------
    OSError
        It cannot be reached.
    ProtocolError
        It does not speak our versions of Kafka's protocol.
    """

    def __init__(self, address: Address, client_id: str, timeout_s: float) -> None:
        self._client_id = client_id
        self._correlation_ids = itertools.count()
        self._socket = socket.create_connection(address, timeout_s)
        try:
            # Blocking for the kernel, too, so that one call receives a whole response.
            self._socket.settimeout(None)
            fraction, seconds = math.modf(timeout_s)
            timeout = struct.pack("@ll", int(seconds), int(fraction * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol.check_api_versions(protocol.Reader(memoryview(self.request(protocol.API_VERSIONS, b""))[4:]))
        except BaseException:
            self._socket.close()
            raise

    def request(self, api: int, body: bytes) -> pa.Buffer:
        """Send a request and return the answer, which begins with 4 bytes of correlation id.

        Raises
        ------
        OSError
            The connection is lost, or no answer came in time.
        ProtocolError
            What came is no answer.
        """
        import pyarrow as pa

        correlation_id = next(self._correlation_ids)
        self._socket.sendall(protocol.framed(api, correlation_id, self._client_id, body))
        size = bytearray(4)
        self._receive(memoryview(size))
        length = int.from_bytes(size, "big")
        if not 4 <= length <= _MOST_BYTES:
            raise ProtocolError(f"a response of {length} bytes")
        answer = pa.allocate_buffer(length)
        self._receive(memoryview(answer).cast("B"))
        if int.from_bytes(memoryview(answer)[:4], "big") != correlation_id:
            raise ProtocolError("an answer to another request")
        return answer

    def interrupt(self) -> None:
        """Let a request under way in another thread fail, and all that follow."""
        with contextlib.suppress(OSError):  # it is not connected any more
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self, into: memoryview) -> None:
        while into:
            try:
                received = self._socket.recv_into(into, len(into), socket.MSG_WAITALL)
            except BlockingIOError:
                raise TimeoutError("no answer") from None
            if received == 0:
                raise ConnectionError("the broker closed the connection")
            into = into[received:]
