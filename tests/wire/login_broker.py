"""A server that knows just enough of Kafka's protocol to be logged in to."""

from __future__ import annotations

import io
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import trustme

from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.connection_security import Security, security_of
from pyspark_kafka_group.wire.types import Address


class Broker:
    """Answers ApiVersions, SaslHandshake and SaslAuthenticate, and nothing else.

    Attributes
    ----------
    logins : list of bytes
        What clients have said to authenticate.
    refuses : bool
        Whether it refuses that.
    challenge : bytes
        What it answers to the first message of a login, before that; empty for nothing.
    lifetime_ms : int
        How long a login counts; 0 for ever.
    """

    def __init__(self, certificate: trustme.LeafCert | None, trusts: trustme.CA | None) -> None:
        self.logins: list[bytes] = []
        self.refuses = False
        self.challenge = b""
        self.lifetime_ms = 0
        self._tls = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(self._tls)
            if trusts is not None:
                self._tls.verify_mode = ssl.CERT_REQUIRED
                trusts.configure_trust(self._tls)
        self._listener = self._accepted = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        # Deliberate: shut down first.  A thread that waits in accept() or for a request would go on waiting.
        for waiting in (self._listener, self._accepted):
            with suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self._accepted = accepted
                with suppress(OSError), accepted, self._secured(accepted) as client, client.makefile("rwb") as stream:
                    self._talk(stream)

    def _secured(self, accepted: socket.socket) -> socket.socket:
        return accepted if self._tls is None else self._tls.wrap_socket(accepted, server_side=True)

    def _talk(self, stream: io.BufferedRWPair) -> None:
        while size := stream.read(4):
            request = stream.read(int.from_bytes(size, "big"))
            api, _, correlation_id, name = struct.unpack_from(">hhih", request)
            answer = self._answer(api, request[10 + name :])
            if answer is None:
                continue
            stream.write(struct.pack(">ii", 4 + len(answer), correlation_id) + answer)
            stream.flush()

    def _answer(self, api: int, body: bytes) -> bytes | None:
        match api:
            case protocol.API_VERSIONS:
                versions = [struct.pack(">hhh", api, 0, newest) for api, newest in protocol.VERSIONS.items()]
                return struct.pack(">hi", 0, len(versions)) + b"".join(versions)
            case protocol.SASL_HANDSHAKE:
                return struct.pack(">hi", 0 if body[2:] in (b"PLAIN", b"OAUTHBEARER") else 33, 1) + b"\0\x05PLAIN"
            case protocol.SASL_AUTHENTICATE:
                self.logins.append(body[4:])
                if self.challenge and self.logins[-1] != b"\x01":
                    said = struct.pack(">i", len(self.challenge)) + self.challenge
                    return struct.pack(">h", 0) + b"\xff\xff" + said + struct.pack(">q", 0)
                refusal = (58, b"\0\x06wrong!") if self.refuses else (0, b"\xff\xff")
                return struct.pack(">h", refusal[0]) + refusal[1] + struct.pack(">iq", 0, self.lifetime_ms)
        return None


@contextmanager
def broker(certificate: trustme.LeafCert | None = None, trusts: trustme.CA | None = None) -> Iterator[Broker]:
    made = Broker(certificate, trusts)
    try:
        yield made
    finally:
        made.close()


def secured(config: Mapping[str, str]) -> Security:
    security = security_of(config)
    assert security is not None
    return security
