"""Exports the metrics of a session's queries with ``prometheus_client``.  Needs the extra ``prometheus``.

    from prometheus_client import start_http_server
    from pyspark_kafka_group.metrics.prometheus import PrometheusExporter

    exporter = PrometheusExporter(spark)
    start_http_server(9109)

Each scrape asks the sources of the running queries, which are on the same machine, for their current reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_kafka_group.metrics.metric import Metric, MetricKind
from pyspark_kafka_group.metrics.running_queries import Listening
from pyspark_kafka_group.metrics.table import chosen

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as problem:
    raise ImportError(
        "The Prometheus exporter needs the package 'prometheus-client', which is not installed here. Install it with "
        "pip install 'pyspark-kafka-group[prometheus]'."
    ) from problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Family = GaugeMetricFamily | CounterMetricFamily


class PrometheusExporter(Collector):
    """A collector of the metrics of a session's queries, which registers itself.

    Parameters
    ----------
    spark : SparkSession
        The session whose queries are exported.
    registry : CollectorRegistry, optional
        The registry; by default the one that ``start_http_server`` serves.
    per_partition : bool
        Whether to export the metrics of each partition also: four time series each.
    """

    def __init__(
        self, spark: SparkSession, *, registry: CollectorRegistry = REGISTRY, per_partition: bool = False
    ) -> None:
        self._per_partition = per_partition
        self._registry = registry
        self._listening = Listening(spark)
        try:
            registry.register(self)
        except ValueError:  # another exporter has the names already
            self._listening.close()
            raise

    def describe(self) -> Iterable[_Family]:
        """Return the metrics without values, so that the registry can check their names."""
        return [_family(metric) for metric in chosen(per_partition=self._per_partition)]

    def collect(self) -> Iterable[_Family]:
        """Return the current metrics."""
        metrics = chosen(per_partition=self._per_partition)
        families = {metric.name: _family(metric) for metric in metrics}
        for sample in self._listening.queries.samples(metrics):
            families[sample.metric.name].add_metric(sample.labels, sample.value)
        return families.values()

    def close(self) -> None:
        """Stop exporting.  May be called more than once."""
        self._listening.close()
        try:
            self._registry.unregister(self)
        except KeyError:
            return  # already closed


def _family(metric: Metric) -> _Family:
    family = GaugeMetricFamily if metric.kind is MetricKind.GAUGE else CounterMetricFamily
    return family(metric.prometheus_name, metric.doc, labels=metric.labels)
