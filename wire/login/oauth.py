"""Logins with SASL's OAUTHBEARER, from librdkafka's properties.

The JSON Web Tokens that a client creates itself are those of librdkafka, so that one configuration serves both:
assertions, and unsigned tokens for tests.  Errors never contain a secret or a token.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.login.sasl import oauthbearer
from pyspark_kafka_group.wire.login.token_cache import PROVIDER, TokenSource, tokens_of
from pyspark_kafka_group.wire.login.token_endpoint import BY_SECRET, AzureMachine, ClientSecret, TokenEndpoint
from pyspark_kafka_group.wire.login.token_providers import token_provider
from pyspark_kafka_group.wire.security import Conversation
from pyspark_kafka_group.wire.types import PropertyError

_log = logging.getLogger(__name__)

_PREFIX = "sasl.oauthbearer."
_BY_ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION = "sasl.oauthbearer.assertion."
_ALGORITHMS = ("RS256", "ES256")
_AZURE = "http://169.254.169.254/metadata/identity/oauth2/token"

# RFC 7628, section 3.1; no commas, which separate pairs in the property.
_EXTENSION = re.compile(r"(?!auth=)([A-Za-z]+)=([\t\r\n !-+\--~]*)")


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
        # RFC 7518, section 3.4
        if self.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
            r, s = utils.decode_dss_signature(key.sign(text, ec.ECDSA(SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        raise ValueError(f"no key for {self.algorithm}")


@dataclass(frozen=True, slots=True)
class SignedAssertion:
    """Requests a token with an assertion, either from a file, which is read each time, or created here."""

    assertion: Assertion | str

    def request(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the form and the headers."""
        key = f"{_ASSERTION}file"
        made = read_file({key: self.assertion}, key) if isinstance(self.assertion, str) else self.assertion.sign()
        return {"grant_type": _BY_ASSERTION, "assertion": made}, {}


def oauth_login(config: Mapping[str, str]) -> Callable[[str, Deadline], Conversation]:
    """Return a function that begins a login with a token.

    Raises
    ------
    PropertyError
        If these properties do not suffice for a token.
    """
    given = {key.removeprefix(_PREFIX): value for key, value in config.items()}
    if PROVIDER in config:
        return _login_with(token_provider(config), {})
    if given.get("method", "").lower() != "oidc":
        if given.get("enable.sasl.oauthbearer.unsecure.jwt", "").strip().lower() != "true":
            raise PropertyError(
                f"{_PREFIX}method",
                "it is not oidc, and no token provider is named.",
                "Write oidc, with kafka.sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url. Or name a "
                "provider of tokens with kafka.sasl.oauthbearer.provider.",
            )
        if not given.get("config", "").strip():
            raise PropertyError(f"{_PREFIX}config", "it is missing.", "Write principal=NAME.")
        try:
            unsecured_token(given["config"])
        except (ValueError, OverflowError):
            raise PropertyError(
                f"{_PREFIX}config", "lifeSeconds is not a whole number of seconds.", "Write lifeSeconds=3600."
            ) from None
        return lambda *_: oauthbearer(*unsecured_token(given["config"]), lambda _: None)
    return _login_with(_endpoint(config, given), _extensions(given.get("extensions", "")))


def _login_with(source: TokenSource, extensions: Mapping[str, str]) -> Callable[[str, Deadline], Conversation]:
    def talk(_: str, deadline: Deadline) -> Conversation:
        tokens = tokens_of(source)
        token = tokens.current(deadline)
        return oauthbearer(token.text, {**extensions, **dict(token.extensions)}, tokens.forget)

    return talk


def _endpoint(config: Mapping[str, str], given: Mapping[str, str]) -> TokenEndpoint:
    who: ClientSecret | SignedAssertion | AzureMachine
    url = given.get("token.endpoint.url", "")
    grant, metadata = given.get("grant.type", BY_SECRET), given.get("metadata.authentication.type", "none")
    if metadata == "azure_imds":
        who = AzureMachine()
        pairs = (pair.partition("=") for pair in given.get("config", "").split())
        query = next((value for name, _, value in pairs if name == "query"), "")
        url = (url or _AZURE) + (f"?{query}" if query else "")
    elif metadata != "none":
        raise PropertyError(
            f"{_PREFIX}metadata.authentication.type", f"librdkafka does not implement {metadata}.", "Remove it."
        )
    elif grant == BY_SECRET:
        for name in ("client.id", "client.secret"):
            if not given.get(name):
                raise PropertyError(f"{_PREFIX}{name}", "it is missing, but OAUTHBEARER needs it.", "Add it.")
        who = ClientSecret(given["client.id"], given["client.secret"])
    elif grant == _BY_ASSERTION:
        in_file = f"{_ASSERTION}file"
        if in_file in config:
            read_file(config, in_file)
        who = SignedAssertion(config.get(in_file) or assertion_of(config))
    else:
        raise PropertyError(
            f"{_PREFIX}grant.type", f"librdkafka does not know {grant}.", f"Write {BY_SECRET} or {_BY_ASSERTION}."
        )
    if not url.lower().startswith(("https://", "http://")):
        raise PropertyError(f"{_PREFIX}token.endpoint.url", "OAUTHBEARER needs one.", "Write an https:// URL.")
    if url.lower().startswith("http://") and not isinstance(who, AzureMachine):
        _warn_of_http(urlsplit(url).hostname)
    authorities = tuple((key, config[key]) for key in ("https.ca.location", "https.ca.pem") if key in config)
    endpoint = TokenEndpoint(url, who, given.get("scope", ""), authorities)
    endpoint.tls()
    return endpoint


def assertion_of(config: Mapping[str, str]) -> Assertion:
    """Return how to create assertions.

    Raises
    ------
    PropertyError
        If these properties do not suffice.
    """
    given = {key.removeprefix(_ASSERTION): value for key, value in config.items() if key.startswith(_ASSERTION)}
    algorithm = given.get("algorithm", "RS256")
    if algorithm not in _ALGORITHMS:
        raise PropertyError(
            f"{_ASSERTION}algorithm", f"it cannot be {algorithm}.", f"Write {' or '.join(_ALGORITHMS)}."
        )
    source = "private.key.pem" if "private.key.pem" in given else "private.key.file"
    if source not in given:
        raise PropertyError(f"{_ASSERTION}{source}", "it is missing.", f"Name a private key, or {_ASSERTION}file.")
    made = Assertion(
        algorithm,
        given.get("private.key.pem") or read_file(config, f"{_ASSERTION}private.key.file"),
        given.get("private.key.passphrase"),
        tuple((name, given[f"claim.{name}"]) for name in ("sub", "iss", "aud") if f"claim.{name}" in given),
        _seconds(given, "claim.exp.seconds", 300),
        _seconds(given, "claim.nbf.seconds", 60),
        given.get("claim.jti.include", "").strip().lower() == "true",
        read_file(config, f"{_ASSERTION}jwt.template.file") if "jwt.template.file" in given else "{}",
    )
    try:
        made.sign()
    except ImportError:
        raise PropertyError(
            f"{_ASSERTION}{source}",
            "the source needs the package cryptography to sign with it.",
            "Install pyspark-kafka-group[pkcs12] on the driver and the executors.",
        ) from None
    except (AttributeError, TypeError, ValueError, RecursionError):  # the last one: a deeply nested template
        raise PropertyError(
            f"{_ASSERTION}{source}",
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


def _seconds(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name, str(default)).strip()
    if not value.isdecimal():
        raise PropertyError(f"{_ASSERTION}{name}", "it is not a whole number.", "Write a number of seconds.")
    return int(value)


def _encoded(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@cache
def _warn_of_http(host: str | None) -> None:
    """Log one warning in each process."""
    _log.warning(
        "Requests to the token endpoint on %s are not encrypted (http). The network can see the client's secret and "
        "its tokens. Write https:// in kafka.sasl.oauthbearer.token.endpoint.url.",
        host,
    )


def _extensions(text: str) -> dict[str, str]:
    """Parse ``name=value,...``."""
    found = [_EXTENSION.fullmatch(pair) for pair in text.split(",") if text]
    if None in found:
        raise PropertyError(
            f"{_PREFIX}extensions", "it cannot be sent.", "Write name=value, separated by commas (RFC 7628)."
        )
    return {pair[1]: pair[2] for pair in found if pair}
