"""From the bytes of ``__consumer_offsets`` to records.

A key begins with the number of its kind, a value with the version of its schema; no value is a tombstone.  Keys have
never been flexible (KIP-482).  What is not as Kafka's schemas say is :class:`Undecodable`, with the reason: bytes in
this topic are as untrusted as those of any other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from pyspark_kafka_group.tools.analysis.group_records import (
    ClassicGroup,
    ClassicMember,
    ConsumerGroupEpoch,
    ConsumerMember,
    CurrentAssignment,
    GroupRecord,
    GroupTombstone,
    OffsetCommit,
    OffsetTombstone,
    OtherRecord,
    TargetAssignment,
    TopicIdPartitions,
    Undecodable,
)
from pyspark_kafka_group.wire.describe_requests import assigned_partitions
from pyspark_kafka_group.wire.fields import Reader
from pyspark_kafka_group.wire.types import ProtocolError, TopicPartition

_OFFSET_COMMITS = (0, 1)
_OFFSET_COMMIT = b"\0\1"
_COMMIT_HEAD, _INT64 = struct.Struct(">hqi"), struct.Struct(">q")
_SHORTEST_COMMIT = 24
_WITH_TOPIC_ID = b"\1\0\x10"  # one tagged field, number 0, 16 bytes
_TOPIC_ID_SIZE = 19
_CLASSIC_GROUP = 2
_OFFSET_VERSIONS, _CLASSIC_VERSIONS, _CONSUMER_VERSIONS = 4, 4, 0
_FLEXIBLE_SINCE = 4
_TOPIC_ID_TAG = 0
_CONSUMERS = "consumer"
_LONGEST_TEXT = 2**15 - 1

KINDS = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    9: "ShareGroupPartitionMetadata",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
"""Kafka's names of the kinds of records, by the number that a key begins with."""

_OF_A_MEMBER = frozenset({5, 7, 8, 10, 13, 14, 19, 21, 22})
_WITH_A_TEXT = _OF_A_MEMBER | {16}  # and the regular expression


def decode(key: bytes | None, value: bytes | None) -> GroupRecord:
    """Return the record that these bytes are; never raises.

    Parameters
    ----------
    key, value : bytes or None
        Of a record of ``__consumer_offsets``.
    """
    if key is None:
        return Undecodable("a record without a key")
    try:
        if value is not None and key[:2] == _OFFSET_COMMIT:
            commit = usual_commit(*_offset_key(key), value)
            if commit is not None:
                return commit
        return _decode(Reader(memoryview(key)), value)
    except ProtocolError as problem:
        return Undecodable(f"{_kind_of(key)}: {problem}")


@lru_cache(maxsize=16_384)
def _offset_key(key: bytes) -> tuple[str, TopicPartition]:
    """Return whose offset it is, and of which partition; a group commits under the same keys again and again."""
    reader = Reader(memoryview(key))
    reader.int16()
    group = reader.text()
    tp = TopicPartition(reader.text(), reader.int32())
    _nothing_left(reader, "key")
    return group, tp


@lru_cache(maxsize=1024)
def _topic_id(found: bytes) -> str | None:
    return Reader(memoryview(found)).uuid()


def usual_commit(group: str, tp: TopicPartition, value: bytes) -> OffsetCommit | None:
    """Return a commit as brokers have written it since Kafka 2.1; None for any other bytes.

    Nearly all of millions of records are of that form, and field by field they take four times as long.  What is of
    another form, or damaged, is left to what reads field by field, and says what is wrong.
    """
    if len(value) < _SHORTEST_COMMIT:
        return None
    version, offset, epoch = _COMMIT_HEAD.unpack_from(value)
    begin = _COMMIT_HEAD.size
    if version == 3:
        length, begin = value[begin] << 8 | value[begin + 1], begin + 2
    elif version == 4:
        length, begin = value[begin], begin + 1
        if length >= 0x80:  # a varint of two bytes; longer ones are rare
            length, begin = length & 0x7F | value[begin] << 7, begin + 1
            if value[begin - 1] >= 0x80:
                return None
        length -= 1
    else:
        return None
    if length < 0:
        return None
    end = begin + length + _INT64.size
    tagged = value[end:]
    topic_id = None
    if version == 4 and tagged[:3] == _WITH_TOPIC_ID and len(tagged) == _TOPIC_ID_SIZE:
        topic_id = _topic_id(tagged[3:])
    elif len(value) < end or tagged != (b"\0" if version == 4 else b""):
        return None
    metadata = str(value[begin : begin + length], "utf-8", "replace")
    (time_ms,) = _INT64.unpack_from(value, begin + length)
    return OffsetCommit(group, tp, offset, epoch if epoch >= 0 else None, metadata, time_ms, None, topic_id)


def is_of_group(group_id: str) -> Callable[[bytes | None], bool]:
    """Return what tells, by its first bytes alone, whether a key belongs to a group; many groups share a partition.

    Kafka's keys all have the group first, whatever their kind.
    """
    encoded = group_id.encode("utf-8", "replace")
    if len(encoded) > _LONGEST_TEXT:
        return lambda _key: False
    prefix = len(encoded).to_bytes(2, "big") + encoded
    return lambda key: key is not None and key.startswith(prefix, 2)


def _kind_of(key: bytes) -> str:
    number = int.from_bytes(key[:2], "big") if len(key) >= 2 else None
    return KINDS.get(number, f"a record of kind {number}") if number is not None else "a key of less than two bytes"


def _decode(key: Reader, value: bytes | None) -> GroupRecord:
    number = key.int16()
    if number not in KINDS:
        # Deliberate: no error.  Kafka itself passes over what a newer version has written.
        return OtherRecord(None, f"kind {number}")
    group = key.text()
    if number in _OFFSET_COMMITS:
        tp = TopicPartition(key.text(), key.int32())
        _nothing_left(key, "key")
        return OffsetTombstone(group, tp) if value is None else _offset_commit(group, tp, value)
    text = key.text() if number in _WITH_A_TEXT else None
    _nothing_left(key, "key")
    kind = KINDS[number]
    if value is None:
        return GroupTombstone(group, kind, text if number in _OF_A_MEMBER else None)
    if number == _CLASSIC_GROUP:
        return _classic_group(group, value)
    decode_value = _CONSUMER_GROUP_VALUES.get(number)
    if decode_value is None:
        return OtherRecord(group, kind)
    body = _body(value, newest=_CONSUMER_VERSIONS, flexible_since=0)[1]
    record = decode_value(body, group, text or "")
    _nothing_left(body, "value")
    return record


def _body(value: bytes, *, newest: int, flexible_since: int) -> tuple[int, Reader]:
    """Return the version of a value, and what reads the fields after it."""
    version = Reader(memoryview(value)).int16()
    if not 0 <= version <= newest:
        raise ProtocolError(f"version {version} of its value is not known")
    return version, Reader(memoryview(value)[2:], flexible=version >= flexible_since)


def _nothing_left(reader: Reader, what: str) -> None:
    if reader.left:
        raise ProtocolError(f"{reader.left} bytes too many in its {what}")


def _offset_commit(group: str, tp: TopicPartition, value: bytes) -> OffsetCommit:
    version, body = _body(value, newest=_OFFSET_VERSIONS, flexible_since=_FLEXIBLE_SINCE)
    offset = body.int64()
    epoch = body.int32() if version >= 3 else -1
    metadata, committed = body.text(), body.int64()
    expires = body.int64() if version == 1 else -1
    topic_id = None
    if version >= _FLEXIBLE_SINCE:
        for _ in range(body.varint()):
            tag, field = body.varint(), body.bytes(body.varint())
            if tag == _TOPIC_ID_TAG:
                topic_id = Reader(field).uuid()
    _nothing_left(body, "value")
    return OffsetCommit(
        group,
        tp,
        offset,
        epoch if epoch >= 0 else None,
        metadata,
        committed,
        expires if expires >= 0 else None,
        topic_id,
    )


def _classic_group(group: str, value: bytes) -> ClassicGroup:
    version, body = _body(value, newest=_CLASSIC_VERSIONS, flexible_since=_FLEXIBLE_SINCE)
    protocol_type, generation = body.text(), body.int32()
    assignor, leader = body.nullable_text(), body.nullable_text()
    since = body.int64() if version >= 2 else -1

    def member() -> ClassicMember:
        member_id = body.text()
        instance_id = body.nullable_text() if version >= 3 else None
        client_id, host = body.text(), body.text()
        rebalance_ms = body.int32() if version >= 1 else None
        session_ms = body.int32()
        body.payload()  # subscription
        assignment = _classic_assignment(protocol_type, body.payload())
        body.end()
        return ClassicMember(member_id, instance_id, client_id, host, assignment, session_ms, rebalance_ms)

    members = tuple(body.array(member))
    body.end()
    _nothing_left(body, "value")
    return ClassicGroup(group, protocol_type, generation, assignor, leader, since if since >= 0 else None, members)


def _classic_assignment(protocol_type: str, assignment: memoryview) -> frozenset[TopicPartition] | None:
    """Return what a member has; clients have written these bytes, so they may be of any form."""
    if protocol_type != _CONSUMERS:
        return None
    try:
        return assigned_partitions(assignment)
    except ProtocolError:
        return None


def _group_epoch(body: Reader, group: str, _text: str) -> ConsumerGroupEpoch:
    epoch = body.int32()
    body.end()
    return ConsumerGroupEpoch(group, epoch)


def _consumer_member(body: Reader, group: str, member_id: str) -> ConsumerMember:
    instance_id = body.nullable_text()
    body.nullable_text()  # rack
    client_id, host = body.text(), body.text()
    topics, regex = tuple(body.array(body.text)), body.nullable_text()
    rebalance_ms = body.int32()
    assignor = body.nullable_text()
    body.end()  # what a member that speaks the classic protocol says of itself is a tagged field
    return ConsumerMember(group, member_id, instance_id, client_id, host, topics, regex, assignor, rebalance_ms)


def _target_assignment(body: Reader, group: str, member_id: str) -> TargetAssignment:
    partitions = _partitions(body)
    body.end()
    return TargetAssignment(group, member_id, partitions)


def _current_assignment(body: Reader, group: str, member_id: str) -> CurrentAssignment:
    epoch = body.int32()
    body.int32()  # previous member epoch
    body.int8()  # state
    assigned, pending = _partitions(body), _partitions(body)
    body.end()
    return CurrentAssignment(group, member_id, epoch, assigned, pending)


def _partitions(body: Reader) -> TopicIdPartitions:
    def topic() -> tuple[str, frozenset[int]]:
        found = body.uuid() or "", frozenset(body.int32s())
        body.end()
        return found

    return dict(body.array(topic))


_CONSUMER_GROUP_VALUES: dict[int, Callable[[Reader, str, str], GroupRecord]] = {
    3: _group_epoch,
    5: _consumer_member,
    7: _target_assignment,
    8: _current_assignment,
}
