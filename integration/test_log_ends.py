"""Log ends fetched from real leaders."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Producer

from integration.pipelines import wait_for
from pyspark_kafka_group.cluster.log_ends import LogEnds
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.kafka import Kafka


@pytest.mark.parametrize("read_committed", [True, False])
def test_log_ends_depend_on_transactions_that_are_open(kafka: Kafka, topic: TopicFactory, read_committed: bool) -> None:
    name = topic(partitions=3)
    asked = [TopicPartition(name, n) for n in range(3)]
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    producer.commit_transaction(30)
    producer.begin_transaction()
    for partition in (0, 1, 1):
        producer.produce(name, b"x", partition=partition)
    assert producer.flush(30) == 0
    logs = LogEnds(servers, client_id="etl", read_committed=read_committed)
    try:
        # Partition 0 has one record and the marker of its transaction below the open one.
        assert logs.ends(asked) == dict(zip(asked, (2, 0, 0) if read_committed else (3, 2, 0), strict=True))
        producer.commit_transaction(30)
        over = dict(zip(asked, (4, 3, 0), strict=True))
        wait_for(lambda: logs.ends(asked) == over, "the markers of the transaction are written")
    finally:
        logs.close()


def test_a_broker_that_hangs_costs_only_its_own_partitions() -> None:
    """One of three brokers hangs.  The log ends of the other two arrive without a pause after the first request."""
    with LocalKafka(brokers=3) as kafka:
        kafka.create_topic("orders", 12, replication_factor=1)
        asked = [TopicPartition("orders", n) for n in range(12)]
        logs = LogEnds({"bootstrap.servers": kafka.bootstrap_servers}, client_id="etl", read_committed=True)
        try:
            wait_for(lambda: len(logs.ends(asked)) == len(asked), "all leaders answer")
            leaders = dict(logs.leaders)
            kafka.pause(3)
            wait_for(lambda: 0 < len(logs.ends(asked)) < len(asked), "the ends of one broker are missing")
            slowest_s, answered = 0.0, logs.ends(asked).keys()
            for _ in range(50):
                begin = time.monotonic()
                answered = logs.ends(asked).keys()
                slowest_s = max(slowest_s, time.monotonic() - begin)
                assert len({leaders[tp] for tp in logs.reasons}) == 1, "the broker that hangs leads all that is missing"
                assert {*answered} == {*asked} - logs.reasons.keys()
                time.sleep(0.1)
            assert len(answered) < len(asked)
            assert slowest_s < 3.0
            kafka.resume(3)
            wait_for(lambda: len(logs.ends(asked)) == len(asked), "all leaders answer again")
        finally:
            logs.close()
