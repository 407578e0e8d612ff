"""What the cluster is asked before a partition starts, while records come and go."""

from __future__ import annotations

from concurrent.futures import Future
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import OffsetSpec

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


def test_a_question_that_the_client_does_not_get_to_ask_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: where partitions start was known 3 s late in 3 of 100 cases, because librdkafka missed an answer."""
    asked: list[Future[Any]] = []

    def list_offsets(partitions: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        asked.append(Future())
        if len(asked) > 1:
            asked[-1].set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(partitions, asked[-1])

    cluster = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"}, group_id="g", read_committed=True)
    monkeypatch.setattr(cluster, "_admin_client", lambda: SimpleNamespace(list_offsets=list_offsets))
    assert cluster._list_offsets([TP], OffsetSpec.earliest(), read_committed=False) == {TP: 7}
    assert len(asked) == 2
    cluster.close()
