"""A real broker reads what the sink has compressed.  The mock cluster never looks into a batch."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.kafka import Kafka
from pyspark_kafka_group.writing.direct_producer import DirectProducer
from pyspark_kafka_group.writing.producer_cache import open_producer
from pyspark_kafka_group.writing.producer_properties import producer_config
from pyspark_kafka_group.writing.record_rows import RecordColumns, record_rows

PATIENCE_S = 30.0


@pytest.mark.parametrize(
    ("codec", "stored"),
    [*((codec, "producer") for codec in ("none", "gzip", "snappy", "lz4", "zstd")), ("zstd", "gzip")],
)
def test_every_codec_is_written(kafka: Kafka, topic: TopicFactory, codec: str, stored: str) -> None:
    """In a topic with a codec of its own, the broker compresses the records again."""
    name = topic(config={"compression.type": stored})
    noise = random.Random(7)
    values = [noise.randbytes(50) + b"%d" % number * 20 for number in range(20_000)]
    rows = record_rows(pa.record_batch({"value": pa.array(values)}), RecordColumns(value=0), name)
    producer = open_producer(producer_config({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec}))
    assert isinstance(producer, DirectProducer)
    producer.send(rows)
    producer.flush()
    producer.close()

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: list[bytes | None] = []
    while len(found) < len(values):
        messages = consumer.consume(1000, PATIENCE_S)
        assert messages
        found += [message.value() for message in messages]
    consumer.close()
    assert found == values
