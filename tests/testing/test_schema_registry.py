"""The stand-in of a schema registry, with the serializers of confluent-kafka."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer

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
