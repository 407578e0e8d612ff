"""The metrics of one source, as values.  Pure; :mod:`~pyspark_kafka_group.metrics.progress` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSummary:
    """Numbers of records, over some partitions.

    Attributes
    ----------
    total, min, max : int
        The sum, and those of the partitions with the least and the most; 0 if no partition is known.
    avg : float
        The average.
    partitions : int
        The number of partitions with a known number.
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
        The next offset to plan; None while it is being found out.
    log_end_offset, committed_offset : int or None
        As Kafka's tools show them; None if not known.
    group_lag : int or None
        Log end minus committed offset.
    records_lag : int or None
        Log end minus the next offset to plan.
    draining : bool
        Whether the group wants it back, and it waits for the running batch.
    held_back : str or None
        Why nothing of it can be planned for 10 s or longer; None if it can, and from a version that does not tell.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetrics:
    """The partitions of one topic that this member has.

    Attributes
    ----------
    assigned_partitions, draining_partitions : int
        How many it has and keeps, and how many it is about to give back.
    held_back_partitions : int
        Of how many nothing can be planned for 10 s or longer.
    group_lag : LagSummary
        Log ends minus committed offsets.
    records_lag : LagSummary
        Log ends minus the next offsets to plan.
    """

    topic: str
    assigned_partitions: int
    draining_partitions: int
    group_lag: LagSummary
    records_lag: LagSummary
    held_back_partitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent:
    """Where the time of a run went, in seconds.

    Attributes
    ----------
    waiting : float
        For partitions: for the group, or for what decides where they start.
    idle : float
        For something to read.
    planning : float
        Looking where logs end, and deciding what a batch reads.
    running : float
        Batches: reading, your code and the sink.  Spark tells a source no more.
    committing : float
        Commits, most often beside the others.
    """

    waiting: float = 0.0
    idle: float = 0.0
    planning: float = 0.0
    running: float = 0.0
    committing: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMetrics:
    """One ``kafka-group`` source of a query, as far as it is this query's member of the group.

    Sums, as ``events``, are those of this run of the query: they begin again when it does.

    Attributes
    ----------
    query : str
        The query's name, or else its id.
    query_id, run_id : str
        As Spark has them; empty if the progress does not tell.
    group, client_id, member_id : str
        As Kafka's tools show them.
    topics : tuple of TopicMetrics
        By topic.
    partitions : tuple of PartitionMetrics
        By topic and number.
    group_lag, records_lag : LagSummary
        Over all partitions.
    log_end_at, assigned_at, committed_at : float or None
        The last time that log ends were listed, partitions came or went, and a commit succeeded; in seconds since 1970.
    generation : int or None
        Of the group, under KIP-848 the member epoch, when it last gave this member partitions.
    ownership_epoch : int
        The number of this run's newest assignment.
    events : mapping of str to int
        How often each event has happened.
    moved : mapping of str to int
        How many partitions have come and how they have gone.
    time_spent : TimeSpent
        Where the time went.
    input_rows_per_second, processed_rows_per_second : float or None
        As Spark has them for the last batch; None if it tells none.
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
