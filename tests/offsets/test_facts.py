"""What the cluster is asked before a partition starts, while records come and go."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from pyspark_kafka_group.offsets.cluster import GroupOffsets
from pyspark_kafka_group.offsets.types import Offset, TopicPartition

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("read_committed", [False, True])
def test_no_log_end_lies_behind_the_high_watermark_of_a_topic_that_is_written_to(
    read_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: with startingOffsets=latest such a start was reported as lost data."""
    ends = count(100)

    def list_offsets(*_: Any, **__: Any) -> dict[TopicPartition, Offset]:
        return {TP: Offset(next(ends))}

    cluster = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"}, group_id="g", read_committed=read_committed)
    monkeypatch.setattr(cluster, "partition_count", lambda *_: 1)
    monkeypatch.setattr(cluster, "committed", lambda *_: {})
    monkeypatch.setattr(cluster, "_list_offsets", list_offsets)
    facts = cluster.facts([TP])[TP]
    assert facts.log_start < facts.log_end <= facts.high_watermark
    cluster.close()
