"""Everything that may happen to a member."""

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
    """A change of a partition's log while it is read."""

    RECREATED = "created again"
    TRUNCATED = "truncated"
    DELETED = "deleted"


class PlannedRange(NamedTuple):
    """The range that a batch will read of one partition.

    Attributes
    ----------
    epoch : OwnershipEpoch
        The assignment under which the range was cut.
    range : OffsetRange
        The offsets to read.
    leader_epoch : LeaderEpoch or None
        The epoch of the leader that reported a log end of at least ``range.until``; None if unknown.
    """

    epoch: OwnershipEpoch
    range: OffsetRange
    leader_epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """The content of Spark's checkpoint and of the skip store.

    Attributes
    ----------
    start : BatchOffset
        The end of the last batch that Spark has finished.
    query_id : str
        The id of the query: from the checkpoint, or new.
    markers : Markers
        The durable skips of the query.
    unfinished : BatchOffset or None
        The end of the batch that Spark will run again; None if there is none.
    """

    start: BatchOffset
    query_id: str
    markers: Markers = field(default_factory=dict)
    unfinished: BatchOffset | None = None


@dataclass(frozen=True, slots=True)
class OffsetsAtStart:
    """The group's offsets when the query starts, also of partitions that it may never own."""

    offsets: Mapping[TopicPartition, GroupOffset]


@dataclass(frozen=True, slots=True)
class Assign:
    """The group assigns partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionInfoReceived:
    """The cluster has answered where partitions start.

    Attributes
    ----------
    info : mapping
        The ownership epoch under which the query asked about each partition, and the answer.
    new_lineage : str
        The lineage of the starts that these answers are the first to decide.  Used once.
    """

    info: Mapping[TopicPartition, tuple[OwnershipEpoch, PartitionInfo]]
    new_lineage: str


@dataclass(frozen=True, slots=True)
class LogChangeFound:
    """The logs of these partitions have changed, and the query must resolve their starts again.

    ``awaited``: the query was to read them, although the group has never assigned them to it.
    """

    partitions: tuple[TopicPartition, ...]
    change: LogChange
    awaited: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Forget:
    """These topics no longer exist and are not subscribed by name, so their processed offsets are useless."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Revoke:
    """The group revokes partitions, and waits for the answer."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Expire:
    """The time to drain is over: partitions that still drain leave now."""


@dataclass(frozen=True, slots=True)
class Lose:
    """The group has taken partitions away without waiting."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PlanBatch:
    """Plan these ranges, cut from :meth:`State.plannable`, as the next batch.

    Ranges of partitions that have left since then are dropped.  ``always``: log a batch even if no range is left, as
    for batch 0, which Spark runs in any case.
    """

    ranges: Mapping[TopicPartition, PlannedRange]
    always: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """Spark runs the batch that ends at ``end`` again, from its log.

    This has no effect while the group has not decided who owns a range.  The query then sends it again later.

    Attributes
    ----------
    end : BatchOffset
        The end of the batch.
    elsewhere : frozenset of TopicPartition
        The partitions that the group has assigned to other queries.
    own_commits : frozenset of TopicPartition
        Those of ``elsewhere`` that the group has committed although no other query is known to have processed them.
    orphaned : frozenset of TopicPartition
        The partitions that no query of the group can get.  This one reads them.
    missing : frozenset of TopicPartition
        The partitions that no longer exist.
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
    """The outstanding commit has an answer.

    Attributes
    ----------
    problem : str or None
        The reason of the failure; None if the commit succeeded.
    unclear : bool
        Whether the request may still be on its way, and arrive after the next commit.
    """

    problem: str | None
    unclear: bool = False


@dataclass(frozen=True, slots=True)
class ReadBack:
    """It is time to compare the group's offsets of these partitions with the commits of this query."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetsReadBack:
    """The group's offsets were read back.

    Attributes
    ----------
    found : mapping or None
        The offset of each partition, None for one without an offset.  None as a whole if the broker does not answer.
    """

    found: Mapping[TopicPartition, GroupOffset | None] | None


@dataclass(frozen=True, slots=True)
class Retry:
    """The pause after a failed commit is over."""


@dataclass(frozen=True, slots=True)
class End:
    """The query ends: stop planning."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class Leave:
    """The member leaves now, and gives everything back.  ``evicted``: the group has already thrown it out."""

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
    | End
    | Leave
)
