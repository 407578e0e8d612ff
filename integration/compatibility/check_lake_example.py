"""The example with two lake tables writes each record once, although a copy joins late and the first one is killed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.compatibility.lake_writer import FORMAT, session, settings, table
from integration.copies import copies
from integration.pipelines import SMALL
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

EXAMPLE = Path(__file__).parents[2] / "examples" / "lake_tables" / "tables.py"
PARTITIONS = 4
PHASE = 500


def produce(bootstrap: str, topic: str, first: int) -> None:
    """Produce orders, of which each tenth is none."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in range(first, first + PHASE):
        value = {"order_id": f"order-{n}", "placed_at": "2026-01-01T12:00:00Z", "total": "1.25"}
        producer.produce(topic, value=json.dumps(value) if n % 10 else f"order-{n}", key=str(n))
    assert producer.flush(30) == 0


@pytest.mark.timeout(600)  # starts Spark three times
def test_a_copy_joins_late_and_the_first_is_killed(
    kafka: Kafka, topic: TopicFactory, group: str, tmp_path: Path
) -> None:
    name, servers, lake = topic(PARTITIONS), kafka.bootstrap_servers, tmp_path / "lake"
    conf = " ".join(shlex.quote(f"--conf={key}={value}") for key, value in settings(lake).items())
    tables = {kind: table(lake, kind) for kind in ("orders", "refused")}
    options = {"bootstrap-servers": servers, "topic": name, "group": group, "using": FORMAT}
    options |= {"checkpoints": f"{tmp_path}/checkpoints", **tables}
    with copies(EXAMPLE, tmp_path, options, partitions=PARTITIONS, submit_args=f"{conf} {SMALL}") as started:
        started.run(lambda phase: produce(servers, name, PHASE * phase))
    spark = session(lake)
    try:
        orders = sorted(row.order_id for row in spark.table(tables["orders"]).collect())
        refused = sorted(row.value.decode() for row in spark.table(tables["refused"]).collect())
    finally:
        spark.stop()
    assert orders == sorted(f"order-{n}" for n in range(3 * PHASE) if n % 10)
    assert refused == sorted(f"order-{n}" for n in range(0, 3 * PHASE, 10))
