"""Our own requests return the same as librdkafka and Kafka's tools, on real brokers and under both protocols."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, Producer, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from integration.consumers import Group
from integration.pipelines import answered, wait_for
from pyspark_kafka_group.cluster.cluster import Cluster, connect
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupProtocol
from pyspark_kafka_group.cluster.group_identity import group_identity
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.kafka import Kafka

PROTOCOLS = ["classic", "consumer"]
Join = Callable[..., Consumer]


def open_requests(properties: dict[str, str]) -> Cluster:
    return connect(properties, client_id="etl-offsets")


@pytest.fixture
def requests(kafka: Kafka) -> Iterator[Cluster]:
    made = open_requests({"bootstrap.servers": kafka.bootstrap_servers})
    yield made
    made.close()


@pytest.fixture
def group() -> str:
    return f"etl-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def join(kafka: Kafka, group: str) -> Iterator[Join]:
    """Yield a function that joins the test's group, once for each client id, and waits for the assignments."""
    members = Group(kafka.bootstrap_servers, group)
    yield members.join
    members.leave()


def told_by_admin_client(kafka: Kafka, group: str) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    found: ConsumerGroupDescription = admin.describe_consumer_groups([group], request_timeout=10)[group].result()
    return found


def summary(found: ConsumerGroupDescription) -> dict[str, tuple[str | None, str, str, frozenset[TopicPartition]]]:
    return {
        member.member_id: (
            member.group_instance_id,
            member.client_id,
            member.host,
            frozenset(TopicPartition(part.topic, part.partition) for part in member.assignment.topic_partitions),
        )
        for member in found.members
    }


def our_summary(found: GroupDescription) -> dict[str, tuple[str | None, str, str, frozenset[TopicPartition]]]:
    return {
        member.member_id: (member.instance_id, member.client_id, member.host, member.assignment)
        for member in found.members
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_is_described_as_by_librdkafka(
    kafka: Kafka, topic: TopicFactory, requests: Cluster, group: str, join: Join, protocol: str
) -> None:
    name = topic(partitions=5)
    join(name, "alice", group_protocol=protocol)
    join(name, "bob", group_protocol=protocol, group_instance_id=f"static-{group}")
    wait_for(lambda: requests.describe_group(group).state == "Stable", "the group is stable", timeout_s=30)
    ours, theirs = requests.describe_group(group), told_by_admin_client(kafka, group)
    assert our_summary(ours) == summary(theirs)
    assert {client for _, client, _, _ in our_summary(ours).values()} == {"alice", "bob"}
    assert sorted(tp for member in ours.members for tp in member.assignment) == [
        TopicPartition(name, n) for n in range(5)
    ]
    assert (ours.protocol is GroupProtocol.CONSUMER) == (theirs.type == ConsumerGroupType.CONSUMER)
    assert ours.protocol.value == protocol
    if protocol == "consumer":
        assert all(member.target == member.assignment for member in ours.members)
        assert {member.member_epoch for member in ours.members} == {ours.epoch}


def test_what_shall_be_let_go_is_in_the_assignment_and_not_in_the_target(
    topic: TopicFactory, requests: Cluster, group: str, join: Join, kafka: Kafka
) -> None:
    """KIP-848: the old owner has not polled yet.  Its assignment still contains the partition of the new owner."""
    name = topic(partitions=2)
    join(name, "alice", group_protocol="consumer")
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    bob = Consumer({**servers, "group.id": group, "client.id": "bob", "group.protocol": "consumer"})
    bob.subscribe([name])
    try:

        def waiting() -> bool:
            bob.poll(0.05)
            members = {member.client_id: member for member in requests.describe_group(group).members}
            if members.keys() != {"alice", "bob"} or not members["bob"].target:
                return False
            alice, newcomer = members["alice"], members["bob"]
            assert newcomer.target is not None
            assert alice.target is not None
            return alice.assignment > alice.target and not newcomer.assignment and newcomer.target < alice.assignment

        wait_for(waiting, "bob waits for what alice has", timeout_s=30)
        assert requests.describe_group(group).state == "Reconciling"
    finally:
        bob.close()


def test_an_open_transaction_holds_up_its_own_partition_only(
    kafka: Kafka, topic: TopicFactory, requests: Cluster, group: str, join: Join
) -> None:
    name = topic(partitions=2)
    committed, pending = TopicPartition(name, 0), TopicPartition(name, 1)
    answered(lambda: requests.committed(group, [committed], require_stable=True))
    requests.commit(group, "", -1, None, {committed: (Offset(3), None, ""), pending: (Offset(4), None, "")})
    member = join(name, "alice")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    metadata = member.consumer_group_metadata()
    producer.send_offsets_to_transaction([KafkaPartition(*pending, 9)], metadata, 30)
    asked = [committed, pending]
    found, failed = requests.committed(group, asked, require_stable=True)
    assert {tp: answer.offset for tp, answer in found.items()} == {committed: 3}
    assert failed == {pending: "UNSTABLE_OFFSET_COMMIT"}
    found, failed = requests.committed(group, asked, require_stable=False)
    assert {tp: answer.offset for tp, answer in found.items()} == {committed: 3, pending: 4}
    assert not failed
    producer.commit_transaction(30)

    def stable() -> bool:
        found, failed = requests.committed(group, asked, require_stable=True)
        return not failed and found[pending].offset == 9

    wait_for(stable, "the transaction is over", timeout_s=30)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_is_fenced_by_member_and_generation(
    topic: TopicFactory, requests: Cluster, group: str, join: Join, protocol: str
) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    identity = group_identity(join(name, "alice", group_protocol=protocol).consumer_group_metadata())
    generation, member_id, _ = identity

    def refused(member: str, generation: int, instance: str | None = None) -> str | None:
        return requests.commit(group, member, generation, instance, {tp: (Offset(1), None, "")}).get(tp)

    assert refused(member_id, generation) is None
    assert refused("nobody", generation) == "UNKNOWN_MEMBER_ID"
    assert refused("", -1) == "UNKNOWN_MEMBER_ID", "the group is not empty"
    wrong = {refused(member_id, generation + 1), refused(member_id, generation - 1)}
    assert wrong == ({"ILLEGAL_GENERATION"} if protocol == "classic" else {"STALE_MEMBER_EPOCH"})
    nowhere = TopicPartition(f"{name}-no-more", 0)
    offsets = {tp: (Offset(2), 0, "x"), nowhere: (Offset(2), None, "")}
    assert requests.commit(group, member_id, generation, None, offsets) == {nowhere: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert requests.committed(group, [tp], require_stable=True).found[tp] == CommittedOffset(Offset(2), 0, "x")


def test_topic_ids_are_those_of_the_cluster(kafka: Kafka, topic: TopicFactory, requests: Cluster) -> None:
    """Regression: librdkafka prints topic ids with other characters.  Every second id seemed to differ from Kafka's."""
    names = [topic(partitions=3) for _ in range(8)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    asked = admin.describe_topics(TopicCollection(names), request_timeout=10)
    found = requests.topics([*names, f"{names[0]}-no-more"])
    assert found.keys() == {*names}
    assert {name: info.topic_id for name, info in found.items()} == {
        # librdkafka 2.16 prints base64 with + and /; Kafka prints it with - and _.
        name: str(future.result().topic_id).translate(str.maketrans("+/", "-_"))
        for name, future in asked.items()
    }
    assert found[names[0]].leader_epochs.keys() == {0, 1, 2}
    assert {name: requests.all_topics()[name] for name in names} == found
