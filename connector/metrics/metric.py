"""One metric, and the functions that read its values from a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark_kafka_group.metrics.reports import PartitionReport, SourceReport

SOURCE_LABELS = ("query", "group", "client_id")


class MetricKind(Enum):
    """Gauge or counter."""

    GAUGE = "gauge"
    """The value rises and falls."""

    COUNTER = "counter"
    """The value only rises.  It starts at 0 with each run of the query."""


class Per(Enum):
    """The last label of a metric, after query, group and client id."""

    SOURCE = None
    TOPIC = "topic"
    REASON = "reason"
    PHASE = "phase"
    PARTITION = "partition"
    """The labels ``topic`` and ``partition``."""


Values = Iterator[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric, a row of the table.

    Attributes
    ----------
    name : str
        The name, in the form of Kafka's names.  A counter's name ends in ``-total``.
    unit : str
        One of Prometheus' base units, or the counted thing.
    per : Per
        The last label.
    doc : str
        The meaning.
    known_as : str
        The name in Kafka, Flink or Spark; empty if they have no such metric.
    read : callable
        Takes a source and the time in seconds since 1970.  Yields the values of the last labels, and the value.
    """

    name: str
    unit: str
    per: Per = Per.SOURCE
    doc: str
    known_as: str = ""
    read: Callable[[SourceReport, float], Values]

    @property
    def kind(self) -> MetricKind:
        """Whether this is a gauge or a counter."""
        return MetricKind.COUNTER if self.name.endswith("-total") else MetricKind.GAUGE

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
        """The name in Prometheus, with its unit, and ``_total`` for a counter."""
        stem = "kafka_group_" + self.name.replace("-", "_").removesuffix("_total").removeprefix("group_")
        unit = "_seconds" if self.unit == "seconds" and "seconds" not in stem else ""
        return stem + unit + ("_total" if self.kind is MetricKind.COUNTER else "")

    @property
    def opentelemetry_name(self) -> str:
        """The name in OpenTelemetry, without unit and kind, which are properties of the instrument."""
        return "kafka_group." + self.name.removesuffix("-total").removeprefix("group-").replace("-", "_")


class Sample(NamedTuple):
    """One value.

    Attributes
    ----------
    metric : Metric
        The metric.
    labels : tuple of str
        The values of its labels.
    value : float
        The value.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float


Read = Callable[[SourceReport, float], Values]


def number(field: str) -> Read:
    """Return a function that reads a number of the report.  It yields nothing if there is none."""
    return _one(lambda source: source.number(field))


def rate(field: str) -> Read:
    """Return a function that reads a rate that Spark has measured.  It yields nothing if there is none."""
    return _one(lambda source: source.rate(field))


def since(field: str) -> Read:
    """Return a function that reads the time since a moment of the report, in seconds.  Nothing if there is none."""

    def values(source: SourceReport, now: float) -> Values:
        at = source.number(field)
        if at is not None:
            yield (), max(0.0, now - at)

    return values


def event(name: str) -> Read:
    """Return a function that reads how often an event has happened."""
    return _one(lambda source: source.number("events", name) or 0)


def of_keys(field: str, keys: tuple[str, ...], factor: float = 1) -> Read:
    """Return a function that reads the numbers of these keys in one object of the report."""

    def values(source: SourceReport, _now: float) -> Values:
        for key in keys:
            yield (key,), (source.number(field, key) or 0) * factor

    return values


def of_topics(read: Callable[[list[PartitionReport]], float | None]) -> Read:
    """Return a function that reads one number of the partitions of each topic."""

    def values(source: SourceReport, _now: float) -> Values:
        for topic, parts in source.topics.items():
            value = read(parts)
            if value is not None:
                yield (topic,), value

    return values


def of_partitions(read: Callable[[PartitionReport], float | None]) -> Read:
    """Return a function that reads one number of each partition."""

    def values(source: SourceReport, _now: float) -> Values:
        for part in source.partitions:
            value = read(part)
            if value is not None:
                yield (part.topic, str(part.number)), value

    return values


def _one(read: Callable[[SourceReport], float | None]) -> Read:
    def values(source: SourceReport, _now: float) -> Values:
        value = read(source)
        if value is not None:
            yield (), value

    return values
