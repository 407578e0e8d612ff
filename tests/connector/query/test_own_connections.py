"""No property changes what is detected, unless a warning names it: each row of the table, each list that used it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pyspark_kafka_group.offsets.cluster.cluster_requests import open_cluster_requests
from pyspark_kafka_group.offsets.properties.kafka_properties import (
    PROPERTIES,
    ClientKind,
    KafkaProperty,
    OwnConnections,
    own_connections,
    reaches,
)
from pyspark_kafka_group.query import direct_log_ends
from pyspark_kafka_group.query.direct_log_ends import open_direct_log_ends
from pyspark_kafka_group.reading.direct_client import direct_settings
from pyspark_kafka_group.reading.reader_config import reader_config

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}

# One member of each family, and values that mean something.
MEMBERS = {
    "api.version.*": "api.version.request",
    "broker.*": "broker.address.ttl",
    "connections.*": "connections.max.idle.ms",
    "metadata.*": "metadata.recovery.strategy",
    "reconnect.*": "reconnect.backoff.max.ms",
    "retry.backoff.*": "retry.backoff.max.ms",
    "socket.*": "socket.keepalive.enable",
    "topic.metadata.*": "topic.metadata.refresh.sparse",
    "allow.auto.*": "allow.auto.create.topics",
    "test.mock.*": "test.mock.num.brokers",
    "sasl.*": "sasl.kerberos.service.name",
    "enable.sasl.*": "enable.sasl.oauthbearer.unsecure.jwt",
    "ssl.*": "ssl.cipher.suites",
    "enable.ssl.*": "enable.ssl.something",
    "https.*": "https.something",
}
VALUES = {"bootstrap.servers": "a:1", "security.protocol": "plaintext"}

# What users write most, whatever row it belongs to.
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
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    direct_log_ends._warn_once.cache_clear()
    yield
    direct_log_ends._warn_once.cache_clear()


def answers(properties: dict[str, str]) -> tuple[bool, bool, bool]:
    """Tell whether log ends, what decides a start, and reading use connections of our own."""
    logs = open_direct_log_ends(properties, client_id="etl", read_committed=True)
    info = open_cluster_requests(properties, client_id="etl")
    for made in (logs, info):
        if made is not None:
            made.close()
    return logs is not None, info is not None, direct_settings(reader_config(properties, "etl")) is not None


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.key)
def test_log_ends_info_and_reading_agree_about_each_row(row: KafkaProperty, caplog: pytest.LogCaptureFixture) -> None:
    key = MEMBERS.get(row.key, row.key)
    properties = {**SERVERS, key: VALUES.get(key, "1")}
    with caplog.at_level(logging.WARNING):
        log_ends, info, reading = answers(properties)
    assert log_ends == info
    if reaches(key) >= {ClientKind.ADMIN, ClientKind.READER}:
        assert log_ends == reading
    else:
        assert log_ends, "a property of the member, or of the readers, does not change what is detected"
    told = [line for line in caplog.messages if "log ends" in line]
    assert len(told) == (not log_ends)
    assert all(f"kafka.{key}" in line for line in told)


@pytest.mark.parametrize("key", sorted(HARMLESS))
def test_a_harmless_property_changes_nothing(key: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert answers({**SERVERS, key: HARMLESS[key]}) == (True, True, True)
    assert caplog.messages == []


def test_each_family_has_a_member_here() -> None:
    assert {row.key for row in PROPERTIES if row.key.endswith("*")} == MEMBERS.keys()


def test_what_reaches_a_client_that_connects_says_what_it_is_to_our_own_connections() -> None:
    silent = [row.key for row in PROPERTIES if row.own_connections is None and ClientKind.ADMIN in reaches(row.key)]
    assert silent == []


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism"),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism"),
        ({"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}, "kafka.client.dns.lookup"),
        ({"broker.address.family": "v6"}, "kafka.broker.address.family"),
    ],
    ids=str,
)
def test_what_changes_the_detection_is_named_once(
    properties: dict[str, str], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert answers({**SERVERS, **properties})[0] is False
    (told,) = [line for line in caplog.messages if "log ends" in line]
    assert named in told


def test_a_property_that_nobody_knows_matters() -> None:
    assert own_connections("ssl.something.new", "1") is own_connections("no.such.thing", "1") is OwnConnections.MATTERS
