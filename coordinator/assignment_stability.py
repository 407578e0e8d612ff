"""Whether an assignment is stable.

A run with ``availableNow`` ends when it has read its share of the partitions.  It must know this share.  An empty
assignment proves nothing: cooperative joins begin with one.  A partition that another member gives back has no owner
for a moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from pyspark_kafka_group.offsets.types import TopicPartition

Id = TypeVar("Id")


class Share(NamedTuple):
    """The group's view of one member.

    Attributes
    ----------
    assignment : collection of TopicPartition
        The partitions that it has.
    target : collection of TopicPartition or None
        The partitions that it will have (KIP-848); None under the classic protocol.
    """

    assignment: Collection[TopicPartition]
    target: Collection[TopicPartition] | None = None


def is_stable(
    shares: Mapping[Id, Share] | None,
    member: Id,
    owned: Collection[TopicPartition],
    partitions: Collection[TopicPartition],
) -> bool:
    """Return whether ``owned`` is all that this member will get unless the group changes.

    Parameters
    ----------
    shares : mapping or None
        The share of each member; None during a rebalance.
    member : str
        The id of this member.
    owned : collection of TopicPartition
        The partitions that this member has received.
    partitions : collection of TopicPartition
        All partitions of the subscribed topics.
    """
    if shares is None or member not in shares:
        return False
    mine = shares[member]
    if set(mine.assignment) != set(owned) or (mine.target is not None and set(mine.target) != set(owned)):
        return False
    given = {tp for share in shares.values() for tp in share.assignment}
    return given >= set(partitions)
