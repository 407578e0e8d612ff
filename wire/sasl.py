"""How a client proves who it is: SASL's mechanisms PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628).

A conversation yields what to send, is sent what the broker answers, and ends when the login has succeeded.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator, Mapping

from pyspark_kafka_group.wire.types import ProtocolError, UnsafeLoginError

Conversation = Generator[bytes, bytes, None]

_FEWEST_ITERATIONS = 4096
"""What RFC 7677, section 4, demands and Java's client insists on (``ScramMechanism``).  Kafka's tools store no fewer,
so a broker that asks for fewer most likely wants a proof from which the password is cheap to guess."""

_MAX_ITERATIONS = 1_000_000
"""Half a second of work; librdkafka refuses more, too."""

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""What is hashed with, by mechanism."""


def plain(username: str, password: str) -> Conversation:
    """Tell the password."""
    yield f"\0{username}\0{password}".encode()


def scram(hash_name: str, username: str, password: str, nonce: Callable[[], str] = secrets.token_hex) -> Conversation:
    """Prove to know the password, and have the broker prove that it knows it, too.

    Raises
    ------
    ProtocolError
        The broker does not follow the rules, or does not know the password.
    UnsafeLoginError
        It asks for so few iterations that the proof would give the password away.
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
        raise UnsafeLoginError(
            f"SCRAM: the broker asks for {iterations} iterations, fewer than the {_FEWEST_ITERATIONS} of RFC 7677. "
            f"The login was broken off before anything of the password was sent. Check that kafka.bootstrap.servers "
            f"leads to your brokers; if it does, store the user's credentials again with at least "
            f"{_FEWEST_ITERATIONS} iterations (kafka-configs.sh)."
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
    """Show a token.

    Parameters
    ----------
    token : str
        The token.
    extensions : mapping of str to str
        What else the broker is told (KIP-342).
    forget : callable
        Is given the token if the broker does not take it.

    Raises
    ------
    ProtocolError
        The broker refuses the token, and does not say so as Kafka does.
    """
    pairs = {"auth": f"Bearer {token}", **extensions}
    taken = False
    try:
        answer = yield b"n,,\x01" + b"".join(f"{key}={value}\x01".encode() for key, value in pairs.items()) + b"\x01"
        taken = not answer
    finally:
        if not taken:
            forget(token)
    if not taken:
        # The answer tells why; a client sends this (section 3.2.3), and the broker then ends the login with an error.
        yield b"\x01"
        raise ProtocolError("OAUTHBEARER: the broker does not take the token")


def _attributes(message: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in message.split(","))}
