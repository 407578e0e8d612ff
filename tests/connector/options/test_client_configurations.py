"""The whole configuration that each client gets from a user's ``kafka.*`` options.  Each change makes a test fail."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from pyspark_kafka_group.cluster.committer import TransactionalCommitter
from pyspark_kafka_group.cluster.properties.client_config import client_properties
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind, row_of
from pyspark_kafka_group.coordinator.member import Callbacks, Member
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.reading.reader_config import librdkafka_config, reader_config

REQUIRED = {"kafka.bootstrap.servers": "b:9092", "kafka.group.id": "etl", "subscribe": "orders"}

RICH = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "u",
    "kafka.sasl.password": "p",
    "kafka.ssl.ca.location": "/ca.pem",
    "kafka.enable.ssl.certificate.verification": "true",
    "kafka.client.id": "orders-etl",
    "kafka.client.rack": "r1",
    "kafka.group.instance.id": "one",
    "kafka.session.timeout.ms": "600",
    "kafka.max.poll.interval.ms": "200000",
    "kafka.isolation.level": "read_uncommitted",
    "kafka.partition.assignment.strategy": "cooperative-sticky",
    "kafka.enable.auto.commit": "false",
    "kafka.enable.metrics.push": "true",
    "kafka.reconnect.backoff.ms": "30",
    "kafka.retry.backoff.max.ms": "900",
    "kafka.socket.timeout.ms": "5000",
    "kafka.allow.auto.create.topics": "true",
    "kafka.topic.metadata.refresh.interval.ms": "9000",
    "kafka.metadata.max.age.ms": "8000",
    "kafka.check.crcs": "false",
    "kafka.fetch.wait.max.ms": "1000",
    "kafka.queued.min.messages": "7",
    "kafka.receive.message.max.bytes": "2000000",
    "kafka.acks": "all",
}
CONSUMER_PROTOCOL = {
    "kafka.group.protocol": "consumer",
    "kafka.group.remote.assignor": "uniform",
    "kafka.debug": "cgrp",
    "kafka.heartbeat.interval.msx": "1",
}


OPTIONS: dict[str, dict[str, str]] = {"PLAIN": {}, "RICH": RICH, "CONSUMER_PROTOCOL": CONSUMER_PROTOCOL}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the configurations of all new librdkafka clients."""
    found: list[dict[str, Any]] = []

    def make(config: dict[str, Any]) -> object:
        found.append(config)
        return object()

    def refuse(config: dict[str, Any]) -> object:
        found.append(config)
        raise ValueError

    monkeypatch.setattr(confluent_kafka, "Consumer", make)
    monkeypatch.setattr(confluent_kafka, "Producer", refuse)  # so that the code under test cannot use it
    return found


def text(config: dict[str, Any]) -> dict[str, str]:
    """Return the configuration as librdkafka takes it, without callbacks."""
    plain = {key: value for key, value in config.items() if isinstance(value, str | int | bool)}
    assert config.keys() - plain.keys() <= {"error_cb", "on_commit", "logger"}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in plain.items()}


def configurations(given: list[dict[str, Any]], options: dict[str, str]) -> dict[str, dict[str, str]]:
    group = parse({**REQUIRED, **options}).group
    ignored = Callbacks(assigned=lambda _: None, revoked=lambda _: None, lost=lambda _: None)
    Member(group, client_id="c", callbacks=ignored)
    committer = TransactionalCommitter(group.properties, group_id="etl", query_id="q")
    committer.prepare()
    committer.close()
    member, producer = map(text, given)
    reader = reader_config(group.properties, "etl")
    return {
        "member": member,
        "producer": producer,
        "reader": reader,
        "librdkafka reader": librdkafka_config(reader),
    }


USUAL: dict[str, dict[str, str]] = {
    "member": {
        "bootstrap.servers": "b:9092",
        "client.id": "c",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.metrics.push": "false",
        "group.id": "etl",
        "group.protocol": "classic",
        "heartbeat.interval.ms": "250",
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": "45000",
        "topic.metadata.refresh.interval.ms": "30000",
    },
    "producer": {
        "bootstrap.servers": "b:9092",
        "client.id": "kafka-group-etl-q",
        "enable.metrics.push": "false",
        "log.connection.close": "true",
        "socket.timeout.ms": "10100",
        "transaction.timeout.ms": "10000",
        "transactional.id": "kafka-group-etl-q",
    },
    "reader": {
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "error",
        "bootstrap.servers": "b:9092",
        "check.crcs": "true",
        "client.id": "etl-reader",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.metrics.push": "false",
        "enable.partition.eof": "true",
        "fetch.queue.backoff.ms": "10",
        "group.id": "etl-reader",
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": "32768",
        "queued.min.messages": "100000",
    },
}
"""The configurations of clients if a user sets only the servers and the group."""

USUAL["librdkafka reader"] = {**USUAL["reader"], "fetch.wait.max.ms": "20"}

INSTEAD: dict[tuple[str, str], dict[str, str | None]] = {
    ("RICH", "member"): {
        "client.id": "c",
        "enable.metrics.push": "false",
        "heartbeat.interval.ms": "200",
        "isolation.level": "read_committed",
        "topic.metadata.refresh.interval.ms": "8000",
    },
    ("RICH", "producer"): {"socket.timeout.ms": "10100"},
    ("RICH", "reader"): {"allow.auto.create.topics": "false"},
    ("RICH", "librdkafka reader"): {"allow.auto.create.topics": "false", "fetch.max.bytes": "1999488"},
    ("CONSUMER_PROTOCOL", "member"): {
        "heartbeat.interval.ms": None,
        "partition.assignment.strategy": None,
        "session.timeout.ms": None,
        "retry.backoff.ms": "100",
        "retry.backoff.max.ms": "125",
    },
}
"""The values that come neither from the user nor from `USUAL`.  None: the client does not get the property."""

KINDS = {
    "member": ClientKind.MEMBER,
    "producer": ClientKind.PRODUCER,
    "reader": ClientKind.READER,
    "librdkafka reader": ClientKind.READER,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_configurations_are_what_users_say_where_it_reaches_and_else_the_usual(
    name: str, given: list[dict[str, Any]]
) -> None:
    for client, found in configurations(given, OPTIONS[name]).items():
        said = {key.removeprefix("kafka."): value for key, value in OPTIONS[name].items()}
        reached = {key: value for key, value in said.items() if KINDS[client] in row_of(key).applies_to}
        expected = {**USUAL[client], **reached, **INSTEAD.get((name, client), {})}
        assert found == {key: value for key, value in expected.items() if value is not None}, client


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("interval_ms", [9, 30_000])
def test_a_client_takes_a_short_max_poll_interval_that_is_set_alone(interval_ms: int, protocol: str) -> None:
    """Regression: librdkafka refused it, because the default of the session timeout is longer."""
    given = {"kafka.max.poll.interval.ms": str(interval_ms), "kafka.group.protocol": protocol}
    group = parse({**REQUIRED, **given, "kafka.bootstrap.servers": "localhost:1", "kafka.log_level": "0"}).group
    ignored = Callbacks(assigned=lambda _: None, revoked=lambda _: None, lost=lambda _: None)
    Member(group, client_id="c", callbacks=ignored)._consumer.close()
    assert group.session_timeout_s == (45 if protocol == "consumer" else interval_ms / 1000)


@pytest.mark.parametrize(
    "key",
    [
        "client.rack",
        "client.dns.lookup",
        "security.protocol",
        "debug",
        "sasl.oauthbearer.config",
        "ssl.key.location",
        "socket.keepalive.enable",
        "broker.address.ttl",
        "reconnect.backoff.max.ms",
        "connections.max.idle.ms",
        "api.version.request",
        "metadata.max.age.ms",
        "topic.metadata.refresh.sparse",
        "https.ca.location",
        "retry.backoff.ms",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "test.mock.num.brokers",
        "allow.auto.create.topics",
    ],
)
def test_what_concerns_the_connection_reaches_every_client(key: str) -> None:
    assert client_properties(ClientKind.PRODUCER, {key: "x"})[key] == "x"
    if key != "allow.auto.create.topics":
        assert reader_config({key: "x"}, "etl")[key] == "x"


@pytest.mark.parametrize(
    "key",
    [
        "client.id",
        "group.id",
        "acks",
        "sasl",
        "sslx.a",
        "message.max.bytes",
        "fetch.wait.max.ms",
        "log_level",
        "retries",
    ],
)
def test_what_concerns_something_else_does_not_reach_clients_that_only_connect(key: str) -> None:
    assert key not in client_properties(ClientKind.PRODUCER, {key: "x"})
