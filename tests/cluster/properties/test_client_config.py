"""Errors that explain why librdkafka refuses a configuration."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from pyspark_kafka_group.cluster.properties.clients import create_client
from pyspark_kafka_group.offsets.errors import OptionError


def test_a_client_without_kerberos_is_told_apart_from_a_wrong_setting() -> None:
    """The tests run with the wheels of confluent-kafka, which lack Kerberos.  A build with it raises no such error."""
    properties = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "security.protocol": "SASL_PLAINTEXT"}
    with pytest.raises(OptionError, match="without Kerberos") as refused:
        create_client(Consumer, {**properties, "sasl.mechanism": "GSSAPI"}, properties)
    assert refused.value.option == "kafka.sasl.mechanism"


def test_the_property_that_is_refused_is_named_and_no_secret_is_shown() -> None:
    def refuse(_: dict[str, str]) -> None:
        raise ValueError('No such property: "linger.mx" beside 53cr3t')

    properties = {"linger.mx": "1", "sasl.password": "53cr3t"}
    with pytest.raises(OptionError) as refused:
        create_client(refuse, properties, properties)
    assert refused.value.option == "kafka.linger.mx"
    assert "53cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "hint"), [("max.poll.record", "Did you mean 'kafka.max.poll.records'?"), ("xyz", "CONFIGURATION.md")]
)
def test_a_mistyped_property_is_refused_with_the_nearest_one(key: str, hint: str) -> None:
    with pytest.raises(OptionError) as refused:
        create_client(Consumer, {"group.id": "g", key: "1"}, {key: "1"})
    assert str(refused.value).startswith(
        f"Option 'kafka.{key}': the Kafka client refuses it: No such configuration property: \"{key}\". "
    )
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("message.timeout.mss", "CONFIGURATION.md"),
        ("delivery.timeout.mss", "CONFIGURATION.md"),
        ("sasl.mechansim", "Did you mean 'kafka.sasl.mechanism'?"),
    ],
)
def test_a_mistyped_property_of_the_sink_is_not_taken_for_one_of_the_source(key: str, hint: str) -> None:
    """Regression: 'kafka.session.timeout.ms' was named, which the sink does not have."""
    with pytest.raises(OptionError) as refused:
        create_client(Producer, {key: "1"}, {key: "1"})
    assert hint in str(refused.value)
