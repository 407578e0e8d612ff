"""Skip markers are durable, or it is said that they are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_kafka_group.offsets.cluster import TryAgainError
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.skip_store import SkipStore
from pyspark_kafka_group.offsets.skips import SkipMarker
from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
MARKERS = {tp: SkipMarker(OffsetRange(Offset(0), Offset(5)), 0) for tp in (A, B)}


@pytest.mark.parametrize(
    ("code", "raised"),
    [("UNKNOWN_TOPIC_OR_PART", TryAgainError), ("GROUP_AUTHORIZATION_FAILED", AuthenticationError)],
)
def test_marker_that_one_partition_refuses_is_not_taken_for_durable(code: str, raised: type[Exception]) -> None:
    """Regression: a commit of several partitions succeeds as a whole if any of them does."""
    store = SkipStore({"bootstrap.servers": "127.0.0.1:1"}, group_id="g", query_id="q")
    store.close()

    def commit(*, offsets: list[Any], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        refused = SimpleNamespace(name=lambda: code, str=lambda: code, fatal=lambda: False)
        for part, error in zip(offsets, (None, refused), strict=True):
            answer.append(SimpleNamespace(topic=part.topic, partition=part.partition, error=error))
        return answer

    answer: list[Any] = []
    store._consumer = SimpleNamespace(commit=commit, poll=lambda _: None)  # type: ignore[assignment]
    with pytest.raises(raised):
        store.write(MARKERS)
