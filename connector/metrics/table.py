"""The metrics: their names, kinds, units and meanings, and how each is read from a source.

The exporters, docs/metrics.md and the test of the dashboard are views of this table.  A name is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark_kafka_group.metrics.source_metrics import PartitionMetrics, SourceMetrics, TopicMetrics

SOURCE_LABELS = ("query", "group", "client_id")


class Kind(Enum):
    """What the value of a metric does."""

    GAUGE = "gauge"
    """It goes up and down."""

    COUNTER = "counter"
    """It only goes up, and begins again with each run of the query."""


class Per(Enum):
    """What there is a value for, beside query, group and client id: the last label."""

    SOURCE = None
    TOPIC = "topic"
    REASON = "reason"
    PHASE = "phase"
    PARTITION = "partition"
    """The labels ``topic`` and ``partition``."""


Values = Iterator[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row.

    Attributes
    ----------
    name : str
        In the form of Kafka's names.
    kind : Kind
        What its value does.
    unit : str
        One of Prometheus' base units, or what is counted.
    per : Per
        What there is a value for.
    doc : str
        What it means.
    known_as : str
        What Kafka, Flink or Spark call it; empty where they have no such thing.
    read : callable
        Takes a source and the time in seconds since 1970; gives the values of the last labels, and the value.
    """

    name: str
    kind: Kind
    unit: str
    per: Per
    doc: str
    known_as: str = ""
    read: Callable[[SourceMetrics, float], Values]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""
        match self.per:
            case Per.SOURCE:
                return SOURCE_LABELS
            case Per.PARTITION:
                return (*SOURCE_LABELS, "topic", "partition")
            case _:
                return (*SOURCE_LABELS, str(self.per.value))

    @property
    def prometheus_name(self) -> str:
        """The name as Prometheus shows it, with its unit, and ``_total`` for a counter."""
        stem = "kafka_group_" + self.name.replace("-", "_").removesuffix("_total").removeprefix("group_")
        unit = "_seconds" if self.unit == "seconds" and "seconds" not in stem else ""
        return stem + unit + ("_total" if self.kind is Kind.COUNTER else "")

    @property
    def opentelemetry_name(self) -> str:
        """The name in OpenTelemetry: without unit and kind, which the instrument has."""
        return "kafka_group." + self.name.removesuffix("-total").removeprefix("group-").replace("-", "_")


class Sample(NamedTuple):
    """One value.

    Attributes
    ----------
    metric : Metric
        Of what.
    labels : tuple of str
        The values of its labels.
    value : float
        The value.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float


def _of_source(read: Callable[[SourceMetrics], float | None]) -> Callable[[SourceMetrics, float], Values]:
    def values(source: SourceMetrics, _now: float) -> Values:
        value = read(source)
        if value is not None:
            yield (), value

    return values


def _since(read: Callable[[SourceMetrics], float | None]) -> Callable[[SourceMetrics, float], Values]:
    def values(source: SourceMetrics, now: float) -> Values:
        at = read(source)
        if at is not None:
            yield (), max(0.0, now - at)

    return values


def _of_topics(read: Callable[[TopicMetrics], float | None]) -> Callable[[SourceMetrics, float], Values]:
    def values(source: SourceMetrics, _now: float) -> Values:
        for topic in source.topics:
            value = read(topic)
            if value is not None:
                yield (topic.topic,), value

    return values


def _of_partitions(read: Callable[[PartitionMetrics], float | None]) -> Callable[[SourceMetrics, float], Values]:
    def values(source: SourceMetrics, _now: float) -> Values:
        for part in source.partitions:
            value = read(part)
            if value is not None:
                yield (part.topic, str(part.partition)), value

    return values


def _event(name: str) -> Callable[[SourceMetrics, float], Values]:
    return _of_source(lambda source: source.events.get(name, 0))


def _moved(source: SourceMetrics, _now: float) -> Values:
    for how in ("assigned", "released", "expired", "lost"):
        yield (how,), source.moved.get(how, 0)


def _time_spent(source: SourceMetrics, _now: float) -> Values:
    spent = source.time_spent
    for phase in ("waiting", "idle", "planning", "running", "committing"):
        yield (phase,), getattr(spent, phase)


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
        read=_of_topics(lambda topic: topic.assigned_partitions),
    ),
    Metric(
        name="draining-partitions",
        kind=Kind.GAUGE,
        unit="partitions",
        per=Per.TOPIC,
        doc="Partitions that the group wants back, and that wait for the running batch.",
        read=_of_topics(lambda topic: topic.draining_partitions),
    ),
    Metric(
        name="group-lag",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc=f"The group's lag in this member's partitions: {_LAG}. Summed over all members it is the group's.",
        known_as="Kafka's tools: LAG",
        read=_of_topics(lambda topic: topic.group_lag.total if topic.group_lag.partitions else None),
    ),
    Metric(
        name="group-lag-min",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, of the partition with the least.",
        read=_of_topics(lambda topic: topic.group_lag.min if topic.group_lag.partitions else None),
    ),
    Metric(
        name="group-lag-max",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, of the partition with the most.",
        read=_of_topics(lambda topic: topic.group_lag.max if topic.group_lag.partitions else None),
    ),
    Metric(
        name="group-lag-avg",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, on average over the partitions.",
        read=_of_topics(lambda topic: topic.group_lag.avg if topic.group_lag.partitions else None),
    ),
    Metric(
        name="pending-records",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc=f"How far this member's partitions are behind: {_BEHIND}.",
        known_as="Flink: pendingRecords",
        read=_of_topics(lambda topic: topic.records_lag.total if topic.records_lag.partitions else None),
    ),
    Metric(
        name="records-lag-min",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, of the partition with the least.",
        known_as="Spark: minOffsetsBehindLatest",
        read=_of_topics(lambda topic: topic.records_lag.min if topic.records_lag.partitions else None),
    ),
    Metric(
        name="records-lag-max",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, of the partition with the most.",
        known_as="Kafka: records-lag-max; Spark: maxOffsetsBehindLatest",
        read=_of_topics(lambda topic: topic.records_lag.max if topic.records_lag.partitions else None),
    ),
    Metric(
        name="records-lag-avg",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.TOPIC,
        doc="The same, on average over the partitions.",
        known_as="Kafka: records-lag-avg; Spark: avgOffsetsBehindLatest",
        read=_of_topics(lambda topic: topic.records_lag.avg if topic.records_lag.partitions else None),
    ),
    Metric(
        name="log-end-seconds-ago",
        kind=Kind.GAUGE,
        unit="seconds",
        per=Per.SOURCE,
        doc="How long ago it was looked where logs end: all lags are of that moment. Every trigger looks.",
        read=_since(lambda source: source.log_end_at),
    ),
    Metric(
        name="last-commit-seconds-ago",
        kind=Kind.GAUGE,
        unit="seconds",
        per=Per.SOURCE,
        doc="How long ago the last commit succeeded. It grows on an idle topic, too; only with lag it matters.",
        read=_since(lambda source: source.committed_at),
    ),
    Metric(
        name="last-rebalance-seconds-ago",
        kind=Kind.GAUGE,
        unit="seconds",
        per=Per.SOURCE,
        doc="How long ago partitions of this member came or went.",
        known_as="Kafka: last-rebalance-seconds-ago",
        read=_since(lambda source: source.assigned_at),
    ),
    Metric(
        name="generation",
        kind=Kind.GAUGE,
        unit="number",
        per=Per.SOURCE,
        doc="The group's generation, under KIP-848 the member epoch, when it last gave this member partitions.",
        known_as="Kafka: generation, member epoch",
        read=_of_source(lambda source: source.generation),
    ),
    Metric(
        name="ownership-epoch",
        kind=Kind.GAUGE,
        unit="number",
        per=Per.SOURCE,
        doc="The number of this run's newest assignment.",
        read=_of_source(lambda source: source.ownership_epoch),
    ),
    Metric(
        name="records-consumed-rate",
        kind=Kind.GAUGE,
        unit="records per second",
        per=Per.SOURCE,
        doc="How fast the last batch went: its records by all of its time.",
        known_as="Kafka: records-consumed-rate; Spark: processedRowsPerSecond",
        read=_of_source(lambda source: source.processed_rows_per_second),
    ),
    Metric(
        name="rebalance-total",
        kind=Kind.COUNTER,
        unit="rebalances",
        per=Per.SOURCE,
        doc="Rebalances that gave this member partitions.",
        known_as="Kafka: rebalance-total",
        read=_event("assigned"),
    ),
    Metric(
        name="hand-over-total",
        kind=Kind.COUNTER,
        unit="hand-overs",
        per=Per.SOURCE,
        doc="Revocations in which partitions were busy, and waited for the running batch.",
        read=_event("draining"),
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
        read=_moved,
    ),
    Metric(
        name="commit-total",
        kind=Kind.COUNTER,
        unit="commits",
        per=Per.SOURCE,
        doc="Commits that succeeded.",
        known_as="Kafka: commit-total; Flink: commitsSucceeded",
        read=_event("committed"),
    ),
    Metric(
        name="commit-failed-total",
        kind=Kind.COUNTER,
        unit="commits",
        per=Per.SOURCE,
        doc="Attempts to commit that were refused or got no answer. Each is tried again.",
        known_as="Flink: commitsFailed",
        read=_event("commitFailed"),
    ),
    Metric(
        name="batch-total",
        kind=Kind.COUNTER,
        unit="batches",
        per=Per.SOURCE,
        doc="Batches that Spark has finished and that read something.",
        read=_event("finished"),
    ),
    Metric(
        name="replay-total",
        kind=Kind.COUNTER,
        unit="batches",
        per=Per.SOURCE,
        doc="Batches of Spark's log that ran again: 1 after a start that found one unfinished.",
        read=_event("replayed"),
    ),
    Metric(
        name="rewind-total",
        kind=Kind.COUNTER,
        unit="partitions",
        per=Per.SOURCE,
        doc="Partitions whose committed offset had gone back or was gone, and `onOffsetRewind` decided.",
        read=_event("rewound"),
    ),
    Metric(
        name="records-lost-total",
        kind=Kind.COUNTER,
        unit="ranges",
        per=Per.SOURCE,
        doc="Ranges that were gone before they were read, with `failOnDataLoss=false`.",
        read=_event("recordsLost"),
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
        read=_time_spent,
    ),
    Metric(
        name="partition-current-offset",
        kind=Kind.GAUGE,
        unit="offset",
        per=Per.PARTITION,
        doc="The next offset to plan.",
        known_as="Flink: currentOffset",
        read=_of_partitions(lambda part: part.current_offset),
    ),
    Metric(
        name="partition-committed-offset",
        kind=Kind.GAUGE,
        unit="offset",
        per=Per.PARTITION,
        doc="The committed offset.",
        known_as="Flink: committedOffset; Kafka's tools: CURRENT-OFFSET",
        read=_of_partitions(lambda part: part.committed_offset),
    ),
    Metric(
        name="partition-log-end-offset",
        kind=Kind.GAUGE,
        unit="offset",
        per=Per.PARTITION,
        doc="The log end offset.",
        known_as="Kafka's tools: LOG-END-OFFSET",
        read=_of_partitions(lambda part: part.log_end_offset),
    ),
    Metric(
        name="partition-lag",
        kind=Kind.GAUGE,
        unit="records",
        per=Per.PARTITION,
        doc="Log end minus committed offset.",
        known_as="Kafka's tools: LAG",
        read=_of_partitions(lambda part: part.group_lag),
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
