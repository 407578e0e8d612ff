"""Texts show no secret of the given properties, and no other secret that this process has read."""

from __future__ import annotations

import pytest

from pyspark_kafka_group.cluster.properties.redaction import is_secret, keep_secret, redact
from pyspark_kafka_group.wire.login import known_secrets


@pytest.mark.parametrize("key", ["sasl.password", "sasl.jaas.config", "ssl.keystore.key", "ssl.key.pem"])
def test_these_are_secrets(key: str) -> None:
    assert is_secret(key)
    assert redact("a 53cr3t", {key: "53cr3t"}) == "a [redacted]"


@pytest.mark.parametrize("key", ["bootstrap.servers", "ssl.key.location", "ssl.keystore.location", "client.id"])
def test_these_are_none(key: str) -> None:
    assert not is_secret(key)


def test_a_secret_that_is_a_part_of_another_one_leaves_nothing_of_it() -> None:
    assert redact("x pass-and-more y", {"a.password": "pass", "b.password": "pass-and-more"}) == "x [redacted] y"


def test_what_was_read_is_kept_out_of_texts_wherever_they_arise() -> None:
    assert redact("T3st-0f-r3dacti0n at host-9", {}) == "T3st-0f-r3dacti0n at host-9"
    keep_secret({"sasl.password": "T3st-0f-r3dacti0n", "bootstrap.servers": "host-9"})
    assert redact("T3st-0f-r3dacti0n at host-9", {}) == "[redacted] at host-9"


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        (
            "kafka",
            "Option 'kafka.x' of kafka-group: no host kafka, or Kafka:9092.",
            "no host [redacted], or [redacted]:",
        ),
        ("ssl", "SASL_SSL and ssl", "SASL_SSL and [redacted]"),
        (" p'w\n1 ", "p'w 1, \"p'w\\n1\"", '[redacted], "[redacted]"'),
        ("x", "x is too short to be a secret", "x is too short"),
        ("/etc/a", "x/etc/a", "x[redacted]"),
        ("0123456789" * 50, f'Invalid value "{"0123456789" * 20}', 'Invalid value "[redacted]'),
        ("https://h/a?b=c", "add url:https://h/a to", "add url:[redacted] to"),
    ],
)
def test_what_a_reference_means_is_left_out_in_each_form(
    monkeypatch: pytest.MonkeyPatch, value: str, text: str, shown: str
) -> None:
    monkeypatch.setattr(known_secrets, "_read", frozenset())
    known_secrets.keep_read([value])
    assert shown in redact(text, {})
