"""Encryption of connections, from librdkafka's ``ssl.*`` properties."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from pyspark_kafka_group.wire.types import PropertyError, is_false


def client_context(config: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context for connections to brokers.

    Raises
    ------
    PropertyError
        If a property is invalid or not supported.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if config.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "none":
        context.check_hostname = False
    if is_false(config.get("enable.ssl.certificate.verification", "true")):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    load_authorities(context, config, "ssl.ca")
    _load_revoked(context, config)
    _load_key(context, _opened(config))
    if "ssl.cipher.suites" in config:
        try:
            context.set_ciphers(config["ssl.cipher.suites"])
        except ssl.SSLError:
            raise PropertyError(
                "ssl.cipher.suites",
                "OpenSSL does not know any of these names.",
                "Write OpenSSL's names, separated by colons (openssl ciphers lists them).",
            ) from None
    return context


def load_authorities(context: ssl.SSLContext, config: Mapping[str, str], prefix: str) -> None:
    """Load the authorities of ``PREFIX.location`` and ``PREFIX.pem``, or else the system's.

    Raises
    ------
    PropertyError
        If they cannot be read.
    """
    location, text = config.get(f"{prefix}.location"), config.get(f"{prefix}.pem")
    if location == "probe":  # in librdkafka, this means the system's authorities
        location = None
    try:
        if text is not None:
            context.load_verify_locations(cadata=text)
        if location is not None:
            folder = Path(location).is_dir()
            context.load_verify_locations(capath=location if folder else None, cafile=None if folder else location)
    except (OSError, TypeError, ValueError) as problem:  # TypeError: a text that is not ASCII
        key = f"{prefix}.pem" if location is None else f"{prefix}.location"
        raise PropertyError(key, _reason(problem, "it contains no certificate"), "Name certificates as PEM.") from None
    if location is None and text is None:
        context.load_default_certs()


def _load_revoked(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    """Load the list of certificates that an authority has revoked."""
    key = "ssl.crl.location"
    if key not in config:
        return
    try:
        context.load_verify_locations(cafile=config[key])
    except (OSError, ValueError) as problem:
        raise PropertyError(key, _reason(problem, "it contains no list"), "Name a list as PEM.") from None
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _load_key(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    """Load the client's certificate and key, if there are any."""
    with ExitStack() as files:
        certificate, key = _file_of("certificate", config, files), _file_of("key", config, files)
        if certificate is None:
            if key is not None:
                raise PropertyError(
                    "ssl.key.location" if "ssl.key.location" in config else "ssl.key.pem",
                    "it is set without a certificate.",
                    "Name its certificate with kafka.ssl.certificate.location or kafka.ssl.certificate.pem.",
                )
            return
        try:
            # Without a password Python would ask for one at the terminal.
            context.load_cert_chain(certificate, key, config.get("ssl.key.password", ""))
        except (OSError, ValueError) as problem:  # ssl.SSLError is an OSError
            raise PropertyError(
                "ssl.certificate.location" if "ssl.certificate.location" in config else "ssl.certificate.pem",
                _reason(problem, "no certificate with its key can be read from it and from kafka.ssl.key.*"),
                "Name a certificate and its key as PEM, and the key's password.",
            ) from None


def _opened(config: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties, with the contents of a PKCS#12 store as PEM."""
    key = "ssl.keystore.location"
    if key not in config:
        return config
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise PropertyError(
            key,
            "the source needs the package cryptography to read PKCS#12.",
            "Install pyspark-kafka-group[pkcs12] on the driver and the executors, or use PEM.",
        ) from None
    password = config.get("ssl.keystore.password", "").encode()
    try:
        private, certificate, others = pkcs12.load_key_and_certificates(Path(config[key]).read_bytes(), password)
    except (OSError, ValueError) as problem:
        raise PropertyError(
            key,
            _reason(problem, "it is not a PKCS#12 store, or kafka.ssl.keystore.password is wrong"),
            "Name a PKCS#12 file and its password.",
        ) from None
    if private is None or certificate is None:
        raise PropertyError(key, "it does not contain a key with a certificate.", "Name a store that has both.")
    return {
        **config,
        "ssl.certificate.pem": b"".join(one.public_bytes(Encoding.PEM) for one in (certificate, *others)).decode(),
        "ssl.key.pem": private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    }


def _file_of(what: str, config: Mapping[str, str], files: ExitStack) -> str | None:
    """Return the path of a certificate or a key.  A text becomes a file in memory, because Python reads only files."""
    location, text = config.get(f"ssl.{what}.location"), config.get(f"ssl.{what}.pem")
    if text is None:
        return location
    if location is not None:
        raise PropertyError(f"ssl.{what}.location", f"kafka.ssl.{what}.pem is also set.", "Remove one.")
    if not hasattr(os, "memfd_create"):
        raise PropertyError(
            f"ssl.{what}.pem", "only Linux has files in memory.", f"Name a file as kafka.ssl.{what}.location."
        )
    file = files.enter_context(os.fdopen(os.memfd_create(f"ssl.{what}"), "wb"))
    file.write(text.encode())
    file.flush()
    return f"/proc/self/fd/{file.fileno()}"


def _reason(problem: Exception, otherwise: str) -> str:
    """Return why a file cannot be read, or ``otherwise``.  Never show its contents."""
    if isinstance(problem, OSError) and not isinstance(problem, ssl.SSLError):
        return f"it cannot be read here: {problem.strerror}."
    return f"{otherwise}."
