"""Typed values from real Kafka with a real schema registry, written with confluent-kafka's serializers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from integration.apicurio import Apicurio, missing
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from tests.formats_samples import order_message, proto_file
from tests.missing_tools import skip_without

LINE: dict[str, Any] = {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": "Line"}}],
}
WITH_COUNT: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], {"name": "count", "type": "int", "default": 1}]}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if lacking := missing():
        skip_without("apicurio", f"a real schema registry needs {lacking}")
    with Apicurio(tmp_path_factory.mktemp("registry")) as registry:
        yield registry.url


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url, "timeout": 30})  # without it, the client waits for ever


def write(kafka: Kafka, topic: str, serializer: Any, *values: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, serializer(value, SerializationContext(topic, MessageField.VALUE)))
    assert producer.flush(30) == 0


def read(spark: SparkSession, kafka: Kafka, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **options}
    return spark.read.format("kafka-group").options(**given).load().orderBy("offset").select("value.*")


def test_avro_with_a_reference_and_a_schema_that_changes(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, client: SchemaRegistryClient, url: str
) -> None:
    name = topic(1)
    client.register_schema("line", Schema(json.dumps(LINE), "AVRO"))
    line = [SchemaReference("Line", "line", 1)]
    order = {"id": 1, "lines": [{"item": "pen"}]}
    write(kafka, name, AvroSerializer(client, Schema(json.dumps(ORDER), "AVRO", line)), order)
    write(kafka, name, AvroSerializer(client, Schema(json.dumps(WITH_COUNT), "AVRO", line)), {**order, "count": 3})

    rows = read(spark, kafka, name, valueFormat="avro", **{"schema.registry.url": url}).collect()

    assert rows == [Row(id=1, lines=[Row(item="pen")], count=count) for count in (1, 3)]


def test_json(spark: SparkSession, kafka: Kafka, topic: TopicFactory, client: SchemaRegistryClient) -> None:
    name = topic(1)
    schema = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
    write(kafka, name, JSONSerializer(json.dumps(schema), client), {"id": 7})

    assert read(spark, kafka, name, valueFormat="json", valueSchema="id INT").collect() == [Row(id=7)]


def test_protobuf(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, client: SchemaRegistryClient, url: str
) -> None:
    """The registry answers 500 to a request for the descriptor, and returns it to a request without a format."""
    name = topic(1)
    message = order_message(proto_file())
    serializer = ProtobufSerializer(message, client, {"use.deprecated.format": False})
    write(kafka, name, serializer, message(id=7, state=1, tags={"a": 2}, lines=[{"item": "pen", "count": 3}]))
    asked = {"valueFormat": "protobuf", "valueMessage": "shop.Order", "schema.registry.url": url}

    (row,) = read(spark, kafka, name, **asked).collect()

    assert (row.id, row.state, row.tags, row.lines) == (7, "PAID", {"a": 2}, [Row(item="pen", count=3)])


def test_protobuf_that_was_registered_as_text_is_refused_with_the_cause(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, client: SchemaRegistryClient, url: str
) -> None:
    """Java's serializers register text.  Apicurio damages the descriptor that it makes of it."""
    name = topic(1)
    text = 'syntax = "proto3"; message Order { map<string, int64> ids = 1; }'
    client.register_schema(f"{name}-value", Schema(text, "PROTOBUF"))

    with pytest.raises(PySparkException, match=r"the registry does not return it as a descriptor.*from_protobuf"):
        read(spark, kafka, name, valueFormat="protobuf", **{"schema.registry.url": url})
