"""The metrics: their names, kinds, units and meanings, and how each is read from a source.

The exporters, docs/metrics.md and the test of the dashboard are views of this table.  A name is never changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_kafka_group.metrics.metric import (
    Kind,
    Metric,
    Per,
    Sample,
    event,
    moved,
    of_partitions,
    of_source,
    of_topics,
    since,
    time_spent,
)
from pyspark_kafka_group.metrics.source_metrics import SourceMetrics

_LAG = "log end minus committed offset, LAG in Kafka's tools"
_BEHIND = "log end minus the next offset to plan; what a running batch reads is not behind"

METRICS: tuple[Metric, ...] = (
    Metric(
        name="assigned-partitions",
        kind=Kind.GAUGE,
        unit="partitions",
        per=Per.TOPIC,
        doc="Partitions that this member has and keeps.",
        known_as="Kafka: assigned-partitions",
        read=of_topics(lambda topic: topic.assigned_partitions),
    ),
    Metric(
        name="draining-partitions",
        kind=Kind.GAUGE,
        unit="partitions",
        per=Per.TOPIC,
        doc="Partitions that the group wants back, and that wait for the running batch.",
        read=of_topics(lambda topic: topic.draining_partitions),
    ),
    Metric(
        name="held-back-partitions",
        kind=Kind.GAUGE,
        unit="partitions",
        per=Per.TOPIC,
        doc=(
            "Partitions of which nothing can be planned for 10 s or longer: no leader, a log that is not trusted, a "
            "start or a commit without an answer. The event `heldBack` has the reason. Alert on it if it stays above 0."
        ),
        read=of_topics(lambda topic: topic.held_back_partitions),
    ),
    Metric(
        name="group-lag",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc=f"The group's lag in this member's partitions: {_LAG}. Summed over all members it is the group's.",
        known_as="Kafka's tools: LAG",
        read=of_topics(lambda topic: topic.group_lag.total if topic.group_lag.partitions else None),
    ),
    Metric(
        name="group-lag-min",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, of the partition with the least.",
        read=of_topics(lambda topic: topic.group_lag.min if topic.group_lag.partitions else None),
    ),
    Metric(
        name="group-lag-max",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, of the partition with the most.",
        read=of_topics(lambda topic: topic.group_lag.max if topic.group_lag.partitions else None),
    ),
    Metric(
        name="group-lag-avg",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, on average over the partitions.",
        read=of_topics(lambda topic: topic.group_lag.avg if topic.group_lag.partitions else None),
    ),
    Metric(
        name="pending-records",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc=f"How far this member's partitions are behind: {_BEHIND}.",
        known_as="Flink: pendingRecords",
        read=of_topics(lambda topic: topic.records_lag.total if topic.records_lag.partitions else None),
    ),
    Metric(
        name="records-lag-min",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, of the partition with the least.",
        known_as="Spark: minOffsetsBehindLatest",
        read=of_topics(lambda topic: topic.records_lag.min if topic.records_lag.partitions else None),
    ),
    Metric(
        name="records-lag-max",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, of the partition with the most.",
        known_as="Kafka: records-lag-max; Spark: maxOffsetsBehindLatest",
        read=of_topics(lambda topic: topic.records_lag.max if topic.records_lag.partitions else None),
    ),
    Metric(
        name="records-lag-avg",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, on average over the partitions.",
        known_as="Kafka: records-lag-avg; Spark: avgOffsetsBehindLatest",
        read=of_topics(lambda topic: topic.records_lag.avg if topic.records_lag.partitions else None),
    ),
    Metric(
        name="log-end-seconds-ago",
        kind=Kind.GAUGE,
        unit="seconds",
        per=Per.SOURCE,
        doc="How long ago it was looked where logs end: all lags are of that moment. Every trigger looks.",
        read=since(lambda source: source.log_end_at),
    ),
    Metric(
        name="last-commit-seconds-ago",
        kind=Kind.GAUGE,
        unit="seconds",
        per=Per.SOURCE,
        doc="How long ago the last commit succeeded. It grows on an idle topic, too; only with lag it matters.",
        read=since(lambda source: source.committed_at),
    ),
    Metric(
        name="last-rebalance-seconds-ago",
        kind=Kind.GAUGE,
        unit="seconds",
        per=Per.SOURCE,
        doc="How long ago partitions of this member came or went.",
        known_as="Kafka: last-rebalance-seconds-ago",
        read=since(lambda source: source.assigned_at),
    ),
    Metric(
        name="generation",
        kind=Kind.GAUGE,
        unit="number",
        per=Per.SOURCE,
        doc="The group's generation, under KIP-848 the member epoch, when it last gave this member partitions.",
        known_as="Kafka: generation, member epoch",
        read=of_source(lambda source: source.generation),
    ),
    Metric(
        name="ownership-epoch",
        kind=Kind.GAUGE,
        unit="number",
        per=Per.SOURCE,
        doc="The number of this run's newest assignment.",
        read=of_source(lambda source: source.ownership_epoch),
    ),
    Metric(
        name="records-consumed-rate",
        kind=Kind.GAUGE,
        unit="records per second",
        per=Per.SOURCE,
        doc="How fast the last batch went: its records by all of its time.",
        known_as="Kafka: records-consumed-rate; Spark: processedRowsPerSecond",
        read=of_source(lambda source: source.processed_rows_per_second),
    ),
    Metric(
        name="rebalance-total",
        kind=Kind.COUNTER,
        unit="rebalances",
        per=Per.SOURCE,
        doc="Rebalances that gave this member partitions.",
        known_as="Kafka: rebalance-total",
        read=event("assigned"),
    ),
    Metric(
        name="hand-over-total",
        kind=Kind.COUNTER,
        unit="hand-overs",
        per=Per.SOURCE,
        doc="Revocations in which partitions were busy, and waited for the running batch.",
        read=event("draining"),
    ),
    Metric(
        name="moved-partitions-total",
        kind=Kind.COUNTER,
        unit="partitions",
        per=Per.REASON,
        doc=(
            "Partitions that came (`assigned`), left with everything committed (`released`), left before their batch "
            "was committed (`expired`), or were taken away without asking (`lost`). What is expired or lost may be "
            "processed twice."
        ),
        read=moved,
    ),
    Metric(
        name="commit-total",
        kind=Kind.COUNTER,
        unit="commits",
        per=Per.SOURCE,
        doc="Commits that succeeded.",
        known_as="Kafka: commit-total; Flink: commitsSucceeded",
        read=event("committed"),
    ),
    Metric(
        name="commit-failed-total",
        kind=Kind.COUNTER,
        unit="commits",
        per=Per.SOURCE,
        doc="Attempts to commit that were refused or got no answer. Each is tried again.",
        known_as="Flink: commitsFailed",
        read=event("commitFailed"),
    ),
    Metric(
        name="batch-total",
        kind=Kind.COUNTER,
        unit="batches",
        per=Per.SOURCE,
        doc="Batches that Spark has finished and that read something.",
        read=event("finished"),
    ),
    Metric(
        name="replay-total",
        kind=Kind.COUNTER,
        unit="batches",
        per=Per.SOURCE,
        doc="Batches of Spark's log that ran again: 1 after a start that found one unfinished.",
        read=event("replayed"),
    ),
    Metric(
        name="rewind-total",
        kind=Kind.COUNTER,
        unit="partitions",
        per=Per.SOURCE,
        doc="Partitions whose committed offset had gone back or was gone, and `onOffsetRewind` decided.",
        read=event("rewound"),
    ),
    Metric(
        name="records-lost-total",
        kind=Kind.COUNTER,
        unit="ranges",
        per=Per.SOURCE,
        doc="Ranges that were gone before they were read, with `failOnDataLoss=false`.",
        read=event("recordsLost"),
    ),
    Metric(
        name="time-total",
        kind=Kind.COUNTER,
        unit="seconds",
        per=Per.PHASE,
        doc=(
            "Where the time went: `waiting` for partitions, `idle`, `planning`, `running` a batch (reading, your code "
            "and the sink), and beside these `committing`."
        ),
        read=time_spent,
    ),
    Metric(
        name="partition-current-offset",
        kind=Kind.GAUGE,
        unit="offset",
        per=Per.PARTITION,
        doc="The next offset to plan.",
        known_as="Flink: currentOffset",
        read=of_partitions(lambda part: part.current_offset),
    ),
    Metric(
        name="partition-committed-offset",
        kind=Kind.GAUGE,
        unit="offset",
        per=Per.PARTITION,
        doc="The committed offset.",
        known_as="Flink: committedOffset; Kafka's tools: CURRENT-OFFSET",
        read=of_partitions(lambda part: part.committed_offset),
    ),
    Metric(
        name="partition-log-end-offset",
        kind=Kind.GAUGE,
        unit="offset",
        per=Per.PARTITION,
        doc="The log end offset.",
        known_as="Kafka's tools: LOG-END-OFFSET",
        read=of_partitions(lambda part: part.log_end_offset),
    ),
    Metric(
        name="partition-lag",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.PARTITION,
        doc="Log end minus committed offset.",
        known_as="Kafka's tools: LAG",
        read=of_partitions(lambda part: part.group_lag),
    ),
)
"""All metrics; those for each partition only on demand."""


def samples(source: SourceMetrics, now: float, *, per_partition: bool) -> Iterator[Sample]:
    """Yield the values of one source.

    Parameters
    ----------
    source : SourceMetrics
        The source.
    now : float
        The time in seconds since 1970.
    per_partition : bool
        Whether also those that there are for each partition.
    """
    labels = (source.query, source.group, source.client_id)
    for metric in chosen(per_partition=per_partition):
        for more, value in metric.read(source, now):
            yield Sample(metric, (*labels, *more), value)


def chosen(*, per_partition: bool) -> tuple[Metric, ...]:
    """Return the metrics that an exporter has."""
    return METRICS if per_partition else tuple(metric for metric in METRICS if metric.per is not Per.PARTITION)
