"""JSON Web Tokens that a client creates itself, like librdkafka: assertions and unsigned tokens.

A token endpoint accepts an assertion (RFC 7523).
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_kafka_group.wire.types import PropertyError

_PREFIX = "sasl.oauthbearer.assertion."
_ALGORITHMS = ("RS256", "ES256")


@dataclass(frozen=True, slots=True)
class Assertion:
    """A signed statement of a client about itself.

    Attributes
    ----------
    algorithm : str
        ``RS256`` or ``ES256``.
    key : str
        The private key as PEM.
    passphrase : str or None
        The passphrase of the key.
    claims : tuple of (str, str)
        The claims ``sub``, ``iss`` and ``aud`` that are set.
    expires_s, begins_s : int
        How long it is valid after, and before, its creation, in seconds.
    unique : bool
        Whether it has an id (``jti``).
    template : str
        A JSON object with the objects ``header`` and ``payload``.  The other fields are added to it.
    """

    algorithm: str
    key: str = field(repr=False)
    passphrase: str | None = field(repr=False)
    claims: tuple[tuple[str, str], ...]
    expires_s: int
    begins_s: int
    unique: bool
    template: str

    def sign(self) -> str:
        """Return a signed assertion with the current time.

        Raises
        ------
        ImportError
            If the package ``cryptography`` is not installed.
        TypeError, ValueError
            If the key or the template cannot be read.
        """
        now = int(time.time())
        template = json.loads(self.template)
        header = {**template.get("header", {}), "alg": self.algorithm, "typ": "JWT"}
        times = {"iat": now, "exp": now + self.expires_s, "nbf": now - self.begins_s}
        payload = {**template.get("payload", {}), **times, **dict(self.claims)}
        if self.unique:
            payload["jti"] = str(uuid.uuid4())
        text = f"{_encoded(header)}.{_encoded(payload)}"
        return f"{text}.{_base64(self._signature(text.encode()))}"

    def _signature(self, text: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        passphrase = None if self.passphrase is None else self.passphrase.encode()
        key = load_pem_private_key(self.key.encode(), passphrase)
        if self.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
            return key.sign(text, padding.PKCS1v15(), SHA256())
        if self.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
            r, s = utils.decode_dss_signature(key.sign(text, ec.ECDSA(SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")  # RFC 7518, section 3.4
        raise ValueError(f"no key for {self.algorithm}")


def assertion_of(config: Mapping[str, str]) -> Assertion:
    """Return how to create assertions.

    Raises
    ------
    PropertyError
        If these properties do not suffice.
    """
    given = {key.removeprefix(_PREFIX): value for key, value in config.items() if key.startswith(_PREFIX)}
    algorithm = given.get("algorithm", "RS256")
    if algorithm not in _ALGORITHMS:
        raise PropertyError(f"{_PREFIX}algorithm", f"it cannot be {algorithm}.", f"Write {' or '.join(_ALGORITHMS)}.")
    source = "private.key.pem" if "private.key.pem" in given else "private.key.file"
    if source not in given:
        raise PropertyError(f"{_PREFIX}{source}", "it is missing.", f"Name a private key, or {_PREFIX}file.")
    made = Assertion(
        algorithm,
        given.get("private.key.pem") or read_file(config, f"{_PREFIX}private.key.file"),
        given.get("private.key.passphrase"),
        tuple((name, given[f"claim.{name}"]) for name in ("sub", "iss", "aud") if f"claim.{name}" in given),
        _number(given, "claim.exp.seconds", 300),
        _number(given, "claim.nbf.seconds", 60),
        given.get("claim.jti.include", "").strip().lower() == "true",
        read_file(config, f"{_PREFIX}jwt.template.file") if "jwt.template.file" in given else "{}",
    )
    try:
        made.sign()
    except ImportError:
        raise PropertyError(
            f"{_PREFIX}{source}",
            "the source needs the package cryptography to sign with it.",
            "Install pyspark-kafka-group[pkcs12] on the driver and the executors.",
        ) from None
    except (AttributeError, TypeError, ValueError):
        raise PropertyError(
            f"{_PREFIX}{source}",
            f"{algorithm} cannot sign with this key, its passphrase and the template.",
            "Name a private key as PEM and its passphrase. A template is JSON with the objects header and payload.",
        ) from None
    return made


def read_file(config: Mapping[str, str], key: str) -> str:
    """Return the contents of the file that a property names; raise :class:`PropertyError`."""
    try:
        return Path(config[key]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not a text file"
        raise PropertyError(key, f"it cannot be read here: {reason}.", "Name a file on this machine.") from None


def unsecured_token(text: str) -> tuple[str, dict[str, str]]:
    """Return an unsigned token and the extensions from ``sasl.oauthbearer.config``.  For tests only."""
    given = dict(pair.partition("=")[::2] for pair in text.split())
    now = time.time()
    claims: dict[str, Any] = {
        given.get("principalClaimName", "sub"): given.get("principal", ""),
        "iat": now,
        "exp": now + int(given.get("lifeSeconds", "3600")),
    }
    if given.get("scope"):
        claims[given.get("scopeClaimName", "scope")] = given["scope"].split(",")
    extensions = {key.removeprefix("extension_"): value for key, value in given.items() if key.startswith("extension_")}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}.", extensions


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name, str(default)).strip()
    if not value.isdecimal():
        raise PropertyError(f"{_PREFIX}{name}", "it is not a whole number.", "Write a number of seconds.")
    return int(value)


def _encoded(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
