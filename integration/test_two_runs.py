"""Two runs use the same checkpoint at the same time, for example on two machines."""

from __future__ import annotations

import contextlib

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from pyspark_kafka_group.cluster.committer import CommitRefusedError, TransactionalCommitter
from pyspark_kafka_group.offsets.errors import MemberFencedError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.kafka import Kafka


def test_of_two_runs_that_commit_in_turn_one_ends_and_says_why(kafka: Kafka, topic: TopicFactory) -> None:
    """Regression: both continued for ever, because each run's commits succeeded between those of the other."""
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    tp = TopicPartition(topic(), 0)
    asker = Consumer({**servers, "group.id": "etl"})
    anybody = asker.consumer_group_metadata()
    runs = [TransactionalCommitter(servers, group_id="etl", query_id="two-runs") for _ in range(2)]
    ended: list[TransactionalCommitter] = []
    done = 0
    for offset in range(1, 20):
        for run in runs:
            try:
                run.commit({tp: (Offset(offset), None, "")}, anybody)
                done += 1
            except CommitRefusedError:
                pass  # fenced for the first or second time: the run retries
            except MemberFencedError as problem:
                assert "the same checkpoint is in use twice" in str(problem)  # noqa: PT017
                ended.append(run)
        if ended:
            break
    assert len(ended) == 1
    assert done >= 2, "both have committed"
    [other] = [run for run in runs if run not in ended]
    for _ in range(2):  # the ended run may have fenced this one once more
        with contextlib.suppress(CommitRefusedError):
            other.commit({tp: (Offset(100), None, "")}, anybody)
    [committed] = asker.committed([KafkaPartition(*tp)], timeout=30)
    assert committed.offset == 100
    for run in runs:
        run.close()
    asker.close()
