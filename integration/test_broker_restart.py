"""The clients of a running query recover after a broker restarts."""

from __future__ import annotations

from confluent_kafka import Consumer

from integration.cluster import produce
from integration.pipelines import wait_for
from pyspark_kafka_group.cluster.committer import CommitRefusedError, TransactionalCommitter
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.testing import LocalKafka

TP = TopicPartition("orders", 0)


def test_requests_and_transactions_go_on() -> None:
    """Regression: requests for log starts and ends failed until the client refreshed its metadata, minutes later.

    Regression: librdkafka never returned from the first commit after the restart.
    """
    with LocalKafka() as cluster:
        cluster.create_topic(TP.topic, partitions=1)
        produce(cluster.bootstrap_servers, TP.topic, {0: 5})
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        offsets = GroupOffsets(servers, group_id="etl", read_committed=True)
        committer = TransactionalCommitter(servers, group_id="etl", query_id="q")
        anybody = Consumer({**servers, "group.id": "etl"}).consumer_group_metadata()

        def known() -> bool:
            try:
                return offsets.partition_info({TP: []}).info[TP].log_end == 5
            except (TryAgainError, KeyError):
                return False

        def committed(offset: int) -> bool:
            try:
                committer.commit({TP: (Offset(offset), None, "")}, anybody)
            except CommitRefusedError:
                return False
            return True

        offsets.connect([TP.topic])
        wait_for(known, "the start is known")
        wait_for(lambda: committed(1), "a commit")
        cluster.restart(1)
        wait_for(known, "the start is known again", timeout_s=30)
        wait_for(lambda: committed(2), "a commit after the restart", timeout_s=60)
