"""The example with two lake tables writes each record once, although a copy joins late and the first one is killed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.cluster import lag, members
from integration.compatibility.lake_writer import FORMAT, session, settings, table
from integration.pipelines import SMALL, wait_for
from integration.processes import send
from integration.processes import session as processes_of
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
    started: list[subprocess.Popen[bytes]] = []

    def start(copy: str) -> subprocess.Popen[bytes]:
        options = {"name": copy, "bootstrap-servers": servers, "topic": name, "group": group, "using": FORMAT}
        options |= {"checkpoints": f"{tmp_path}/checkpoints", **tables}
        command = [sys.executable, str(EXAMPLE), *(f"--{option}={value}" for option, value in options.items())]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": f"{conf} {SMALL}"}
        with (tmp_path / f"{copy}.log").open("ab") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
        return started[-1]

    def wait_until(condition: Callable[[], bool], what: str) -> None:
        def reached() -> bool:
            for process in started:
                assert process.poll() in (None, -signal.SIGKILL), "\n".join(
                    log.read_text(errors="replace")[-3000:] for log in tmp_path.glob("*.log")
                )
            return condition()

        wait_for(reached, what)

    def all_done() -> bool:
        return lag(servers, group, name, range(PARTITIONS)) == 0

    def share_of(copy: str) -> int:
        found = members(servers, group)
        return sum(len(owned) for client_id, owned in found.items() if client_id.startswith(copy))

    try:
        produce(servers, name, 0)
        first = start("copy-1")
        wait_until(all_done, "the first copy has written all")
        late = start("copy-2")
        wait_until(lambda: share_of("copy-2") == PARTITIONS // 2, "the late copy has its share")
        produce(servers, name, PHASE)
        wait_until(all_done, "both have written all")
        produce(servers, name, 2 * PHASE)  # the kill may interrupt the first copy in them
        send(signal.SIGKILL, processes_of(first.pid))
        first.wait()
        wait_until(all_done, "the late copy has written what the first one has left")
        late.terminate()
        assert late.wait(60) == 0
    finally:
        for process in started:
            send(signal.SIGKILL, processes_of(process.pid))
            process.wait()
    spark = session(lake)
    try:
        orders = sorted(row.order_id for row in spark.table(tables["orders"]).collect())
        refused = sorted(row.value.decode() for row in spark.table(tables["refused"]).collect())
    finally:
        spark.stop()
    assert orders == sorted(f"order-{n}" for n in range(3 * PHASE) if n % 10)
    assert refused == sorted(f"order-{n}" for n in range(0, 3 * PHASE, 10))
