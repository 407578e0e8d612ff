"""A group and its members, as the coordinator describes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyspark_kafka_group.offsets.types import TopicPartition


class GroupProtocol(Enum):
    """How the members of a group share its partitions; the values are those of ``kafka.group.protocol``."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


DEAD = "Dead"
"""Kafka's name for the state of a group that does not exist."""

ASSIGNING = "Assigning"
"""Kafka's name for the state of a KIP-848 group whose members do not have their targets yet."""

_REBALANCING = ("PreparingRebalance", "CompletingRebalance")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member.

    Attributes
    ----------
    member_id : str
        The member id.
    instance_id : str or None
        The ``group.instance.id``; None if it is not static.
    client_id : str
        The ``client.id``.
    host : str
        The host that it connects from.
    assignment : frozenset of TopicPartition
        The partitions that it owns.  A classic group knows them only outside a rebalance.
    target : frozenset of TopicPartition or None
        The partitions that it will own once others have released them; None in a classic group.
    member_epoch : int or None
        The epoch of its assignment; None in a classic group, or if the request did not ask for it.
    subscription : frozenset of str or None
        The topics to which it subscribes by name.  None if it uses a pattern (KIP-848), or they are unknown.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    target: frozenset[TopicPartition] | None = None
    member_epoch: int | None = None
    subscription: frozenset[str] | None = None

    def may_get(self, tp: TopicPartition) -> bool:
        """Return whether the group may give it a partition.

        Until then no member seems to have the partition, although its former owner still finishes a batch of it.
        Deliberate: also by its subscription.  Under KIP-848 the target may be older than a change of the group.
        """
        if self.subscription is not None and tp.topic in self.subscription:
            return True
        return self.subscription is None if self.target is None else tp in self.target

    def is_same_query(self, client_id: str) -> bool:
        """Return whether a client id belongs to another process of the same query: both end with the query's id.

        The user may have changed the part before it, for example if it is a host name.
        """
        return self.client_id.rpartition("-")[2] == client_id.rpartition("-")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group.  One that does not exist is Dead and has no members.

    Attributes
    ----------
    state : str
        Kafka's name of the state: Empty, PreparingRebalance, CompletingRebalance, Stable, Assigning, Reconciling or
        Dead.
    protocol : GroupProtocol
        How the members share the partitions.
    members : tuple of Member
        The members.
    epoch : int or None
        The group epoch; None in a classic group, or if the request did not ask for it.
    assignor : str
        The assignor of a classic group; empty without one.
    is_other_kind : bool
        Whether it is a share group or a group of Kafka Streams.  The other fields have no meaning then.
    """

    state: str
    protocol: GroupProtocol
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignor: str = ""
    is_other_kind: bool = False

    @property
    def is_rebalancing(self) -> bool:
        """Whether the members have no assignment now.  Under KIP-848 each member always has one."""
        return self.protocol is GroupProtocol.CLASSIC and self.state in _REBALANCING
