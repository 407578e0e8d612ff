"""The metrics: their names, kinds, units and meanings, and how each is read from a source.

The exporters, docs/metrics.md and the test of the dashboard are views of this table.  A name is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from pyspark_kafka_group.metrics.metric import (
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
from pyspark_kafka_group.metrics.source_metrics import LagSummary, SourceMetrics, TopicMetrics

_LAG = "log end minus committed offset, LAG in Kafka's tools"
_BEHIND = "log end minus the next offset to plan; what a running batch reads is not behind"


def _lags(
    total: str, stem: str, doc: str, read: Callable[[TopicMetrics], LagSummary], known_as: dict[str, str]
) -> Iterator[Metric]:
    """Yield the metrics of a summary of lags: its total, and the least, the most and the average of the partitions."""

    def of(field: str, topic: TopicMetrics) -> float | None:
        found = read(topic)
        return getattr(found, field) if found.partitions else None

    for name, field, text in (
        (total, "total", doc),
        (f"{stem}-min", "min", "The same, of the partition with the least."),
        (f"{stem}-max", "max", "The same, of the partition with the most."),
        (f"{stem}-avg", "avg", "The same, on average over the partitions."),
    ):
        yield Metric(
            name=name,
            unit="records",
            per=Per.TOPIC,
            doc=text,
            known_as=known_as.get(name, ""),
            read=of_topics(partial(of, field)),
        )


METRICS: tuple[Metric, ...] = (
    Metric(
        name="assigned-partitions",
        unit="partitions",
        per=Per.TOPIC,
        doc="Partitions that this member has and keeps.",
        known_as="Kafka: assigned-partitions",
        read=of_topics(lambda topic: topic.assigned_partitions),
    ),
    Metric(
        name="draining-partitions",
        unit="partitions",
        per=Per.TOPIC,
        doc="Partitions that the group wants back, and that wait for the running batch.",
        read=of_topics(lambda topic: topic.draining_partitions),
    ),
    Metric(
        name="held-back-partitions",
        unit="partitions",
        per=Per.TOPIC,
        doc=(
            "Partitions of which nothing can be planned for 10 s or longer: no leader, a log that is not trusted, a "
            "start or a commit without an answer. The event `heldBack` has the reason. Alert on it if it stays above 0."
        ),
        read=of_topics(lambda topic: topic.held_back_partitions),
    ),
    *_lags(
        "group-lag",
        "group-lag",
        f"The group's lag in this member's partitions: {_LAG}. Summed over all members it is the group's.",
        lambda topic: topic.group_lag,
        {"group-lag": "Kafka's tools: LAG"},
    ),
    *_lags(
        "pending-records",
        "records-lag",
        f"How far this member's partitions are behind: {_BEHIND}.",
        lambda topic: topic.records_lag,
        {
            "pending-records": "Flink: pendingRecords",
            "records-lag-min": "Spark: minOffsetsBehindLatest",
            "records-lag-max": "Kafka: records-lag-max; Spark: maxOffsetsBehindLatest",
            "records-lag-avg": "Kafka: records-lag-avg; Spark: avgOffsetsBehindLatest",
        },
    ),
    Metric(
        name="log-end-seconds-ago",
        unit="seconds",
        doc="How long ago it was looked where logs end: all lags are of that moment. Every trigger looks.",
        read=since(lambda source: source.log_end_at),
    ),
    Metric(
        name="last-commit-seconds-ago",
        unit="seconds",
        doc="How long ago the last commit succeeded. It grows on an idle topic, too; only with lag it matters.",
        read=since(lambda source: source.committed_at),
    ),
    Metric(
        name="last-rebalance-seconds-ago",
        unit="seconds",
        doc="How long ago partitions of this member came or went.",
        known_as="Kafka: last-rebalance-seconds-ago",
        read=since(lambda source: source.assigned_at),
    ),
    Metric(
        name="generation",
        unit="number",
        doc="The group's generation, under KIP-848 the member epoch, when it last gave this member partitions.",
        known_as="Kafka: generation, member epoch",
        read=of_source(lambda source: source.generation),
    ),
    Metric(
        name="ownership-epoch",
        unit="number",
        doc="The number of this run's newest assignment.",
        read=of_source(lambda source: source.ownership_epoch),
    ),
    Metric(
        name="records-consumed-rate",
        unit="records per second",
        doc="How fast the last batch went: its records by all of its time.",
        known_as="Kafka: records-consumed-rate; Spark: processedRowsPerSecond",
        read=of_source(lambda source: source.processed_rows_per_second),
    ),
    Metric(
        name="rebalance-total",
        unit="rebalances",
        doc="Rebalances that gave this member partitions.",
        known_as="Kafka: rebalance-total",
        read=event("assigned"),
    ),
    Metric(
        name="hand-over-total",
        unit="hand-overs",
        doc="Revocations in which partitions were busy, and waited for the running batch.",
        read=event("draining"),
    ),
    Metric(
        name="moved-partitions-total",
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
        unit="commits",
        doc="Commits that succeeded.",
        known_as="Kafka: commit-total; Flink: commitsSucceeded",
        read=event("committed"),
    ),
    Metric(
        name="commit-failed-total",
        unit="commits",
        doc="Attempts to commit that were refused or got no answer. Each is tried again.",
        known_as="Flink: commitsFailed",
        read=event("commitFailed"),
    ),
    Metric(
        name="batch-total",
        unit="batches",
        doc="Batches that Spark has finished and that read something.",
        read=event("finished"),
    ),
    Metric(
        name="replay-total",
        unit="batches",
        doc="Batches of Spark's log that ran again: 1 after a start that found one unfinished.",
        read=event("replayed"),
    ),
    Metric(
        name="rewind-total",
        unit="partitions",
        doc="Partitions whose committed offset had gone back or was gone, and `onOffsetRewind` decided.",
        read=event("rewound"),
    ),
    Metric(
        name="records-lost-total",
        unit="ranges",
        doc="Ranges that were gone before they were read, with `failOnDataLoss=false`.",
        read=event("recordsLost"),
    ),
    Metric(
        name="time-total",
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
        unit="offset",
        per=Per.PARTITION,
        doc="The next offset to plan.",
        known_as="Flink: currentOffset",
        read=of_partitions(lambda part: part.current_offset),
    ),
    Metric(
        name="partition-committed-offset",
        unit="offset",
        per=Per.PARTITION,
        doc="The committed offset.",
        known_as="Flink: committedOffset; Kafka's tools: CURRENT-OFFSET",
        read=of_partitions(lambda part: part.committed_offset),
    ),
    Metric(
        name="partition-log-end-offset",
        unit="offset",
        per=Per.PARTITION,
        doc="The log end offset.",
        known_as="Kafka's tools: LOG-END-OFFSET",
        read=of_partitions(lambda part: part.log_end_offset),
    ),
    Metric(
        name="partition-lag",
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
