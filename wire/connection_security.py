"""How connections to brokers are encrypted and authenticated, as librdkafka's properties say.

Each property that cannot be used is a `PropertyError`, which names it and what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_group.wire.deadline import Deadline
from pyspark_kafka_group.wire.kerberos import PROPERTIES as KERBEROS_PROPERTIES
from pyspark_kafka_group.wire.kerberos import kerberos_login
from pyspark_kafka_group.wire.oauth import TokenEndpoint, tokens_of
from pyspark_kafka_group.wire.sasl import SCRAM_HASHES, Conversation, oauthbearer, plain, scram
from pyspark_kafka_group.wire.types import PropertyError

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

PROPERTIES = frozenset(
    {"security.protocol", *_TLS_PROPERTIES, *_SASL_PROPERTIES, *KERBEROS_PROPERTIES, *_OAUTH_PROPERTIES}
)
"""What is understood here."""


@dataclass(frozen=True, slots=True)
class Login:
    """How to authenticate.

    Attributes
    ----------
    mechanism : str
        Its name.
    talk : callable
        Begins a conversation with the broker on a host, by a deadline if it has to ask another server first.  It holds
        the password.
    """

    mechanism: str
    talk: Callable[[str, Deadline], Conversation] = field(repr=False)


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


def security_of(config: Mapping[str, str]) -> Security:
    """Return how to secure connections.

    Parameters
    ----------
    config
        librdkafka's properties; those that are not in `PROPERTIES` are passed over.

    Raises
    ------
    PropertyError
        If connections cannot be secured like that.
    """
    protocol = config.get("security.protocol", "plaintext").lower()
    if protocol not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
        raise PropertyError(
            "security.protocol", "Kafka has no such protocol.", "Write PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
        )
    tls = _tls(config) if protocol.endswith("ssl") else None
    login = _login(config) if protocol.startswith("sasl") else None
    return Security(protocol, tls, login)


def _login(config: Mapping[str, str]) -> Login:
    name = "sasl.mechanism" if config.get("sasl.mechanism") else "sasl.mechanisms"
    mechanism = config.get(name, "GSSAPI")  # as librdkafka and Java's client
    if mechanism == "OAUTHBEARER":
        return _oauth_login(config)
    if mechanism == "GSSAPI":
        return Login(mechanism, kerberos_login(config).talk)
    if mechanism != "PLAIN" and mechanism not in SCRAM_HASHES:
        raise PropertyError(
            "sasl.mechanism",
            f"it is {mechanism}, which the source does not support.",
            f"Use PLAIN, {', '.join(SCRAM_HASHES)}, OAUTHBEARER or GSSAPI.",
        )
    username, password = _needed(config, mechanism, "sasl.username"), _needed(config, mechanism, "sasl.password")
    if mechanism == "PLAIN":
        return Login(mechanism, lambda *_: plain(username, password))
    return Login(mechanism, lambda *_: scram(SCRAM_HASHES[mechanism], username, password))


def _oauth_login(config: Mapping[str, str]) -> Login:
    """Return how to log in with tokens for a client's id and secret."""
    given = {key.removeprefix("sasl.oauthbearer."): value for key, value in config.items()}
    if given.get("method", "").lower() != "oidc":
        raise PropertyError(
            "sasl.oauthbearer.method", "the source takes tokens from a token endpoint only.", "Write oidc."
        )
    if given.get("grant.type", _BY_SECRET) != _BY_SECRET:
        raise PropertyError(
            "sasl.oauthbearer.grant.type",
            "the source asks the token endpoint with a client's id and secret only.",
            f"Remove it, or write {_BY_SECRET}.",
        )
    url = given.get("token.endpoint.url", "")
    if not url.lower().startswith(("https://", "http://")):
        raise PropertyError("sasl.oauthbearer.token.endpoint.url", "OAUTHBEARER needs one.", "Write an https:// URL.")
    prefix = "sasl.oauthbearer."
    client_id, secret = (
        _needed(config, "OAUTHBEARER", f"{prefix}{name}", f"{prefix}client.credentials.{name}")
        for name in ("client.id", "client.secret")
    )
    extensions = _extensions(given.get("extensions", ""))
    endpoint = TokenEndpoint(
        url, client_id, secret, given.get("scope", ""), config.get("https.ca.location"), config.get("https.ca.pem")
    )
    try:
        endpoint.tls()
    except (OSError, TypeError, ValueError) as problem:
        key = "https.ca.location" if "https.ca.location" in config else "https.ca.pem"
        raise PropertyError(key, _reason(problem, "it contains no certificate"), "Name certificates as PEM.") from None

    def talk(_: str, deadline: Deadline) -> Conversation:
        tokens = tokens_of(endpoint)
        return oauthbearer(tokens.current(deadline), extensions, tokens.forget)

    return Login("OAUTHBEARER", talk)


def _extensions(text: str) -> dict[str, str]:
    """Read ``name=value,...``."""
    found = [_EXTENSION.fullmatch(pair) for pair in text.split(",") if text]
    if None in found:
        raise PropertyError(
            "sasl.oauthbearer.extensions", "it cannot be sent.", "Write name=value, separated by commas (RFC 7628)."
        )
    return {pair[1]: pair[2] for pair in found if pair}


def _tls(config: Mapping[str, str]) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if config.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "none":
        context.check_hostname = False
    if is_false(config.get("enable.ssl.certificate.verification", "true")):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_authorities(context, config)
    _load_key(context, _opened(config))
    return context


def _load_key(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    """Load the client's certificate and key, if there are any."""
    with ExitStack() as files:
        certificate, key = _file_of("certificate", config, files), _file_of("key", config, files)
        if certificate is None:
            return
        try:
            # Without a password Python would ask for one at the terminal.
            context.load_cert_chain(certificate, key, config.get("ssl.key.password", ""))
        except (OSError, ValueError) as problem:  # ssl.SSLError is an OSError
            raise PropertyError(
                _given(config, "ssl.certificate.location", "ssl.certificate.pem"),
                _reason(problem, "no certificate with its key can be read from it and from kafka.ssl.key.*"),
                "Name a certificate and its key as PEM, and the key's password.",
            ) from None


def _opened(config: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties with what a PKCS#12 store contains as PEM."""
    location = config.get("ssl.keystore.location")
    if location is None:
        return config
    from pathlib import Path

    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise PropertyError(
            "ssl.keystore.location",
            "the source needs the package cryptography to read PKCS#12.",
            "Install pyspark-kafka-group[pkcs12] on the driver and the executors, or use PEM.",
        ) from None
    password = config.get("ssl.keystore.password", "").encode()
    try:
        key, certificate, others = pkcs12.load_key_and_certificates(Path(location).read_bytes(), password)
    except (OSError, ValueError) as problem:
        raise PropertyError(
            "ssl.keystore.location",
            _reason(problem, "it is no PKCS#12 store, or kafka.ssl.keystore.password is not its password"),
            "Name a PKCS#12 file and its password.",
        ) from None
    if key is None or certificate is None:
        raise PropertyError(
            "ssl.keystore.location", "there is no key with a certificate in it.", "Name a store that has both."
        )
    return {
        **config,
        "ssl.certificate.pem": b"".join(one.public_bytes(Encoding.PEM) for one in (certificate, *others)).decode(),
        "ssl.key.pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    }


def _file_of(what: str, config: Mapping[str, str], files: ExitStack) -> str | None:
    """Return the path of a certificate or a key; a text becomes a file in memory, for Python reads files only."""
    location, text = config.get(f"ssl.{what}.location"), config.get(f"ssl.{what}.pem")
    if text is None:
        return location
    if location is not None:
        raise PropertyError(f"ssl.{what}.location", f"kafka.ssl.{what}.pem is given as well.", "Remove one.")
    if not hasattr(os, "memfd_create"):
        raise PropertyError(
            f"ssl.{what}.pem",
            "only Linux has files in memory.",
            f"Write a file, and name it as kafka.ssl.{what}.location.",
        )
    file = files.enter_context(os.fdopen(os.memfd_create(f"ssl.{what}"), "wb"))
    file.write(text.encode())
    file.flush()
    return f"/proc/self/fd/{file.fileno()}"


def _load_authorities(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    from pathlib import Path

    location, text = config.get("ssl.ca.location"), config.get("ssl.ca.pem")
    try:
        if text is not None:
            context.load_verify_locations(cadata=text)
        if location is not None:
            folder = Path(location).is_dir()
            context.load_verify_locations(capath=location if folder else None, cafile=None if folder else location)
    except (OSError, TypeError, ValueError) as problem:  # TypeError: a text that is not ASCII
        raise PropertyError(
            _given(config, "ssl.ca.location", "ssl.ca.pem"),
            _reason(problem, "it contains no certificate"),
            "Name certificates as PEM.",
        ) from None
    if location is None and text is None:
        context.load_default_certs()


def _needed(config: Mapping[str, str], mechanism: str, *keys: str) -> str:
    """Return what the first of some names of a property says that is given."""
    for key in keys:
        if config.get(key):
            return config[key]
    raise PropertyError(keys[0], f"it is missing, and {mechanism} needs it.", "Add it.")


def _given(config: Mapping[str, str], *keys: str) -> str:
    return next(key for key in keys if key in config)


def _reason(problem: Exception, otherwise: str) -> str:
    """Return why a file cannot be read, or else why its contents cannot be used: of these it shows nothing."""
    import ssl

    if isinstance(problem, OSError) and not isinstance(problem, ssl.SSLError):
        return f"it cannot be read here: {problem.strerror}."
    return f"{otherwise}."
