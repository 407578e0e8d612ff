"""The source's own connections use, ignore, or refuse each property of the table."""

from __future__ import annotations

import sys
from functools import cache

import pytest

from pyspark_kafka_group.cluster.properties.client_config import connecting, reach
from pyspark_kafka_group.cluster.properties.kafka_properties import (
    EVERY_CLIENT,
    OTHER_NAMES,
    PROPERTIES,
    KafkaProperty,
    OwnConnections,
    row_of,
)
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.reading.reader_config import direct_settings, reader_config

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
SASL = {**SERVERS, "security.protocol": "SASL_PLAINTEXT"}
PLAIN = {**SASL, "sasl.mechanism": "PLAIN"}
TLS = {**SERVERS, "security.protocol": "SSL"}
TOKEN = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
BY_ID = {**TOKEN, "sasl.oauthbearer.client.id": "a", "sasl.oauthbearer.client.secret": "b"}
URL = {"sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/"}
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"

# For each property that connections use: the properties that it needs, and a value that changes the result.
MATTERS: dict[str, tuple[dict[str, str], str]] = {
    "bootstrap.servers": ({}, "a"),
    "broker.address.family": (SERVERS, "v4"),
    "client.dns.lookup": (SERVERS, "resolve_canonical_bootstrap_servers_only"),
    "security.protocol": (SERVERS, "ssl"),
    "enable.ssl.certificate.verification": (TLS, "false"),
    "ssl.ca.location": (TLS, "/nowhere"),
    "ssl.ca.pem": (TLS, "none"),
    "ssl.certificate.location": (TLS, "/nowhere"),
    "ssl.certificate.pem": (TLS, "none"),
    "ssl.cipher.suites": (TLS, "none"),
    "ssl.crl.location": (TLS, "/nowhere"),
    "ssl.endpoint.identification.algorithm": (TLS, "none"),
    "ssl.key.location": ({**TLS, "ssl.key.pem": "none"}, "/nowhere"),
    "ssl.key.pem": ({**TLS, "ssl.key.location": "/nowhere"}, "none"),
    "ssl.keystore.location": (TLS, "/nowhere"),
    "sasl.mechanism": ({**SASL, "sasl.username": "a"}, "PLAIN"),
    "sasl.username": ({**PLAIN, "sasl.password": "a"}, "a"),
    "sasl.password": ({**PLAIN, "sasl.username": "a"}, "a"),
    "enable.sasl.oauthbearer.unsecure.jwt": ({**TOKEN, "sasl.oauthbearer.method": "default"}, "true"),
    "sasl.oauthbearer.assertion.*": ({**TOKEN, "sasl.oauthbearer.grant.type": GRANT}, "1"),
    "sasl.oauthbearer.client.id": ({**BY_ID, **URL}, ""),
    "sasl.oauthbearer.client.secret": ({**BY_ID, **URL}, ""),
    "sasl.oauthbearer.config": (
        {**TOKEN, "sasl.oauthbearer.method": "default", "enable.sasl.oauthbearer.unsecure.jwt": "true"},
        "principal=a",
    ),
    "sasl.oauthbearer.extensions": ({**BY_ID, **URL}, "="),
    "sasl.oauthbearer.grant.type": ({**BY_ID, **URL}, GRANT),
    "sasl.oauthbearer.metadata.authentication.type": (TOKEN, "azure_imds"),
    "sasl.oauthbearer.method": ({**BY_ID, **URL}, "default"),
    "sasl.oauthbearer.provider": (TOKEN, "a:b"),
    "sasl.oauthbearer.token.endpoint.url": (BY_ID, "https://127.0.0.1:1/"),
    "https.ca.location": ({**BY_ID, **URL}, "/nowhere"),
    "https.ca.pem": ({**BY_ID, **URL}, "none"),
}
ELSEWHERE = {"socket.timeout.ms", "ssl.key.password", "ssl.keystore.password", "sasl.oauthbearer.scope", "client.rack"}
"""Other tests cover these, with a real key, a real store, a token endpoint, and records.  Kerberos: `test_kerberos`."""

# The properties that users set most.
HARMLESS = {
    "topic.metadata.refresh.interval.ms": "1000",
    "metadata.max.age.ms": "5000",
    "socket.keepalive.enable": "true",
    "socket.timeout.ms": "30000",
    "socket.connection.setup.timeout.ms": "5000",
    "socket.nagle.disable": "true",
    "socket.receive.buffer.bytes": "1000000",
    "socket.max.fails": "3",
    "retry.backoff.ms": "200",
    "retry.backoff.max.ms": "2000",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "5000",
    "connections.max.idle.ms": "540000",
    "debug": "cgrp",
    "client.rack": "a",
    "client.dns.lookup": "use_all_dns_ips",
    "broker.address.family": "any",
    "request.timeout.ms": "30000",
    "statistics.interval.ms": "1000",
    "fetch.min.bytes": "1",
    "fetch.max.bytes": "52428800",
    "max.partition.fetch.bytes": "1048576",
    "ssl.ca.certificate.stores": "Root",
    "no.such.thing": "1",
}


def outcome(config: dict[str, str]) -> tuple[object, ...]:
    """Return the comparable parts of the way to connect, or the error."""
    return outcome_of(tuple(config.items()))


@cache  # the certificates of the system are loaded each time
def outcome_of(config: tuple[tuple[str, str], ...]) -> tuple[object, ...]:
    try:
        found = reach(dict(config))
    except OptionError as problem:
        return (str(problem),)
    tls, login = found.security.tls, found.security.login
    return (
        found.servers,
        found.security.family,
        found.security.canonical,
        tls and (tls.check_hostname, tls.verify_mode, tls.verify_flags),
        login and login.mechanism,
    )


def refused(config: dict[str, str]) -> str | None:
    """Return the refused property; None if there is none."""
    try:
        reach(config)
    except OptionError as problem:
        return problem.option
    return None


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.key)
def test_row_says_what_own_connections_do_with_the_property(row: KafkaProperty) -> None:
    key = row.key.replace("*", "something.new")
    kind = row_of(key).own_connections
    if kind is OwnConnections.NOT_SUPPORTED and key not in OTHER_NAMES:
        assert row.refusal is not None
        assert refused({**SERVERS, key: "1"}) == f"kafka.{key}"
    elif row.applies_to == EVERY_CLIENT and kind is OwnConnections.USED:
        if row.key not in ELSEWHERE and not row.key.startswith("sasl.kerberos."):
            base, value = MATTERS[row.key]
            key = row.key.replace("*", "algorithm")
            assert outcome(base) != outcome({**base, key: value})
    elif row.applies_to == EVERY_CLIENT and kind is OwnConnections.IGNORED:
        for base in (SERVERS, TLS, {**BY_ID, **URL}):
            assert outcome(base) == outcome({**base, key: "1"})


@pytest.mark.parametrize("key", sorted(HARMLESS))
def test_a_harmless_property_changes_nothing(key: str) -> None:
    properties = {**SERVERS, key: HARMLESS[key]}
    assert reach(connecting(properties)) == reach(SERVERS)
    assert direct_settings(reader_config(properties, "etl")) is not None


@pytest.mark.parametrize("key", ["ssl.something.new", "sasl.something.new", "security.protcol", "https.something"])
def test_a_misspelled_property_of_the_connection_is_refused(key: str) -> None:
    assert refused({**SERVERS, key: "1"}) == f"kafka.{key}"


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "kafka.bootstrap.servers"),
        ({**SERVERS, "broker.address.family": "v5"}, "kafka.broker.address.family"),
        ({**SERVERS, "client.dns.lookup": "default"}, "kafka.client.dns.lookup"),
        ({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, "kafka.sasl.mechanism"),
        ({**SASL, "sasl.mechanism": "PLAIN"}, "kafka.sasl.username"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_named(config: dict[str, str], option: str) -> None:
    assert refused(config) == option


def test_kerberos_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(OptionError, match=r"^Option 'kafka\.sasl\.mechanism': .*pyspark-kafka-group\[kerberos\]"):
        reach(SASL)


@pytest.mark.parametrize("name", sorted(OTHER_NAMES))
def test_another_name_of_a_property_is_the_same(name: str) -> None:
    assert connecting({name: "a"}) == connecting({OTHER_NAMES[name]: "a"})
    with pytest.raises(OptionError, match=f"'kafka.{OTHER_NAMES[name]}'.*two names|'kafka.{name}'.*two names"):
        connecting({name: "a", OTHER_NAMES[name]: "b"})
