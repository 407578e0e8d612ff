"""Errors that explain why librdkafka refuses a configuration."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException

from pyspark_kafka_group.cluster.properties.client_config import client_error
from pyspark_kafka_group.offsets.errors import OptionError


def test_a_client_without_kerberos_is_told_apart_from_a_wrong_setting() -> None:
    """The tests run with the wheels of confluent-kafka, which lack Kerberos.  A build with it raises no such error."""
    properties = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "security.protocol": "SASL_PLAINTEXT"}
    with pytest.raises(KafkaException) as refused:
        Consumer({**properties, "sasl.mechanism": "GSSAPI"})
    problem = client_error(refused.value, properties)
    assert isinstance(problem, OptionError)
    assert problem.option == "kafka.sasl.mechanism"
    assert "without Kerberos" in str(problem)


def test_the_property_that_is_refused_is_named_and_no_secret_is_shown() -> None:
    properties = {"linger.mx": "1", "sasl.password": "53cr3t"}
    problem = client_error(ValueError('No such property: "linger.mx" beside 53cr3t'), properties)
    assert isinstance(problem, OptionError)
    assert problem.option == "kafka.linger.mx"
    assert "53cr3t" not in str(problem)
