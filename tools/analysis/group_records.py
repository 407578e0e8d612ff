"""Records of ``__consumer_offsets``, and how to decode them.

Names of types and fields follow Kafka's schemas (``group-coordinator/src/main/resources/common/message``, read for
4.3).  A key begins with the number of its kind, and a value with the version of its schema.  A record without a value
is a tombstone.  Keys have never been flexible (KIP-482).  A record that does not follow its schema becomes
:class:`UndecodableRecord`: any client with the right to write may have written it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from pyspark_kafka_group.wire.describe_requests import assigned_partitions
from pyspark_kafka_group.wire.fields import Reader
from pyspark_kafka_group.wire.types import ProtocolError, TopicPartition

TopicIdPartitions = Mapping[str, frozenset[int]]
"""Partition numbers by topic id, as Kafka prints the id."""

CLASSIC_GROUP, CONSUMER_GROUP, CONSUMER_MEMBER, CURRENT_ASSIGNMENT = 2, 3, 5, 8

KINDS = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    CLASSIC_GROUP: "GroupMetadata",
    CONSUMER_GROUP: "ConsumerGroupMetadata",
    CONSUMER_MEMBER: "ConsumerGroupMemberMetadata",
    CURRENT_ASSIGNMENT: "ConsumerGroupCurrentMemberAssignment",
}
"""Kafka's names of the record kinds that are decoded, by the number that a key begins with."""

_COMMITS = (0, 1)
_COMMIT_KEY = b"\0\1"
_COMMIT_HEAD, _INT64 = struct.Struct(">hqi"), struct.Struct(">q")
_SHORTEST_COMMIT = 24
_WITH_TOPIC_ID = b"\1\0\x10"  # one tagged field, number 0, 16 bytes
_TOPIC_ID_SIZE = 19
_TOPIC_ID_TAG = 0
_NEWEST_COMMIT, _NEWEST_CLASSIC_GROUP, _FLEXIBLE_SINCE = 4, 4, 4
_LONGEST_TEXT = 2**15 - 1


class CommitRecord(NamedTuple):
    """A committed offset.

    Attributes
    ----------
    tp : TopicPartition
        The partition.
    offset : int
        The next offset to read.
    leader_epoch : int or None
        The leader epoch of the record before it (KIP-320); None if unknown.
    metadata : str
        The metadata that the committer wrote beside it.
    commit_time_ms : int
        The time of the commit, in milliseconds since 1970.
    expire_time_ms : int or None
        The time at which it expires, if the committer set one (before Kafka 2.1).
    topic_id : str or None
        The topic id, if the broker stores it.
    """

    tp: TopicPartition
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_time_ms: int
    expire_time_ms: int | None
    topic_id: str | None


class CommitTombstone(NamedTuple):
    """The end of a committed offset: it expired or was deleted, or its topic was deleted."""

    tp: TopicPartition


class ClassicMember(NamedTuple):
    """A member of a classic group.

    The assignment is None if the member is no consumer.  The rebalance timeout is ``max.poll.interval.ms``.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition] | None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None


class ClassicGroup(NamedTuple):
    """A classic group after a rebalance, or after its last member has left."""

    assignor: str | None
    members: tuple[ClassicMember, ...]


class ConsumerGroupEpoch(NamedTuple):
    """A new group epoch of a KIP-848 group."""

    epoch: int


class ConsumerMember(NamedTuple):
    """A member of a KIP-848 group, as it has introduced itself."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignor: str | None
    rebalance_timeout_ms: int | None = None


class CurrentAssignment(NamedTuple):
    """The partitions of a member of a KIP-848 group, with those that it still has to revoke."""

    member_id: str
    partitions: TopicIdPartitions


class GroupTombstone(NamedTuple):
    """The end of a group, of a member, or of its assignment: the kind of record, one of :data:`KINDS`."""

    kind: int
    member_id: str | None


class OtherRecord(NamedTuple):
    """A record of a kind that is not decoded: share and streams groups, target assignments, newer kinds."""

    kind: int


class UndecodableRecord(NamedTuple):
    """A record that does not follow Kafka's schemas, with the reason."""

    reason: str


GroupRecord = (
    CommitRecord
    | CommitTombstone
    | ClassicGroup
    | ConsumerGroupEpoch
    | ConsumerMember
    | CurrentAssignment
    | GroupTombstone
    | OtherRecord
    | UndecodableRecord
)


class LoggedRecord(NamedTuple):
    """A record with its offset in the partition of ``__consumer_offsets``, and the time at which it was written."""

    log_offset: int
    time_ms: int
    record: GroupRecord


def decode(key: bytes | None, value: bytes | None) -> GroupRecord:
    """Return the record of a key and a value; never raise.

    Parameters
    ----------
    key, value : bytes or None
        The key and value of a record of ``__consumer_offsets``.
    """
    if key is None:
        return UndecodableRecord("a record without a key")
    try:
        if value is not None and key[:2] == _COMMIT_KEY:
            commit = common_commit(_committed_partition(key), value)
            if commit is not None:
                return commit
        return _decode(key, value)
    except ProtocolError as problem:
        number = int.from_bytes(key[:2], "big")
        kind = KINDS.get(number, f"a record of kind {number}") if len(key) >= 2 else "a key of less than two bytes"
        return UndecodableRecord(f"{kind}: {problem}")


@lru_cache(maxsize=16_384)
def _committed_partition(key: bytes) -> TopicPartition:
    """Return the partition of a commit's key.  Cached, because a group commits under the same keys again and again."""
    reader = Reader(memoryview(key))
    reader.int16()
    reader.text()  # group
    tp = TopicPartition(reader.text(), reader.int32())
    _nothing_left(reader, "key")
    return tp


@lru_cache(maxsize=1024)
def _topic_id(found: bytes) -> str | None:
    return Reader(memoryview(found)).uuid()


def common_commit(tp: TopicPartition, value: bytes) -> CommitRecord | None:
    """Return a commit in the form that brokers have written since Kafka 2.1; None for any other bytes.

    Nearly all of millions of records have this form, and decoding them field by field takes four times as long.
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
    return CommitRecord(tp, offset, epoch if epoch >= 0 else None, metadata, time_ms, None, topic_id)


def is_of_group(group_id: str) -> Callable[[bytes | None], bool]:
    """Return a test whether a key belongs to a group.  It compares the first bytes only: every key has the group first.

    Many groups share a partition of the topic.
    """
    encoded = group_id.encode("utf-8", "replace")
    if len(encoded) > _LONGEST_TEXT:
        return lambda _key: False
    prefix = len(encoded).to_bytes(2, "big") + encoded
    return lambda key: key is not None and key.startswith(prefix, 2)


def _decode(key: bytes, value: bytes | None) -> GroupRecord:
    reader = Reader(memoryview(key))
    kind = reader.int16()
    if kind in _COMMITS:
        tp = _committed_partition(key)
        return CommitTombstone(tp) if value is None else _commit(tp, value)
    if kind not in KINDS:
        # Deliberate: not an error.  Kafka also ignores kinds that a newer version has written
        # (`test_other_kinds_and_those_that_a_newer_kafka_has_brought_are_no_error`).
        return OtherRecord(kind)
    reader.text()  # group
    member_id = reader.text() if kind in (CONSUMER_MEMBER, CURRENT_ASSIGNMENT) else None
    _nothing_left(reader, "key")
    if value is None:
        return GroupTombstone(kind, member_id)
    if kind == CLASSIC_GROUP:
        return _classic_group(value)
    _, body = _body(value, newest=0, flexible_since=0)
    record: GroupRecord
    if member_id is None:
        record = ConsumerGroupEpoch(body.int32())
    elif kind == CONSUMER_MEMBER:
        record = _consumer_member(body, member_id)
    else:
        record = _current_assignment(body, member_id)
    body.end()
    _nothing_left(body, "value")
    return record


def _body(value: bytes, *, newest: int, flexible_since: int) -> tuple[int, Reader]:
    """Return the version of a value, and a reader of the fields after it."""
    version = Reader(memoryview(value)).int16()
    if not 0 <= version <= newest:
        raise ProtocolError(f"version {version} of its value is not known")
    return version, Reader(memoryview(value)[2:], flexible=version >= flexible_since)


def _nothing_left(reader: Reader, what: str) -> None:
    if reader.left:
        raise ProtocolError(f"{reader.left} bytes too many in its {what}")


def _commit(tp: TopicPartition, value: bytes) -> CommitRecord:
    version, body = _body(value, newest=_NEWEST_COMMIT, flexible_since=_FLEXIBLE_SINCE)
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
    leader_epoch, expire_time_ms = (None if number < 0 else number for number in (epoch, expires))
    return CommitRecord(tp, offset, leader_epoch, metadata, committed, expire_time_ms, topic_id)


def _classic_group(value: bytes) -> ClassicGroup:
    version, body = _body(value, newest=_NEWEST_CLASSIC_GROUP, flexible_since=_FLEXIBLE_SINCE)
    of_consumers = body.text() == "consumer"
    body.int32()  # generation
    assignor = body.nullable_text()
    body.nullable_text()  # leader
    if version >= 2:
        body.int64()  # time of the state

    def member() -> ClassicMember:
        member_id = body.text()
        instance_id = body.nullable_text() if version >= 3 else None
        client_id, host = body.text(), body.text()
        rebalance_ms = body.int32() if version >= 1 else None
        session_ms = body.int32()
        body.payload()  # subscription
        assignment = body.payload()
        body.end()
        partitions = _classic_assignment(assignment) if of_consumers else None
        return ClassicMember(member_id, instance_id, client_id, host, partitions, session_ms, rebalance_ms)

    members = tuple(body.array(member))
    body.end()
    _nothing_left(body, "value")
    return ClassicGroup(assignor, members)


def _classic_assignment(assignment: memoryview) -> frozenset[TopicPartition] | None:
    """Return the partitions of a member; None if the client wrote something else."""
    try:
        return assigned_partitions(assignment)
    except ProtocolError:
        return None


def _consumer_member(body: Reader, member_id: str) -> ConsumerMember:
    instance_id = body.nullable_text()
    body.nullable_text()  # rack
    client_id, host = body.text(), body.text()
    body.array(body.text)  # subscribed topics
    body.nullable_text()  # subscribed pattern
    rebalance_ms = body.int32()
    # The caller skips the tagged field in which a member describes its classic protocol.
    return ConsumerMember(member_id, instance_id, client_id, host, body.nullable_text(), rebalance_ms)


def _current_assignment(body: Reader, member_id: str) -> CurrentAssignment:
    body.int32()  # member epoch
    body.int32()  # previous member epoch
    body.int8()  # state

    def topic() -> tuple[str, frozenset[int]]:
        found = body.uuid() or "", frozenset(body.int32s())
        body.end()
        return found

    # A member still reads and commits the partitions that it has to revoke.
    assigned, revoked = dict(body.array(topic)), dict(body.array(topic))
    both = {
        topic_id: assigned.get(topic_id, frozenset()) | revoked.get(topic_id, frozenset())
        for topic_id in {*assigned, *revoked}
    }
    return CurrentAssignment(member_id, both)
