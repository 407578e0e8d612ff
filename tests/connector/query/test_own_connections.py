"""What a property is to connections of the source's own: used, ignored, or refused by name, by all that make some."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_kafka_group.offsets.cluster.cluster import connect
from pyspark_kafka_group.offsets.cluster.log_ends import LogEnds
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.offsets.properties.kafka_properties import (
    PROPERTIES,
    ClientKind,
    KafkaProperty,
    OwnConnections,
    own_connections,
    reaches,
)
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


def named_by(ask: Callable[[], object]) -> str | None:
    """Return the property that is refused; None if none is."""
    try:
        ask()
    except OptionError as problem:
        return problem.option
    return None


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.key)
def test_the_door_log_ends_and_reading_agree_about_each_row(row: KafkaProperty) -> None:
    key = MEMBERS.get(row.key, row.key)
    properties = {**SERVERS, key: VALUES.get(key, "1")}
    door = named_by(lambda: connect(properties, client_id="etl").close())
    assert door == named_by(lambda: LogEnds(properties, client_id="etl", read_committed=True).close())
    if not reaches(key) >= {ClientKind.ADMIN, ClientKind.READER}:
        assert door is None, "a property of the member, or of the readers, does not matter"


@pytest.mark.parametrize("key", sorted(HARMLESS))
def test_a_harmless_property_changes_nothing(key: str) -> None:
    properties = {**SERVERS, key: HARMLESS[key]}
    connect(properties, client_id="etl").close()
    assert direct_settings(reader_config(properties, "etl")) is not None


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
def test_what_cannot_be_served_is_named(properties: dict[str, str], named: str) -> None:
    assert named_by(lambda: connect({**SERVERS, **properties}, client_id="etl")) == named


def test_a_property_that_nobody_knows_matters() -> None:
    assert own_connections("ssl.something.new", "1") is own_connections("no.such.thing", "1") is OwnConnections.MATTERS
