"""Answers of brokers, written field by field according to Kafka's message schemas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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


def fields(out: Writer, schema: str, *values: object) -> None:
    """Write ``values`` as the fields of a schema, for example ``"int16 text int32[]"``."""
    for kind, value in zip(schema.split(), values, strict=True):
        write = getattr(out, kind.removesuffix("[]"))
        if kind.endswith("[]"):
            assert value is None or isinstance(value, Collection)
            out.array(value, write)
        else:
            write(value)


def structure(out: Writer, schema: str, *values: object) -> None:
    """Write the fields of a whole structure, which ends with its tagged fields."""
    fields(out, schema, *values)
    out.end()


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

    def setting(item: tuple[str, str | None]) -> None:
        fields(out, "text text boolean int8 boolean", *item, True, 4, item[1] is None)
        out.array(["synonym"], lambda name: structure(out, "text text int8", name, None, 5))
        if version >= 3:
            fields(out, "int8 text", 2, None)
        out.end()

    def resource(item: tuple[str, tuple[int, Mapping[str, str | None]]]) -> None:
        name, (error, settings) = item
        fields(out, "int16 text int8 text", error, "message" if error else None, 2, name)
        out.array(settings.items(), setting)
        out.end()

    out.array(resources.items(), resource)


@_answer
def metadata(out: Writer, version: int, found: ClusterMetadata) -> None:
    def broker(item: tuple[int, Address]) -> None:
        number, address = item
        structure(out, "int32 text int32 text", number, address.host, address.port, "rack" if number % 2 else None)

    def partition(item: PartitionMetadata) -> None:
        fields(out, "int16 int32 int32 int32", item.error, item.number, item.leader, item.leader_epoch)
        structure(out, "int32[] int32[] int32[]", [item.leader, 99], [item.leader], [])

    def topic(item: TopicMetadata) -> None:
        fields(out, "int16 text", item.error, item.name)
        if version >= 10:
            out.uuid(item.topic_id)
        out.boolean(False)
        out.array(item.partitions, partition)
        if version >= 8:
            out.int32(bits(item.operations))
        out.end()

    out.array(found.brokers.items(), broker)
    fields(out, "text int32", found.cluster_id, 1)
    out.array(found.topics, topic)
    if 8 <= version <= 10:
        out.int32(-(2**31))


@_answer
def listed(out: Writer, _version: int, found: Mapping[TopicPartition, ListedOffset]) -> None:
    def partition(number: int, item: ListedOffset) -> None:
        fields(out, "int32 int16 int64", number, item.error, item.time_ms)
        structure(out, "int64 int32", item.offset, item.leader_epoch)

    write_by_topic(out, found, partition)


@_answer
def epochs(out: Writer, _version: int, found: Mapping[TopicPartition, FoundEpoch]) -> None:
    def partition(number: int, item: FoundEpoch) -> None:
        structure(out, "int16 int32 int32 int64", item.error, number, item.leader_epoch, item.end_offset)

    write_by_topic(out, found, partition)


@_answer
def coordinator(out: Writer, version: int, found: Coordinator, group_id: str = "etl") -> None:
    _coordinators(out, version, {group_id: found})


@_answer
def coordinators(out: Writer, _version: int, found: Mapping[str, Coordinator]) -> None:
    _coordinators(out, 4, found)


def _coordinators(out: Writer, version: int, found: Mapping[str, Coordinator]) -> None:
    """Write the coordinators of groups or transactional ids; of one, before version 4."""

    def one(item: tuple[str, Coordinator]) -> None:
        key, place = item
        fields(out, "text int32 text int32", key, 1, place.address.host, place.address.port)
        structure(out, "int16 text", place.error, place.message)

    if version < 4:
        (place,) = found.values()
        fields(out, "int16 text", place.error, place.message)
        fields(out, "int32 text int32", 1, place.address.host, place.address.port)
    else:
        out.array(found.items(), one)


@_answer
def offsets(out: Writer, version: int, found: FetchedOffsets, group_id: str = "etl") -> None:
    def partition(number: int, item: FetchedOffset) -> None:
        fields(out, "int32 int64 int32", number, item.offset, item.leader_epoch)
        structure(out, "text int16", item.metadata or None, item.error)

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
    write_by_topic(out, found, lambda number, error: structure(out, "int32 int16", number, error))


def bits(operations: frozenset[int] | None) -> int:
    return -(2**31) if operations is None else sum(1 << number for number in operations)


def consumer_subscription(topics: Sequence[str]) -> bytes:
    """Return the subscription that a member of a classic group sends to its leader."""
    out = Writer(flexible=False)
    fields(out, "int16 text[] data", 3, topics, b"user data")
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
        fields(out, "text text", item.group_id, item.protocol_type)
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
        fields(out, "text text text text", item.member_id, item.instance_id, item.client_id, item.host)
        out.data(b"subscription" if item.subscription is None else consumer_subscription(sorted(item.subscription)))
        structure(out, "data", consumer_assignment(sorted(item.assignment)) if item.assignment else b"")

    def group(key: str) -> None:
        fields(out, "int16 text text text text", found.error, key, found.state, protocol_type, found.assignor)
        out.array(found.members, member)
        structure(out, "int32", bits(found.operations))

    out.array([group_id], group)


@_answer
def consumer_group(out: Writer, version: int, found: DescribedGroup, group_id: str = "etl") -> None:
    def assignment(partitions: frozenset[TopicPartition]) -> None:
        def topic(name: str) -> None:
            numbers = sorted(tp.partition for tp in partitions if tp.topic == name)
            structure(out, "uuid text int32[]", "QtOXfeWAR9uadceaKEMIPw", name, numbers)

        out.array(sorted({tp.topic for tp in partitions}), topic)
        out.end()

    def member(item: DescribedMember) -> None:
        fields(out, "text text text int32", item.member_id, item.instance_id, "rack", item.member_epoch or 0)
        fields(out, "text text text[] text", item.client_id, item.host, sorted(item.subscription or ()), None)
        assignment(item.assignment)
        assignment(item.target or frozenset())
        if version >= 1:
            out.int8({None: -1, True: 0, False: 1}[item.speaks_classic])
        out.end()

    def group(key: str) -> None:
        epoch = found.epoch or 0
        fields(out, "int16 text text text", found.error, found.message or None, key, found.state)
        fields(out, "int32 int32 text", epoch, epoch, found.assignor)
        out.array(found.members, member)
        structure(out, "int32", bits(found.operations))

    out.array([group_id], group)


@_answer
def producers(out: Writer, _version: int, found: Mapping[TopicPartition, PartitionProducers]) -> None:
    def producer(item: ActiveProducer) -> None:
        fields(out, "int64 int32 int32 int64", item.producer_id, 1, 2, item.last_time_ms)
        structure(out, "int32 int64", 3, item.open_since)

    def partition(number: int, item: PartitionProducers) -> None:
        fields(out, "int32 int16 text", number, item.error, "why" if item.error else None)
        out.array(item.producers, producer)
        out.end()

    write_by_topic(out, found, partition)


@_answer
def transaction_state(out: Writer, _version: int, found: TransactionState, transactional_id: str = "x") -> None:
    def state(key: str) -> None:
        fields(out, "int16 text text int32", found.error, key, found.state, found.timeout_ms)
        fields(out, "int64 int64 int16", 1_000, found.producer_id, found.producer_epoch)
        partitions = {TopicPartition("t", 0): None, TopicPartition("t", 1): None}
        write_by_topic(out, partitions, lambda number, _: out.int32(number))
        out.end()

    out.array([transactional_id], state)


@_answer
def transaction_end(out: Writer, _version: int, error: int) -> None:
    out.int16(error)


@_answer
def transactions(out: Writer, _version: int, found: ListedTransactions) -> None:
    fields(out, "int16 text[]", found.error, ["Unheard"])
    out.array(found.transactional_ids, lambda name: structure(out, "text int64 text", name, 7, "Ongoing"))


@_answer
def initialized(out: Writer, _version: int, found: InitializedProducer) -> None:
    fields(out, "int16 int64 int16", found.error, found.producer_id, found.producer_epoch)


def produced(errors: Mapping[TopicPartition, int], throttle_ms: int = 0) -> Answer:
    """Return the answer to Produce, whose throttle time comes last."""

    def whole(out: Writer, _version: int) -> None:
        def partition(number: int, error: int) -> None:
            first_offset = append_time = log_start = -1
            fields(out, "int32 int16 int64 int64 int64", number, error, first_offset, append_time, log_start)

        write_by_topic(out, errors, partition)
        out.int32(throttle_ms)

    return whole
