"""The metrics of one source, as values.  Pure.  :mod:`~pyspark_kafka_group.metrics.progress` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSummary:
    """The sum, minimum, maximum and average lag of some partitions, in records.

    ``partitions`` counts the partitions with a known lag.  Without any, all values are 0.
    """

    total: int = 0
    min: int = 0
    max: int = 0
    avg: float = 0.0
    partitions: int = 0

    @classmethod
    def over(cls, numbers: Iterable[int]) -> LagSummary:
        """Return the summary of some numbers."""
        known = list(numbers)
        if not known:
            return cls()
        total = sum(known)
        return cls(total=total, min=min(known), max=max(known), avg=total / len(known), partitions=len(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetrics:
    """One partition of this member.

    Attributes
    ----------
    current_offset : int or None
        The next offset to plan; None if unknown yet.
    log_end_offset, committed_offset : int or None
        The offsets in Kafka's tools; None if unknown.
    group_lag : int or None
        Log end minus committed offset, without expired offsets.
    expired : int
        Offsets that the brokers deleted before the group read them.
    records_lag : int or None
        Log end minus the next offset to plan.
    draining : bool
        Whether the group wants it back, and it waits for the running batch.
    held_back : str or None
        Why it could not be planned for 10 s or longer; None if it can, or if the version does not report it.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    committed_offset: int | None
    group_lag: int | None
    records_lag: int | None
    draining: bool
    held_back: str | None = None
    expired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetrics:
    """The member's partitions of one topic.

    Attributes
    ----------
    assigned_partitions : int
        Partitions that the member keeps.
    draining_partitions : int
        Partitions that it will give back after the running batch.
    held_back_partitions : int
        Partitions that it could not plan for 10 s or longer.
    group_lag : LagSummary
        Log ends minus committed offsets, without expired offsets.
    records_lag : LagSummary
        Log ends minus the next offsets to plan.
    expired : int
        Offsets that the brokers deleted before the group read them.
    """

    topic: str
    assigned_partitions: int
    draining_partitions: int
    group_lag: LagSummary
    records_lag: LagSummary
    held_back_partitions: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent:
    """The time of a run by activity, in seconds.

    Attributes
    ----------
    waiting
        Waiting for partitions, or for their start offsets.
    idle
        Waiting for records.
    planning
        Listing log ends, and planning batches.
    running
        Running batches: reading, your code and the sink.
    committing
        Committing.  Mostly overlaps with the others.
    """

    waiting: float = 0.0
    idle: float = 0.0
    planning: float = 0.0
    running: float = 0.0
    committing: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMetrics:
    """One ``kafka-group`` source of a query: its member of the group.

    Counts belong to this run of the query.  They start at 0 with each run.

    Attributes
    ----------
    query : str
        The query's name, or its id if it has no name.
    query_id, run_id : str
        Spark's ids; empty if the progress does not contain them.
    group, client_id, member_id : str
        The names in Kafka's tools.
    topics : tuple of TopicMetrics
        The topics, sorted.
    partitions : tuple of PartitionMetrics
        The partitions, sorted by topic and number.
    group_lag, records_lag : LagSummary
        The lags over all partitions.
    log_end_at, assigned_at, committed_at : float or None
        When log ends were listed, partitions moved, and a commit succeeded, last.  In seconds since 1970.
    generation : int or None
        The generation at the last assignment; under KIP-848 the member epoch.
    ownership_epoch : int
        The number of assignments in this run.
    events : mapping of str to int
        How often each event has happened.
    moved : mapping of str to int
        How many partitions have come, and how many have left in each way.
    time_spent : TimeSpent
        The time by activity.
    records_consumed : int or None
        The number of offsets in the batches that Spark has finished; None if the version does not report it.
    input_rows_per_second, processed_rows_per_second : float or None
        Spark's rates of the last batch; None if unknown.
    """

    query: str
    query_id: str
    run_id: str
    group: str
    client_id: str
    member_id: str
    topics: tuple[TopicMetrics, ...]
    partitions: tuple[PartitionMetrics, ...]
    group_lag: LagSummary
    records_lag: LagSummary
    log_end_at: float | None
    assigned_at: float | None
    committed_at: float | None
    generation: int | None
    ownership_epoch: int
    events: Mapping[str, int]
    moved: Mapping[str, int]
    time_spent: TimeSpent
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    records_consumed: int | None = None
