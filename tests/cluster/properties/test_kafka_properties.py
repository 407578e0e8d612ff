"""The table of Kafka's properties is consistent.  ``test_client_configurations`` pins its results."""

from __future__ import annotations

from collections import Counter

import pytest

from pyspark_kafka_group.cluster.properties.kafka_properties import (
    PROPERTIES,
    ClientKind,
    KafkaProperty,
    default_of,
    is_in_table,
    row_of,
)


def test_each_property_has_one_row() -> None:
    assert [key for key, count in Counter(row.key for row in PROPERTIES).items() if count > 1] == []


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.key)
def test_row_says_nothing_that_contradicts_itself(row: KafkaProperty) -> None:
    assert not row.sent_to & row.forced.keys(), "a default that nobody can have"
    assert not row.sent_to or row.default is not None
    assert not row.values or row.default in row.values
    assert not row.unit or row.default_text or (row.default or "").isdecimal()
    assert not (row.doc and row.refusal)
    if row.refusal is not None:
        assert {*row.forced.values()} <= {*row.refusal.allowed} | {"error"}


@pytest.mark.parametrize("row", [row for row in PROPERTIES if row.doc], ids=lambda row: row.key)
def test_what_users_should_know_is_a_sentence(row: KafkaProperty) -> None:
    assert row.doc.endswith(".")


def test_property_without_a_row_goes_to_the_member_and_the_readers() -> None:
    assert row_of("fetch.min.bytes").applies_to == {ClientKind.MEMBER, ClientKind.READER}
    assert not is_in_table("fetch.min.bytes")


def test_properties_of_the_connection_reach_every_client() -> None:
    assert row_of("reconnect.backoff.ms").applies_to == row_of("reconnect.backoff.max.ms").applies_to == set(ClientKind)
    assert is_in_table("sasl.username")


def test_there_is_nothing_usual_about_what_librdkafka_decides() -> None:
    with pytest.raises(ValueError, match="debug"):
        default_of("debug")
