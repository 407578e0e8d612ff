"""What a reset would do: pure once the cluster has been asked, and complete or refused before anything is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pyspark_kafka_group.offsets.cluster.cluster_answers import Answers, CommittedOffset
from pyspark_kafka_group.offsets.cluster.error_remedies import TryAgainError
from pyspark_kafka_group.offsets.cluster.group_description import DEAD, GroupDescription
from pyspark_kafka_group.offsets.cluster.group_inspection import GroupInspection
from pyspark_kafka_group.offsets.errors import ConfigurationError, GroupError
from pyspark_kafka_group.offsets.types import Offset, TopicPartition
from pyspark_kafka_group.tools.analysis.reset_target import Kind, Target

T = TypeVar("T")

EMPTY = "Empty"
_UNSTABLE = "UNSTABLE_OFFSET_COMMIT"

Wanted = Mapping[str, frozenset[int] | None]
"""The numbers of partitions by topic; None for all of it.  Nothing stands for all that the group has committed."""

_NAMED = 8
"""So many members or partitions are named, then counted."""


class GroupInUseError(GroupError):
    """The group has members, or is just being assigned; its offsets are theirs."""

    def __init__(self, group_id: str, description: GroupDescription) -> None:
        members = [f"{member.client_id} at {member.host} ({member.member_id})" for member in description.members]
        who = named(members) if members else "nobody yet; it is being assigned"
        super().__init__(
            f"The group {group_id!r} is in use (state {description.state}); its members: {who}. Nothing was changed. "
            f"Stop them first: while a group has members, only they may commit.",
            members=tuple(members),
        )


class UnstableOffsetsError(GroupError):
    """A transaction that commits offsets of the group is open, and would overwrite a reset when it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of the committed offset of one partition.

    Attributes
    ----------
    tp : TopicPartition
        Which.
    previous : Offset or None
        What is committed now; None if nothing is.
    requested : int
        Where it shall be set.
    offset : Offset
        Where it will be: the nearest offset to that which the log has.
    log_start, log_end : Offset
        Where the log starts and ends, open transactions included.
    leader_epoch : int or None
        The leader epoch of the record before, where another group's offset is copied.
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
        """Whether the log does not reach to where the offset was to be set."""
        return self.offset != self.requested


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for: one of three sources of offsets, and which partitions.

    Attributes
    ----------
    target : Target or None
        What ``--to`` says.
    other_group : str or None
        Whose offsets to copy.
    offsets : mapping or None
        What a file says.
    wanted : Wanted
        Only these.
    allow_new_topics : bool
        Whether topics are allowed that the group has never committed.
    """

    target: Target | None = None
    other_group: str | None = None
    offsets: Mapping[TopicPartition, Offset] | None = None
    wanted: Wanted
    allow_new_topics: bool = False


def plan(inspection: GroupInspection, group_id: str, request: Request) -> list[Change]:
    """Return what a reset would do, in the order of partitions.

    Raises
    ------
    GroupInUseError
        If the group has members.
    ConfigurationError
        If something that is asked for does not exist.
    UnstableOffsetsError
        If a transaction is open that commits offsets of these partitions.
    TryAgainError
        If some partition has no leader just now.
    """
    description = inspection.describe_group(group_id)
    if description.members or description.state not in (EMPTY, DEAD):
        raise GroupInUseError(group_id, description)
    committed = _answered(inspection.all_committed(group_id))
    given = _given(inspection, group_id, request, committed)
    _check(inspection, group_id, request, {*given}, {tp.topic for tp in committed})
    stable = inspection.committed(group_id, [*given], require_stable=True)
    unstable = sorted(tp for tp, name in stable.failed.items() if name == _UNSTABLE)
    if unstable:
        raise UnstableOffsetsError(
            f"A transaction that commits offsets of the group {group_id!r} is open ({named(unstable)}), and "
            f"would overwrite what is set now. Nothing was changed. Wait for its end: a minute, if its producer has "
            f"died, unless that has set another transaction.timeout.ms."
        )
    _answered(stable)
    logs = _Logs(_answered(inspection.log_starts([*given])), _answered(_ends(inspection, given)))
    asked = {tp: offset for tp, offset in given.items() if offset is not None}
    if request.target is not None:
        asked = _resolved(inspection, request.target, [*given], committed, logs)
    return [_change(tp, asked[tp], committed.get(tp), logs) for tp in sorted(asked)]


class _Logs(NamedTuple):
    starts: Mapping[TopicPartition, Offset]
    ends: Mapping[TopicPartition, Offset]


def _ends(inspection: GroupInspection, partitions: Iterable[TopicPartition]) -> Answers[Offset]:
    # With open transactions, as Kafka's own tool: the end is where everything is skipped.
    return inspection.log_ends([*partitions], read_committed=False)


def _answered(answers: Answers[T]) -> dict[TopicPartition, T]:
    for tp, problem in answers.failed.items():
        raise TryAgainError(f"{tp}: {problem}")
    return answers.found


def _given(
    inspection: GroupInspection, group_id: str, request: Request, committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset | None]:
    """Return the partitions that shall be reset, with their offsets where these are given one by one."""
    given: dict[TopicPartition, CommittedOffset | None]
    if request.target is None:
        if request.other_group is not None:
            others = _answered(inspection.all_committed(request.other_group))
            given = {**others}
            source = f"The group {request.other_group!r} has committed"
        else:
            given = {tp: CommittedOffset(offset, None, "") for tp, offset in (request.offsets or {}).items()}
            source = "The file has"
        given = {tp: offset for tp, offset in given.items() if _is_wanted(tp, request.wanted)}
        for topic, numbers in request.wanted.items():
            for tp in [TopicPartition(topic, number) for number in sorted(numbers or ())]:
                if tp not in given:
                    raise ConfigurationError(f"{source} no offset of {tp}. Leave it out of --topics.")
        if not given:
            raise ConfigurationError(f"{source} no offset of what is asked for. Check its name, and --topics.")
        return given
    names = {*request.wanted} or {tp.topic for tp in committed}
    if not names:
        raise ConfigurationError(
            f"The group {group_id!r} has committed nothing. Name topics with --topics, and --allow-new-topics."
        )
    topics = inspection.topics(names)
    chosen = set()
    for name in sorted(names):
        numbers = request.wanted.get(name)
        if numbers is None and request.target.kind is Kind.COMMITTED:
            chosen |= {tp for tp in committed if tp.topic == name}
        elif numbers is None:
            chosen |= (
                {TopicPartition(name, number) for number in topics[name].leader_epochs} if name in topics else set()
            )
        else:
            chosen |= {TopicPartition(name, number) for number in numbers}
    for name in names - {tp.topic for tp in chosen}:
        why = "does not exist" if name not in topics else "has no committed offset in this group"
        raise ConfigurationError(f"The topic {name!r} {why}. Check its name, or leave it out with --topics.")
    return dict.fromkeys(chosen)


def _is_wanted(tp: TopicPartition, wanted: Wanted) -> bool:
    numbers = wanted.get(tp.topic, frozenset())
    return not wanted or numbers is None or tp.partition in numbers


def _check(
    inspection: GroupInspection,
    group_id: str,
    request: Request,
    given: Collection[TopicPartition],
    known: Collection[str],
) -> None:
    topics = inspection.topics({tp.topic for tp in given})
    absent = sorted(tp for tp in given if tp.topic not in topics or tp.partition not in topics[tp.topic].leader_epochs)
    if absent:
        raise ConfigurationError(f"There is no {named(absent)}. Check the names, or leave them out with --topics.")
    new = sorted({tp.topic for tp in given} - {*known})
    if new and not request.allow_new_topics:
        raise ConfigurationError(
            f"The group {group_id!r} has never committed {named(new)}. Check the names; --allow-new-topics gives it "
            f"offsets there, --topics leaves topics out."
        )


def _resolved(
    inspection: GroupInspection,
    target: Target,
    chosen: Collection[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    logs: _Logs,
) -> dict[TopicPartition, CommittedOffset]:
    """Return where a target is in each partition."""
    value = target.value
    found: dict[TopicPartition, int] = {}
    match target.kind:
        case Kind.START:
            found = {tp: logs.starts[tp] + value for tp in chosen}
        case Kind.END:
            found = {tp: logs.ends[tp] + value for tp in chosen}
        case Kind.OFFSET:
            found = dict.fromkeys(chosen, value)
        case Kind.COMMITTED:
            for tp in sorted({*chosen} - {*committed}):
                raise ConfigurationError(f"{tp} has no committed offset to count from. Leave it out with --topics.")
            found = {tp: committed[tp].offset + value for tp in chosen}
        case Kind.TIME:
            records = _answered(inspection.records_at(dict.fromkeys(chosen, value)))
            found = {tp: logs.ends[tp] if record is None else record.offset for tp, record in records.items()}
    return {tp: CommittedOffset(Offset(offset), None, "") for tp, offset in found.items()}


def _change(tp: TopicPartition, asked: CommittedOffset, before: CommittedOffset | None, logs: _Logs) -> Change:
    offset = Offset(min(max(asked.offset, logs.starts[tp]), logs.ends[tp]))
    return Change(
        tp=tp,
        previous=before.offset if before else None,
        requested=asked.offset,
        offset=offset,
        log_start=logs.starts[tp],
        log_end=logs.ends[tp],
        leader_epoch=asked.leader_epoch if offset == asked.offset else None,
    )


def named(items: Sequence[object]) -> str:
    """Return the names of some things, and how many there are besides."""
    shown = ", ".join(str(item) for item in items[:_NAMED])
    return shown if len(items) <= _NAMED else f"{shown} and {len(items) - _NAMED} more"
