"""Plans a reset of committed offsets.  A plan is complete or refused before anything changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_kafka_group.cluster.cluster import Cluster
from pyspark_kafka_group.cluster.cluster_answers import CommittedOffset, TopicInfo
from pyspark_kafka_group.cluster.group_description import DEAD
from pyspark_kafka_group.offsets.commit_metadata import CommitNote, differ
from pyspark_kafka_group.offsets.errors import ConfigurationError
from pyspark_kafka_group.offsets.notes import BookmarkNote, read
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.tools.analysis.arguments import (
    PartitionChoice,
    Target,
    TargetKind,
    choice_of,
    is_chosen,
    without,
)
from pyspark_kafka_group.tools.analysis.group_checks import (
    answered,
    check_exist,
    listed,
    named,
    offsets_at_rest,
    stable_offsets,
)
from pyspark_kafka_group.tools.analysis.group_view import UnknownGroupError


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
        The offsets of a file or a checkpoint.
    source : str
        The source of the offsets, for errors.
    wanted : PartitionChoice
        The partitions.
    allow_new_topics : bool
        Whether to allow topics that the group has never committed.
    """

    target: Target | None = None
    other_group: str | None = None
    offsets: Mapping[TopicPartition, Offset] | None = None
    source: str = "The file"
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
    committed = offsets_at_rest(inspection, group_id, may_be_new=request.allow_new_topics)
    if request.target is None:
        given = _copied(inspection, request)
        partitions = sorted(given)
        topics = check_exist(inspection, choice_of(partitions))
    else:
        given = {}
        chosen, topics = _chosen(inspection, group_id, request, committed, request.target)
        partitions = sorted(chosen)
    new = sorted({tp.topic for tp in partitions} - {tp.topic for tp in committed})
    if new and not request.allow_new_topics:
        raise ConfigurationError(
            f"The group {group_id!r} has never committed offsets of {named(new)}. Check the names. Allow new topics "
            f"with --allow-new-topics, or leave them out with --topics."
        )
    committed |= stable_offsets(inspection, group_id, partitions)  # a transaction may have ended since
    # Open transactions included, as in Kafka's own tool: the end of the log skips everything.
    logs = _Logs(
        answered(inspection.log_starts(partitions)), answered(inspection.log_ends(partitions, read_committed=False))
    )
    of_group = request.target is not None and request.target.kind is TargetKind.COMMITTED
    _check_logs({tp: committed[tp] for tp in partitions if tp in committed} if of_group else given, topics)
    if request.target is not None:
        given = _resolved(inspection, request.target, partitions, committed, logs)
    return [_change(tp, given[tp], committed.get(tp), logs) for tp in partitions]


def _copied(inspection: Cluster, request: ResetRequest) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets of another group or of a file."""
    wanted = request.wanted
    if request.other_group is not None:
        source = f"The group {request.other_group!r} has committed"
        found = answered(inspection.all_committed(request.other_group))
        if not found and inspection.describe_group(request.other_group).state == DEAD:
            raise UnknownGroupError(request.other_group)
    else:
        source = f"{request.source} has"
        found = {tp: CommittedOffset(offset, None, "") for tp, offset in (request.offsets or {}).items()}
    if not found:
        raise ConfigurationError(f"{source} no offsets. Check its name.")
    for topic, numbers in without(wanted, found).items():
        what = topic if numbers is None else TopicPartition(topic, min(numbers))
        raise ConfigurationError(f"{source} no offset of {what}. Check its name, or remove it from --topics.")
    return {tp: offset for tp, offset in found.items() if is_chosen(wanted, *tp)}


def _chosen(
    inspection: Cluster,
    group_id: str,
    request: ResetRequest,
    committed: Mapping[TopicPartition, CommittedOffset],
    target: Target,
) -> tuple[set[TopicPartition], Mapping[str, TopicInfo]]:
    """Return the partitions that ``--to`` resets, and their topics."""
    wanted = request.wanted or dict.fromkeys({tp.topic for tp in committed})
    if not wanted:
        raise ConfigurationError(
            f"The group {group_id!r} has no committed offsets. Name topics with --topics and --allow-new-topics."
        )
    topics = check_exist(inspection, wanted)
    chosen = set()
    for name, given in wanted.items():
        numbers: Collection[int] | None = given
        if numbers is None and target.kind is TargetKind.COMMITTED:
            numbers = {tp.partition for tp in committed if tp.topic == name}
            if not numbers:
                raise ConfigurationError(
                    f"The topic {name!r} has no committed offset in this group. Check its name, or leave it out with "
                    f"--topics."
                )
        elif numbers is None:
            numbers = topics[name].leader_epochs.keys()
        chosen |= {TopicPartition(name, number) for number in numbers}
    return chosen, topics


def _check_logs(offsets: Mapping[TopicPartition, CommittedOffset], topics: Mapping[str, TopicInfo]) -> None:
    """Refuse committed offsets whose notes name the log of a deleted topic."""
    notes = {tp: read(offset.metadata, tp, topics[tp.topic].cluster_id) for tp, offset in offsets.items()}
    deleted = sorted(
        tp
        for tp, note in notes.items()
        if isinstance(note, CommitNote | BookmarkNote) and differ(note.topic_id, topics[tp.topic].topic_id)
    )
    if deleted:
        raise ConfigurationError(
            f"The committed offset of {listed(deleted)} counts the records of a deleted topic of that name. Choose a "
            f"place of the new one, such as --to start, or leave it out with --topics."
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
            records = answered(inspection.records_at(dict.fromkeys(chosen, value)))
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
