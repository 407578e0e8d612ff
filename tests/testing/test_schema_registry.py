"""The stand-in of a schema registry, with the serializers of confluent-kafka."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request

import pytest
import trustme
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer

TIMEOUT_S = 10.0
ORDER = json.dumps({"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]})


def test_a_producer_registers_its_schema() -> None:
    """Regression: the stand-in answered 501 to each POST."""
    with SchemaRegistryServer() as registry:
        serializer = AvroSerializer(SchemaRegistryClient({"url": registry.url}), ORDER)
        context = SerializationContext("orders", MessageField.VALUE)
        assert serializer({"id": 3}, context) == b"\0\0\0\0\x01\x06"
        assert serializer({"id": 4}, context) == b"\0\0\0\0\x01\x08"
        assert json.loads(SchemaRegistryClient({"url": registry.url}).get_schema(1).schema_str or "") == json.loads(
            ORDER
        )


def test_a_schema_is_found_in_its_subject_only() -> None:
    with SchemaRegistryServer() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        first = client.register_schema("orders-value", Schema(ORDER, "AVRO"))
        assert registry.register("refunds-value", ORDER) == first, "the same schema has one id"
        assert client.register_schema("orders-value", Schema('"string"', "AVRO")) == 2
        assert client.register_schema("orders-value", Schema(ORDER, "AVRO")) == first
        found = client.lookup_schema("orders-value", Schema('"string"', "AVRO"))
        assert (found.schema_id, found.version) == (2, 2)
        with pytest.raises(SchemaRegistryError, match="not found"):
            client.lookup_schema("refunds-value", Schema('"string"', "AVRO"))


def test_a_registry_that_is_down_takes_no_schema() -> None:
    with SchemaRegistryServer() as registry:
        registry.error = 422
        client = SchemaRegistryClient({"url": registry.url, "max.retries": 0})
        with pytest.raises(SchemaRegistryError):
            client.register_schema("orders-value", Schema(ORDER, "AVRO"))


def test_a_client_that_sends_nothing_blocks_no_other_one(capfd: pytest.CaptureFixture[str]) -> None:
    """Regression: with TLS all other clients waited for its handshake, and so did the end of the block, for ever."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    with SchemaRegistryServer(tls=server) as registry:
        registry.register("orders-value", ORDER)
        with socket.create_connection(("127.0.0.1", int(registry.url.rpartition(":")[2])), TIMEOUT_S):
            url = f"{registry.url}/subjects/orders-value/versions/latest"
            with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=client) as answer:
                assert json.load(answer)["schema"] == ORDER
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                urllib.request.urlopen(url, timeout=TIMEOUT_S)
    assert capfd.readouterr().err == ""
