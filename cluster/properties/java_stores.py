"""Java's key stores and trust stores, as far as OpenSSL can read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyspark_kafka_group.offsets.errors import OptionError

STORE_KEYS = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""The properties that this module translates."""

_TO_PKCS12 = (
    "Convert it: keytool -importkeystore -srckeystore client.jks -destkeystore client.p12 -deststoretype PKCS12. Then "
    "name client.p12 by kafka.ssl.keystore.location, with kafka.ssl.keystore.type=PKCS12."
)
_TO_PEM = (
    "Convert it: keytool -list -rfc -keystore truststore.jks > ca.pem, or of PKCS#12 openssl pkcs12 -in truststore.p12 "
    "-nokeys -out ca.pem. Then name ca.pem by kafka.ssl.ca.location. If it is a PEM file, add "
    "kafka.ssl.truststore.type=PEM."
)

# What Java's clients accept as PEM: the line breaks do not matter to them, but to OpenSSL.
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")


def store_properties(properties: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield librdkafka's properties of the stores: the name of the origin, the name, and the value.

    Parameters
    ----------
    properties : mapping of str to str
        The user's properties, without ``kafka.``.

    Raises
    ------
    OptionError
        If only Java can read a store, or two properties contradict each other.
    """
    yield from _key_store(properties)
    yield from _trust_store(properties)


def pem_text(text: str) -> str:
    """Return PEM with the line breaks that OpenSSL needs; any other text stays as it is."""
    if not _PEM_BLOCK.search(text):
        return text
    blocks = []
    for name, content in _PEM_BLOCK.findall(text):
        joined = "".join(content.split())
        lines = [joined[at : at + 64] for at in range(0, len(joined), 64)]
        blocks.append("\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""]))
    return "".join(blocks)


def _key_store(properties: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    location, password = properties.get("ssl.keystore.location"), properties.get("ssl.keystore.password")
    chain, key = properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")
    key_password = properties.get("ssl.key.password")
    kind = properties.get("ssl.keystore.type", "").strip().upper()
    if kind not in ("", "PEM", "PKCS12"):
        raise OptionError("kafka.ssl.keystore.type", f"only Java reads {kind}.", _TO_PKCS12)
    if kind == "PEM":
        if password is not None:
            _refuse("ssl.keystore.password", "a PEM store has no password.", "Use kafka.ssl.key.password.")
        if (location is None) == (chain is None):
            _refuse(
                "ssl.keystore.type",
                "it is PEM, which needs one of kafka.ssl.keystore.location and kafka.ssl.keystore.certificate.chain.",
                "Give exactly one of them.",
            )
        if (chain is None) != (key is None):
            _refuse(
                "ssl.keystore.certificate.chain",
                "it and kafka.ssl.keystore.key belong together.",
                "Give both, or a file by kafka.ssl.keystore.location.",
            )
        if chain is not None and key is not None:
            yield "ssl.keystore.certificate.chain", "ssl.certificate.pem", pem_text(chain)
            yield "ssl.keystore.key", "ssl.key.pem", pem_text(key)
        if location is not None:
            yield "ssl.keystore.location", "ssl.certificate.location", location
            yield "ssl.keystore.location", "ssl.key.location", location
    elif chain is not None or key is not None:
        given = "ssl.keystore.key" if chain is None else "ssl.keystore.certificate.chain"
        _refuse(given, "it is PEM, and kafka.ssl.keystore.type is not.", "Write kafka.ssl.keystore.type=PEM.")
    elif location is not None:
        if not kind and location.lower().endswith((".jks", ".jceks", ".bcfks")):
            _refuse("ssl.keystore.location", "its name is that of a store which only Java reads.", _TO_PKCS12)
        if not kind and location.lower().endswith((".pem", ".crt", ".cer")):
            _refuse("ssl.keystore.location", "its name is that of a PEM file.", "Add kafka.ssl.keystore.type=PEM.")
        if password is None and kind:  # otherwise librdkafka reports it
            _refuse("ssl.keystore.location", "its password is missing.", "Add kafka.ssl.keystore.password.")
        if key_password is not None and key_password != password and "ssl.key.location" not in properties:
            _refuse(
                "ssl.key.password",
                "it differs from the store's password, and librdkafka supports only one for a PKCS#12 file.",
                "Write the file again with one password for both: openssl pkcs12, or keytool -importkeystore.",
            )
        yield "ssl.keystore.location", "ssl.keystore.location", location
    if password is not None:
        yield "ssl.keystore.password", "ssl.keystore.password", password
    if key_password is not None and not (location is not None and key_password == password):
        yield "ssl.key.password", "ssl.key.password", key_password


def _trust_store(properties: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    location, certificates = properties.get("ssl.truststore.location"), properties.get("ssl.truststore.certificates")
    kind = properties.get("ssl.truststore.type", "").strip().upper()
    if location is not None and kind != "PEM":
        which = f"only Java reads {kind} here." if kind else "without a type it is a store that only Java reads."
        _refuse("ssl.truststore.location", which, _TO_PEM)
    if kind not in ("", "PEM"):
        _refuse("ssl.truststore.type", f"only Java reads {kind} here.", _TO_PEM)
    if "ssl.truststore.password" in properties:
        _refuse("ssl.truststore.password", "a PEM store has no password.", "Remove it.")
    if location is not None and certificates is not None:
        _refuse(
            "ssl.truststore.certificates", "it is given together with kafka.ssl.truststore.location.", "Remove one."
        )
    if certificates is not None:
        if kind != "PEM":
            _refuse(
                "ssl.truststore.certificates",
                "it is PEM, and kafka.ssl.truststore.type is not.",
                "Write kafka.ssl.truststore.type=PEM.",
            )
        yield "ssl.truststore.certificates", "ssl.ca.pem", pem_text(certificates)
    if location is not None:
        yield "ssl.truststore.location", "ssl.ca.location", location


def _refuse(key: str, problem: str, remedy: str) -> None:
    raise OptionError(f"kafka.{key}", problem, remedy)
