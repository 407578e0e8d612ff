"""The events of a member, as a closed set.

Log lines, the event log (option ``eventLog``), the counters in the progress report and the oracles of the tests are
all views of this one stream.  An event reports a fact, never a plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark_kafka_group.offsets.types import Offset, OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base of all events."""

    name: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the event as one JSON object: its name and its fields."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"event": self.name, **fields}


def _plain(value: Any) -> Any:
    """Render topic-partitions as ``topic-0`` and ranges as ``[from, until]``."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, OffsetRange):
        return [value.start, value.until]
    if isinstance(value, tuple | list | frozenset):
        return [_plain(item) for item in value]
    return value


Partitions = tuple[TopicPartition, ...]
Ranges = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class Warming(Event):
    """The query runs an empty batch before it joins the group, in which ``others`` members read its topics.

    At most once per start of the query.
    """

    name: ClassVar[str] = "warming"
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Event):
    """The group has answered with the first assignment of this member.  Once per membership."""

    name: ClassVar[str] = "joined"
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(Event):
    """The group has assigned partitions to this member.  Once per rebalance that assigns some."""

    name: ClassVar[str] = "assigned"
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """The start of assigned partitions is decided and durable.  Once per assigned partition."""

    name: ClassVar[str] = "started"
    positions: Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack(Event):
    """The query could not plan partitions for 10 s, because of ``reason``.  Once per stall of a partition.

    Without ``partitions`` the group has not answered, so the query does not know its partitions.
    """

    name: ClassVar[str] = "heldBack"
    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBackEnded(Event):
    """Such a stall has ended after ``seconds``: the query can plan the partitions again, or they have left it."""

    name: ClassVar[str] = "heldBackEnded"
    partitions: Partitions
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChanged(Event):
    """Logs were created again, truncated or deleted while the query read them.  Once per check that finds it.

    ``change`` names the change.  ``ranges`` were in flight or not committed, in a log that no longer exists.
    """

    name: ClassVar[str] = "logChanged"
    partitions: Partitions
    change: str
    ranges: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreated(Event):
    """The partition has another log than the one that the query read last, and starts again.  Once per partition.

    The topic was deleted and created again, or the cluster was restored from an older copy.
    """

    name: ClassVar[str] = "recreated"
    partition: TopicPartition
    position: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsLost(Event):
    """A partition starts, and the records of this range no longer exist, with ``failOnDataLoss=false``.

    Once per range.  If records are deleted later, the task that was to read them logs a WARNING.
    """

    name: ClassVar[str] = "recordsLost"
    partition: TopicPartition
    gone: tuple[Offset, Offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset(Event):
    """An operator has set the group's offset with ``kafka-group reset``.  Once per partition and reset.

    ``by`` is the operator, and ``reset_at`` the time in seconds since 1970.  ``previous`` was committed before,
    ``committed`` was set, and the query resumes at ``position``.
    """

    name: ClassVar[str] = "offsetReset"
    partition: TopicPartition
    by: str
    reset_at: float
    previous: Offset | None
    committed: Offset | None
    position: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound(Event):
    """The group's offset had gone back or was deleted, and ``onOffsetRewind`` decided.  Once per partition.

    ``committed`` is the group's offset, and the query resumes at ``position``.
    """

    name: ClassVar[str] = "rewound"
    partition: TopicPartition
    committed: Offset | None
    position: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    """The query has planned a batch.  Once per batch that reads something."""

    name: ClassVar[str] = "planned"
    ranges: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(Event):
    """Spark runs a batch of its log again after a restart.  At most once per start of the query.

    The query reads ``ranges``.  It does not own ``not_owned`` of these, and cannot commit them.  It does not read
    ``skipped``, because other queries own them now.
    """

    name: ClassVar[str] = "replayed"
    ranges: Ranges
    not_owned: Partitions
    skipped: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """Spark has durably finished a batch.  Once per batch that read something."""

    name: ClassVar[str] = "finished"
    ranges: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """The query has committed offsets to the group.  Once per successful commit."""

    name: ClassVar[str] = "committed"
    offsets: Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag(Event):
    """The lag of this member's partitions has changed: log ends minus committed offsets, as a sum for each topic.

    Only with ``eventLog``, and at most once in 5 s.
    """

    name: ClassVar[str] = "lag"
    topics: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFailed(Event):
    """The coordinator refused a commit, or did not answer.  The query retries it.  Once per attempt."""

    name: ClassVar[str] = "commitFailed"
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining(Event):
    """The group has revoked busy partitions.  They leave when their batch is committed.  Once per revocation."""

    name: ClassVar[str] = "draining"
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Event):
    """Partitions have left this member with everything committed, or before it has read any of them.

    Once per partition that leaves cleanly.
    """

    name: ClassVar[str] = "released"
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired(Event):
    """Partitions have left before their batch was committed: ``drainTimeoutMs`` was over, or the query was stopped.

    The ranges may be processed twice.  Once per such departure.
    """

    name: ClassVar[str] = "expired"
    ranges: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Event):
    """The group has taken partitions away without waiting.  These ranges may be processed twice."""

    name: ClassVar[str] = "lost"
    partitions: Partitions
    ranges: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Event):
    """The member has left the group.  ``clean``: with nothing in flight and nothing uncommitted.  The last event."""

    name: ClassVar[str] = "left"
    clean: bool
