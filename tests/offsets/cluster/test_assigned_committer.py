"""Commits of one that is no member, where only librdkafka can reach the brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_group.offsets.cluster import assigned_committer
from pyspark_kafka_group.offsets.cluster.assigned_committer import (
    CheckpointOnly,
    UnjoinedCommitter,
    open_assigned_committer,
)
from pyspark_kafka_group.offsets.cluster.committer import CommitRefusedError
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.unjoined_consumer import UnjoinedConsumer
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.testing import MockKafka

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka() as cluster:
        cluster.create_topic("orders", 2)
        yield cluster


def test_what_is_committed_is_there(kafka: MockKafka) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    committer = UnjoinedCommitter(properties, group_id="g")
    committer.prepare()
    committer.commit({A: (Offset(5), None, '{"note": 1}'), B: (Offset(7), None, "")}, b"")
    committer.serve()
    committer.close()
    reader = UnjoinedConsumer(properties, group_id="g", isolation="read_committed")
    found = reader.committed([A, B])
    assert {tp: stored.offset for tp, stored in found.items()} == {A: 5, B: 7}
    assert found[A].metadata == '{"note": 1}'
    reader.close()


@pytest.mark.parametrize(("name", "evicted"), [("UNKNOWN_MEMBER_ID", True), ("_TIMED_OUT", False)])
def test_a_refusal_says_whether_the_group_has_members(
    name: str, evicted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise TryAgainError(f"{name}: no")

    monkeypatch.setattr(UnjoinedConsumer, "commit", refuse)
    committer = UnjoinedCommitter({"bootstrap.servers": "127.0.0.1:1"}, group_id="g")
    with pytest.raises(CommitRefusedError) as raised:
        committer.commit({A: (Offset(5), None, "")}, b"")
    assert raised.value.evicted == evicted
    committer.close()


def test_who_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned_committer, "open_plain_committer", lambda *_, **__: None)

    def opened(*, keeps_offsets: bool) -> object:
        return open_assigned_committer({}, group_id="g", client_id="c", keeps_offsets=keeps_offsets)

    assert isinstance(opened(keeps_offsets=True), UnjoinedCommitter)
    assert isinstance(opened(keeps_offsets=False), CheckpointOnly)
