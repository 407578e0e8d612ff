"""Log ends asked of real leaders directly, beside librdkafka's answers."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from integration.pipelines import wait_for
from pyspark_kafka_group.offsets.cluster.log_ends import LogEnds
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.query.direct_log_ends import open_direct_log_ends
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.kafka import Kafka


@pytest.mark.parametrize("read_committed", [True, False])
def test_log_ends_are_those_that_librdkafka_reports(kafka: Kafka, topic: TopicFactory, read_committed: bool) -> None:
    """With a transaction that is open, and one that is over."""
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
    direct = open_direct_log_ends(servers, client_id="etl", read_committed=read_committed)
    assert direct is not None
    librdkafka = LogEnds(servers, group_id="etl", read_committed=read_committed)
    try:
        # One record and the marker of its transaction.
        assert direct.ends(asked) == dict(zip(asked, (2, 0, 0) if read_committed else (3, 2, 0), strict=True))
        assert direct.ends(asked) == librdkafka.ends(asked)
        producer.commit_transaction(30)
        over = dict(zip(asked, (4, 3, 0), strict=True))
        wait_for(lambda: direct.ends(asked) == over, "the markers of the transaction are written")
        assert direct.ends(asked) == librdkafka.ends(asked)
    finally:
        direct.close()
        librdkafka.close()
