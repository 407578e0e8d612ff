"""Which of a user's properties reach the readers, and which do not."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from pyspark_kafka_group.cluster.properties.client_config import client_properties
from pyspark_kafka_group.cluster.properties.kafka_properties import PROPERTIES, ClientKind
from pyspark_kafka_group.reading.reader_config import librdkafka_config, reader_config

MEMBERSHIP_PROPERTIES = {row.key for row in PROPERTIES if row.applies_to == frozenset({ClientKind.MEMBER})}
SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


def test_librdkafka_accepts_the_configuration() -> None:
    Consumer(reader_config(SERVERS, "etl")).close()


def test_the_reader_has_names_of_its_own() -> None:
    found = reader_config({**SERVERS, "group.id": "etl"}, "etl")
    assert (found["group.id"], found["client.id"]) == ("etl-reader", "etl-reader")


def test_a_users_client_id_is_kept_since_quotas_may_hang_on_it() -> None:
    assert reader_config({"client.id": "billing"}, "etl")["client.id"] == "billing"


def test_security_properties_pass_through() -> None:
    security = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert security.items() <= reader_config({**SERVERS, **security}, "etl").items()


def test_what_only_a_group_member_needs_is_left_out_and_the_users_mapping_is_left_alone() -> None:
    properties = dict.fromkeys(sorted(MEMBERSHIP_PROPERTIES), "anything")
    assert not reader_config(properties, "etl").keys() & MEMBERSHIP_PROPERTIES
    assert properties == dict.fromkeys(MEMBERSHIP_PROPERTIES, "anything")


@pytest.mark.parametrize(
    ("name", "forced"),
    [
        ("allow.auto.create.topics", "false"),
        ("auto.offset.reset", "error"),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("enable.partition.eof", "true"),
    ],
)
def test_what_exact_reading_rests_on_cannot_be_overridden(name: str, forced: str) -> None:
    assert reader_config({name: "something else"}, "etl")[name] == forced


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("check.crcs", "false"),
        ("fetch.queue.backoff.ms", "7"),
        ("isolation.level", "read_uncommitted"),
        ("queued.max.messages.kbytes", "1024"),
        ("queued.min.messages", "10"),
    ],
)
def test_tuning_is_a_default_that_users_may_override(name: str, value: str) -> None:
    assert reader_config(SERVERS, "etl")[name] != value
    assert reader_config({**SERVERS, name: value}, "etl")[name] == value


def test_brokers_may_hold_a_request_of_librdkafka_shortly_unless_the_user_says_otherwise() -> None:
    config = reader_config({**SERVERS, "client.rack": "a"}, "etl")
    assert "fetch.wait.max.ms" not in config, "a reader that fetches by itself decides otherwise"
    assert librdkafka_config(config) == {**config, "fetch.wait.max.ms": "20"}
    users = reader_config({**SERVERS, "fetch.wait.max.ms": "250"}, "etl")
    assert librdkafka_config(users) == users


def test_only_committed_records_are_read_by_default() -> None:
    assert reader_config(SERVERS, "etl")["isolation.level"] == "read_committed"


def test_the_pause_between_connections_is_librdkafkas_unless_the_user_says_otherwise() -> None:
    """Regression: it was 20 ms to start sooner, and a query tried 80 times a second while a broker was down.

    librdkafka does not double it while no broker answers (2.16.1).
    """
    assert "reconnect.backoff.ms" not in reader_config({}, "etl")
    assert reader_config({"reconnect.backoff.ms": "500"}, "etl")["reconnect.backoff.ms"] == "500"
    assert "reconnect.backoff.ms" not in client_properties(ClientKind.PRODUCER, {})
    assert client_properties(ClientKind.PRODUCER, {"reconnect.backoff.ms": "500"})["reconnect.backoff.ms"] == "500"


@pytest.mark.parametrize("largest", ["1000512", "20000000", "100000000"])
def test_librdkafka_accepts_any_limit_of_a_record_batch(largest: str) -> None:
    """It demands that `fetch.max.bytes` is smaller."""
    given = {**SERVERS, "receive.message.max.bytes": largest}
    config = reader_config(given, "etl")
    assert "fetch.max.bytes" not in config, "with it, librdkafka would always read"
    Consumer(librdkafka_config(config)).close()
    Consumer(client_properties(ClientKind.MEMBER, {**given, "group.id": "etl"})).close()
