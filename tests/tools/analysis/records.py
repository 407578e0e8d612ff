"""Bytes of ``__consumer_offsets``, written field by field according to Kafka's schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_kafka_group.wire.fields import Writer
from pyspark_kafka_group.wire.types import TopicPartition

GROUP = "etl"
TP = TopicPartition("orders", 3)
TOPIC_ID = "QtOXfeWAR9uadceaKEMIPw"


def key(kind: int, *texts: str, partition: int | None = None) -> bytes:
    out = Writer(flexible=False)
    out.int16(kind)
    for text in texts:
        out.text(text)
    if partition is not None:
        out.int32(partition)
    return bytes(out)


def offset_key(group: str = GROUP, tp: TopicPartition = TP, kind: int = 1) -> bytes:
    return key(kind, group, tp.topic, partition=tp.partition)


def offset_value(
    offset: int,
    *,
    version: int = 3,
    epoch: int = 7,
    metadata: str = "",
    time_ms: int = 1_000,
    expires: int = -1,
    topic_id: str | None = None,
) -> bytes:
    head, out = Writer(flexible=False), Writer(flexible=version >= 4)
    head.int16(version)
    out.int64(offset)
    if version >= 3:
        out.int32(epoch)
    out.text(metadata)
    out.int64(time_ms)
    if version == 1:
        out.int64(expires)
    if version >= 4:
        out.varint(1 if topic_id else 0)
        if topic_id:
            out.varint(0)
            out.varint(16)
            out.uuid(topic_id)
    return bytes(head) + bytes(out)


def assignment(partitions: Sequence[TopicPartition], version: int = 1) -> bytes:
    """Return a ConsumerProtocolAssignment, as clients write it, with null user data."""
    out = Writer(flexible=False)
    out.int16(version)
    topics = sorted({tp.topic for tp in partitions})

    def topic(name: str) -> None:
        out.text(name)
        out.array([tp.partition for tp in partitions if tp.topic == name], out.int32)

    out.array(topics, topic)
    out.data(None)
    return bytes(out)


def classic_value(
    members: Mapping[str, bytes], *, version: int = 3, protocol_type: str = "consumer", generation: int = 4
) -> bytes:
    """Return the value of a classic group.  The client id of member ``m`` is ``client-m``."""
    head, out = Writer(flexible=False), Writer(flexible=version >= 4)
    head.int16(version)
    out.text(protocol_type)
    out.int32(generation)
    out.text("cooperative-sticky" if members else None)
    out.text(next(iter(members), None))
    if version >= 2:
        out.int64(5_000)

    def member(name: str) -> None:
        out.text(name)
        if version >= 3:
            out.text(f"static-{name}")
        out.text(f"client-{name}")
        out.text("/10.0.0.1")
        if version >= 1:
            out.int32(300_000)
        out.int32(45_000)
        out.data(b"subscription")
        out.data(members[name])
        out.end()

    out.array(members, member)
    out.end()
    return bytes(head) + bytes(out)


def flexible() -> Writer:
    """Return a writer that begins a value of KIP-848, version 0."""
    out = Writer(flexible=True)
    out.int16(0)
    return out


def write_partitions(out: Writer, partitions: Mapping[str, Sequence[int]]) -> None:
    def topic(topic_id: str) -> None:
        out.uuid(topic_id)
        out.array(partitions[topic_id], out.int32)
        out.varint(1)  # AssignmentEpochs (Kafka 4.3), a tagged field
        out.varint(0)
        out.varint(2)
        out.int8(2)
        out.int8(9)

    out.array(partitions, topic)


def epoch_value(epoch: int) -> bytes:
    out = flexible()
    out.int32(epoch)
    out.varint(1)  # MetadataHash (Kafka 4.1), a tagged field
    out.varint(0)
    out.varint(8)
    out.int64(99)
    return bytes(out)


def member_value(client_id: str = "client-a", topics: Sequence[str] = ("orders",)) -> bytes:
    out = flexible()
    out.text("static-a")
    out.text(None)  # rack
    out.text(client_id)
    out.text("/10.0.0.1")
    out.array(topics, out.text)
    out.text(None)  # regular expression
    out.int32(300_000)
    out.text("uniform")
    out.end()
    return bytes(out)


def current_value(
    assigned: Mapping[str, Sequence[int]], pending: Mapping[str, Sequence[int]] | None = None, *, epoch: int = 5
) -> bytes:
    out = flexible()
    out.int32(epoch)
    out.int32(epoch - 1)
    out.int8(0)
    write_partitions(out, assigned)
    write_partitions(out, pending or {})
    out.end()
    return bytes(out)
