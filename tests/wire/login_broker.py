"""A broker that clients log in to."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import trustme

from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.login.properties import security_of
from pyspark_kafka_group.wire.security import Security
from tests.wire.fake_broker import SILENCE, Asked, FakeBroker


class Broker(FakeBroker):
    """A broker that answers only ApiVersions, SaslHandshake and SaslAuthenticate.

    Attributes
    ----------
    logins : list of bytes
        The messages with which clients have authenticated.
    refuses : bool
        Whether the broker refuses logins.
    challenge : bytes
        The answer to the first message of a login; empty to decide at once.
    lifetime_ms : int
        The time for which a login is valid; 0 for no limit.
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
        super().__init__(offered={api: (0, newest) for api, newest in protocol.VERSIONS.items()})

    def secured(self, client: socket.socket) -> socket.socket:
        return client if self._tls is None else self._tls.wrap_socket(client, server_side=True)

    def answer_to(self, asked: Asked) -> object:
        match asked.api:
            case protocol.SASL_HANDSHAKE:
                known = asked.body[2:] in (b"PLAIN", b"OAUTHBEARER")
                return struct.pack(">hi", 0 if known else 33, 1) + b"\0\x05PLAIN"
            case protocol.SASL_AUTHENTICATE:
                self.logins.append(asked.body[4:])
                if self.challenge and self.logins[-1] != b"\x01":
                    said = struct.pack(">i", len(self.challenge)) + self.challenge
                    return struct.pack(">h", 0) + b"\xff\xff" + said + struct.pack(">q", 0)
                refusal = (58, b"\0\x06wrong!") if self.refuses else (0, b"\xff\xff")
                return struct.pack(">h", refusal[0]) + refusal[1] + struct.pack(">iq", 0, self.lifetime_ms)
        return SILENCE


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
