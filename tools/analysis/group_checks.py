"""Checks before a group's offsets are set or exported, and their errors."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset, TopicInfo
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import DEAD, GroupDescription
from pyspark_kafka_group.offsets.errors import ConfigurationError, GroupError
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice, choice_of
from pyspark_kafka_group.tools.analysis.group_view import UnknownGroupError, describe

T = TypeVar("T")

EMPTY = "Empty"
_UNSTABLE = "UNSTABLE_OFFSET_COMMIT"

_NAMED = 8
"""Maximum number of members or partitions that a message names."""


class GroupInUseError(GroupError):
    """The group has members, or its assignment is in progress.  Only its members may commit."""

    def __init__(self, group_id: str, description: GroupDescription) -> None:
        members = [f"{member.client_id} at {member.host.lstrip('/')}" for member in description.members]
        who = named(members) if members else "none yet; it is being assigned"
        super().__init__(
            f"The group {group_id!r} is in use (state {description.state}). Its members: {who}. Nothing was changed. "
            f"Stop the members first: while a group has members, its offsets are theirs.",
            members=tuple(members),
        )


def check_exist(inspection: Cluster, wanted: PartitionChoice) -> Mapping[str, TopicInfo]:
    """Return the topics of some partitions.

    Raises
    ------
    ConfigurationError
        If a topic or a partition does not exist.
    """
    topics = inspection.topics([*wanted])
    for name, numbers in sorted(wanted.items()):
        if name not in topics:
            near = near_names(name, inspection.all_topics())
            hint = f"Did you mean {near}?" if near else "Check its name, or choose other topics with --topics."
            raise ConfigurationError(f"The topic {name!r} does not exist. {hint}")
        absent = sorted(TopicPartition(name, n) for n in (numbers or frozenset()) - topics[name].leader_epochs.keys())
        if absent:
            raise ConfigurationError(
                f"{listed(absent)} does not exist. Check the numbers, or choose other partitions with --topics."
            )
    return topics


def offsets_at_rest(
    inspection: Cluster, group_id: str, *, may_be_new: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets of a group without members.

    Parameters
    ----------
    inspection : Cluster
        Asks the cluster.
    group_id : str
        The group.
    may_be_new : bool
        Whether the group need not exist.

    Raises
    ------
    UnknownGroupError, GroupInUseError
        If the group does not exist, or has members.
    TryAgainError
        If the coordinator cannot return an offset now.
    """
    description = describe(inspection, group_id)
    if description.members or description.state not in (EMPTY, DEAD):
        raise GroupInUseError(group_id, description)
    committed = answered(inspection.all_committed(group_id))
    if description.state == DEAD and not committed and not may_be_new:
        raise UnknownGroupError(group_id)
    return committed


def stable_offsets(
    inspection: Cluster, group_id: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, CommittedOffset]:
    """Return committed offsets; raise GroupError if an open transaction commits some of them."""
    stable = inspection.committed(group_id, partitions, require_stable=True)
    unstable = sorted(tp for tp, name in stable.failed.items() if name == _UNSTABLE)
    if unstable:
        raise GroupError(
            f"An open transaction commits offsets of the group {group_id!r} ({listed(unstable)}). They are not final, "
            f"so nothing was changed. Wait for its end. If its producer has died, that takes a minute, or its "
            f"transaction.timeout.ms."
        )
    return answered(stable)


def answered(answers: Answers[T]) -> dict[TopicPartition, T]:
    """Return all answers; raise TryAgainError if one is missing."""
    for tp, problem in answers.failed.items():
        raise TryAgainError(f"{tp}: {problem}")
    return answers.found


def listed(partitions: Collection[TopicPartition]) -> str:
    """Return partitions by their names, or many of them by topic, so that each topic is named."""
    if len(partitions) <= _NAMED:
        return ", ".join(map(str, sorted(partitions)))
    return ", ".join(
        f"{topic} ({len(numbers or ())} partition{'' if len(numbers or ()) == 1 else 's'})"
        for topic, numbers in sorted(choice_of(partitions).items())
    )


def near_names(name: str, known: Iterable[str]) -> str:
    """Return the known names that are near a mistyped one, as a text; empty if none is."""
    return " or ".join(repr(near) for near in difflib.get_close_matches(name, [*known], n=3, cutoff=0.6))


def named(items: Sequence[object]) -> str:
    """Return the first names of a list, and the number of the others."""
    shown = ", ".join(str(item) for item in items[:_NAMED])
    return shown if len(items) <= _NAMED else f"{shown} and {len(items) - _NAMED} more"
