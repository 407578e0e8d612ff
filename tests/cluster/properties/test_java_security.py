"""Each security property of Java's client becomes properties of librdkafka, or is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Consumer
from cryptography.hazmat.primitives import serialization

from pyspark_kafka_group.cluster.properties.java_security import (
    LEFT_OUT,
    TRANSLATED,
    JavaProperty,
    as_librdkafka,
    pem_text,
)
from pyspark_kafka_group.offsets.errors import OptionError

SECRET = "hunter2"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
JAAS = "sasl.jaas.config"
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
USER = {"sasl.username": "al", "sasl.password": SECRET}
PKCS12 = {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": SECRET}
OIDC = {
    **ENDPOINT,
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": SECRET,
}


def login(module: str, options: str) -> str:
    return f"{module} required {options};"


def user(module: str) -> str:
    return login(module, f'username="al" password="{SECRET}"')


BECOMES: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"bootstrap.servers": "a:1", "sasl.username": "u"}, {"bootstrap.servers": "a:1", "sasl.username": "u"}),
    ({JAAS: user(PLAIN)}, USER),
    ({JAAS: user(SCRAM)}, USER),
    ({JAAS: user(f"kafkashaded.{SCRAM}")}, USER),  # the name of the class on Databricks
    ({"sasl.login.callback.handler.class": f"kafkashaded.{HANDLER}"}, {"sasl.oauthbearer.method": "oidc"}),
    ({JAAS: login(SCRAM, f"username=al password={SECRET} tokenauth=false user_x=y")}, USER),
    *(
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, JAAS: user(module)},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, **USER},
        )
        for module in (PLAIN, SCRAM)
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ),
    (
        {
            **ENDPOINT,
            JAAS: login(OAUTH, f"clientId=me clientSecret={SECRET} scope='a b' extension_logicalCluster=lkc1"),
        },
        {**OIDC, "sasl.oauthbearer.scope": "a b", "sasl.oauthbearer.extensions": "logicalCluster=lkc1"},
    ),
    (
        {
            **ENDPOINT,
            JAAS: login(OAUTH, f"clientId=me clientSecret={SECRET}"),
            "sasl.login.callback.handler.class": HANDLER,
        },
        OIDC,
    ),
    ({**OIDC, JAAS: login(OAUTH, "")}, OIDC),
    ({"sasl.login.callback.handler.class": HANDLER.replace(".secured", "")}, {"sasl.oauthbearer.method": "oidc"}),
    (
        {
            JAAS: login(
                KERBEROS, "useKeyTab=true storeKey=true keyTab='/etc/me.keytab' principal='me@A.B' serviceName=k"
            )
        },
        {
            "sasl.kerberos.keytab": "/etc/me.keytab",
            "sasl.kerberos.principal": "me@A.B",
            "sasl.kerberos.service.name": "k",
        },
    ),
    (
        {JAAS: login(KERBEROS, "useTicketCache=true serviceName=k"), "sasl.kerberos.service.name": "k"},
        {"sasl.kerberos.service.name": "k", "sasl.kerberos.min.time.before.relogin": "0"},
    ),
    (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/me.pem", "ssl.key.password": SECRET},
        {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": SECRET},
    ),
    (
        {"ssl.keystore.type": "pem", "ssl.keystore.certificate.chain": "chain", "ssl.keystore.key": SECRET},
        {"ssl.certificate.pem": "chain", "ssl.key.pem": SECRET},
    ),
    (PKCS12, PKCS12),
    ({**PKCS12, "ssl.keystore.type": "PKCS12", "ssl.key.password": SECRET}, PKCS12),
    ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
    ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "ca"}, {"ssl.ca.pem": "ca"}),
    ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ({"ssl.endpoint.identification.algorithm": "HTTPS"}, {"ssl.endpoint.identification.algorithm": "HTTPS"}),
    ({"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"}, {"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"}),
    ({"ssl.enabled.protocols": "TLSv1.2, TLSv1.3", "ssl.protocol": "TLSv1.3"}, {}),
    *(({row.key: value.upper()}, {}) for row in LEFT_OUT for value in row.harmless),
]


@pytest.mark.parametrize(("given", "told"), BECOMES, ids=str)
def test_what_librdkafka_is_told(given: dict[str, str], told: dict[str, str]) -> None:
    assert as_librdkafka(given) == told
    assert as_librdkafka(told) == told, "librdkafka's own terms stay"


@pytest.mark.parametrize("told", [told for _, told in BECOMES], ids=str)
def test_librdkafka_knows_what_it_is_told(told: dict[str, str]) -> None:
    Consumer({**told, "security.protocol": "plaintext", "group.id": "g", "log_level": 0}).close()


REFUSED: list[tuple[dict[str, str], str, str]] = [
    ({JAAS: SECRET}, JAAS, "no control flag, such as required, follows the class. Write <class> required"),
    ({JAAS: login(PLAIN, f'password="{SECRET}"')}, JAAS, "its option username is missing. Add username."),
    ({JAAS: login(SCRAM, "username=x")}, JAAS, "its option password is missing."),
    ({JAAS: login(SCRAM, f"username=x password={SECRET} tokenauth=true")}, JAAS, "delegation tokens"),
    ({JAAS: login("a.MyLoginModule", f"x={SECRET}")}, JAAS, "only Java knows its login module a.MyLoginModule."),
    ({JAAS: login(SECRET, "")}, JAAS, "only Java knows its login module. Use kafka.sasl.mechanism"),
    ({JAAS: user(PLAIN), "sasl.username": "al"}, JAAS, "it is given together with kafka.sasl.username. Remove one."),
    ({JAAS: user(PLAIN), "security.protocol": "sasl_ssl"}, "sasl.mechanism", "it is missing, which means GSSAPI"),
    (
        {JAAS: user(PLAIN), "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        "sasl.mechanism",
        "Write PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512, or another login module.",
    ),
    (
        {JAAS: login(OAUTH, f"clientId=me clientSecret={SECRET}")},
        "sasl.oauthbearer.token.endpoint.url",
        "it is missing",
    ),
    (
        {"sasl.oauthbearer.token.endpoint.url": "file:///token", JAAS: login(OAUTH, f"clientSecret={SECRET}")},
        "sasl.oauthbearer.token.endpoint.url",
        "Tokens from files are not supported",
    ),
    ({**ENDPOINT, JAAS: login(OAUTH, f"clientSecret={SECRET}")}, JAAS, "its option clientId is missing."),
    (
        {**ENDPOINT, JAAS: login(OAUTH, "clientId=me")},
        JAAS,
        "Add clientSecret, or kafka.sasl.oauthbearer.client.secret.",
    ),
    ({**ENDPOINT, JAAS: login(OAUTH, f"unsecuredLoginStringClaim_sub={SECRET}")}, JAAS, "unsecured tokens"),
    ({**ENDPOINT, JAAS: login(OAUTH, f"ssl.truststore.password={SECRET}")}, JAAS, "use kafka.https.ca.location"),
    ({**OIDC, JAAS: login(OAUTH, "extension_a='b,c'")}, JAAS, "an extension has a comma"),
    (
        {**ENDPOINT, "sasl.oauthbearer.scope": "a", JAAS: login(OAUTH, "clientId=m clientSecret=s scope=b")},
        JAAS,
        "Remove one",
    ),
    (
        {"sasl.login.callback.handler.class": "my.Handler"},
        "sasl.login.callback.handler.class",
        "it is a class of Java",
    ),
    ({JAAS: login(KERBEROS, "useKeyTab=true keyTab='/k'")}, JAAS, "its option principal is missing."),
    ({JAAS: login(KERBEROS, "keyTab='/k' principal=me")}, JAAS, "Write useKeyTab=true with keyTab and principal"),
    ({JAAS: login(KERBEROS, "useTicketCache=true ticketCache='/c'")}, JAAS, "KRB5CCNAME"),
    ({JAAS: login(KERBEROS, "useKeyTab=true keyTab='/k' principal='a;rm x'")}, JAAS, "special characters of the shell"),
    (
        {JAAS: login(KERBEROS, "useTicketCache=true serviceName=k"), "sasl.kerberos.service.name": "other"},
        JAAS,
        "it is given together with kafka.sasl.kerberos.service.name.",
    ),
    ({"ssl.keystore.type": "JKS", **PKCS12}, "ssl.keystore.type", "keytool -importkeystore -srckeystore"),
    ({"ssl.keystore.location": "/me.jks"}, "ssl.keystore.location", "-deststoretype PKCS12"),
    ({"ssl.keystore.location": "/me.pem"}, "ssl.keystore.location", "Add kafka.ssl.keystore.type=PEM."),
    (
        {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/me.p12"},
        "ssl.keystore.location",
        "Add kafka.ssl.keystore.password.",
    ),
    ({**PKCS12, "ssl.key.password": "other"}, "ssl.key.password", "it differs from the store's password"),
    ({"ssl.keystore.type": "PEM", **PKCS12}, "ssl.keystore.password", "Use kafka.ssl.key.password."),
    ({"ssl.keystore.type": "PEM"}, "ssl.keystore.type", "Give exactly one of them."),
    (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/me.pem", "ssl.keystore.certificate.chain": "x"},
        "ssl.keystore.type",
        "Give exactly one of them.",
    ),
    (
        {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "x"},
        "ssl.keystore.certificate.chain",
        "Give both",
    ),
    ({"ssl.keystore.key": SECRET}, "ssl.keystore.key", "Write kafka.ssl.keystore.type=PEM."),
    (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/me.pem", "ssl.key.location": "/key.pem"},
        "ssl.keystore.location",
        "it is given together with kafka.ssl.key.location. Remove one.",
    ),
    ({"ssl.truststore.location": "/t.jks"}, "ssl.truststore.location", "keytool -list -rfc -keystore truststore.jks"),
    (
        {"ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12", "ssl.truststore.password": SECRET},
        "ssl.truststore.location",
        "openssl pkcs12 -in truststore.p12 -nokeys -out ca.pem",
    ),
    ({"ssl.truststore.type": "JKS"}, "ssl.truststore.type", "only Java reads JKS here."),
    (
        {"ssl.truststore.location": "/t", "ssl.truststore.type": "PEM", "ssl.truststore.password": SECRET},
        "ssl.truststore.password",
        "Remove it.",
    ),
    ({"ssl.truststore.certificates": "x"}, "ssl.truststore.certificates", "Write kafka.ssl.truststore.type=PEM."),
    (
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x", "ssl.truststore.location": "/t"},
        "ssl.truststore.certificates",
        "it is given together with kafka.ssl.truststore.location. Remove one.",
    ),
    (
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/t", "ssl.ca.location": "/t"},
        "ssl.truststore.location",
        "it is given together with kafka.ssl.ca.location. Remove one.",
    ),
    ({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, "ssl.cipher.suites", "Write OpenSSL's names"),
    ({"ssl.enabled.protocols": "TLSv1.3"}, "ssl.enabled.protocols", "TLS 1.2 or 1.3 is used, whichever"),
    ({"ssl.protocol": "TLSv1.1"}, "ssl.protocol", "Remove it"),
    *(({row.key.replace("*", "x"): SECRET}, row.key.replace("*", "x"), row.instead) for row in LEFT_OUT),
]


@pytest.mark.parametrize(("given", "option", "text"), REFUSED, ids=str)
def test_what_is_refused_and_why_without_a_secret(given: dict[str, str], option: str, text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(text)) as error:
        as_librdkafka(given)
    assert error.value.option == f"kafka.{option}"
    assert SECRET not in str(error.value)
    assert SECRET not in repr(error.value)
    assert error.value.__cause__ is None


OTHERS = {"sasl.mechanism", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm"}
"""The properties that librdkafka also has, with other values."""


@pytest.mark.parametrize("key", sorted(TRANSLATED | OTHERS))
def test_each_property_is_translated_or_refused(key: str) -> None:
    assert any(key in given for given, _ in BECOMES) or any(option == key for _, option, _ in REFUSED)


def row_of_the_page(row: JavaProperty) -> str:
    """Return a row of the table as docs/java-settings.md shows it."""
    values = ", ".join(f"`{value}`" for value in row.harmless if "fileconfig" not in value and "envvar" not in value)
    return f"| `kafka.{row.key}` | {f'nothing, for {values}' if values else 'nothing'} | {row.instead} |"


def test_the_page_of_the_docs_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "java-settings.md").read_text(encoding="utf-8")
    lines = [line for line in page.split("\n") if line.startswith("| `kafka.")]
    translated = [line for line in lines if line.endswith(" |  |")]
    assert [line for line in lines if line not in translated] == [row_of_the_page(row) for row in LEFT_OUT]
    assert {line.split("`")[1] for line in translated} == {f"kafka.{key}" for key in TRANSLATED | OTHERS}


def one_line(pem: str) -> str:
    return " ".join(pem.split("\n"))


def test_pem_in_one_line_has_its_line_breaks_again() -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("me")
    whole = "".join(part.bytes().decode() for part in (*leaf.cert_chain_pems, authority.cert_pem))
    assert pem_text(one_line(whole)) == whole
    assert pem_text(f"# a comment\n{whole}") == whole
    assert pem_text("no PEM") == "no PEM"


@pytest.mark.parametrize("password", [None, SECRET])
def test_librdkafka_loads_what_a_pem_store_becomes(password: str | None) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("me")
    found = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password.encode())
    key = found.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()
    told = as_librdkafka(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": one_line(leaf.cert_chain_pems[0].bytes().decode()),
            "ssl.keystore.key": one_line(key),
            **({"ssl.key.password": password} if password else {}),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": one_line(authority.cert_pem.bytes().decode()),
        }
    )
    Consumer({**told, "security.protocol": "ssl", "group.id": "g", "log_level": 0}).close()
