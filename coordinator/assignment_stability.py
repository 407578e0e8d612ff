"""Whether an assignment is stable: a run with ``availableNow`` ends when it has read its share, so it must know it.

An empty assignment proves nothing.  Cooperative joins begin with one, and a partition that somebody still gives back
belongs to nobody for a moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from pyspark_kafka_group.offsets.types import TopicPartition

Id = TypeVar("Id")


class Share(NamedTuple):
    """What the group says of one member.

    Attributes
    ----------
    assignment : collection of TopicPartition
        What it has.
    target : collection of TopicPartition or None
        What it is to have (KIP-848); None under the classic protocol.
    """

    assignment: Collection[TopicPartition]
    target: Collection[TopicPartition] | None = None


def is_stable(
    shares: Mapping[Id, Share] | None,
    member: Id,
    owned: Collection[TopicPartition],
    partitions: Collection[TopicPartition],
) -> bool:
    """Tell whether ``owned`` is all that this member will get unless the group changes.

    Parameters
    ----------
    shares : mapping or None
        The share of each member; None while the group is distributing partitions.
    member : str
        The id of this member.
    owned : collection of TopicPartition
        What this member has been told to be its own.
    partitions : collection of TopicPartition
        All partitions that it is subscribed to.
    """
    if shares is None or member not in shares:
        return False
    mine = shares[member]
    if set(mine.assignment) != set(owned) or (mine.target is not None and set(mine.target) != set(owned)):
        return False
    given = {tp for share in shares.values() for tp in share.assignment}
    return given >= set(partitions)
