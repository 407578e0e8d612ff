"""The example writes each item of each order once, although one copy is killed.  The primary key refuses duplicates."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.pipelines import SMALL, wait_for
from integration.postgres import execute
from integration.processes import send, session
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

EXAMPLE = Path(__file__).parents[1] / "examples" / "exactly_once" / "etl.py"
COUNT = "SELECT count(*), sum(quantity * price) FROM order_items"


def orders(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in range(first, first + count):
        items = [{"sku": f"sku-{i}", "quantity": 2, "price": "1.25"} for i in range(3)]
        value = json.dumps({"order_id": f"order-{n}", "placed_at": "2026-01-01T12:00:00Z", "items": items})
        producer.produce(topic, value=value, key=str(n))
    producer.produce(topic, value="no order")
    assert producer.flush(30) == 0


def written(url: str) -> int:
    exists = execute(url, "SELECT to_regclass('order_items') IS NOT NULL")
    return int(execute(url, COUNT)[0][0]) if exists == [(True,)] else 0


@pytest.mark.timeout(300)  # starts Spark three times
def test_two_copies_of_the_example_and_one_is_killed(
    kafka: Kafka, topic: TopicFactory, group: str, url: str, tmp_path: Path
) -> None:
    name = topic(4)
    started: list[subprocess.Popen[bytes]] = []

    def start(copy: str) -> subprocess.Popen[bytes]:
        options = {"--name": copy, "--bootstrap-servers": kafka.bootstrap_servers, "--topic": name, "--group": group}
        options["--checkpoint"] = str(tmp_path / copy)
        command = [sys.executable, str(EXAMPLE), *(part for option in options.items() for part in option)]
        environment = {
            **os.environ,
            "DATABASE_URL": url,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_SUBMIT_ARGS": SMALL,
        }
        with (tmp_path / f"{copy}.log").open("ab") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
        return started[-1]

    def wait_for_items(count: int) -> None:
        def there() -> bool:
            for process in started:
                assert process.poll() in (None, -signal.SIGKILL), "\n".join(
                    log.read_text(errors="replace")[-3000:] for log in tmp_path.glob("*.log")
                )
            return written(url) >= count

        wait_for(there, f"{count} items")

    try:
        orders(kafka.bootstrap_servers, name, 0, 500)
        first, second = start("etl-1"), start("etl-2")
        wait_for_items(1500)
        orders(kafka.bootstrap_servers, name, 500, 500)
        send(signal.SIGKILL, session(first.pid))
        first.wait()
        orders(kafka.bootstrap_servers, name, 1000, 500)
        start("etl-1")
        wait_for_items(4500)
        for process in (second, started[-1]):
            process.terminate()
        assert [process.wait(60) for process in (second, started[-1])] == [0, 0]
    finally:
        for process in started:
            send(signal.SIGKILL, session(process.pid))
            process.wait()
    assert execute(url, COUNT) == [(4500, 4500 * 2.5)]


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
