"""Answers of brokers, written field by field according to Kafka's message schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec

from pyspark_kafka_group.wire.describe_requests import DescribedGroup, DescribedMember, ListedGroup
from pyspark_kafka_group.wire.fields import Writer
from pyspark_kafka_group.wire.group_requests import Coordinator, FetchedOffset, FetchedOffsets
from pyspark_kafka_group.wire.requests import write_by_topic
from pyspark_kafka_group.wire.topic_requests import (
    ClusterMetadata,
    FoundEpoch,
    ListedOffset,
    PartitionMetadata,
    TopicMetadata,
)
from pyspark_kafka_group.wire.transaction_requests import ActiveProducer, PartitionProducers
from pyspark_kafka_group.wire.transactions import InitializedProducer, ListedTransactions, TransactionState
from pyspark_kafka_group.wire.types import Address, TopicPartition
from tests.wire.fake_broker import Answer

THROTTLE_MS = 7
P = ParamSpec("P")


def _answer(write: Callable[Concatenate[Writer, int, P], None]) -> Callable[P, Answer]:
    """Make an answer from a function that writes its fields, between the throttle time and the tagged fields."""

    def make(*args: P.args, **kwargs: P.kwargs) -> Answer:
        def whole(out: Writer, version: int) -> None:
            out.int32(THROTTLE_MS)
            write(out, version, *args, **kwargs)
            out.end()

        return whole

    return make


@_answer
def configs(out: Writer, version: int, resources: Mapping[str, tuple[int, Mapping[str, str | None]]]) -> None:
    """Write the error and the settings of each resource."""

    def synonym(name: str) -> None:
        out.text(name)
        out.text(None)
        out.int8(5)
        out.end()

    def setting(item: tuple[str, str | None]) -> None:
        out.text(item[0])
        out.text(item[1])
        out.boolean(True)
        out.int8(4)
        out.boolean(item[1] is None)
        out.array(["synonym"], synonym)
        if version >= 3:
            out.int8(2)
            out.text(None)
        out.end()

    def resource(item: tuple[str, tuple[int, Mapping[str, str | None]]]) -> None:
        name, (error, settings) = item
        out.int16(error)
        out.text("message" if error else None)
        out.int8(2)
        out.text(name)
        out.array(settings.items(), setting)
        out.end()

    out.array(resources.items(), resource)


@_answer
def metadata(out: Writer, version: int, found: ClusterMetadata) -> None:
    def broker(item: tuple[int, Address]) -> None:
        out.int32(item[0])
        out.text(item[1].host)
        out.int32(item[1].port)
        out.text("rack" if item[0] % 2 else None)
        out.end()

    def partition(item: PartitionMetadata) -> None:
        out.int16(item.error)
        out.int32(item.number)
        out.int32(item.leader)
        out.int32(item.leader_epoch)
        out.array([item.leader, 99], out.int32)
        out.array([item.leader], out.int32)
        out.array([], out.int32)
        out.end()

    def topic(item: TopicMetadata) -> None:
        out.int16(item.error)
        out.text(item.name)
        if version >= 10:
            out.uuid(item.topic_id)
        out.boolean(False)
        out.array(item.partitions, partition)
        if version >= 8:
            out.int32(bits(item.operations))
        out.end()

    out.array(found.brokers.items(), broker)
    out.text("cluster")
    out.int32(1)
    out.array(found.topics, topic)
    if 8 <= version <= 10:
        out.int32(-(2**31))


@_answer
def listed(out: Writer, _version: int, found: Mapping[TopicPartition, ListedOffset]) -> None:
    def partition(number: int, item: ListedOffset) -> None:
        out.int32(number)
        out.int16(item.error)
        out.int64(item.time_ms)
        out.int64(item.offset)
        out.int32(item.leader_epoch)
        out.end()

    write_by_topic(out, found, partition)


@_answer
def epochs(out: Writer, _version: int, found: Mapping[TopicPartition, FoundEpoch]) -> None:
    def partition(number: int, item: FoundEpoch) -> None:
        out.int16(item.error)
        out.int32(number)
        out.int32(item.leader_epoch)
        out.int64(item.end_offset)
        out.end()

    write_by_topic(out, found, partition)


@_answer
def coordinator(out: Writer, version: int, found: Coordinator, group_id: str = "etl") -> None:
    def address() -> None:
        out.int32(1)
        out.text(found.address.host)
        out.int32(found.address.port)

    def one(key: str) -> None:
        out.text(key)
        address()
        out.int16(found.error)
        out.text(found.message)
        out.end()

    if version < 4:
        out.int16(found.error)
        out.text(found.message)
        address()
    else:
        out.array([group_id], one)


@_answer
def offsets(out: Writer, version: int, found: FetchedOffsets, group_id: str = "etl") -> None:
    def partition(number: int, item: FetchedOffset) -> None:
        out.int32(number)
        out.int64(item.offset)
        out.int32(item.leader_epoch)
        out.text(item.metadata or None)
        out.int16(item.error)
        out.end()

    def group(key: str) -> None:
        if version >= 8:
            out.text(key)
        write_by_topic(out, found.partitions, partition)
        out.int16(found.error)
        if version >= 8:
            out.end()

    if version >= 8:
        out.array([group_id], group)
    else:
        group(group_id)


@_answer
def commits(out: Writer, _version: int, found: Mapping[TopicPartition, int]) -> None:
    def partition(number: int, error: int) -> None:
        out.int32(number)
        out.int16(error)
        out.end()

    write_by_topic(out, found, partition)


def bits(operations: frozenset[int] | None) -> int:
    return -(2**31) if operations is None else sum(1 << number for number in operations)


def consumer_subscription(topics: Sequence[str]) -> bytes:
    """Return the subscription that a member of a classic group sends to its leader."""
    out = Writer(flexible=False)
    out.int16(3)
    out.array(topics, out.text)
    out.data(b"user data")
    return bytes(out)


def consumer_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """Return the assignment that a leader writes for a member of a classic group."""
    out = Writer(flexible=False)
    out.int16(3)
    write_by_topic(out, dict.fromkeys(partitions), lambda number, _: out.int32(number))
    out.data(b"user data")
    return bytes(out)


@_answer
def groups(out: Writer, version: int, error: int, found: Sequence[ListedGroup]) -> None:
    def group(item: ListedGroup) -> None:
        out.text(item.group_id)
        out.text(item.protocol_type)
        if version >= 4:
            out.text("Stable")
        if version >= 5:
            out.text(item.kind)
        out.end()

    out.int16(error)
    out.array(found, group)


@_answer
def classic_group(
    out: Writer, _version: int, found: DescribedGroup, protocol_type: str = "consumer", group_id: str = "etl"
) -> None:
    def member(item: DescribedMember) -> None:
        out.text(item.member_id)
        out.text(item.instance_id)
        out.text(item.client_id)
        out.text(item.host)
        out.data(b"subscription" if item.subscription is None else consumer_subscription(sorted(item.subscription)))
        out.data(consumer_assignment(sorted(item.assignment)) if item.assignment else b"")
        out.end()

    def group(key: str) -> None:
        out.int16(found.error)
        out.text(key)
        out.text(found.state)
        out.text(protocol_type)
        out.text(found.assignor)
        out.array(found.members, member)
        out.int32(bits(found.operations))
        out.end()

    out.array([group_id], group)


@_answer
def consumer_group(out: Writer, version: int, found: DescribedGroup, group_id: str = "etl") -> None:
    def assignment(partitions: frozenset[TopicPartition]) -> None:
        def topic(name: str) -> None:
            out.uuid("QtOXfeWAR9uadceaKEMIPw")
            out.text(name)
            out.array(sorted(tp.partition for tp in partitions if tp.topic == name), out.int32)
            out.end()

        out.array(sorted({tp.topic for tp in partitions}), topic)
        out.end()

    def member(item: DescribedMember) -> None:
        out.text(item.member_id)
        out.text(item.instance_id)
        out.text("rack")
        out.int32(item.member_epoch or 0)
        out.text(item.client_id)
        out.text(item.host)
        out.array(sorted(item.subscription or ()), out.text)
        out.text(None)
        assignment(item.assignment)
        assignment(item.target or frozenset())
        if version >= 1:
            out.int8({None: -1, True: 0, False: 1}[item.speaks_classic])
        out.end()

    def group(key: str) -> None:
        out.int16(found.error)
        out.text(found.message or None)
        out.text(key)
        out.text(found.state)
        out.int32(found.epoch or 0)
        out.int32(found.epoch or 0)
        out.text(found.assignor)
        out.array(found.members, member)
        out.int32(bits(found.operations))
        out.end()

    out.array([group_id], group)


@_answer
def producers(out: Writer, _version: int, found: Mapping[TopicPartition, PartitionProducers]) -> None:
    def producer(item: ActiveProducer) -> None:
        out.int64(item.producer_id)
        out.int32(1)
        out.int32(2)
        out.int64(item.last_time_ms)
        out.int32(3)
        out.int64(item.open_since)
        out.end()

    def partition(number: int, item: PartitionProducers) -> None:
        out.int32(number)
        out.int16(item.error)
        out.text("why" if item.error else None)
        out.array(item.producers, producer)
        out.end()

    write_by_topic(out, found, partition)


@_answer
def transaction_state(out: Writer, _version: int, found: TransactionState, transactional_id: str = "x") -> None:
    def partitions(number: int, _: None) -> None:
        out.int32(number)

    def state(key: str) -> None:
        out.int16(found.error)
        out.text(key)
        out.text(found.state)
        out.int32(found.timeout_ms)
        out.int64(1_000)
        out.int64(found.producer_id)
        out.int16(found.producer_epoch)
        write_by_topic(out, {TopicPartition("t", 0): None, TopicPartition("t", 1): None}, partitions)
        out.end()

    out.array([transactional_id], state)


@_answer
def transaction_end(out: Writer, _version: int, error: int) -> None:
    out.int16(error)


@_answer
def transactions(out: Writer, _version: int, found: ListedTransactions) -> None:
    def listed(transactional_id: str) -> None:
        out.text(transactional_id)
        out.int64(7)
        out.text("Ongoing")
        out.end()

    out.int16(found.error)
    out.array(["Unheard"], out.text)
    out.array(found.transactional_ids, listed)


@_answer
def initialized(out: Writer, _version: int, found: InitializedProducer) -> None:
    out.int16(found.error)
    out.int64(found.producer_id)
    out.int16(found.producer_epoch)


def produced(errors: Mapping[TopicPartition, int], throttle_ms: int = 0) -> Answer:
    """Return the answer to Produce, whose throttle time comes last."""

    def partition(out: Writer, number: int, error: int) -> None:
        out.int32(number)
        out.int16(error)
        for _ in ("first offset", "time of the append", "log start"):
            out.int64(-1)

    def whole(out: Writer, _version: int) -> None:
        write_by_topic(out, errors, lambda number, error: partition(out, number, error))
        out.int32(throttle_ms)

    return whole
