"""Plans a reset of committed offsets.  A plan is complete or refused before anything changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.cluster.group_description import DEAD, GroupDescription
from pyspark_kafka_group.offsets.errors import ConfigurationError, GroupError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.tools.analysis.arguments import PartitionChoice, Target, TargetKind, is_chosen
from pyspark_kafka_group.tools.analysis.group_view import UnknownGroupError

T = TypeVar("T")

EMPTY = "Empty"
_UNSTABLE = "UNSTABLE_OFFSET_COMMIT"

_NAMED = 8
"""Maximum number of members or partitions that a message names."""


class GroupInUseError(GroupError):
    """The group has members, or is just being assigned.  Only its members may commit."""

    def __init__(self, group_id: str, description: GroupDescription) -> None:
        members = [f"{member.client_id} at {member.host} ({member.member_id})" for member in description.members]
        who = named(members) if members else "none yet; it is being assigned"
        super().__init__(
            f"The group {group_id!r} is in use (state {description.state}). Its members: {who}. Nothing was changed. "
            f"Stop the members first: while a group has members, only they may commit.",
            members=tuple(members),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The planned change of one committed offset.

    Attributes
    ----------
    tp : TopicPartition
        The partition.
    previous : Offset or None
        The offset that is committed now; None if there is none.
    requested : int
        The requested offset.
    offset : Offset
        The offset to commit: the nearest one that the log has.
    log_start, log_end : Offset
        Start and end of the log, open transactions included.
    leader_epoch : int or None
        The leader epoch of the record before, if another group's offset is copied.
    """

    tp: TopicPartition
    previous: Offset | None
    requested: int
    offset: Offset
    log_start: Offset
    log_end: Offset
    leader_epoch: int | None = None

    @property
    def clamped(self) -> bool:
        """Whether the log does not have the requested offset."""
        return self.offset != self.requested


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """One of three sources of offsets, and the partitions to reset.

    Attributes
    ----------
    target : Target or None
        The value of ``--to``.
    other_group : str or None
        The group whose offsets to copy.
    offsets : mapping or None
        The offsets of a file.
    wanted : PartitionChoice
        The partitions.
    allow_new_topics : bool
        Whether to allow topics that the group has never committed.
    """

    target: Target | None = None
    other_group: str | None = None
    offsets: Mapping[TopicPartition, Offset] | None = None
    wanted: PartitionChoice
    allow_new_topics: bool = False


class _Logs(NamedTuple):
    starts: Mapping[TopicPartition, Offset]
    ends: Mapping[TopicPartition, Offset]


def plan(inspection: Cluster, group_id: str, request: ResetRequest) -> list[Change]:
    """Return what a reset would change, in the order of partitions.

    Raises
    ------
    UnknownGroupError, GroupInUseError
        If a group does not exist, or the group has members.
    ConfigurationError
        If a requested topic, partition or offset does not exist.
    GroupError
        If an open transaction commits offsets of these partitions.
    TryAgainError
        If a partition has no leader at the moment.
    """
    description = inspection.describe_group(group_id)
    if description.members or description.state not in (EMPTY, DEAD):
        raise GroupInUseError(group_id, description)
    committed = _answered(inspection.all_committed(group_id))
    if description.state == DEAD and not committed and not request.allow_new_topics:
        raise UnknownGroupError(group_id)
    if request.target is None:
        given = _copied(inspection, request)
        partitions = sorted(given)
    else:
        given = {}
        partitions = sorted(_chosen(inspection, group_id, request, committed, request.target))
    _check(inspection, group_id, request, partitions, {tp.topic for tp in committed})
    stable = inspection.committed(group_id, partitions, require_stable=True)
    unstable = sorted(tp for tp, name in stable.failed.items() if name == _UNSTABLE)
    if unstable:
        raise GroupError(
            f"An open transaction commits offsets of the group {group_id!r} ({named(unstable)}). It would overwrite a "
            f"reset, so nothing was changed. Wait for its end. If its producer has died, that takes a minute, or its "
            f"transaction.timeout.ms."
        )
    _answered(stable)
    # Open transactions included, as in Kafka's own tool: the end of the log skips everything.
    logs = _Logs(
        _answered(inspection.log_starts(partitions)), _answered(inspection.log_ends(partitions, read_committed=False))
    )
    if request.target is not None:
        given = _resolved(inspection, request.target, partitions, committed, logs)
    return [_change(tp, given[tp], committed.get(tp), logs) for tp in partitions]


def _answered(answers: Answers[T]) -> dict[TopicPartition, T]:
    for tp, problem in answers.failed.items():
        raise TryAgainError(f"{tp}: {problem}")
    return answers.found


def _copied(inspection: Cluster, request: ResetRequest) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets of another group or of a file."""
    wanted = request.wanted
    if request.other_group is not None:
        source = f"The group {request.other_group!r} has committed"
        found = _answered(inspection.all_committed(request.other_group))
        if not found and inspection.describe_group(request.other_group).state == DEAD:
            raise UnknownGroupError(request.other_group)
    else:
        source = "The file has"
        found = {tp: CommittedOffset(offset, None, "") for tp, offset in (request.offsets or {}).items()}
    for tp in [TopicPartition(topic, number) for topic, numbers in wanted.items() for number in sorted(numbers or ())]:
        if tp not in found:
            raise ConfigurationError(f"{source} no offset of {tp}. Remove it from --topics.")
    chosen = {tp: offset for tp, offset in found.items() if is_chosen(wanted, *tp)}
    if not chosen:
        raise ConfigurationError(f"{source} no offset of these topics. Check its name, and --topics.")
    return chosen


def _chosen(
    inspection: Cluster,
    group_id: str,
    request: ResetRequest,
    committed: Mapping[TopicPartition, CommittedOffset],
    target: Target,
) -> set[TopicPartition]:
    """Return the partitions that ``--to`` resets."""
    names = {*request.wanted} or {tp.topic for tp in committed}
    if not names:
        raise ConfigurationError(
            f"The group {group_id!r} has no committed offsets. Name topics with --topics and --allow-new-topics."
        )
    topics = inspection.topics(names)
    chosen = set()
    for name in sorted(names):
        numbers: Collection[int] | None = request.wanted.get(name)
        if numbers is None and target.kind is TargetKind.COMMITTED:
            numbers = {tp.partition for tp in committed if tp.topic == name}
        elif numbers is None:
            numbers = topics[name].leader_epochs.keys() if name in topics else ()
        if not numbers:
            why = "does not exist" if name not in topics else "has no committed offset in this group"
            raise ConfigurationError(f"The topic {name!r} {why}. Check its name, or leave it out with --topics.")
        chosen |= {TopicPartition(name, number) for number in numbers}
    return chosen


def _check(
    inspection: Cluster,
    group_id: str,
    request: ResetRequest,
    partitions: Collection[TopicPartition],
    known: Collection[str],
) -> None:
    topics = inspection.topics({tp.topic for tp in partitions})
    absent = sorted(
        tp for tp in partitions if tp.topic not in topics or tp.partition not in topics[tp.topic].leader_epochs
    )
    if absent:
        raise ConfigurationError(f"{named(absent)} does not exist. Check the names, or leave them out with --topics.")
    new = sorted({tp.topic for tp in partitions} - {*known})
    if new and not request.allow_new_topics:
        raise ConfigurationError(
            f"The group {group_id!r} has never committed offsets of {named(new)}. Check the names. Allow new topics "
            f"with --allow-new-topics, or leave them out with --topics."
        )


def _resolved(
    inspection: Cluster,
    target: Target,
    chosen: Collection[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    logs: _Logs,
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offset that ``--to`` means in each partition."""
    value = target.value
    found: dict[TopicPartition, int] = {}
    match target.kind:
        case TargetKind.START:
            found = {tp: logs.starts[tp] + value for tp in chosen}
        case TargetKind.END:
            found = {tp: logs.ends[tp] + value for tp in chosen}
        case TargetKind.OFFSET:
            found = dict.fromkeys(chosen, value)
        case TargetKind.COMMITTED:
            for tp in sorted({*chosen} - {*committed}):
                raise ConfigurationError(f"{tp} has no committed offset to count from. Leave it out with --topics.")
            found = {tp: committed[tp].offset + value for tp in chosen}
        case TargetKind.TIME:
            records = _answered(inspection.records_at(dict.fromkeys(chosen, value)))
            found = {tp: logs.ends[tp] if record is None else record.offset for tp, record in records.items()}
    return {tp: CommittedOffset(Offset(offset), None, "") for tp, offset in found.items()}


def _change(tp: TopicPartition, requested: CommittedOffset, before: CommittedOffset | None, logs: _Logs) -> Change:
    offset = Offset(min(max(requested.offset, logs.starts[tp]), logs.ends[tp]))
    return Change(
        tp=tp,
        previous=before.offset if before else None,
        requested=requested.offset,
        offset=offset,
        log_start=logs.starts[tp],
        log_end=logs.ends[tp],
        leader_epoch=requested.leader_epoch if offset == requested.offset else None,
    )


def named(items: Sequence[object]) -> str:
    """Return the first names of a list, and the number of the others."""
    shown = ", ".join(str(item) for item in items[:_NAMED])
    return shown if len(items) <= _NAMED else f"{shown} and {len(items) - _NAMED} more"
