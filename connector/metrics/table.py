"""The table of metrics: names, kinds, units and meanings, and how to read each one from a source.

The exporters, docs/metrics.md and the test of the dashboard use this table.  Never change a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pyspark_kafka_group.metrics.metric import (
    Metric,
    Per,
    Read,
    Sample,
    event,
    number,
    of_keys,
    of_partitions,
    of_topics,
    rate,
    since,
)
from pyspark_kafka_group.metrics.reports import PartitionReport, SourceReport

_LAG = (
    "log end minus committed offset, LAG in Kafka's tools without the records of open transactions and without "
    "`expired-records`"
)
_BEHIND = "log end minus the next offset to plan. Records of a running batch do not count"


def _lags(
    total: str, stem: str, doc: str, read: Callable[[PartitionReport], int | None], known_as: dict[str, str]
) -> Iterator[Metric]:
    """Yield the metrics of lags: the total, and the minimum, maximum and average of the partitions."""

    def of(summarize: Callable[[list[int]], float]) -> Read:
        def of_topic(parts: list[PartitionReport]) -> float | None:
            known = [lag for lag in map(read, parts) if lag is not None]
            return summarize(known) if known else None

        return of_topics(of_topic)

    summaries: tuple[tuple[str, Callable[[list[int]], float], str], ...] = (
        (total, sum, doc),
        (f"{stem}-min", min, f"The lowest `{total}` of a partition."),
        (f"{stem}-max", max, f"The highest `{total}` of a partition."),
        (f"{stem}-avg", lambda lags: sum(lags) / len(lags), f"The average `{total}` of the partitions."),
    )
    for name, summarize, text in summaries:
        yield Metric(
            name=name,
            unit="records",
            per=Per.TOPIC,
            doc=text,
            known_as=known_as.get(name, ""),
            read=of(summarize),
        )


METRICS: tuple[Metric, ...] = (
    Metric(
        name="assigned-partitions",
        unit="partitions",
        per=Per.TOPIC,
        doc="Partitions that this member has and keeps.",
        known_as="Kafka: assigned-partitions",
        read=of_topics(lambda parts: sum(not part.is_draining for part in parts)),
    ),
    Metric(
        name="draining-partitions",
        unit="partitions",
        per=Per.TOPIC,
        doc="Partitions that the group wants back, and that wait for the running batch.",
        read=of_topics(lambda parts: sum(part.is_draining for part in parts)),
    ),
    Metric(
        name="held-back-partitions",
        unit="partitions",
        per=Per.TOPIC,
        doc=(
            "Partitions that could not be planned for 10 s or longer: without a leader, with a log that may have "
            "changed, or waiting for the start offset or a commit. The event `heldBack` contains the reason. Alert if "
            "this stays above 0."
        ),
        read=of_topics(lambda parts: sum(part.is_held_back for part in parts)),
    ),
    *_lags(
        "group-lag",
        "group-lag",
        f"The lag of the group in this member's partitions: {_LAG}. The sum over all members is the lag of the group.",
        lambda part: part.lag,
        {"group-lag": "Kafka's tools: LAG"},
    ),
    Metric(
        name="expired-records",
        unit="records",
        per=Per.TOPIC,
        doc="Offsets that the brokers deleted before the group read them: log start minus committed offset. They are "
        "no part of the lags. The query lists the log starts once a minute. Alert if this is above 0.",
        read=of_topics(lambda parts: sum(part.expired for part in parts)),
    ),
    *_lags(
        "pending-records",
        "records-lag",
        f"The lag of this member in its partitions: {_BEHIND}.",
        lambda part: part.behind,
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
        doc="Time since the query listed the log ends, at its last trigger. All lags belong to that moment.",
        read=since("logEndAt"),
    ),
    Metric(
        name="last-commit-seconds-ago",
        unit="seconds",
        doc="Time since the last successful commit. It also grows on an idle topic. It matters only if there is lag.",
        read=since("committedAt"),
    ),
    Metric(
        name="last-rebalance-seconds-ago",
        unit="seconds",
        doc="Time since partitions of this member came or left.",
        known_as="Kafka: last-rebalance-seconds-ago",
        read=since("assignedAt"),
    ),
    Metric(
        name="generation",
        unit="number",
        doc="The generation of the group at the last assignment of this member; under KIP-848 the member epoch.",
        known_as="Kafka: generation, member epoch",
        read=number("generation"),
    ),
    Metric(
        name="ownership-epoch",
        unit="number",
        doc="The number of assignments in this run of the query.",
        read=number("ownershipEpoch"),
    ),
    Metric(
        name="records-consumed-total",
        unit="records",
        doc="Offsets in finished batches; with compacted topics and transactions more than the records. Its rate is "
        "the throughput of the query.",
        known_as="Kafka: records-consumed-total",
        read=number("recordsConsumed"),
    ),
    Metric(
        name="last-batch-records-rate",
        unit="records per second",
        doc="The speed of the last batch: its records divided by its whole duration. Between batches nothing is "
        "read, so the throughput is lower.",
        known_as="Spark: processedRowsPerSecond",
        read=rate("processedRowsPerSecond"),
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
        doc="Revocations of partitions that had to wait for the running batch.",
        read=event("draining"),
    ),
    Metric(
        name="moved-partitions-total",
        unit="partitions",
        per=Per.REASON,
        doc=(
            "Partitions that came (`assigned`), left with everything committed (`released`), left before their batch "
            "was committed (`expired`), or were taken away without a hand-over (`lost`). After `expired` and `lost`, "
            "records may be processed twice."
        ),
        read=of_keys("moved", ("assigned", "released", "expired", "lost")),
    ),
    Metric(
        name="commit-total",
        unit="commits",
        doc="Successful commits.",
        known_as="Kafka: commit-total; Flink: commitsSucceeded",
        read=event("committed"),
    ),
    Metric(
        name="commit-failed-total",
        unit="commits",
        doc="Commits that were refused or got no answer. The query retries each of them.",
        known_as="Flink: commitsFailed",
        read=event("commitFailed"),
    ),
    Metric(
        name="batch-total",
        unit="batches",
        doc="Batches with records that Spark has finished.",
        read=event("finished"),
    ),
    Metric(
        name="replay-total",
        unit="batches",
        doc="Repeated batches of Spark's log: 1 if the query found an unfinished batch when it started.",
        read=event("replayed"),
    ),
    Metric(
        name="rewind-total",
        unit="partitions",
        doc="Partitions whose committed offset was lower or gone, so that `onOffsetRewind` decided.",
        read=event("rewound"),
    ),
    Metric(
        name="records-lost-total",
        unit="ranges",
        doc="Ranges that no longer existed when a partition started, with `failOnDataLoss=false`. "
        "Later losses are only in the logs of executors.",
        read=event("recordsLost"),
    ),
    Metric(
        name="time-total",
        unit="seconds",
        per=Per.PHASE,
        doc=(
            "The time of this run by activity: `waiting` for partitions, `idle`, `planning`, `running` a batch "
            "(reading, your code and the sink), and `committing`, which mostly overlaps with the others."
        ),
        read=of_keys("timeMs", ("waiting", "idle", "planning", "running", "committing"), factor=0.001),
    ),
    Metric(
        name="partition-current-offset",
        unit="offset",
        per=Per.PARTITION,
        doc="The next offset to plan.",
        known_as="Flink: currentOffset",
        read=of_partitions(lambda part: part.position),
    ),
    Metric(
        name="partition-committed-offset",
        unit="offset",
        per=Per.PARTITION,
        doc="The committed offset.",
        known_as="Flink: committedOffset; Kafka's tools: CURRENT-OFFSET",
        read=of_partitions(lambda part: part.committed),
    ),
    Metric(
        name="partition-log-end-offset",
        unit="offset",
        per=Per.PARTITION,
        doc="The log end offset. With `read_committed` the log ends before the first open transaction.",
        known_as="Kafka's tools: LOG-END-OFFSET",
        read=of_partitions(lambda part: part.log_end),
    ),
    Metric(
        name="partition-lag",
        unit="records",
        per=Per.PARTITION,
        doc="Log end minus committed offset, without expired offsets, as in `group-lag`.",
        known_as="Kafka's tools: LAG",
        read=of_partitions(lambda part: part.lag),
    ),
)
"""All metrics.  Exporters omit those for each partition by default."""


def samples(source: SourceReport, now: float, metrics: Iterable[Metric]) -> Iterator[Sample]:
    """Yield the values of one source.

    Parameters
    ----------
    source : SourceReport
        The source.
    now : float
        The time in seconds since 1970.
    metrics : iterable of Metric
        The metrics to read.
    """
    labels = (source.query, source.text("group"), source.text("clientId"))
    for metric in metrics:
        for more, value in metric.read(source, now):
            yield Sample(metric, (*labels, *more), value)


def chosen(*, per_partition: bool) -> tuple[Metric, ...]:
    """Return the metrics of an exporter."""
    return METRICS if per_partition else tuple(metric for metric in METRICS if metric.per is not Per.PARTITION)
