"""The clients of a running query recover after a broker restarts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from integration.cluster import produce
from integration.pipelines import wait_for
from pyspark_kafka_group.cluster.committer import CommitRefusedError, TransactionalCommitter
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.testing import LocalKafka

TP = TopicPartition("orders", 0)


@pytest.fixture
def restarted() -> Iterator[LocalKafka]:
    """Yield a cluster of one broker that only this test uses."""
    with LocalKafka() as cluster:
        cluster.create_topic(TP.topic, partitions=1)
        yield cluster


def test_where_partitions_start_is_known_again(restarted: LocalKafka) -> None:
    """Regression: requests for log starts and ends failed until the client refreshed its metadata, minutes later."""
    produce(restarted.bootstrap_servers, TP.topic, {0: 5})
    offsets = GroupOffsets({"bootstrap.servers": restarted.bootstrap_servers}, group_id="etl", read_committed=True)

    def known() -> bool:
        try:
            return offsets.partition_info({TP: []}).info[TP].log_end == 5
        except (TryAgainError, KeyError):
            return False

    offsets.connect([TP.topic])
    wait_for(known, "the start is known")
    restarted.restart(1)
    wait_for(known, "the start is known again", timeout_s=30)


def test_transactions_go_on(restarted: LocalKafka) -> None:
    """Regression: librdkafka never returned from the first commit after the restart."""
    servers = {"bootstrap.servers": restarted.bootstrap_servers}
    anybody = Consumer({**servers, "group.id": "etl"}).consumer_group_metadata()
    committer = TransactionalCommitter(servers, group_id="etl", query_id="q")

    def committed(offset: int) -> bool:
        try:
            committer.commit({TP: (Offset(offset), None, "")}, anybody)
        except CommitRefusedError:
            return False
        return True

    wait_for(lambda: committed(1), "a commit")
    restarted.restart(1)
    wait_for(lambda: committed(2), "a commit after the restart", timeout_s=60)
