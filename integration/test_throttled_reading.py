"""The direct client reads from real brokers that throttle it or move leaders (KIP-219, NOT_LEADER_OR_FOLLOWER)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from integration.pipelines import wait_for
from pyspark_kafka_group.offsets.types import OffsetRange, TopicPartition
from pyspark_kafka_group.reading.client_cache import CONSUMERS
from pyspark_kafka_group.reading.direct_client import DirectClient
from pyspark_kafka_group.reading.fetcher import Fetcher
from pyspark_kafka_group.reading.range_reader import ReadOptions
from pyspark_kafka_group.reading.reader_config import reader_config
from pyspark_kafka_group.reading.task_reader import read_ranges
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.wire import messages as protocol
from pyspark_kafka_group.wire.broker_connection import BrokerConnection
from pyspark_kafka_group.wire.name_lookup import addresses
from pyspark_kafka_group.wire.security import Security
from tests.connector.reading.clients import need_native_library

PATIENCE_S = 60.0
ALTER_CLIENT_QUOTAS = 49
BYTES_PER_S = 500_000
RECORD_BYTES, RECORDS = 20_000, 200


@pytest.fixture(autouse=True)
def directly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    need_native_library()
    monkeypatch.setattr(
        DirectClient, "_fall_back", lambda _client, reason: pytest.fail(f"librdkafka took over: {reason}")
    )
    CONSUMERS.close_idle()
    yield
    CONSUMERS.close_idle()


def fill(kafka: LocalKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "batch.size": 2 * RECORD_BYTES})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number + bytes(RECORD_BYTES), partition=0)
    assert producer.flush(PATIENCE_S) == 0


def offsets(kafka: LocalKafka, topic: str, start: int, until: int, **properties: str) -> list[int]:
    config = reader_config({"bootstrap.servers": kafka.bootstrap_servers, **properties}, "etl")
    options = ReadOptions(columns=("offset",), fail_on_data_loss=True, timeout_s=PATIENCE_S)
    batches = read_ranges(config, {TopicPartition(topic, 0): OffsetRange.checked(start, until)}, options)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def set_quota(kafka: LocalKafka, client_id: str, bytes_per_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the read rate of a client id.  This is our own request, because confluent-kafka does not support it."""
    monkeypatch.setitem(protocol.VERSIONS, ALTER_CLIENT_QUOTAS, 0)
    entity = struct.pack(">i", 1) + text("client-id") + text(client_id)
    change = struct.pack(">i", 1) + text("consumer_byte_rate") + struct.pack(">d?", bytes_per_s, False)
    [address] = addresses(kafka.bootstrap_servers)
    connection = BrokerConnection(address, "admin", 10, Security())
    answer = connection.request(ALTER_CLIENT_QUOTAS, struct.pack(">i", 1) + entity + change + b"\0")
    connection.close()
    assert answer.take(struct.Struct(">iih"))[2] == 0


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_a_reader_with_a_quota_reads_directly_as_fast_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalKafka(properties={"quota.window.num": "2", "quota.window.size.seconds": "6"}) as kafka:
        kafka.create_topic("throttled")
        fill(kafka, "throttled")
        set_quota(kafka, "slow", BYTES_PER_S, monkeypatch)
        small = {"client.id": "slow", "fetch.message.max.bytes": "1000000"}
        pauses: list[float] = []
        pause = Fetcher._pause

        def note(fetcher: Fetcher, seconds: float) -> None:
            pauses.append(seconds)
            pause(fetcher, seconds)

        monkeypatch.setattr(Fetcher, "_pause", note)
        wait_for(lambda: throttled(kafka, small, pauses), "the broker knows of the quota")
    assert max(pauses) > 1.5, "longer than an answer may take"


def throttled(kafka: LocalKafka, properties: Mapping[str, str], pauses: list[float]) -> bool:
    assert offsets(kafka, "throttled", 0, RECORDS, **properties) == list(range(RECORDS))
    return bool(pauses)
