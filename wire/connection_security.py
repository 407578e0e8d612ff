"""How connections to brokers are encrypted and authenticated, as librdkafka's properties say.

What is not understood here is left to librdkafka, and so is every failure: it says in its own words what is wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.oauth import TokenEndpoint, tokens_of
from pyspark_kafka_group.wire.sasl import SCRAM_HASHES, Conversation, oauthbearer, plain, scram

if TYPE_CHECKING:
    import ssl

_TLS_PROPERTIES = {
    "enable.ssl.certificate.verification",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
}
_SASL_PROPERTIES = {"sasl.mechanism", "sasl.mechanisms", "sasl.password", "sasl.username"}
_OAUTH_PROPERTIES = {
    "https.ca.location",
    "https.ca.pem",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.sub.claim.name",  # which librdkafka reads, and nobody else
    "sasl.oauthbearer.token.endpoint.url",
}

_BY_SECRET = "client_credentials"

# RFC 7628, section 3.1; no commas, which separate pairs in the property.
_EXTENSION = re.compile(r"(?!auth=)([A-Za-z]+)=([\t\r\n !-+\--~]*)")

PROPERTIES = frozenset({"security.protocol", *_TLS_PROPERTIES, *_SASL_PROPERTIES, *_OAUTH_PROPERTIES})
"""What is understood here."""


@dataclass(frozen=True, slots=True)
class Login:
    """How to authenticate.

    Attributes
    ----------
    mechanism : str
        Its name.
    talk : callable
        Begins a conversation with a broker, by a deadline if it has to ask somebody first.  It holds the password.
    """

    mechanism: str
    talk: Callable[[Deadline], Conversation] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """How to secure a connection.

    Attributes
    ----------
    protocol : str
        ``plaintext``, ``ssl``, ``sasl_plaintext`` or ``sasl_ssl``.
    tls : ssl.SSLContext or None
        How to encrypt.
    login : Login or None
        How to authenticate.
    """

    protocol: str = "plaintext"
    tls: ssl.SSLContext | None = None
    login: Login | None = None


def is_false(value: str) -> bool:
    """Tell whether librdkafka takes ``value`` for false."""
    return value.lower() in ("false", "f", "0")


def security_of(config: Mapping[str, str]) -> Security | None:
    """How to secure connections, or None if only librdkafka knows.

    Parameters
    ----------
    config
        librdkafka's properties; those that are not in `PROPERTIES` are passed over.
    """
    protocol = config.get("security.protocol", "plaintext").lower()
    if protocol not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
        return None
    tls = login = None
    if protocol.endswith("ssl"):
        tls = _tls(config)
        if tls is None:
            return None
    if protocol.startswith("sasl"):
        login = _login(config)
        if login is None:
            return None
    return Security(protocol, tls, login)


def _login(config: Mapping[str, str]) -> Login | None:
    mechanism = config.get("sasl.mechanism") or config.get("sasl.mechanisms", "")
    if mechanism == "OAUTHBEARER":
        return _oauth_login(config)
    username, password = config.get("sasl.username"), config.get("sasl.password")
    if username is None or password is None:
        return None
    if mechanism == "PLAIN":
        return Login(mechanism, lambda _: plain(username, password))
    if mechanism in SCRAM_HASHES:
        return Login(mechanism, lambda _: scram(SCRAM_HASHES[mechanism], username, password))
    return None


def _oauth_login(config: Mapping[str, str]) -> Login | None:
    """How to log in with tokens for a client's id and secret; None for tokens that come from elsewhere."""
    given = {key.removeprefix("sasl.oauthbearer."): value for key, value in config.items()}
    url = given.get("token.endpoint.url", "")
    client_id = given.get("client.id") or given.get("client.credentials.client.id")
    secret = given.get("client.secret") or given.get("client.credentials.client.secret")
    by_secret = given.get("method", "").lower() == "oidc" and given.get("grant.type", _BY_SECRET) == _BY_SECRET
    extensions = _extensions(given.get("extensions", ""))
    if not by_secret or not url.lower().startswith(("https://", "http://")) or extensions is None:
        return None
    if not client_id or not secret:
        return None
    endpoint = TokenEndpoint(
        url, client_id, secret, given.get("scope", ""), config.get("https.ca.location"), config.get("https.ca.pem")
    )
    try:
        endpoint.tls()
    except (OSError, TypeError, ValueError):
        return None

    def talk(deadline: Deadline) -> Conversation:
        tokens = tokens_of(endpoint)
        return oauthbearer(tokens.current(deadline), extensions, tokens.forget)

    return Login("OAUTHBEARER", talk)


def _extensions(text: str) -> dict[str, str] | None:
    """Read ``name=value,...``; None if that cannot be sent."""
    found = [_EXTENSION.fullmatch(pair) for pair in text.split(",") if text]
    return None if None in found else {pair[1]: pair[2] for pair in found if pair}


def _tls(config: Mapping[str, str]) -> ssl.SSLContext | None:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if config.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "none":
        context.check_hostname = False
    if is_false(config.get("enable.ssl.certificate.verification", "true")):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        _load_authorities(context, config)
        config = _opened(config)
        with ExitStack() as files:
            certificate = _file_of("certificate", config, files)
            if certificate is not None:
                # Without a password Python would ask for one at the terminal.
                secret = config.get("ssl.key.password", "")
                context.load_cert_chain(certificate, _file_of("key", config, files), secret)
    # ssl.SSLError is an OSError; TypeError: a text that is not ASCII; ImportError: only `cryptography` opens PKCS#12.
    except (ImportError, OSError, TypeError, ValueError):
        return None
    return context


def _opened(config: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties with what a PKCS#12 store contains as PEM.

    Raises
    ------
    ImportError
        If the package ``cryptography`` is not installed.
    OSError
        If the file cannot be read.
    ValueError
        If it is no such store, the password is not the right one, or there is no key in it.
    """
    location = config.get("ssl.keystore.location")
    if location is None:
        return config
    from pathlib import Path

    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    password = config.get("ssl.keystore.password", "").encode()
    key, certificate, others = pkcs12.load_key_and_certificates(Path(location).read_bytes(), password)
    if key is None or certificate is None:
        raise ValueError(location)
    return {
        **config,
        "ssl.certificate.pem": b"".join(one.public_bytes(Encoding.PEM) for one in (certificate, *others)).decode(),
        "ssl.key.pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    }


def _file_of(what: str, config: Mapping[str, str], files: ExitStack) -> str | None:
    """Return the path of a certificate or a key; a text becomes a file in memory, for Python reads files only.

    Raises
    ------
    ValueError
        If there are both, or this system has no such files.
    """
    location, text = config.get(f"ssl.{what}.location"), config.get(f"ssl.{what}.pem")
    if text is None:
        return location
    if location is not None or not hasattr(os, "memfd_create"):
        raise ValueError(what)
    file = files.enter_context(os.fdopen(os.memfd_create(f"ssl.{what}"), "wb"))
    file.write(text.encode())
    file.flush()
    return f"/proc/self/fd/{file.fileno()}"


def _load_authorities(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    from pathlib import Path

    location, text = config.get("ssl.ca.location"), config.get("ssl.ca.pem")
    if text is not None:
        context.load_verify_locations(cadata=text)
    if location is not None:
        folder = Path(location).is_dir()
        context.load_verify_locations(capath=location if folder else None, cafile=None if folder else location)
    if location is None and text is None:
        context.load_default_certs()
