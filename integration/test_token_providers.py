"""Tokens that expire while a query runs.  Processes share them, and errors name the cause.

They come from a user's callable, from the providers for Amazon MSK and Microsoft Entra with stand-ins for the libraries
of these clouds, and from a server by OIDC.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pyspark.sql import SparkSession

from integration.cluster import committed, produce
from integration.pipelines import Pipeline, wait_for
from integration.token_server import TokenServer
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.testing.ports import free_ports

LIFE_S = 5
"""The lifetime of a token.  A process fetches the next one after 4 s.  The broker ends each login with its token."""

RECORDS = 100


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    with TokenServer("etl", "the-secret-of-etl", LIFE_S) as server:
        yield server


@pytest.fixture(scope="module")
def broker(tokens: TokenServer) -> Iterator[LocalKafka]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", tokens.java_options)
        kafka = tokens.broker().start()
    with kafka:
        yield kafka


def provider(tokens: TokenServer, secret: str = "the-secret-of-etl", function: str = "Vault.token") -> dict[str, str]:
    return {
        "kafka.sasl.oauthbearer.provider": f"integration.token_providers:{function}",
        "kafka.sasl.oauthbearer.config": f"{tokens.token_url} etl {secret}",
    }


def logins(tokens: TokenServer) -> dict[str, dict[str, str]]:
    """Return the options of each kind of login."""
    functions = {"function": "Vault.token", "amazon": "amazon", "azure": "azure"}
    oidc = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.method": "oidc",
        "kafka.sasl.oauthbearer.token.endpoint.url": tokens.token_url,
        "kafka.sasl.oauthbearer.client.id": "etl",
        "kafka.sasl.oauthbearer.client.secret": "the-secret-of-etl",
    }
    return {kind: provider(tokens, function=function) for kind, function in functions.items()} | {"oidc": oidc}


@pytest.fixture
def options(broker: LocalKafka, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the options of a source but its login, with the name of the test in the group id."""
    return {
        "kafka.bootstrap.servers": broker.secured_bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.group.id": f"group-{request.node.name}",
        "startingOffsets": "earliest",
    }


# How the query of each kind of login commits, and its group protocol.
HOW = {
    "function": ("plain", "classic"),
    "amazon": ("transaction", "classic"),
    "azure": ("plain", "consumer"),
    "oidc": ("transaction", "consumer"),
}


def test_queries_outlive_their_tokens(
    broker: LocalKafka, tokens: TokenServer, pipeline: Callable[..., Pipeline]
) -> None:
    """One query for each kind of login, side by side."""
    topic = "outlives"
    broker.create_topic(topic, 2)
    issued, begin = len(tokens.issued), time.monotonic()
    queries = {}
    for kind, login in logins(tokens).items():
        mode, protocol = HOW[kind]
        how = {"commitMode": mode, "kafka.group.protocol": protocol, "kafka.group.id": kind}
        queries[kind] = pipeline(topic, name=kind, **how, **login).start(processingTime="1 second")
    rounds = 0
    while time.monotonic() < begin + 3.2 * LIFE_S:
        produce(broker.bootstrap_servers, topic, {0: RECORDS, 1: RECORDS})
        rounds += 1
        for query in queries.values():
            query.wait_for_rows(rounds * 2 * RECORDS)
        time.sleep(1)
    end = {0: rounds * RECORDS, 1: rounds * RECORDS}

    def is_committed(kind: str) -> bool:
        return committed(broker.bootstrap_servers, kind, topic, [0, 1]) == end

    for kind, query in queries.items():
        wait_for(partial(is_committed, kind), f"all of {kind} is committed")
        query.stop_cleanly()
        assert len({(row.partition, row.offset) for row in query.rows}) == len(query.rows) == rounds * 2 * RECORDS
        assert not query.events("lost"), f"the member with {kind} kept its place"
    asked = len(tokens.issued) - issued
    # Each source, and Spark's workers for each login, fetch tokens, but not a new one for each connection.
    processes = 4 * len(queries)
    assert 4 * len(queries) <= asked <= processes * ((time.monotonic() - begin) / (0.8 * LIFE_S) + 1)


def test_the_sink_outlives_its_tokens(broker: LocalKafka, tokens: TokenServer, spark: SparkSession) -> None:
    deliveries = ("at-least-once", "exactly-once")
    for delivery in deliveries:
        broker.create_topic(delivery, 1)
    connection = {
        "kafka.bootstrap.servers": broker.secured_bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        **provider(tokens),
    }
    begin, rounds = time.monotonic(), 0
    while time.monotonic() < begin + 2.2 * LIFE_S:
        rows = spark.range(RECORDS, numPartitions=1).selectExpr("CAST(id AS STRING) AS value")
        for delivery in deliveries:
            writer = rows.write.format("kafka-group").options(**connection)
            writer.options(topic=delivery, delivery=delivery).mode("append").save()
        rounds += 1
        time.sleep(1)
    for delivery in deliveries:
        read = spark.read.format("kafka-group").options(**connection).option("subscribe", delivery).load()
        assert read.count() == rounds * RECORDS


def test_the_cause_of_a_failure_is_in_the_error(
    broker: LocalKafka, tokens: TokenServer, pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    broker.create_topic("refused", 1)
    wrong = provider(tokens, "not-the-secret")
    refused = tokens.refused
    text = pipeline("refused", **wrong).start().failure()
    assert (
        "Option 'kafka.sasl.oauthbearer.provider': the token provider 'integration.token_providers:Vault.token'" in text
    )
    assert "the vault is sealed: HTTP 401" in text
    assert "not-the-secret" not in text
    connection = {
        "kafka.bootstrap.servers": broker.secured_bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        **wrong,
    }
    with pytest.raises(Exception, match="the vault is sealed: HTTP 401"):
        spark.read.format("kafka-group").options(**connection).option("subscribe", "refused").load().count()
    with pytest.raises(Exception, match="the vault is sealed: HTTP 401"):
        spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("kafka-group").options(
            **connection
        ).options(topic="refused").mode("append").save()
    assert tokens.refused - refused <= 6, "no process asks a provider again that has refused"


def test_reading_and_writing_end_with_the_cause_if_the_provider_reaches_no_server(
    broker: LocalKafka, spark: SparkSession
) -> None:
    (nobody,) = free_ports(1)
    broker.create_topic("unreached", 1)
    connection = {
        "kafka.bootstrap.servers": broker.secured_bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.oauthbearer.provider": "integration.token_providers:Vault.token",
        "kafka.sasl.oauthbearer.config": f"http://127.0.0.1:{nobody} etl x",
    }
    cause = r"Vault\.token' failed with URLError: .*Connection refused"
    with pytest.raises(Exception, match=cause):
        spark.read.format("kafka-group").options(**connection).options(
            **{"subscribe": "unreached", "kafkaConsumer.pollTimeoutMs": "3000"}
        ).load().count()
    with pytest.raises(Exception, match=cause):
        spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("kafka-group").options(
            **connection
        ).options(**{"topic": "unreached", "kafka.message.timeout.ms": "3000"}).mode("append").save()


def test_a_query_ends_with_the_cause_when_its_tokens_cannot_be_renewed(
    broker: LocalKafka, tokens: TokenServer, pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("revoked", 2)
    produce(broker.bootstrap_servers, "revoked", {0: RECORDS, 1: RECORDS})
    query = pipeline("revoked", **provider(tokens)).start(processingTime="500 milliseconds")
    query.wait_for_rows(2 * RECORDS)
    monkeypatch.setattr(tokens, "_login", "Basic of-another-secret")
    text = query.failure()
    assert "the vault is sealed: HTTP 401" in text
    assert not [token for token in tokens.issued if token in text]
    assert "after [redacted]" in text


def test_a_short_failure_of_the_provider_is_bridged(
    broker: LocalKafka, tokens: TokenServer, pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "lifetime_s", 20)
    broker.create_topic("bridged", 2)
    query = pipeline("bridged", **provider(tokens)).start(processingTime="500 milliseconds")
    produce(broker.bootstrap_servers, "bridged", {0: RECORDS, 1: RECORDS})
    query.wait_for_rows(2 * RECORDS)
    issued = len(tokens.issued)
    with monkeypatch.context() as away:
        away.setattr(tokens, "_login", "Basic of-another-secret")
        refused = tokens.refused
        wait_for(lambda: tokens.refused > refused, "a renewal fails", timeout_s=60)
    wait_for(lambda: len(tokens.issued) > issued, "the next renewal succeeds", timeout_s=30)
    produce(broker.bootstrap_servers, "bridged", {0: RECORDS, 1: RECORDS})
    query.wait_for_rows(4 * RECORDS)
    query.stop_cleanly()
