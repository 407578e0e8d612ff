"""The exporters, with the real libraries and a fake session."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from pyspark_kafka_group.control.server import ControlSocket
from pyspark_kafka_group.metrics import METRICS
from pyspark_kafka_group.metrics.metric import Metric, Sample
from pyspark_kafka_group.metrics.opentelemetry import OpenTelemetryExporter
from pyspark_kafka_group.metrics.prometheus import PrometheusExporter
from pyspark_kafka_group.metrics.reports import SourceReport
from pyspark_kafka_group.metrics.running_queries import MetricsListener
from pyspark_kafka_group.metrics.table import samples
from tests.connector.metrics.progresses import KAFKA, OTHER, REPORT, progress, source

LABELS = {"query": "orders-etl", "group": "etl", "client_id": "spark-1a2b3c4d"}


class Session:
    """The part of a session that an exporter needs: listeners."""

    def __init__(self) -> None:
        self.streams = self
        self.listeners: list[MetricsListener] = []
        self.active: list[Any] = []

    def addListener(self, listener: MetricsListener) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: MetricsListener) -> None:
        self.listeners.remove(listener)

    def show(self, shown: dict[str, Any]) -> None:
        event: Any = SimpleNamespace(progress=SimpleNamespace(runId=shown["runId"], json=json.dumps(shown)))
        for listener in self.listeners:
            listener.onQueryProgress(event)

    def end(self, run: str) -> None:
        event: Any = SimpleNamespace(runId=run)
        for listener in self.listeners:
            listener.onQueryTerminated(event)

    @property
    def spark(self) -> SparkSession:
        return cast(SparkSession, self)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def scraped(registry: CollectorRegistry) -> dict[tuple[str, str, str], float]:
    """Return the values of a scrape by name, group and last label."""
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            more = ",".join(value for name, value in sorted(sample.labels.items()) if name not in LABELS)
            found[sample.name, sample.labels["group"], more] = sample.value
    return found


def test_a_scrape_shows_every_source_until_its_query_ends(session: Session, registry: CollectorRegistry) -> None:
    exporter = PrometheusExporter(session.spark, registry=registry)
    assert scraped(registry) == {}
    session.show(progress(source(REPORT), KAFKA))
    session.show(progress(source(OTHER), name="audit", run="run-2"))
    session.show(progress(KAFKA, name="other", run="run-3"))
    found = scraped(registry)
    assert {group for _, group, _ in found} == {"etl", "audit"}
    assert found["kafka_group_lag", "etl", "orders"] == 77
    assert found["kafka_group_lag", "audit", "audit"] == 0
    assert found["kafka_group_commit_total", "etl", ""] == 5
    assert found["kafka_group_time_seconds_total", "etl", "running"] == 60
    assert not any(name.startswith("kafka_group_partition_") for name, _, _ in found)
    session.end("run-1")
    assert {group for _, group, _ in scraped(registry)} == {"audit"}
    exporter.close()
    exporter.close()
    assert (scraped(registry), session.listeners) == ({}, [])


def test_a_query_that_runs_already_is_shown_and_one_that_has_just_ended_is_not(
    session: Session, registry: CollectorRegistry
) -> None:
    def query(run: str, shown: dict[str, Any] | None, *, active: bool = True) -> Any:
        last = None if shown is None else SimpleNamespace(json=json.dumps(shown))
        return SimpleNamespace(runId=run, lastProgress=last, isActive=active)

    session.active = [
        query("run-1", progress(source(REPORT))),
        query("run-2", progress(source(OTHER), run="run-2"), active=False),
        query("run-3", None),
    ]
    exporter = PrometheusExporter(session.spark, registry=registry)
    assert {group for _, group, _ in scraped(registry)} == {"etl"}
    session.end("run-1")
    assert scraped(registry) == {}
    exporter.close()


def test_partitions_are_exported_on_demand_and_names_are_those_of_the_table(
    session: Session, registry: CollectorRegistry
) -> None:
    PrometheusExporter(session.spark, registry=registry, per_partition=True)
    session.show(progress(source(REPORT)))
    found = scraped(registry)
    assert found["kafka_group_partition_lag", "etl", "10,orders"] == 60
    assert {name for name, _, _ in found} == {metric.prometheus_name for metric in METRICS}


def test_names_that_are_taken_are_an_error_and_nothing_listens(session: Session, registry: CollectorRegistry) -> None:
    Gauge("kafka_group_lag", "somebody else's", registry=registry)
    with pytest.raises(ValueError, match="kafka_group_lag"):
        PrometheusExporter(session.spark, registry=registry)
    assert session.listeners == []


def test_a_scrape_asks_the_source_and_counters_do_not_go_back_while_it_does_not_answer(
    session: Session, registry: CollectorRegistry, listening: Callable[..., ControlSocket]
) -> None:
    """Regression: the last progress took its place, which may be hours old, and alerts on rates fired."""
    control = listening(report=lambda: {**REPORT, "events": {**REPORT["events"], "committed": 9}})
    PrometheusExporter(session.spark, registry=registry)
    session.show(progress(source({**REPORT, "control": control.address})))
    assert scraped(registry)["kafka_group_commit_total", "etl", ""] == 9
    control.close()
    assert scraped(registry)["kafka_group_commit_total", "etl", ""] == 9
    session.end("run-1")
    session.show(progress(source({**REPORT, "control": control.address})))
    assert scraped(registry)["kafka_group_commit_total", "etl", ""] == 5


def observed(reader: InMemoryMetricReader) -> dict[str, dict[str, float]]:
    """Return the collected values by name, and by the labels beside those of the source."""
    data = reader.get_metrics_data()
    found: dict[str, dict[str, float]] = {}
    for resource in data.resource_metrics if data is not None else ():
        for metric in resource.scope_metrics[0].metrics:
            for point in metric.data.data_points:
                more = ",".join(str(v) for k, v in dict(point.attributes or {}).items() if k not in LABELS)
                found.setdefault(metric.name, {})[more] = cast(Any, point).value
    return found


def test_opentelemetry_has_the_same_metrics_until_the_query_ends(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_kafka_group.metrics.opentelemetry._ONE_COLLECTION_S", 0.0)
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    exporter = OpenTelemetryExporter(session.spark, meter_provider=provider, per_partition=True)
    assert observed(reader) == {}
    session.show(progress(source(REPORT)))
    found = observed(reader)
    assert found.keys() == {metric.opentelemetry_name for metric in METRICS}
    assert found["kafka_group.lag"] == {"orders": 77}
    assert found["kafka_group.commit"] == {"": 5}
    assert observed(reader)["kafka_group.commit"] == {"": 5}, "a sum is not added up again"
    session.end("run-1")
    assert observed(reader) == {}
    session.show(progress(source(OTHER), run="run-2"))
    assert observed(reader)["kafka_group.lag"] == {"audit": 0}
    exporter.close()
    assert observed(reader) == {}
    provider.shutdown()


def test_one_collection_asks_the_sources_once(session: Session, listening: Callable[..., ControlSocket]) -> None:
    report = MagicMock(return_value=REPORT)
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    OpenTelemetryExporter(session.spark, meter_provider=provider)
    session.show(progress(source({**REPORT, "control": listening(report=report).address})))
    assert observed(reader)["kafka_group.lag"] == {"orders": 77}
    assert report.call_count == 1
    provider.shutdown()


def test_an_instrument_reads_its_own_metric_only(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each one read all of them, 5 s for 10,000 partitions, and the sources were asked again meanwhile."""
    read: list[Metric] = []

    def noted(source: SourceReport, now: float, metrics: Collection[Metric]) -> Iterator[Sample]:
        read.extend(metrics)
        return samples(source, now, metrics)

    monkeypatch.setattr("pyspark_kafka_group.metrics.running_queries.samples", noted)
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    OpenTelemetryExporter(session.spark, meter_provider=provider, per_partition=True)
    session.show(progress(source(REPORT)))
    assert observed(reader)["kafka_group.partition_lag"]["orders,2"] == 2
    assert read == [*METRICS]
    provider.shutdown()


@pytest.mark.parametrize(
    ("module", "missing", "name"),
    [("prometheus", "prometheus_client", "Prometheus"), ("opentelemetry", "opentelemetry", "OpenTelemetry")],
)
def test_a_missing_library_is_named_with_its_extra(module: str, missing: str, name: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import pyspark_kafka_group.metrics.{module}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"ImportError: The {name} exporter needs" in run.stderr
    assert f"pip install 'pyspark-kafka-group[{module}]'" in run.stderr
