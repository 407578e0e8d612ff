"""What tools ask the cluster, over real sockets to brokers that answer what the test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_kafka_group.offsets.cluster.cluster_answers import CommittedOffset
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_inspection import Coordinator, GroupInspection, open_group_inspection
from pyspark_kafka_group.offsets.errors import AuthenticationError
from pyspark_kafka_group.offsets.types import Offset
from pyspark_kafka_group.wire import group_requests as group_wire
from pyspark_kafka_group.wire.group_requests import FetchedOffset, FetchedOffsets, FindCoordinator, OffsetFetch
from pyspark_kafka_group.wire.topic_requests import (
    ClusterMetadata,
    ListedOffset,
    ListOffsets,
    Metadata,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_group.wire.types import Address, TopicPartition
from tests.wire import answers
from tests.wire.fake_broker import Answer, FakeBroker

FIND, METADATA, FETCH, LIST = FindCoordinator.api.key, Metadata.api.key, OffsetFetch.api.key, ListOffsets.api.key
LOADING, TOPIC_REFUSED, GROUP_REFUSED, NO_GROUP, UNKNOWN_TOPIC = 14, 29, 30, 69, 3
TPS = [TopicPartition("orders", n) for n in range(3)]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker()
    made.answers[FIND] = answers.coordinator(group_wire.Coordinator(0, "", made.address))
    made.answers[METADATA] = metadata(made)
    yield made
    made.close()


@pytest.fixture
def inspection(broker: FakeBroker) -> Iterator[GroupInspection]:
    made = open_group_inspection({"bootstrap.servers": str(broker.address)}, client_id="cli")
    assert made is not None
    yield made
    made.close()


def metadata(broker: FakeBroker, error: int = 0, leader: int = 7) -> Answer:
    """Broker 7 leads all but the last partition, which nobody leads."""
    partitions = tuple(PartitionMetadata(n, 0, leader if n < 2 else -1, 10 + n) for n in range(3))
    topic = TopicMetadata("orders", error, None, () if error else partitions)
    return answers.metadata(ClusterMetadata({7: broker.address}, (topic,)))


def test_all_that_a_group_has_committed_is_found(broker: FakeBroker, inspection: GroupInspection) -> None:
    broker.answers[FETCH] = answers.offsets(
        FetchedOffsets(
            0,
            {
                TPS[0]: FetchedOffset(0, 5, 2, "note\0"),
                TPS[1]: FetchedOffset(0, 6, -1, ""),
                TPS[2]: FetchedOffset(UNKNOWN_TOPIC, -1, -1, ""),
            },
        )
    )
    found, failed = inspection.all_committed("etl")
    assert found == {TPS[0]: CommittedOffset(Offset(5), 2, "note"), TPS[1]: CommittedOffset(Offset(6), None, "")}
    assert failed == {TPS[2]: "UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_group_that_does_not_exist_has_committed_nothing(broker: FakeBroker, inspection: GroupInspection) -> None:
    broker.answers[FETCH] = answers.offsets(FetchedOffsets(NO_GROUP, {}))
    assert inspection.all_committed("etl") == ({}, {})


def test_a_coordinator_that_loads_is_asked_again_and_a_missing_right_is_an_error(
    broker: FakeBroker, inspection: GroupInspection
) -> None:
    broker.answers[FETCH] = answers.offsets(FetchedOffsets(LOADING, {}))
    with pytest.raises(TryAgainError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        inspection.all_committed("etl")
    broker.answers[FETCH] = answers.offsets(FetchedOffsets(GROUP_REFUSED, {}))
    with pytest.raises(AuthenticationError, match="etl"):
        inspection.all_committed("etl")


def test_the_coordinator_has_the_id_that_the_cluster_lists(broker: FakeBroker, inspection: GroupInspection) -> None:
    assert inspection.coordinator("etl") == Coordinator(7, broker.address)


def test_a_coordinator_that_the_cluster_does_not_list_has_no_id(
    broker: FakeBroker, inspection: GroupInspection
) -> None:
    broker.answers[METADATA] = answers.metadata(ClusterMetadata({7: Address("elsewhere", 1)}, ()))
    assert inspection.coordinator("etl") == Coordinator(None, broker.address)


def test_leaders_of_a_topic(broker: FakeBroker, inspection: GroupInspection) -> None:
    assert inspection.leaders("orders") == {0: 7, 1: 7, 2: -1}
    broker.answers[METADATA] = metadata(broker, UNKNOWN_TOPIC)
    assert inspection.leaders("orders") == {}
    broker.answers[METADATA] = metadata(broker, TOPIC_REFUSED)
    with pytest.raises(AuthenticationError, match="orders"):
        inspection.leaders("orders")


def test_a_log_that_has_not_grown_since_has_no_offset_of_that_time(
    broker: FakeBroker, inspection: GroupInspection
) -> None:
    broker.answers[LIST] = answers.listed({TPS[0]: ListedOffset(0, 5), TPS[1]: ListedOffset(0, -1)})
    assert inspection.ends_at(dict.fromkeys(TPS, 99)) == ({TPS[0]: Offset(5)}, {TPS[2]: "LEADER_NOT_AVAILABLE"})


def test_what_only_librdkafka_can_connect_to_is_not_asked() -> None:
    assert open_group_inspection({"bootstrap.servers": "a:1", "ssl.engine.location": "x"}, client_id="cli") is None
