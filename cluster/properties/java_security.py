"""Security properties of Java's client, in librdkafka's terms: a pure translation, and its table.

``docs/security.md`` has the same table (a test compares).  Other properties stay as they are.  No error shows a value
that may be secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark_kafka_group.cluster.properties.cloud_logins import with_provider
from pyspark_kafka_group.cluster.properties.java_login import JAAS, LOGIN_KEYS, login_properties
from pyspark_kafka_group.cluster.properties.java_stores import STORE_KEYS, store_properties
from pyspark_kafka_group.cluster.properties.kafka_properties import OTHER_NAMES
from pyspark_kafka_group.offsets.errors import OptionError

Properties = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProperty:
    """One property of Java's client, or a family, which ends in ``*``.

    Attributes
    ----------
    key : str
        The name without ``kafka.``.
    becomes : str
        librdkafka's properties for it, for the docs.
    harmless : tuple of str
        Values, in lower case, that ask for the behaviour that librdkafka always has.  They are left out.
    instead : str
        What to do about another value; empty if the value is translated.
    """

    key: str
    becomes: str
    harmless: tuple[str, ...] = ()
    instead: str = ""


def _left_out(key: str, *harmless: str, instead: str) -> JavaProperty:
    return JavaProperty(key=key, becomes="nothing", harmless=harmless, instead=instead)


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

TABLE: tuple[JavaProperty, ...] = (
    JavaProperty(
        key=JAAS,
        becomes="PlainLoginModule, ScramLoginModule: `sasl.username`, `sasl.password`. OAuthBearerLoginModule: "
        "`sasl.oauthbearer.method=oidc`, `.client.id`, `.client.secret`, `.scope`, `.extensions`. IAMLoginModule: "
        "`sasl.oauthbearer.config`. Krb5LoginModule: "
        "`sasl.kerberos.keytab`, `.principal`, `.service.name`; with useTicketCache and no keyTab "
        "`sasl.kerberos.min.time.before.relogin=0`",
    ),
    JavaProperty(
        key="sasl.mechanism",
        becomes="AWS_MSK_IAM: `sasl.mechanism=OAUTHBEARER` and `sasl.oauthbearer.provider=msk:`. Others: the same",
    ),
    JavaProperty(
        key="sasl.login.callback.handler.class",
        becomes="OAuthBearerLoginCallbackHandler of Kafka: `sasl.oauthbearer.method=oidc`. GcpLoginCallbackHandler: "
        "`sasl.oauthbearer.provider=google`. IAMOAuthBearerLoginCallbackHandler: `sasl.oauthbearer.provider=msk:`",
    ),
    JavaProperty(
        key="ssl.keystore.type",
        becomes="PEM: as below. PKCS12, and none: nothing, which is what librdkafka reads",
    ),
    JavaProperty(
        key="ssl.keystore.location",
        becomes="PEM: `ssl.certificate.location` and `ssl.key.location`, both in one file. PKCS12: the same, with "
        "`ssl.keystore.password`",
    ),
    JavaProperty(key="ssl.keystore.password", becomes="the same"),
    JavaProperty(key="ssl.key.password", becomes="the same; with PKCS12 nothing, if it is the store's password"),
    JavaProperty(key="ssl.keystore.certificate.chain", becomes="`ssl.certificate.pem`"),
    JavaProperty(key="ssl.keystore.key", becomes="`ssl.key.pem`"),
    JavaProperty(key="ssl.truststore.type", becomes="PEM: as below"),
    JavaProperty(key="ssl.truststore.location", becomes="PEM: `ssl.ca.location`"),
    JavaProperty(key="ssl.truststore.certificates", becomes="`ssl.ca.pem`"),
    JavaProperty(key="ssl.truststore.password", becomes="refused: PEM has none"),
    JavaProperty(key="ssl.endpoint.identification.algorithm", becomes="the same; empty: `none`"),
    JavaProperty(key="ssl.cipher.suites", becomes="the same, with OpenSSL's names"),
    _left_out("ssl.protocol", "tls", "tlsv1.2", "tlsv1.3", instead=_TLS_INSTEAD),
    _left_out("ssl.enabled.protocols", "tlsv1.2,tlsv1.3", "tlsv1.3,tlsv1.2", instead=_TLS_INSTEAD),
    _left_out("ssl.provider", instead="Remove it."),
    _left_out("ssl.keymanager.algorithm", "sunx509", "pkix", instead="Remove it."),
    _left_out("ssl.trustmanager.algorithm", "pkix", "sunx509", instead="Remove it."),
    _left_out("ssl.secure.random.implementation", instead="Remove it."),
    _left_out("ssl.engine.factory.class", instead="Remove it, and name the certificates by PEM files."),
    _left_out("security.providers", instead="Remove it."),
    _left_out(
        "sasl.client.callback.handler.class",
        instead="Remove it. If it logs in to the service of a cloud, name a token provider with "
        "kafka.sasl.oauthbearer.provider. IAMClientCallbackHandler may stay beside kafka.sasl.mechanism=AWS_MSK_IAM.",
    ),
    _left_out("sasl.login.*", instead="Remove it: librdkafka renews logins on its own."),
    _left_out("sasl.kerberos.ticket.*", instead="Use kafka.sasl.kerberos.min.time.before.relogin."),
    _left_out(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.defaultjwtretriever",
        "org.apache.kafka.common.security.oauthbearer.clientcredentialsjwtretriever",
        instead="Use librdkafka's kafka.sasl.oauthbearer.grant.type and kafka.sasl.oauthbearer.assertion.*.",
    ),
    _left_out("config.providers", "file", "env", "file,env", "env,file", instead=_PROVIDERS),
    _left_out("config.providers.file.class", _FILE_PROVIDER, instead=_PROVIDERS),
    _left_out("config.providers.env.class", _ENV_PROVIDER, instead=_PROVIDERS),
    _left_out("config.providers.*", instead=_PROVIDERS),
)
"""The known properties of Java's client.  The first row that fits counts."""

_TRANSLATED = frozenset({*LOGIN_KEYS, *STORE_KEYS})

# Properties that Java's client also accepts twice, if both values are the same.
_MAY_REPEAT = frozenset({"sasl.kerberos.service.name", "sasl.oauthbearer.method"})


def as_librdkafka(properties: Properties) -> dict[str, str]:
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
    found: dict[str, str] = {}
    properties = with_provider(_with_one_name(properties))
    for key, value in properties.items():
        if key == "ssl.endpoint.identification.algorithm":
            found[key] = value.strip() or "none"
        elif key not in _TRANSLATED and not _is_left_out(key, value):
            found[key] = value
    given = frozenset(found)
    for origin, key, value in _translations(properties):
        if key in given and not (key in _MAY_REPEAT and found[key] == value):
            raise OptionError(f"kafka.{origin}", f"it is given together with kafka.{key}.", "Remove one.")
        found[key] = value
    return found


def _with_one_name(properties: Properties) -> dict[str, str]:
    """Return properties without those that are other names of others."""
    found: dict[str, str] = {}
    for key, value in properties.items():
        name = OTHER_NAMES.get(key, key)
        if found.setdefault(name, value) != value:
            raise OptionError(
                f"kafka.{key}", "it is set under two names, with different values.", f"Use only kafka.{name}."
            )
    return found


def _translations(properties: Properties) -> Iterator[tuple[str, str, str]]:
    yield from login_properties(properties)
    yield from store_properties(properties)


def only_java_knows(key: str, value: str) -> bool:
    """Return whether a property tunes Java's client, and librdkafka has no equivalent."""
    if key == "ssl.cipher.suites":
        return any(name.strip().startswith(("TLS_", "SSL_")) for name in value.split(","))
    return key not in _TRANSLATED and _left_out_row(key) is not None


def _left_out_row(key: str) -> JavaProperty | None:
    return next((row for row in TABLE if row.instead and _fits(row.key, key)), None)


def _is_left_out(key: str, value: str) -> bool:
    """Return whether librdkafka always does what a property asks for; raise if it cannot."""
    if not only_java_knows(key, value):
        return False
    row = _left_out_row(key)
    if row is None:
        raise OptionError(f"kafka.{key}", "these are Java's names of cipher suites.", _OPENSSL_NAMES)
    if "".join(value.lower().split()) not in row.harmless:
        problem = "it is a property of the Java client, and librdkafka has no equivalent."
        raise OptionError(f"kafka.{key}", problem, row.instead)
    return True


def _fits(pattern: str, key: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern.endswith("*") else key == pattern
