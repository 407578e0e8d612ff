"""Many members join a group with commits at once, as in platformatic/kafka#267; all must start at the commits."""

from __future__ import annotations

from pathlib import Path

from benchmarks.group_size import Run
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

MEMBERS, PARTITIONS = 20, 100


@either_protocol
def test_twenty_members_that_start_at_once_begin_where_the_group_has_committed(
    kafka: Kafka, topic: TopicFactory, protocol: str, tmp_path: Path
) -> None:
    """A refused request for committed offsets does not mean that the group has committed nothing.

    The members commit, one leaves, and all stop.  The test produces records.  Then all members start again, with
    `latest` and without checkpoints.  A member that misreads a refusal would start behind those records.
    """
    run = Run(kafka.bootstrap_servers, topic(PARTITIONS), PARTITIONS, tmp_path, rest_s=0.5)
    found = run.measure(MEMBERS, {"kafka.group.protocol": protocol}, 3.0)
    assert found["fell_back"] == 0
    assert found["commits_per_s"], "nothing was committed"
