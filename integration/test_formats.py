"""Typed keys and values from real Kafka, as stream and as batch; the registry is a `SchemaRegistryServer`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import from_json

from integration.cluster import committed
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.schema_registry import SchemaRegistryServer
from tests.formats_samples import (
    ORDER,
    ORDER_WITH_COUNT,
    avro,
    framed,
)

Load = Callable[..., DataFrame]

JSON_SCHEMA = "id BIGINT, name STRING, at TIMESTAMP, tags MAP<STRING, INT>"
AT = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def protocol() -> str:
    """Return one protocol only: decoding does not depend on it."""
    return "classic"


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer("etl:s3cr3t") as server:
        yield server


def write(kafka: Kafka, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 10_000_000})
    for value in values:
        producer.produce(topic, value=value, key=key, headers=[("trace", b"7")])
    assert producer.flush(30) == 0


def read(spark: SparkSession, kafka: Kafka, topic: str, **options: object) -> DataFrame:
    given = {key.replace("__", "."): str(value) for key, value in options.items()}
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
    return spark.read.format("kafka-group").options(**base, **given).load()


def loaded_stream(spark: SparkSession, options: dict[str, str], topic: str, **more: object) -> DataFrame:
    given = {key.replace("__", "."): str(value) for key, value in more.items()}
    return spark.readStream.format("kafka-group").options(**{**options, "subscribe": topic, **given}).load()


def run(loaded: DataFrame, path: Path) -> list[Row]:
    """Run a stream with `availableNow` and return its rows."""
    rows: list[Row] = []
    query = (
        loaded.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    failure = query.exception()
    if failure is not None:
        raise failure
    return rows


def stream(spark: SparkSession, options: dict[str, str], topic: str, path: Path, **more: object) -> list[Row]:
    """Run a stream with `availableNow` and return its rows."""
    return run(loaded_stream(spark, options, topic, **more), path)


def test_json_becomes_columns_in_batch_and_stream(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, options: dict[str, str], tmp_path: Path
) -> None:
    name = topic(1)
    document = {"id": 1, "name": "pen", "at": "2024-05-01T14:00:00+02:00", "tags": {"a": 1}, "more": [1]}
    write(kafka, name, json.dumps(document, indent=2).encode(), b'{"id": 2}', None, key="schlüssel".encode())
    found = read(spark, kafka, name, valueFormat="json", valueSchema=JSON_SCHEMA, keyFormat="string")

    rows = found.orderBy("offset").select("key", "value").collect()

    assert [row.key for row in rows] == ["schlüssel"] * 3
    assert rows[0].value.asDict() == {
        "id": 1,
        "name": "pen",
        "at": AT.astimezone().replace(tzinfo=None),
        "tags": {"a": 1},
    }
    assert rows[1].value.asDict() == {"id": 2, "name": None, "at": None, "tags": None}
    assert rows[2].value is None
    streamed = stream(spark, options, name, tmp_path, valueFormat="json", valueSchema=JSON_SCHEMA, keyFormat="string")
    assert (
        sorted((row.offset, row.key, row.value) for row in streamed)[:2]
        == sorted((n, row.key, row.value) for n, row in enumerate(rows))[:2]
    )


def test_json_is_read_as_from_json_reads_it(spark: SparkSession, kafka: Kafka, topic: TopicFactory) -> None:
    name = topic(1)
    schema = "i INT, d DOUBLE, s STRING, b BOOLEAN, x DECIMAL(5,2), t TIMESTAMP, n TIMESTAMP_NTZ, e DATE, r BINARY, "
    schema += "a ARRAY<INT>, m MAP<STRING,DOUBLE>, o STRUCT<p: BIGINT, q: ARRAY<STRUCT<z: STRING>>>"
    documents = [
        '{"i": 1, "d": 2.5, "s": "x\\u00e9\\n", "b": true, "x": 1.255, "more": {"deep": [1]}}',
        '{"i": -2147483648, "d": 5, "x": "-1.2", "a": [1, null], "m": {"k": 1, "l": null}}',
    ]
    write(kafka, name, *(document.encode() for document in documents))

    ours = read(spark, kafka, name, valueFormat="json", valueSchema=schema).select("offset", "value")
    bytes_ = read(spark, kafka, name)
    theirs = bytes_.select("offset", from_json(bytes_.value.cast("string"), schema).alias("value"))

    found, expected = (sorted(map(str, rows.collect())) for rows in (ours, theirs))
    assert found == expected


def test_a_second_load_of_a_session_has_the_newest_columns(
    spark: SparkSession,
    kafka: Kafka,
    topic: TopicFactory,
    registry: SchemaRegistryServer,
    options: dict[str, str],
    tmp_path: Path,
) -> None:
    """A loaded DataFrame keeps its columns.  A later `load()`, for example of a restart, has the newest ones."""
    name = topic(1)
    old = registry.register(f"{name}-value", json.dumps(ORDER))
    asked = {
        "valueFormat": "avro",
        "schema__registry__url": registry.url,
        "schema__registry__basic__auth__user__info": "etl:s3cr3t",
    }
    order: dict[str, Any] = {"id": 1, "item": "pen", "at": 1714564800000, "price": Decimal("1.25"), "note": None}
    first = read(spark, kafka, name, **asked)
    before = loaded_stream(spark, options, name, **asked)
    new = registry.register(f"{name}-value", json.dumps(ORDER_WITH_COUNT))
    write(kafka, name, framed(new, avro(ORDER_WITH_COUNT, {**order, "count": 3})))

    second = read(spark, kafka, name, **asked)

    assert "count" not in first.select("value.*").columns
    assert [row.asDict() for row in first.select("value.id").collect()] == [{"id": 1}]
    assert [row["count"] for row in second.select("value.*").collect()] == [3]
    pinned = read(spark, kafka, name, **asked, valueSchemaId=old).select("value.*")
    assert (pinned.columns, pinned.count()) == (["id", "item", "at", "price", "note"], 1)
    assert "count" not in run(before, tmp_path)[0].value.asDict()
    write(kafka, name, framed(new, avro(ORDER_WITH_COUNT, {**order, "count": 4})))
    assert [row.value["count"] for row in run(loaded_stream(spark, options, name, **asked), tmp_path)] == [4]


def test_bytes_of_confluents_serializer(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, registry: SchemaRegistryServer
) -> None:
    name = topic(1)
    url = registry.url.replace("//", "//etl:s3cr3t@")
    serializers = {}
    for field, schema in ((MessageField.KEY, '"bytes"'), (MessageField.VALUE, '["null", "bytes"]')):
        registry.register(f"{name}-{field}", schema)
        conf = {"auto.register.schemas": False, "use.latest.version": True}
        serializers[field] = AvroSerializer(SchemaRegistryClient({"url": url}), schema, conf=conf)
    payload = b"\x06any"  # Avro would read the first byte as a length
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    made = {field: one(payload, SerializationContext(name, field)) for field, one in serializers.items()}
    producer.produce(name, key=made[MessageField.KEY], value=made[MessageField.VALUE])
    assert producer.flush(30) == 0

    (row,) = read(
        spark, kafka, name, keyFormat="avro", valueFormat="avro", schema__registry__url=url, malformedRecords="null"
    ).collect()

    assert (row.key, row.value, row.malformed) == (payload, payload, None)


def test_malformed_records_become_null_or_dead_letters(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, options: dict[str, str], tmp_path: Path
) -> None:
    name, letters = topic(1), topic(1)
    write(kafka, name, b'{"id": 1}', b"{", b'{"id": 3}', key=b"k")
    asked = {"valueFormat": "json", "valueSchema": "id INT", "columns": "value"}

    nulls = read(spark, kafka, name, **asked, malformedRecords="null").collect()
    streamed = stream(spark, options, name, tmp_path, **asked, malformedRecords="deadLetter", deadLetterTopic=letters)

    assert [row.value and row.value.id for row in nulls] == [1, None, 3]
    assert [row.malformed is None for row in nulls] == [True, False, True]
    assert "value: it is not JSON" in nulls[1].malformed
    assert [row.value.id for row in streamed] == [1, 3]
    (letter,) = kafka.read(letters)
    assert (letter.key, letter.value) == (b"k", b"{")
    headers = dict(letter.headers)
    assert headers["trace"] == b"7"
    assert (headers["kafka-group.topic"], headers["kafka-group.offset"]) == (name.encode(), b"1")


def test_a_record_of_the_largest_size_becomes_a_dead_letter_without_the_added_headers(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory
) -> None:
    """Regression: any producer could end the query, although both topics had the broker's default limit."""
    name, letters = topic(1), topic(1)
    largest = random.Random(7).randbytes(
        1_048_588 - 61 - 29
    )  # the limit without the batch, and the record's other fields
    write(kafka, name, largest, b"{")
    asked = {"valueFormat": "json", "valueSchema": "id INT", "malformedRecords": "deadLetter"}

    assert read(spark, kafka, name, **asked, deadLetterTopic=letters).collect() == []
    found = {letter.value: dict(letter.headers) for letter in kafka.read(letters)}
    assert found.keys() == {largest, b"{"}
    assert "kafka-group.offset" not in found[largest]
    assert found[b"{"]["kafka-group.offset"] == b"1"


def test_a_topic_for_dead_letters_that_is_missing_is_told_before_anything_is_read(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, options: dict[str, str], tmp_path: Path
) -> None:
    """The query fails before it needs the topic: all records are valid."""
    name = topic(1)
    write(kafka, name, b'{"id": 1}')
    asked = {"valueFormat": "json", "valueSchema": "id INT", "malformedRecords": "deadLetter"}
    problem = "Option 'deadLetterTopic': the topic 'nowhere' does not exist"

    with pytest.raises(PySparkException) as batch:
        read(spark, kafka, name, **asked, deadLetterTopic="nowhere").collect()
    with pytest.raises(PySparkException) as streamed:
        stream(spark, options, name, tmp_path, **asked, deadLetterTopic="nowhere")

    for raised in (batch, streamed):
        assert problem in str(raised.value)
    assert committed(kafka.bootstrap_servers, options["kafka.group.id"], name, [0]) == {0: -1001}
