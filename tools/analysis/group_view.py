"""A group as it is now: its members, what each partition has committed, and how far that is behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_kafka_group.offsets.cluster.group_description import DEAD, GroupDescription, Member
from pyspark_kafka_group.offsets.cluster.group_inspection import Coordinator, GroupInspection
from pyspark_kafka_group.offsets.commit_metadata import CommitNote
from pyspark_kafka_group.offsets.types import TopicPartition
from pyspark_kafka_group.tools.analysis.group_partition import OFFSETS_TOPIC, group_partition, java_hash
from pyspark_kafka_group.tools.analysis.lag_status import Judgement, Status, group_status

_GONE = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})
"""Errors of partitions that nobody waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition of a group.

    Attributes
    ----------
    tp : TopicPartition
        Which.
    committed_offset : int or None
        The committed offset; None if none was ever committed, or it has ended.
    leader_epoch : int or None
        Its leader epoch.
    metadata : str or None
        Its metadata; None without an offset.
    log_end_offset : int or None
        Where the log ends, transactions that are open or aborted included; None if no leader answers.
    owner : Member or None
        Who has the partition.
    status : Status or None
        Burrow's verdict; None if it was not asked for, or could not be found.  ``HELDBACK`` where there is a problem.
    lag_seconds : float or None
        How old the record at the committed offset is, 0 without a lag; None if that is not known.
    drain_seconds : float or None
        How long the lag lasts if things go on as they did lately; None if it does not fall, or that is not known.
    problem : str or None
        Why nothing of it can be read, Kafka's name of the error; None if its leader answers, or its topic is gone.
    """

    tp: TopicPartition
    committed_offset: int | None
    leader_epoch: int | None = None
    metadata: str | None = None
    log_end_offset: int | None = None
    owner: Member | None = None
    status: Status | None = None
    lag_seconds: float | None = None
    drain_seconds: float | None = None
    problem: str | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets are behind the committed one, as Kafka's own tool counts; None if that cannot be known.

        Negative if the committed offset is beyond the log's end.
        """
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed_offset

    @property
    def query_id(self) -> str | None:
        """The query of this project that has committed; None if another program has."""
        note = CommitNote.decode(self.metadata)
        return note.query_id if note else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group, its members and its partitions, sorted by topic and number."""

    group: str
    description: GroupDescription
    coordinator: Coordinator
    partitions: tuple[PartitionView, ...]

    @property
    def exists(self) -> bool:
        """Whether the cluster knows the group."""
        return self.description.state != DEAD or bool(self.partitions)

    @property
    def status(self) -> Status | None:
        """Burrow's verdict on the group; None if no partition was judged."""
        judged = [partition.status for partition in self.partitions if partition.status is not None]
        return group_status(judged) if judged else None

    @property
    def lag(self) -> int:
        """How many offsets are behind in all partitions whose lag is known."""
        return sum(max(0, partition.lag) for partition in self.partitions if partition.lag is not None)

    @property
    def lag_seconds(self) -> float | None:
        """How far the partition that is furthest behind is behind; None if nothing is known of any."""
        return max((part.lag_seconds for part in self.partitions if part.lag_seconds is not None), default=None)

    @property
    def drain_seconds(self) -> float | None:
        """How long it takes until no partition has a lag; None if one has a lag of which that is not known."""
        lasting = [part.drain_seconds for part in self.partitions if part.lag is not None]
        known = [seconds for seconds in lasting if seconds is not None]
        return max(known) if known and len(known) == len(lasting) else None

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """The committed offsets of the partitions that have a lag."""
        return {
            part.tp: part.committed_offset
            for part in self.partitions
            if part.committed_offset is not None and part.lag is not None and part.lag > 0
        }

    def judged(self, judgements: Mapping[TopicPartition, Judgement]) -> GroupView:
        """Return the view with what is said of each partition."""

        def one(part: PartitionView) -> PartitionView:
            found = judgements.get(part.tp)
            if found is None:
                return part
            return replace(part, status=found.status, drain_seconds=found.drain_seconds)

        return replace(self, partitions=tuple(one(part) for part in self.partitions))

    def dated(self, seconds: Mapping[TopicPartition, float]) -> GroupView:
        """Return the view with how far partitions are behind in time; those without a lag are not behind."""

        def one(part: PartitionView) -> PartitionView:
            if part.lag is not None and part.lag <= 0:
                return replace(part, lag_seconds=0.0)
            return replace(part, lag_seconds=seconds.get(part.tp))

        return replace(self, partitions=tuple(one(part) for part in self.partitions))


def view_group(inspection: GroupInspection, group_id: str) -> GroupView:
    """Return what the cluster says of a group now.

    Raises what :class:`~pyspark_kafka_group.offsets.cluster.cluster_requests.ClusterRequests` says.
    """
    description = inspection.describe_group(group_id)
    committed = inspection.all_committed(group_id)
    owners = {tp: member for member in description.members for tp in member.assignment}
    partitions = sorted({*committed.found, *committed.failed, *owners})
    ends = inspection.log_ends(partitions, read_committed=False)
    problems = {tp: problem for tp, problem in ends.failed.items() if problem not in _GONE}

    def one(tp: TopicPartition) -> PartitionView:
        offset = committed.found.get(tp)
        return PartitionView(
            tp=tp,
            committed_offset=offset.offset if offset else None,
            leader_epoch=offset.leader_epoch if offset else None,
            metadata=offset.metadata if offset else None,
            log_end_offset=ends.found.get(tp),
            owner=owners.get(tp),
            status=Status.HELDBACK if tp in problems else None,
            problem=problems.get(tp),
        )

    return GroupView(
        group=group_id,
        description=description,
        coordinator=inspection.coordinator(group_id),
        partitions=tuple(one(tp) for tp in partitions),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorView:
    """Why a broker coordinates a group.

    Attributes
    ----------
    group : str
        The group, which need not exist.
    java_hash : int
        What Java's ``hashCode`` makes of its name.
    partition_count : int or None
        How many partitions ``__consumer_offsets`` has; None if it does not exist, or is hidden.
    partition : int or None
        The one that holds the group.
    leader : int or None
        The id of the broker that leads it.
    coordinator : Coordinator
        Who says that it coordinates the group.
    """

    group: str
    java_hash: int
    partition_count: int | None
    partition: int | None
    leader: int | None
    coordinator: Coordinator


def view_coordinator(inspection: GroupInspection, group_id: str) -> CoordinatorView:
    """Return which broker coordinates a group, and why.

    Raises what :class:`~pyspark_kafka_group.offsets.cluster.cluster_requests.ClusterRequests` says.
    """
    coordinator = inspection.coordinator(group_id)  # first: a new cluster makes the topic when it is asked for one
    leaders = inspection.leaders(OFFSETS_TOPIC)
    partition = group_partition(group_id, len(leaders)) if leaders else None
    leader = None if partition is None else leaders.get(partition)
    return CoordinatorView(
        group=group_id,
        java_hash=java_hash(group_id),
        partition_count=len(leaders) or None,
        partition=partition,
        leader=None if leader is None or leader < 0 else leader,
        coordinator=coordinator,
    )
