"""What may happen to a member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pyspark_kafka_group.coordinator.handover.lifecycle import Ending
from pyspark_kafka_group.offsets.batch_offset import BatchOffset
from pyspark_kafka_group.offsets.skip_markers import Markers
from pyspark_kafka_group.offsets.start_inputs import GroupOffset, PartitionInfo
from pyspark_kafka_group.offsets.types import LeaderEpoch, OffsetRange, OwnershipEpoch, TopicPartition


class LogChange(Enum):
    """What has happened to the log of a partition while it was read."""

    RECREATED = "created again"
    TRUNCATED = "truncated"
    DELETED = "deleted"


class PlannedRange(NamedTuple):
    """What a batch is to read of one partition.

    Attributes
    ----------
    epoch : OwnershipEpoch
        The assignment under which it was looked at.
    range : OffsetRange
        What to read.
    leader_epoch : LeaderEpoch or None
        That of the leader that said that the log reaches to ``range.until``.
    """

    epoch: OwnershipEpoch
    range: OffsetRange
    leader_epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """What Spark's checkpoint and the skip store say.

    Attributes
    ----------
    start : BatchOffset
        The end of the last batch that Spark has finished.
    query_id : str
        The name that the query has, or gets.
    markers : Markers
        Its durable skips.
    unfinished : BatchOffset or None
        The end of the batch that Spark will run again.
    """

    start: BatchOffset
    query_id: str
    markers: Markers = field(default_factory=dict)
    unfinished: BatchOffset | None = None


@dataclass(frozen=True, slots=True)
class OffsetsAtStart:
    """The group's offsets when the query starts, also of partitions that it may never be given."""

    offsets: Mapping[TopicPartition, GroupOffset]


@dataclass(frozen=True, slots=True)
class Assign:
    """The group gives partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionInfoReceived:
    """PartitionInfo arrived, for partitions as they were owned when asked for.

    ``new_lineage`` names the starts that are decided by them, where nobody has before; used once.
    """

    info: Mapping[TopicPartition, tuple[OwnershipEpoch, PartitionInfo]]
    new_lineage: str


@dataclass(frozen=True, slots=True)
class LogChangeFound:
    """The logs of these partitions are not what they were: where they start is decided anew.

    ``awaited``: the query was to read them, though the group has never given them to it.
    """

    partitions: tuple[TopicPartition, ...]
    change: LogChange
    awaited: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Forget:
    """These topics do not exist any more and are not subscribed by name: their processed offsets mean nothing."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Revoke:
    """The group asks for partitions back, and waits."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Expire:
    """The time to drain is over: what is still draining goes now."""


@dataclass(frozen=True, slots=True)
class Lose:
    """The group has taken partitions away."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PlanBatch:
    """Read these ranges, planned from :meth:`State.plannable`, as the next batch.

    Ranges of partitions that have left since then are dropped.  ``always``: log a batch even if nothing is
    left, as for batch 0, which Spark runs in any case.
    """

    ranges: Mapping[TopicPartition, PlannedRange]
    always: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """Spark runs the batch that ends at ``end`` again, from its log.

    Nothing happens, and it has to be said again later, while the group has not decided who owns a range.

    Attributes
    ----------
    elsewhere : frozenset of TopicPartition
        What the group has given to other queries.
    own_commits : frozenset of TopicPartition
        Of these, what the group has committed although nobody else is known to have processed it.
    orphaned : frozenset of TopicPartition
        What this query cannot get back; it is read all the same, unless another query has it.
    missing : frozenset of TopicPartition
        What does not exist any more.
    """

    end: BatchOffset
    elsewhere: frozenset[TopicPartition] = frozenset()
    own_commits: frozenset[TopicPartition] = frozenset()
    orphaned: frozenset[TopicPartition] = frozenset()
    missing: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class SkipsStored:
    """These skips are durable."""

    markers: Markers


@dataclass(frozen=True, slots=True)
class Finish:
    """Spark has durably finished the batch that ends at ``end``."""

    end: BatchOffset


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """The outstanding commit has an answer; ``problem`` is None if it succeeded.

    ``unclear``: the request may still be on its way, and may arrive after the next commit.
    """

    problem: str | None
    unclear: bool = False


@dataclass(frozen=True, slots=True)
class ReadBack:
    """It is time to compare the group's offsets of these partitions with what this query has committed."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetsReadBack:
    """The group's offsets, read back: None for a partition without one.  ``found`` is None if the broker is silent."""

    found: Mapping[TopicPartition, GroupOffset | None] | None


@dataclass(frozen=True, slots=True)
class Retry:
    """The pause after a failed commit is over."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Commit again what is committed: brokers forget each offset of a group without members some time after that."""


@dataclass(frozen=True, slots=True)
class End:
    """The query ends: plan nothing more."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class Leave:
    """The member leaves now: give everything back.  ``evicted``: the group has thrown it out already."""

    evicted: bool = False


Input = (
    Restored
    | OffsetsAtStart
    | Assign
    | PartitionInfoReceived
    | LogChangeFound
    | Forget
    | Revoke
    | Expire
    | Lose
    | PlanBatch
    | Replay
    | SkipsStored
    | Finish
    | CommitAnswered
    | ReadBack
    | OffsetsReadBack
    | Retry
    | Refresh
    | End
    | Leave
)
