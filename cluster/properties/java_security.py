"""Security properties of Java's client, in librdkafka's terms: a pure translation.

``docs/java-settings.md`` says what each one becomes (a test compares).  Other properties stay as they are.  No error
shows a value that may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from pyspark_kafka_group.cluster.properties.kafka_properties import HANDLER, JAAS, OTHER_NAMES
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.wire.login.token_cache import PROVIDER

_Found = Iterator[tuple[str, str, str]]

TRANSLATED = frozenset(
    {
        JAAS,
        HANDLER,
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
"""The properties that become others."""

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


def store_properties(properties: Mapping[str, str]) -> _Found:
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


def _key_store(properties: Mapping[str, str]) -> _Found:
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


def _trust_store(properties: Mapping[str, str]) -> _Found:
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


class JavaProperty(NamedTuple):
    """A property, or a family that ends in ``*``, which only tunes Java's client.

    Attributes
    ----------
    key : str
        The name without ``kafka.``.
    instead : str
        What to do about it.
    harmless : tuple of str
        Values, in lower case, that ask for the behaviour that librdkafka always has.  They are left out.
    """

    key: str
    instead: str
    harmless: tuple[str, ...] = ()


_TLS_INSTEAD = (
    "Remove it: TLS 1.2 or 1.3 is used, whichever the brokers prefer; their ssl.enabled.protocols can be narrower."
)
_PROVIDERS = (
    "Remove it: ${file:/path}, ${file:/path:key} and ${env:NAME} are understood without it, and no other provider."
)
_FILE_PROVIDER = "org.apache.kafka.common.config.provider.fileconfigprovider"
_ENV_PROVIDER = "org.apache.kafka.common.config.provider.envvarconfigprovider"
_OPENSSL_NAMES = (
    "Write OpenSSL's names, as ECDHE-RSA-AES128-GCM-SHA256, with colons between; they hold for TLS up to 1.2."
)

LEFT_OUT: tuple[JavaProperty, ...] = (
    JavaProperty("ssl.protocol", _TLS_INSTEAD, ("tls", "tlsv1.2", "tlsv1.3")),
    JavaProperty("ssl.enabled.protocols", _TLS_INSTEAD, ("tlsv1.2,tlsv1.3", "tlsv1.3,tlsv1.2")),
    JavaProperty("ssl.provider", "Remove it."),
    JavaProperty("ssl.keymanager.algorithm", "Remove it.", ("sunx509", "pkix")),
    JavaProperty("ssl.trustmanager.algorithm", "Remove it.", ("pkix", "sunx509")),
    JavaProperty("ssl.secure.random.implementation", "Remove it."),
    JavaProperty("ssl.engine.factory.class", "Remove it, and name the certificates by PEM files."),
    JavaProperty("security.providers", "Remove it."),
    JavaProperty(
        "sasl.client.callback.handler.class",
        "Remove it. If it logs in to the service of a cloud, name a token provider with "
        "kafka.sasl.oauthbearer.provider. IAMClientCallbackHandler may stay beside kafka.sasl.mechanism=AWS_MSK_IAM.",
    ),
    JavaProperty("sasl.login.*", "Remove it: librdkafka renews logins on its own."),
    JavaProperty("sasl.kerberos.ticket.*", "Use kafka.sasl.kerberos.min.time.before.relogin."),
    JavaProperty(
        "sasl.oauthbearer.jwt.retriever.class",
        "Use librdkafka's kafka.sasl.oauthbearer.grant.type and kafka.sasl.oauthbearer.assertion.*.",
        (
            "org.apache.kafka.common.security.oauthbearer.defaultjwtretriever",
            "org.apache.kafka.common.security.oauthbearer.clientcredentialsjwtretriever",
        ),
    ),
    JavaProperty("config.providers", _PROVIDERS, ("file", "env", "file,env", "env,file")),
    JavaProperty("config.providers.file.class", _PROVIDERS, (_FILE_PROVIDER,)),
    JavaProperty("config.providers.env.class", _PROVIDERS, (_ENV_PROVIDER,)),
    JavaProperty("config.providers.*", _PROVIDERS),
)
"""The properties without an equivalent.  The first row that fits counts."""

_HOST_CHECK = "ssl.endpoint.identification.algorithm"

# Properties that Java's client also accepts twice, if both values are the same.
_MAY_REPEAT = frozenset({"sasl.kerberos.service.name", "sasl.oauthbearer.method"})


def as_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with those of Java's client in librdkafka's terms.

    Parameters
    ----------
    properties : mapping of str to str
        Java's or librdkafka's properties, or both, without ``kafka.``; references are resolved.

    Raises
    ------
    OptionError
        If only Java's client supports a property, or two properties contradict each other.
    """
    properties = _with_one_name(properties)
    logins: _Found = iter(())
    if {JAAS, HANDLER, PROVIDER} & properties.keys() or properties.get("sasl.mechanism", "").strip() == "AWS_MSK_IAM":
        # Deliberate: not at the top.  Few queries need it.
        from pyspark_kafka_group.cluster.properties.java_login import login_properties, with_provider

        properties = with_provider(properties)
        logins = login_properties(properties)
    found = {key: value for key, value in properties.items() if key not in TRANSLATED and not _is_left_out(key, value)}
    if _HOST_CHECK in found:
        found[_HOST_CHECK] = found[_HOST_CHECK].strip() or "none"
    given = frozenset(found)
    for origin, key, value in (*logins, *store_properties(properties)):
        if key in given and not (key in _MAY_REPEAT and found[key] == value):
            raise OptionError(f"kafka.{origin}", f"it is given together with kafka.{key}.", "Remove one.")
        found[key] = value
    return found


def _with_one_name(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties without those that are other names of others."""
    found: dict[str, str] = {}
    for key, value in properties.items():
        name = OTHER_NAMES.get(key, key)
        if found.setdefault(name, value) != value:
            raise OptionError(
                f"kafka.{key}", "it is set under two names, with different values.", f"Use only kafka.{name}."
            )
    return found


def only_java_knows(key: str, value: str) -> bool:
    """Return whether a property tunes Java's client, and librdkafka has no equivalent."""
    if key == "ssl.cipher.suites":
        return any(name.strip().startswith(("TLS_", "SSL_")) for name in value.split(","))
    return key not in TRANSLATED and _row(key) is not None


def _row(key: str) -> JavaProperty | None:
    return next((row for row in LEFT_OUT if fnmatchcase(key, row.key)), None)


def _is_left_out(key: str, value: str) -> bool:
    """Return whether librdkafka always does what a property asks for; raise if it cannot."""
    if not only_java_knows(key, value):
        return False
    row = _row(key)
    if row is None:
        raise OptionError(f"kafka.{key}", "these are Java's names of cipher suites.", _OPENSSL_NAMES)
    if "".join(value.lower().split()) not in row.harmless:
        problem = "it is a property of the Java client, and librdkafka has no equivalent."
        raise OptionError(f"kafka.{key}", problem, row.instead)
    return True
