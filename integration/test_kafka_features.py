"""Features of Kafka's topics and clusters: followers in the reader's rack, compacted topics, large records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from integration.cluster import lag, log_ends
from integration.pipelines import Pipeline, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import Kafka, LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from tests.connector.reading.clients import any_client

__all__ = ["any_client"]

LARGE = 10 * 1024 * 1024
KEYS = 5


# ------------------------------------------------------------------------------------ racks


@pytest.fixture(scope="module")
def racks() -> Iterator[LocalKafka]:
    """Yield three brokers in three racks.  They send each reader to the replica in its rack (KIP-392)."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with LocalKafka(brokers=3, properties={"replica.selector.class": selector}) as kafka:
        kafka.create_topic("orders", 1, replication_factor=3)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(1000):
            producer.produce("orders", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        yield kafka


def leader(kafka: LocalKafka) -> int:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return int(admin.list_topics("orders", timeout=30).topics["orders"].partitions[0].leader)


def port(kafka: LocalKafka, broker_id: int) -> int:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return int(admin.list_topics(timeout=30).brokers[broker_id].port)


@pytest.mark.parametrize("any_client", ["direct"], indirect=True)
@pytest.mark.usefixtures("any_client")
@pytest.mark.parametrize("rack", ["a follower's", "nobody's"])
def test_records_come_from_the_replica_in_the_rack_of_the_reader(
    racks: LocalKafka, monkeypatch: pytest.MonkeyPatch, rack: str
) -> None:
    """The test reads directly and counts the bytes of each connection."""
    first = leader(racks)
    follower = first % 3 + 1
    answered: Counter[int] = Counter()
    connect, request = BrokerConnection.__init__, BrokerConnection.request

    def connecting(connection: Any, address: Any, *args: Any, **more: Any) -> None:
        connection.port = address.port
        connect(connection, address, *args, **more)

    def requesting(connection: Any, api: int, *args: Any, **more: Any) -> Any:
        answer = request(connection, api, *args, **more)
        if api == protocol.FETCH:
            answered[connection.port] += len(answer.data)
        return answer

    monkeypatch.setattr(BrokerConnection, "__init__", connecting)
    monkeypatch.setattr(BrokerConnection, "request", requesting)
    name = f"rack-{follower}" if rack == "a follower's" else "rack-9"
    config = reader_config({"bootstrap.servers": racks.bootstrap_servers, "client.rack": name}, "etl")
    options = ReadOptions(columns=("offset",), fail_on_data_loss=True, timeout_s=30)
    wanted = {TopicPartition("orders", 0): OffsetRange.checked(0, 1000)}
    found = [offset for batch in read_ranges(config, wanted, options) for offset in batch.column("offset").to_pylist()]
    assert found == list(range(1000))
    [(most, _)] = answered.most_common(1)
    assert most == port(racks, follower if rack == "a follower's" else first)
    assert len(answered) == (2 if rack == "a follower's" else 1), "the leader was asked whom to read from"


@either_protocol
def test_a_stream_and_a_batch_read_with_a_rack(
    racks: LocalKafka, pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    options = {"kafka.bootstrap.servers": racks.bootstrap_servers, "kafka.client.rack": f"rack-{leader(racks) % 3 + 1}"}
    query = pipeline("orders", **options).run_available()
    assert sorted(row.offset for row in query.rows) == list(range(1000))
    assert spark.read.format("kafka-group").options(**options).option("subscribe", "orders").load().count() == 1000


# ------------------------------------------------------------------------------------ large records


@either_protocol
def test_records_larger_than_a_fetch_are_streamed_read_and_written(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    """The records have 10 MB, with a small one between them; a fetch requests 1 MB of a partition."""
    limits = {"max.message.bytes": str(LARGE + 1024 * 1024)}
    name, copies = topic(1, config=limits), topic(1, config=limits)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": LARGE + 1024 * 1024})
    values = [os.urandom(LARGE), b"small", os.urandom(LARGE)]
    for value in values:
        producer.produce(name, value, partition=0)
        assert producer.flush(60) == 0
    query = pipeline(name, **{"kafka.max.partition.fetch.bytes": 1024 * 1024}).run_available()
    assert [row.offset for row in query.rows] == [0, 1, 2]
    assert lag(kafka.bootstrap_servers, group, name, [0]) == 0
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    read = spark.read.format("kafka-group").options(**servers).option("subscribe", name).load()
    written = read.select("value").write.format("kafka-group").options(**servers).option("topic", copies)
    written.option("kafka.message.max.bytes", str(LARGE + 1024 * 1024)).mode("append").save()
    assert [record.value for record in kafka.read(copies)] == values


# ------------------------------------------------------------------------------------ compaction


@pytest.fixture(scope="module")
def compacting() -> Iterator[LocalKafka]:
    """Yield a broker that compacts at once."""
    with LocalKafka(properties={"log.cleaner.backoff.ms": "100"}) as kafka:
        yield kafka


@either_protocol
def test_a_compacted_topic_is_read_over_its_gaps(
    compacting: LocalKafka, group: str, pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    """Compaction has removed the first offsets, many in between, and the last ones before a batch's end."""
    servers = compacting.bootstrap_servers
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "100",
        "delete.retention.ms": "0",
        "min.compaction.lag.ms": "0",
    }
    compacting.create_topic("states", 1, config=config)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def state(number: int) -> None:
        producer.produce("states", b"%d" % number, key=b"%d" % (number % KEYS), partition=0)
        assert producer.flush(30) == 0

    for number in range(100):
        state(number)

    def compacted() -> bool:
        state(log_ends(servers, [("states", 0)])["states", 0])  # rolls the segment: Kafka never compacts the active one
        return len(compacting.read("states")) < 50

    wait_for(compacted, "the topic is compacted")
    end = log_ends(servers, [("states", 0)])["states", 0]
    there = sorted(int(record.value or b"-1") for record in compacting.read("states"))
    assert there[0] > 0
    options = {"kafka.bootstrap.servers": servers}
    query = pipeline("states", **options, maxOffsetsPerTrigger=10).run_available()
    assert sorted(row.offset for row in query.rows) == there
    assert len({row.batch for row in query.rows}) > 1
    assert lag(servers, group, "states", [0]) == 0
    whole = spark.read.format("kafka-group").options(**options).option("subscribe", "states").load()
    assert sorted(row.offset for row in whole.select("offset").collect()) == there
    # A range in a gap between two remaining records is empty.
    gap = next(offset for offset in range(1, end) if offset not in there and offset - 1 not in there)
    ends = f'{{"states": {{"0": {gap + 1}}}}}'
    nothing = whole.sparkSession.read.format("kafka-group").options(**options).option("subscribe", "states")
    part = nothing.option("startingOffsets", f'{{"states": {{"0": {gap - 1}}}}}').option("endingOffsets", ends).load()
    assert part.count() == 0
