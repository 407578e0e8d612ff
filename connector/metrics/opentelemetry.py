"""Exports the metrics of a session's queries to OpenTelemetry.  Needs the extra ``opentelemetry``.

    from pyspark_kafka_group.metrics.opentelemetry import OpenTelemetryExporter

    exporter = OpenTelemetryExporter(spark)

The application's meter provider decides where they go.  Each collection asks the sources of the running queries, which
are on the same machine, for their current reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark_kafka_group.metrics.metric import Metric, MetricKind
from pyspark_kafka_group.metrics.running_queries import Listening
from pyspark_kafka_group.metrics.table import chosen

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
except ImportError as problem:
    raise ImportError(
        "The OpenTelemetry exporter needs the package 'opentelemetry-api', which is not installed here. Install it "
        "with pip install 'pyspark-kafka-group[opentelemetry]'."
    ) from problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCOPE = "pyspark_kafka_group"

# The callbacks of one collection come one after another.  Only the first one has to ask the sources.
_ONE_COLLECTION_S = 0.5

# The units in OpenTelemetry.  A counted thing is in braces.
_UNITS = {"seconds": "s", "batches": "{batch}", "records per second": "{record}/s", "number": "1", "offset": "{offset}"}


class OpenTelemetryExporter:
    """Observes the metrics of a session's queries.

    Parameters
    ----------
    spark : SparkSession
        The session whose queries are exported.
    meter_provider : MeterProvider, optional
        Creates the instruments; by default the global one of the application.
    per_partition : bool
        Whether to export the metrics of each partition also: four time series each.
    """

    def __init__(
        self, spark: SparkSession, *, meter_provider: MeterProvider | None = None, per_partition: bool = False
    ) -> None:
        self._listening = Listening(spark)
        meter = (meter_provider or get_meter_provider()).get_meter(_SCOPE)
        for metric in chosen(per_partition=per_partition):
            create = (
                meter.create_observable_gauge if metric.kind is MetricKind.GAUGE else meter.create_observable_counter
            )
            create(
                metric.opentelemetry_name,
                callbacks=[self._observer(metric)],
                unit=_UNITS.get(metric.unit, f"{{{metric.unit.removesuffix('s')}}}"),
                description=metric.doc,
            )

    def close(self) -> None:
        """Stop exporting.  The instruments stay, without values, because OpenTelemetry cannot remove them."""
        self._listening.close()

    def _observer(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterator[Observation]:
            queries = self._listening.queries
            for sample in queries.samples((metric,), max_age_s=_ONE_COLLECTION_S):
                yield Observation(sample.value, dict(zip(metric.labels, sample.labels, strict=True)))

        return observe
