"""Fake brokers with a topic and a group, for most tests of a cluster."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark_kafka_group.wire.config_requests import DescribeConfigs
from pyspark_kafka_group.wire.describe_requests import ConsumerGroupDescribe, DescribedGroup, DescribeGroups, ListGroups
from pyspark_kafka_group.wire.group_requests import (
    Coordinator,
    FetchedOffset,
    FetchedOffsets,
    FindCoordinator,
    OffsetFetch,
)
from pyspark_kafka_group.wire.topic_requests import (
    LOG_START,
    ClusterMetadata,
    ListedOffset,
    ListOffsets,
    Metadata,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_group.wire.types import TopicPartition
from tests.wire import answers
from tests.wire.fake_broker import Answer, ByRequest, FakeBroker

NO_GROUP = 69
FETCH, LIST, METADATA = OffsetFetch.api.key, ListOffsets.api.key, Metadata.api.key
CLASSIC, CONSUMER = DescribeGroups.api.key, ConsumerGroupDescribe.api.key


@contextmanager
def fake_brokers(count: int = 1, *, coordinates: str = "etl") -> Iterator[list[FakeBroker]]:
    """Yield brokers that tell no settings.  The first one coordinates a group or a transactional id."""
    made = [FakeBroker({DescribeConfigs.api.key: answers.configs({})}) for _ in range(count)]
    made[0].answers[FindCoordinator.api.key] = coordinator(made[0], coordinates)
    try:
        yield made
    finally:
        for broker in made:
            broker.close()


@contextmanager
def fake_group(topic: str, committed: Sequence[int], end: int) -> Iterator[FakeBroker]:
    """Yield a broker with a classic group ``etl`` without members.

    Parameters
    ----------
    topic : str
        The topic that the broker leads.
    committed : sequence of int
        The committed offset of each of its partitions.
    end : int
        The end of each log.
    """
    parts = {TopicPartition(topic, n): offset for n, offset in enumerate(committed)}
    with fake_brokers() as (broker,):
        broker.answers |= {
            METADATA: topic_metadata([broker], {topic: len(parts)}),
            CONSUMER: answers.consumer_group(DescribedGroup(NO_GROUP, "", "", 0, ())),
            CLASSIC: classic("Empty"),
            FETCH: fetched(parts),
            LIST: logs(dict.fromkeys(parts, end)),
            ListGroups.api.key: answers.groups(0, ()),
        }
        yield broker


def coordinator(broker: FakeBroker, of: str = "etl") -> Answer:
    return answers.coordinator(Coordinator(0, "", broker.address), of)


def topic_metadata(brokers: Sequence[FakeBroker], topics: Mapping[str, int]) -> Answer:
    """Return metadata of topics with these numbers of partitions.  Brokers 1, 2, ... lead the partitions in turn."""
    addresses = {number: broker.address for number, broker in enumerate(brokers, 1)}
    found = (
        TopicMetadata(name, 0, None, tuple(PartitionMetadata(n, 0, 1 + n % len(addresses), 1) for n in range(count)))
        for name, count in topics.items()
    )
    return answers.metadata(ClusterMetadata(addresses, tuple(found)))


def classic(state: str, error: int = 0) -> Answer:
    return answers.classic_group(DescribedGroup(error, "", state, None, ()))


def fetched(offsets: Mapping[TopicPartition, int], *, epoch: int = -1, error: int = 0) -> Answer:
    """Return an answer with committed offsets; -1 for none."""
    found = {tp: FetchedOffset(error, offset, epoch if offset >= 0 else -1, "") for tp, offset in offsets.items()}
    return answers.offsets(FetchedOffsets(0, found))


def logs(ends: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int] | None = None) -> ByRequest:
    """Return the ends of logs, or their starts if the request asks for these: by default 0."""
    begin = {tp: (starts or {}).get(tp, 0) for tp in ends}
    return ByRequest(lambda asked: listed(begin if struct.pack(">q", LOG_START) in asked.body else ends))


def listed(offsets: Mapping[TopicPartition, int], time_ms: int = -1) -> Answer:
    return answers.listed({tp: ListedOffset(0, offset, time_ms) for tp, offset in offsets.items()})
