"""How a connection to a broker is opened, encrypted and authenticated.  :mod:`.login` makes it from properties."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.types import Address

if TYPE_CHECKING:
    import ssl

Conversation = Generator[bytes, bytes, None]
"""The messages of a mechanism: it yields those for the broker, and is sent the broker's answers.  A refusal of the
broker is thrown into it."""


@dataclass(frozen=True, slots=True)
class Login:
    """How to authenticate.

    Attributes
    ----------
    mechanism : str
        The name of the mechanism.
    talk : callable
        Begins a conversation with the broker on a host.  The deadline limits requests to other servers.  It contains
        the password.
    """

    mechanism: str
    talk: Callable[[str, Deadline], Conversation] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """How to open and secure a connection.

    Attributes
    ----------
    protocol : str
        ``plaintext``, ``ssl``, ``sasl_plaintext`` or ``sasl_ssl``.
    tls : ssl.SSLContext or None
        How to encrypt; None for no encryption.
    login : Login or None
        How to authenticate; None for no login.
    family : socket.AddressFamily
        The kind of addresses to connect to.
    canonical : frozenset of Address
        Servers whose names come from their addresses, for certificates and Kerberos.
    """

    protocol: str = "plaintext"
    tls: ssl.SSLContext | None = None
    login: Login | None = None
    family: socket.AddressFamily = socket.AF_UNSPEC
    canonical: frozenset[Address] = frozenset()
