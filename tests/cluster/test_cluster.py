"""The requests of the tools, over real sockets to fake brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_group.cluster.cluster import Cluster, connect
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset, DatedOffset, GroupCoordinator
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import GroupProtocol
from pyspark_kafka_group.offsets.errors import AuthenticationError, KafkaGroupError, OptionError
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.wire import group_requests as group_wire
from pyspark_kafka_group.wire.describe_requests import ConsumerGroupDescribe, DescribedGroup, DescribeGroups
from pyspark_kafka_group.wire.group_requests import FetchedOffset, FetchedOffsets, FindCoordinator, OffsetFetch
from pyspark_kafka_group.wire.topic_requests import (
    ClusterMetadata,
    ListedOffset,
    ListOffsets,
    Metadata,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_group.wire.transaction_requests import ActiveProducer, DescribeProducers, PartitionProducers
from pyspark_kafka_group.wire.types import Address, TopicPartition
from tests.wire import answers
from tests.wire.fake_broker import Answer, FakeBroker
from tests.wire.fake_group import fake_brokers

FIND, METADATA, FETCH, LIST = FindCoordinator.api.key, Metadata.api.key, OffsetFetch.api.key, ListOffsets.api.key
LOADING, TOPIC_REFUSED, GROUP_REFUSED, NO_GROUP, UNKNOWN_TOPIC = 14, 29, 30, 69, 3
TRANSACTIONAL_ID_REFUSED = 53
TPS = [TopicPartition("orders", n) for n in range(3)]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_brokers() as (made,):
        made.answers[METADATA] = metadata(made)
        yield made


@pytest.fixture
def inspection(broker: FakeBroker) -> Iterator[Cluster]:
    made = connect({"bootstrap.servers": str(broker.address)}, client_id="cli")
    assert made is not None
    yield made
    made.close()


def metadata(broker: FakeBroker, error: int = 0, leader: int = 7) -> Answer:
    """Return metadata in which broker 7 leads all partitions but the last, which has no leader."""
    partitions = tuple(PartitionMetadata(n, 0, leader if n < 2 else -1, 10 + n) for n in range(3))
    topic = TopicMetadata("orders", error, None, () if error else partitions)
    return answers.metadata(ClusterMetadata({7: broker.address}, (topic,)))


def test_all_that_a_group_has_committed_is_found(broker: FakeBroker, inspection: Cluster) -> None:
    offsets = FetchedOffset(0, 5, 2, "note\0"), FetchedOffset(0, 6, -1, ""), FetchedOffset(UNKNOWN_TOPIC, -1, -1, "")
    broker.answers[FETCH] = answers.offsets(FetchedOffsets(0, dict(zip(TPS, offsets, strict=True))))
    found, failed = inspection.all_committed("etl")
    assert found == {TPS[0]: CommittedOffset(Offset(5), 2, "note"), TPS[1]: CommittedOffset(Offset(6), None, "")}
    assert failed == {TPS[2]: "UNKNOWN_TOPIC_OR_PARTITION"}


def test_answers_about_the_whole_group(broker: FakeBroker, inspection: Cluster) -> None:
    broker.answers[FETCH] = answers.offsets(FetchedOffsets(NO_GROUP, {}))
    assert inspection.all_committed("etl") == ({}, {}), "it does not exist"
    broker.answers[FETCH] = answers.offsets(FetchedOffsets(LOADING, {}))
    with pytest.raises(TryAgainError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        inspection.all_committed("etl")
    broker.answers[FETCH] = answers.offsets(FetchedOffsets(GROUP_REFUSED, {}))
    with pytest.raises(AuthenticationError, match="etl"):
        inspection.all_committed("etl")


def test_the_coordinator_has_the_id_that_the_cluster_lists(broker: FakeBroker, inspection: Cluster) -> None:
    assert inspection.coordinator("etl") == GroupCoordinator(7, broker.address)
    broker.answers[METADATA] = answers.metadata(ClusterMetadata({7: Address("elsewhere", 1)}, ()))
    assert inspection.coordinator("etl") == GroupCoordinator(None, broker.address)


def test_leaders_of_a_topic(broker: FakeBroker, inspection: Cluster) -> None:
    assert inspection.leaders("orders") == {0: 7, 1: 7, 2: -1}
    broker.answers[METADATA] = metadata(broker, UNKNOWN_TOPIC)
    assert inspection.leaders("orders") == {}
    broker.answers[METADATA] = metadata(broker, TOPIC_REFUSED)
    assert inspection.leaders("orders") == {}


def test_a_log_that_has_not_grown_since_has_no_offset_of_that_time(broker: FakeBroker, inspection: Cluster) -> None:
    broker.answers[LIST] = answers.listed({TPS[0]: ListedOffset(0, 5), TPS[1]: ListedOffset(0, -1)})
    assert inspection.at_times(dict.fromkeys(TPS, 99)) == ({TPS[0]: Offset(5)}, {TPS[2]: "LEADER_NOT_AVAILABLE"})


def test_the_first_record_of_a_time_comes_with_its_own_time(broker: FakeBroker, inspection: Cluster) -> None:
    broker.answers[LIST] = answers.listed({TPS[0]: ListedOffset(0, 5, 77), TPS[1]: ListedOffset(0, -1, -1)})
    found, failed = inspection.records_at(dict.fromkeys(TPS, 70))
    assert found == {TPS[0]: DatedOffset(Offset(5), 77), TPS[1]: None}
    assert failed == {TPS[2]: "LEADER_NOT_AVAILABLE"}


def test_what_the_user_may_do_is_told(broker: FakeBroker, inspection: Cluster) -> None:
    topic = TopicMetadata("orders", 0, None, (), frozenset({3, 8}))
    hidden = TopicMetadata("secret", TOPIC_REFUSED, None, ())
    broker.answers[METADATA] = answers.metadata(ClusterMetadata({7: broker.address}, (topic, hidden)))
    assert [topic.operations for topic in inspection.brokers_and_topics(["orders", "secret"]).topics] == [
        frozenset({3, 8}),
        None,
    ]
    group = DescribedGroup(0, "", "Empty", None, (), "consumer", "range", frozenset({8}))
    broker.answers[ConsumerGroupDescribe.api.key] = answers.consumer_group(DescribedGroup(NO_GROUP, "", "", 0, ()))
    broker.answers[DescribeGroups.api.key] = answers.classic_group(group)
    assert inspection.describe_fully("etl") == (group, GroupProtocol.CLASSIC)


def test_a_transactional_id_that_is_refused_is_named(broker: FakeBroker, inspection: Cluster) -> None:
    assert inspection.transaction_coordinator("kafka-group-etl-q") == "NONE"
    refused = group_wire.Coordinator(TRANSACTIONAL_ID_REFUSED, "", Address("", -1))
    broker.answers[FIND] = answers.coordinator(refused)
    assert inspection.transaction_coordinator("kafka-group-etl-q") == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def test_producers_of_a_partition_and_what_a_broker_speaks(broker: FakeBroker, inspection: Cluster) -> None:
    producers = PartitionProducers(0, (ActiveProducer(5, 77, 9), ActiveProducer(6, -1, -1)))
    broker.answers[DescribeProducers.api.key] = answers.producers({TPS[0]: producers})
    assert inspection.producers([TPS[0]]) == ({TPS[0]: producers}, {})
    assert inspection.offered_versions(broker.address) == broker.offered
    del broker.offered[DescribeProducers.api.key]
    broker.disconnect()
    with pytest.raises(KafkaGroupError):
        inspection.producers([TPS[0]])


def test_a_property_that_cannot_be_served_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.ssl\.curves\.list"):
        connect({"bootstrap.servers": "a:1", "ssl.curves.list": "x"}, client_id="cli")
