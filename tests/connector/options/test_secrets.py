"""If an option refers to a secret, Spark neither stores nor sends the secret, and no text contains it.

No text contains the secret of a JAAS configuration either.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer

from pyspark_kafka_group.cluster.properties.client_config import (
    client_properties,
    connecting,
    reach,
)
from pyspark_kafka_group.cluster.properties.kafka_properties import ClientKind
from pyspark_kafka_group.cluster.properties.redaction import redact
from pyspark_kafka_group.offsets.errors import OptionError
from pyspark_kafka_group.options.batch_settings import parse_batch
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.reading.message_client import open_consumer
from pyspark_kafka_group.reading.reader_config import direct_settings, reader_config
from pyspark_kafka_group.writing.options import parse_write_options
from pyspark_kafka_group.writing.producer_properties import producer_config

pytestmark = pytest.mark.usefixtures("references_allowed")

SECRET = "Correct-Horse-7"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BASE = {
    "kafka.bootstrap.servers": "b:9092",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
}
READ = {"kafka.group.id": "etl", "subscribe": "orders"}
PARSERS: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "stream": lambda options: parse({**options, **READ}),
    "batch": lambda options: parse_batch({**options, "subscribe": "orders"}),
    "sink": parse_write_options,
}


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """Return the ways to give the secret by reference."""
    monkeypatch.setenv("TEST_PASSWORD", SECRET)
    (tmp_path / "x.properties").write_text(f"password={SECRET}\n")
    (tmp_path / "jaas").write_text(f'{SCRAM} required username="u" password="{SECRET}";\n')
    by_key = f"${{file:{tmp_path}/x.properties:password}}"
    return {
        "variable": {"kafka.sasl.username": "u", "kafka.sasl.password": "${env:TEST_PASSWORD}"},
        "key of a file": {"kafka.sasl.username": "u", "kafka.sasl.password": by_key},
        "within JAAS": {"kafka.sasl.jaas.config": f'{SCRAM} required username="u" password="{by_key}";'},
        "a word of JAAS": {"kafka.sasl.jaas.config": f"{SCRAM} required username=u password={by_key};"},
        "all of JAAS": {"kafka.sasl.jaas.config": f"${{file:{tmp_path}/jaas}}"},
    }


LITERAL = {
    "property": {"kafka.sasl.username": "u", "kafka.sasl.password": SECRET},
    "JAAS": {"kafka.sasl.jaas.config": f'{SCRAM} required username="u" password="{SECRET}";'},
}


def properties_of(settings: Any) -> Mapping[str, str]:
    found: Mapping[str, str] = settings.group.properties if hasattr(settings, "group") else settings.properties
    return found


@pytest.mark.parametrize("kind", PARSERS)
def test_settings_hold_no_secret_that_was_given_by_reference(kind: str, references: dict[str, dict[str, str]]) -> None:
    for how, options in references.items():
        settings = PARSERS[kind]({**BASE, **options})
        for shown in (repr(settings), str(settings), str({**properties_of(settings)})):
            assert SECRET not in shown, how
        assert SECRET.encode() not in pickle.dumps(settings), how


@pytest.mark.parametrize("kind", PARSERS)
@pytest.mark.parametrize("how", LITERAL)
def test_settings_do_not_show_a_secret_that_was_written(kind: str, how: str) -> None:
    settings = PARSERS[kind]({**BASE, **LITERAL[how]})
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings)


def test_every_client_and_every_connection_of_ours_gets_the_secret(references: dict[str, dict[str, str]]) -> None:
    for options in (*references.values(), *LITERAL.values()):
        properties = properties_of(parse({**BASE, **READ, **options}))
        configs = [client_properties(client, properties) for client in ClientKind]
        configs += [connecting(properties), reader_config(properties, "etl")]
        configs.append(producer_config(properties_of(parse_write_options({**BASE, **options}))))
        for config in configs:
            assert (config["sasl.username"], config["sasl.password"]) == ("u", SECRET)
            assert "sasl.jaas.config" not in config
        for security in (
            reach(connecting(properties)).security,
            direct_settings(reader_config(properties, "etl")),
        ):
            assert security is not None, "left to librdkafka"
            assert SECRET not in repr(security)


def test_texts_hold_no_secret_that_was_read_or_taken_apart(
    references: dict[str, dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for options in (*references.values(), *LITERAL.values()):
        properties = properties_of(parse({**BASE, **READ, **options}))
        config = connecting(properties)
        # `redact` must also work with the properties as the user wrote them.
        assert redact(f"login of u with {SECRET}!", properties) == "login of u with [redacted]!"
        with pytest.raises(OptionError) as error:
            open_consumer({**config, "no.such.property": SECRET}, {})
        assert SECRET not in str(error.value)
        assert SECRET.encode() not in pickle.dumps(error.value)
    assert SECRET not in caplog.text


def test_a_reference_that_leads_nowhere_is_an_error_where_connections_are_opened() -> None:
    options = {**BASE, "kafka.sasl.username": "u", "kafka.sasl.password": "${env:TEST_NO_SUCH_PASSWORD}"}
    properties = properties_of(parse({**options, **READ}))
    written = properties_of(parse_write_options(options))
    opening: list[Callable[[], object]] = [
        lambda: connecting(properties),
        lambda: reach(connecting(properties)),
        lambda: reader_config(properties, "etl"),
        lambda: producer_config(written),
        *(partial(client_properties, client, properties) for client in ClientKind),
    ]
    for one in opening:
        with pytest.raises(OptionError, match=r"'kafka.sasl.password': .*this process has no variable"):
            one()


def test_servers_may_be_named_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SERVERS", "kafka:9092,SSL://c.example:9093")
    properties = properties_of(parse({**READ, "kafka.bootstrap.servers": "${env:TEST_SERVERS}"}))
    servers = reach(connecting(properties)).servers
    assert [(address.host, address.port) for address in servers] == [("kafka", 9092), ("c.example", 9093)]
    shown = redact("kafka:9092 is down, no name C.EXAMPLE. Correct kafka.bootstrap.servers of kafka-group.", properties)
    assert shown == "[redacted] is down, no name [redacted]. Correct kafka.bootstrap.servers of kafka-group."


def error_of(opening: Callable[[], Any]) -> str:
    """Return the text of an error; empty if there is none."""
    try:
        opened = opening()
    except OptionError as problem:
        return str(problem)
    if isinstance(opened, Consumer):
        opened.close()
    return ""


@pytest.mark.parametrize(
    "secret", ["S3cr3t", "S3cr3t:a:b,S3cr3t:c", " S3cr3t\n'\\S3cr3t\n", "S3cr3t" * 200, "https://S3cr3t/a?b=S3cr3t"]
)
@pytest.mark.parametrize(
    "key",
    [
        "broker.address.family",
        "debug",
        "sasl.kerberos.kinit.cmd",
        "sasl.mechanism",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.provider",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "ssl.keystore.type",
        "ssl.truststore.type",
    ],
)
def test_no_error_shows_a_value_behind_a_reference(tmp_path: Path, key: str, secret: str) -> None:
    """Regression: errors about properties that are no secrets, such as sasl.mechanism, showed any allowed file."""
    (tmp_path / "secret").write_text(secret)
    for value in (f"${{file:{tmp_path}/secret}}", f"a${{file:{tmp_path}/secret}}b"):
        properties = properties_of(parse({**BASE, **READ, f"kafka.{key}": value}))
        errors = [
            error_of(lambda: reach(connecting(properties))),  # noqa: B023 called at once
            error_of(lambda: open_consumer(reader_config(properties, "etl"), {})),  # noqa: B023
        ]
        assert any(errors)
        assert not [error for error in errors if "s3cr3t" in error.lower()]


def test_an_error_about_a_server_does_not_show_it_if_it_is_behind_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SERVERS", "b:9092 S3cr3t:x")
    properties = properties_of(parse({**READ, "kafka.bootstrap.servers": "${env:TEST_SERVERS}"}))
    assert error_of(lambda: connecting(properties)) == (
        "Option 'kafka.bootstrap.servers': '[redacted]' is not host:port. Correct it."
    )


@pytest.mark.parametrize("key", ["group.id", "group.protocol", "session.timeout.ms", "isolation.level", "client.id"])
def test_what_the_source_decides_by_cannot_be_a_reference(key: str) -> None:
    with pytest.raises(OptionError, match=f"'kafka.{key}': .*this property decides more"):
        parse({**BASE, **READ, f"kafka.{key}": "${env:X}"})


def test_what_the_sink_decides_by_cannot_be_a_reference() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.acks': .*this property decides more"):
        parse_write_options({**BASE, "kafka.acks": "${env:X}"})


@pytest.mark.parametrize("kind", PARSERS)
def test_what_cannot_be_translated_is_refused_before_anything_is_opened(kind: str) -> None:
    for options in (
        {"kafka.ssl.truststore.location": "/t.jks"},
        {"kafka.sasl.jaas.config": 'x required password="${env:NOT_READ}";'},
        {"kafka.ssl.keystore.type": "JKS"},
    ):
        with pytest.raises(OptionError, match="Java"):
            PARSERS[kind]({**BASE, **options})


def test_what_references_decide_is_judged_once_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**BASE, "kafka.ssl.keystore.type": "${env:TEST_TYPE}", "kafka.ssl.keystore.location": "/x"}
    properties = properties_of(parse({**options, **READ}))
    monkeypatch.setenv("TEST_TYPE", "PEM")
    assert connecting(properties)["ssl.certificate.location"] == "/x"
    monkeypatch.setenv("TEST_TYPE", "JKS")
    with pytest.raises(OptionError, match="keytool -importkeystore"):
        connecting(properties)


def test_our_own_connections_take_javas_stores_as_far_as_they_can() -> None:
    mine = trustme.CA().issue_cert("me")
    chain = " ".join(mine.cert_chain_pems[0].bytes().decode().split("\n"))
    pem = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": chain,
        "kafka.ssl.keystore.key": " ".join(mine.private_key_pem.bytes().decode().split("\n")),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": chain,
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.ssl.protocol": "TLSv1.3",
    }
    properties = properties_of(parse({**BASE, **READ, **pem}))
    security = reach(connecting(properties)).security
    assert direct_settings(reader_config(properties, "etl")) is not None
    assert security.tls is not None
    assert not security.tls.check_hostname


def test_librdkafka_takes_javas_settings() -> None:
    """Many files contain these settings.  The case of the protocol does not matter."""
    for protocol in ("SASL_PLAINTEXT", "sasl_plaintext"):
        properties = {
            "security.protocol": protocol,
            "sasl.mechanism": "SCRAM-SHA-512",
            "bootstrap.servers": "127.0.0.1:1",
        }
        jaas = {"sasl.jaas.config": LITERAL["JAAS"]["kafka.sasl.jaas.config"]}
        config = client_properties(ClientKind.READER, {**properties, **jaas})
        Consumer({**config, "group.id": "g"}).close()
