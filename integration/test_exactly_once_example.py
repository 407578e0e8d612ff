"""The example writes each item of each order once, although one copy is killed.  The primary key refuses duplicates."""

from __future__ import annotations

import json
import runpy
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.copies import copies
from integration.pipelines import SMALL
from integration.postgres import execute
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

EXAMPLE = Path(__file__).parents[1] / "examples" / "exactly_once" / "etl.py"
PARTITIONS = 4


def orders(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in range(first, first + count):
        items = [{"sku": f"sku-{i}", "quantity": 2, "price": "1.25"} for i in range(3)]
        value = json.dumps({"order_id": f"order-{n}", "placed_at": "2026-01-01T12:00:00Z", "items": items})
        producer.produce(topic, value=value, key=str(n))
    producer.produce(topic, value="no order")
    assert producer.flush(30) == 0


@pytest.mark.timeout(300)  # starts Spark twice
def test_a_copy_joins_late_and_the_first_is_killed(
    kafka: Kafka, topic: TopicFactory, group: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    name, servers = topic(PARTITIONS), kafka.bootstrap_servers
    checkpoint = str(tmp_path / "NAME")
    options = {"bootstrap-servers": servers, "topic": name, "group": group, "checkpoint": checkpoint}
    with copies(EXAMPLE, tmp_path, options, partitions=PARTITIONS, submit_args=SMALL) as started:
        started.run(lambda phase: orders(servers, name, 500 * phase, 500))
    assert execute(url, "SELECT count(*), sum(quantity * price) FROM order_items") == [(4500, 4500 * 2.5)]


def test_copies_that_start_together_create_the_tables_once(url: str) -> None:
    tables = runpy.run_path(str(EXAMPLE))["TABLES"]
    for _ in range(10):
        start = threading.Barrier(4)

        def create(start: threading.Barrier = start) -> None:
            start.wait()
            execute(url, tables)

        with ThreadPoolExecutor(4) as copies:
            for copy in [copies.submit(create) for _ in range(4)]:
                copy.result()
        execute(url, "DROP TABLE order_items, refused_items")
