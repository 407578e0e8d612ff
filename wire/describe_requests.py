"""Requests that describe a group and its members: one for classic groups, and one for groups of KIP-848."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_kafka_group.wire.fields import Reader, Writer
from pyspark_kafka_group.wire.group_requests import only
from pyspark_kafka_group.wire.requests import Api, Request
from pyspark_kafka_group.wire.topic_requests import operations_of
from pyspark_kafka_group.wire.types import ProtocolError, TopicPartition

_CONSUMERS = "consumer"
"""The protocol type of groups of consumers.  Other groups, such as Kafka Connect's, have other assignments."""

_OTHER_KIND = "is not a consumer group."
"""The end of the brokers' text for a group of another kind; a group that does not exist is "not found".  No request of
this package shows the kind."""

_MEMBER_TYPES = {0: True, 1: False}
"""Whether a member of a group of KIP-848 uses the classic protocol, by Kafka's number."""

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member, as its coordinator describes it.

    Attributes
    ----------
    member_id, client_id, host : str
        The ids of the member, and the host of its connection.
    instance_id : str or None
        The ``group.instance.id``.
    assignment : frozenset of TopicPartition
        The partitions that it has.  In a classic group, only while the group is stable.
    target : frozenset of TopicPartition or None
        The partitions that it should have (KIP-848).  None in a classic group.
    member_epoch : int or None
        The member epoch (KIP-848).
    subscription : frozenset of str or None
        The topics to which it subscribes by name.  None without names, or if this field is invalid.
    speaks_classic : bool or None
        Whether it uses the classic protocol in a group of KIP-848.  None if unknown.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Partitions
    target: Partitions | None
    member_epoch: int | None
    subscription: frozenset[str] | None = None
    speaks_classic: bool | None = None


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group, as its coordinator describes it.

    Attributes
    ----------
    error : int
        Kafka's error code; 0 is none.
    message : str
        The broker's text for the error.
    state : str
        The name of the state in Kafka.
    epoch : int or None
        The group epoch (KIP-848).
    members : tuple of DescribedMember
        The members.
    protocol_type : str
        The type of members; ``consumer`` for consumers.
    assignor : str
        The assignment strategy; empty without one.
    operations : frozenset of int or None
        The operations that the user may do with the group (KIP-430).  None if not requested or unknown.
    """

    error: int
    message: str
    state: str
    epoch: int | None
    members: tuple[DescribedMember, ...]
    protocol_type: str = _CONSUMERS
    assignor: str = ""
    operations: frozenset[int] | None = None

    @property
    def is_other_kind(self) -> bool:
        """Whether it is a share group or a group of Kafka Streams (KIP-932, KIP-1071): it exists, and looks dead."""
        return self.state == "Dead" and self.message.endswith(_OTHER_KIND)


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group that a broker coordinates.

    Attributes
    ----------
    group_id : str
        The group.
    protocol_type : str
        The type of its members; empty for a group that only has offsets.
    kind : str
        ``classic``, ``consumer``, ``share`` or ``streams`` (seen with Kafka 4.3.1); empty before KIP-848.
    """

    group_id: str
    protocol_type: str
    kind: str = ""

    @property
    def is_of_consumers(self) -> bool:
        """Whether its members, if it has any, are consumers."""
        return self.protocol_type in (_CONSUMERS, "") and self.kind.lower() in ("classic", "consumer", "")


@dataclass(frozen=True, slots=True)
class ListGroups(Request[tuple[int, list[ListedGroup]]]):
    """Requests the groups that a broker coordinates, with an error code."""

    api = Api(16, "ListGroups", 3, 5, flexible=3, since="2.4")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request: no state and no kind is left out."""
        if version >= 4:
            out.array([], out.text)
        if version >= 5:
            out.array([], out.text)
        out.end()

    def read(self, answer: Reader, version: int) -> tuple[int, list[ListedGroup]]:
        """Read the fields of the answer."""

        def group() -> ListedGroup:
            group_id, protocol_type = answer.text(), answer.text()
            if version >= 4:
                answer.text()  # the state, which is asked with the members
            kind = answer.text() if version >= 5 else ""
            answer.end()
            return ListedGroup(group_id, protocol_type, kind)

        answer.int32()  # throttle time
        error = answer.int16()
        groups = answer.array(group)
        answer.end()
        return error, groups


@dataclass(frozen=True, slots=True)
class DescribeGroups(Request[DescribedGroup]):
    """Requests one classic group.  A group that does not exist, or is of another kind, has the state Dead."""

    group_id: str
    operations: bool = False

    api = Api(15, "DescribeGroups", 5, 5, flexible=5, since="2.4")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.array([self.group_id], out.text)
        out.boolean(self.operations)
        out.end()

    def read(self, answer: Reader, version: int) -> DescribedGroup:
        """Read the fields of the answer."""
        del version

        def member(protocol_type: str) -> DescribedMember:
            member_id, instance_id = answer.text(), answer.nullable_text()
            client_id, host = answer.text(), answer.text()
            metadata, assignment = answer.payload(), answer.payload()
            answer.end()
            if protocol_type != _CONSUMERS:
                return DescribedMember(member_id, instance_id, client_id, host, frozenset(), None, None)
            partitions, topics = assigned_partitions(assignment), subscribed_topics(metadata)
            return DescribedMember(member_id, instance_id, client_id, host, partitions, None, None, topics)

        def group() -> DescribedGroup:
            error = answer.int16()
            answer.text()  # the group
            state, protocol_type = answer.text(), answer.text()
            assignor = answer.text()
            members = answer.array(lambda: member(protocol_type))
            operations = operations_of(answer.int32())
            answer.end()
            return DescribedGroup(error, "", state, None, tuple(members), protocol_type, assignor, operations)

        answer.int32()  # throttle time
        found = answer.array(group)
        answer.end()
        return only(found)


CONSUMER_GROUP_HEARTBEAT = 68
"""The number of the heartbeat of KIP-848.  librdkafka sends ours."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribe(Request[DescribedGroup]):
    """Requests one group of KIP-848.  If it does not exist or is classic, the error is GROUP_ID_NOT_FOUND."""

    group_id: str
    operations: bool = False

    api = Api(69, "ConsumerGroupDescribe", 0, 1, flexible=0, since="3.7")

    def write(self, out: Writer, version: int) -> None:
        """Write the fields of the request."""
        del version
        out.array([self.group_id], out.text)
        out.boolean(self.operations)
        out.end()

    def read(self, answer: Reader, version: int) -> DescribedGroup:
        """Read the fields of the answer."""

        def topic() -> list[TopicPartition]:
            answer.uuid()
            name = answer.text()
            found = [TopicPartition(name, number) for number in answer.int32s()]
            answer.end()
            return found

        def assignment() -> Partitions:
            found = frozenset(tp for partitions in answer.array(topic) for tp in partitions)
            answer.end()
            return found

        def member() -> DescribedMember:
            member_id, instance_id = answer.text(), answer.nullable_text()
            answer.nullable_text()  # rack
            epoch, client_id, host = answer.int32(), answer.text(), answer.text()
            topics = frozenset(answer.array(answer.text)) or None
            answer.nullable_text()  # subscribed pattern
            current, target = assignment(), assignment()
            classic = _MEMBER_TYPES.get(answer.int8()) if version >= 1 else None
            answer.end()
            return DescribedMember(member_id, instance_id, client_id, host, current, target, epoch, topics, classic)

        def group() -> DescribedGroup:
            error, message = answer.int16(), answer.text()
            answer.text()  # the group
            state, epoch = answer.text(), answer.int32()
            answer.int32()  # assignment epoch
            assignor = answer.text()
            members = tuple(answer.array(member))
            operations = operations_of(answer.int32())
            answer.end()
            return DescribedGroup(error, message, state, epoch, members, _CONSUMERS, assignor, operations)

        answer.int32()  # throttle time
        found = answer.array(group)
        answer.end()
        return only(found)


def assigned_partitions(assignment: memoryview) -> Partitions:
    """Return the partitions that the leader of a classic group has assigned to a member.

    Clients exchange these bytes, in the form ConsumerProtocolAssignment.  Later versions may only add fields, so the
    rest is skipped.

    Raises
    ------
    ProtocolError
        If the bytes are invalid.
    """
    if not assignment:
        return frozenset()
    reader = Reader(assignment)
    version = reader.int16()
    if version < 0:
        raise ProtocolError(f"an assignment of version {version}")

    def topic() -> list[TopicPartition]:
        name = reader.text()
        return [TopicPartition(name, number) for number in reader.int32s()]

    return frozenset(tp for partitions in reader.array(topic) for tp in partitions)


def subscribed_topics(subscription: memoryview) -> frozenset[str] | None:
    """Return the topics of a member of a classic group, from bytes in the form ConsumerProtocolSubscription.

    Returns
    -------
    frozenset of str or None
        The topics; None if the bytes are of another form.
    """
    try:
        reader = Reader(subscription)
        reader.int16()  # version
        return frozenset(reader.array(reader.text))
    except ProtocolError:
        return None
