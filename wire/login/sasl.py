"""Logins with SASL's mechanisms PLAIN (RFC 4616), SCRAM (RFC 5802, 7677) and OAUTHBEARER (RFC 7628).

Each returns a `Conversation`, which ends when the login has succeeded.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping

from pyspark_kafka_group.wire.security import Conversation
from pyspark_kafka_group.wire.types import ProtocolError, RefusedCredentialsError, StoppedLoginError

_FEWEST_ITERATIONS = 4096
"""The minimum of RFC 7677, section 4, and of Java's client (``ScramMechanism``).  Kafka's tools never store fewer.  So
a broker that asks for fewer probably wants a proof from which it can guess the password cheaply."""

_MAX_ITERATIONS = 1_000_000
"""Half a second of work.  librdkafka also refuses more."""

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Hash function of each SCRAM mechanism."""


def plain(username: str, password: str) -> Conversation:
    """Send the password."""
    yield f"\0{username}\0{password}".encode()


def scram(hash_name: str, username: str, password: str, nonce: Callable[[], str] = secrets.token_hex) -> Conversation:
    """Prove that this client knows the password, and check that the broker knows it.

    Raises
    ------
    ProtocolError
        If the broker violates the protocol, or does not know the password.
    StoppedLoginError
        If the broker asks for so few iterations that the proof would reveal the password.
    """
    name = username.replace("=", "=3D").replace(",", "=2C")
    ours = nonce()
    first = f"n={name},r={ours}"
    server_first = (yield f"n,,{first}".encode()).decode("utf-8", "replace")
    said = _attributes(server_first)
    if "m" in said:
        raise ProtocolError("SCRAM: the broker demands an extension")
    theirs = said.get("r", "")
    if not (theirs.startswith(ours) and len(theirs) > len(ours)):
        raise ProtocolError("SCRAM: the broker does not answer to this nonce")
    try:
        salt, iterations = base64.b64decode(said["s"]), int(said["i"])
    except (KeyError, ValueError):
        raise ProtocolError("SCRAM: the broker's salt or iterations cannot be understood") from None
    if iterations < _FEWEST_ITERATIONS:
        raise StoppedLoginError(
            f"SCRAM: the broker asks for {iterations} iterations, fewer than the {_FEWEST_ITERATIONS} of RFC 7677. "
            f"This connection was closed before anything of the password was sent over it. Check that "
            f"kafka.bootstrap.servers leads to your brokers. If it does, store the user's credentials again with at "
            f"least {_FEWEST_ITERATIONS} iterations (kafka-configs.sh)."
        )
    if iterations > _MAX_ITERATIONS:
        raise ProtocolError(f"SCRAM: the broker wants {iterations} iterations, more than {_MAX_ITERATIONS}")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    without_proof = f"c=biws,r={theirs}"
    talk = f"{first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), talk, hash_name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    said = _attributes((yield f"{without_proof},p={proof}".encode()).decode("utf-8", "replace"))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), talk, hash_name)
    if not hmac.compare_digest(said.get("v", "").encode(), base64.b64encode(expected)):
        raise ProtocolError("SCRAM: the broker does not prove that it knows the password")


def oauthbearer(token: str, extensions: Mapping[str, str], forget: Callable[[str], None]) -> Conversation:
    """Send a token.

    Parameters
    ----------
    token : str
        The token.
    extensions : mapping of str to str
        Extensions for the broker (KIP-342).
    forget : callable
        Called with the token if the broker refuses it.  A lost connection is no refusal.

    Raises
    ------
    ProtocolError
        If the broker refuses the token, but not in Kafka's way.
    """
    pairs = {"auth": f"Bearer {token}", **extensions}
    first = b"n,,\x01" + b"".join(f"{key}={value}\x01".encode() for key, value in pairs.items()) + b"\x01"
    try:
        answer = yield first
    except RefusedCredentialsError:
        forget(token)
        raise
    if answer:
        forget(token)
        # The answer contains the reason.  A client sends this (section 3.2.3), and the broker ends the login with an
        # error.
        yield b"\x01"
        raise ProtocolError("OAUTHBEARER: the broker does not take the token")


def _attributes(message: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in message.split(","))}
