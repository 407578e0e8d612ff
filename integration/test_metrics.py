"""Monitoring: a scrape shows the broker's own numbers, and KEDA would scale the group correctly."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import yaml
from confluent_kafka import Producer
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from integration.cluster import committed, lag, log_ends, members, produce
from integration.keda import KafkaTrigger, Scaling
from integration.pipelines import PATIENCE_S, Pipeline, wait_for
from integration.spark_fixtures import either_protocol
from pyspark_kafka_group import metrics
from pyspark_kafka_group.metrics.opentelemetry import OpenTelemetryExporter
from pyspark_kafka_group.metrics.prometheus import PrometheusExporter
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

Pipelines = Callable[..., Pipeline]
Found = dict[tuple[str, ...], float]

MANIFESTS = Path(__file__).parents[1] / "examples" / "monitoring"


def scraped(port: int, group: str) -> Found:
    """Scrape the metrics of a group.  The key is the name, followed by the topic, partition, reason or phase."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            if labels.get("group") == group:
                more = (labels[name] for name in ("topic", "partition", "reason", "phase") if name in labels)
                found[sample.name, *more] = sample.value
    return found


def of_partitions(found: Found, name: str, topic: str) -> dict[int, int]:
    return {int(key[2]): int(value) for key, value in found.items() if key[:2] == (name, topic)}


@either_protocol
def test_a_scrape_shows_what_the_broker_says(
    spark: SparkSession, kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    name, begun, first, second = topic(2), threading.Event(), threading.Event(), threading.Event()
    servers = kafka.bootstrap_servers
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    exporter = PrometheusExporter(spark, registry=registry, per_partition=True)
    provider = MeterProvider(metric_readers=[reader])
    telemetry = OpenTelemetryExporter(spark, meter_provider=provider)
    server, _ = start_http_server(0, addr="127.0.0.1", registry=registry)
    port = server.server_port

    def scrape() -> Found:
        return scraped(port, group)

    def hold(batch: int) -> None:
        if batch > 0:
            begun.set()
            (first if batch == 1 else second).wait(PATIENCE_S)

    try:
        query = pipeline(name, name="scraped", before_batch=hold).start()
        wait_for(lambda: scrape().get(("kafka_group_assigned_partitions", name)) == 2, "two partitions are scraped")
        produce(servers, name, {0: 1})
        assert begun.wait(PATIENCE_S)
        produce(servers, name, {0: 49, 1: 70}, start=1)  # before the source plans the next batch
        first.set()
        # Spark's progress does not change while that batch runs.  The exporter asks the source itself.
        found = wait_for(
            lambda: (
                (now := scrape()).get(("kafka_group_lag", name)) == 119
                and now["kafka_group_pending_records", name] == 0
                and now
            ),
            "the lag is scraped, with a batch that reads all of it",
        )
        assert found["kafka_group_lag", name] == lag(servers, group, name, range(2))
        assert found["kafka_group_lag_max", name] == 70
        assert of_partitions(found, "kafka_group_partition_committed_offset", name) == {0: 1, 1: 0}
        second.set()
        query.wait_for_rows(120)
        wait_for(lambda: lag(servers, group, name, range(2)) == 0, "all is committed")
        found = wait_for(lambda: (now := scrape())["kafka_group_lag", name] == 0 and now, "no lag, on an idle topic")
        committed_now = of_partitions(found, "kafka_group_partition_committed_offset", name)
        assert committed_now == committed(servers, group, name, range(2))
        ends = of_partitions(found, "kafka_group_partition_log_end_offset", name)
        assert ends == {number: end for (_, number), end in log_ends(servers, [(name, 0), (name, 1)]).items()}
        assert found["kafka_group_moved_partitions_total", "assigned"] == 2
        assert found["kafka_group_commit_total",] >= 1
        assert found["kafka_group_time_seconds_total", "running"] > 0
        assert 0 <= found["kafka_group_last_commit_seconds_ago",] < 60
        assert found["kafka_group_generation",] > 0
        running = query.query
        assert running is not None
        # The other exporter and the helpers report the same.
        data = reader.get_metrics_data()
        assert data is not None
        (scope,) = data.resource_metrics[0].scope_metrics
        points = {metric.name: [dict(p.attributes or {}) for p in metric.data.data_points] for metric in scope.metrics}
        (labels,) = (found for found in points["kafka_group.assigned_partitions"] if found["group"] == group)
        (client_id,) = members(servers, group)
        expected = {
            "query": running.name or str(running.id),
            "group": group,
            "client_id": client_id,
            "topic": name,
        }
        assert labels == expected
        (report,) = metrics.current(running)
        assert (report["lag"], report["clientId"]) == ({name: {"0": 0, "1": 0}}, client_id)
        assert report["timeMs"]["committing"] > 0
        (shown,) = metrics.from_progress(running.lastProgress)
        assert (shown["group"], shown["totalLag"] >= 119) == (group, True), "Spark asks before the batch"
        query.stop()
        wait_for(lambda: not scrape(), "the metrics of a query that has ended disappear")
    finally:
        first.set()
        second.set()
        server.shutdown()
        server.server_close()
        exporter.close()
        telemetry.close()
        provider.shutdown()


@either_protocol
def test_keda_would_scale_on_the_true_lag_and_to_zero(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Pipelines
) -> None:
    """The test applies KEDA's rules and the manifests' settings to the broker's offsets.  KEDA itself does not run."""
    name, servers = topic(3), kafka.bootstrap_servers
    triggers = []
    for manifest in ("keda-scaledobject.yaml", "keda-scaledjob.yaml"):
        triggers += yaml.safe_load((MANIFESTS / manifest).read_text(encoding="utf-8"))["spec"]["triggers"]
    assert [trigger["type"] for trigger in triggers] == ["kafka", "kafka"]

    def keda(**changes: str) -> list[KafkaTrigger]:
        settings = [{**trigger["metadata"], "lagThreshold": "10", **changes} for trigger in triggers]
        return [KafkaTrigger(one, bootstrap=servers, group=group, topic=name, partitions=3) for one in settings]

    def looks(**changes: str) -> set[Scaling]:
        return {one.look() for one in keda(**changes)}

    assert looks() == {Scaling(active=False, lag=0)}, "nothing to read, nothing committed"
    # With transactions, the log ends with an aborted record and its control record, which no consumer reads.
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(name, value=b"v", partition=partition)
        producer.flush(30)
        end(30)
    assert looks() == {Scaling(active=True, lag=8)}, "never committed: all of the log counts"
    assert looks(scaleToZeroOnInvalidOffset="true") == {Scaling(active=False, lag=0)}, "it would never start"
    query = pipeline(name).run_available()
    assert len(query.rows) == 2
    assert looks() == {Scaling(active=False, lag=0)}, "an idle topic, whatever it ends with"
    assert committed(servers, group, name, range(3)) == {0: 4, 1: 4, 2: 0}, "also what has nothing to read"
    assert looks(offsetResetPolicy="latest") == {Scaling(active=False, lag=0)}
    produce(servers, name, {2: 30})
    for trigger, one in zip(triggers, keda(), strict=True):
        limited = trigger["metadata"]["limitToPartitionsWithLag"] == "true"
        assert one.look() == Scaling(active=True, lag=10 if limited else 30), "one partition has something to read"
    for stuck in keda(excludePersistentLag="true", limitToPartitionsWithLag="false"):
        assert [stuck.look(), stuck.look()] == [Scaling(True, 30), Scaling(True, 0)], "between two runs nothing moves"
    query.run_available()
    assert looks() == {Scaling(active=False, lag=0)}
