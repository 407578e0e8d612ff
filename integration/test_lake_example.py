"""The example writes each record once to Parquet files, although a copy joins late and the first one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from examples.lake.lake import read
from integration.cluster import lag, members
from integration.pipelines import SMALL, wait_for
from integration.processes import send, session
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory

EXAMPLE = Path(__file__).parents[1] / "examples" / "lake" / "lake.py"
PARTITIONS = 4
EXPECTED = sorted(f"order-{n}" for n in range(1500))


def orders(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in range(first, first + count):
        value = json.dumps({"order_id": f"order-{n}", "placed_at": "2026-01-01T12:00:00Z", "total": "1.25"})
        producer.produce(topic, value=value, key=str(n))
    assert producer.flush(30) == 0


@pytest.mark.timeout(300)  # starts Spark twice
def test_a_copy_joins_late_and_the_first_is_killed(
    kafka: Kafka, topic: TopicFactory, group: str, tmp_path: Path, spark: SparkSession
) -> None:
    name = topic(PARTITIONS)
    lake = tmp_path / "lake"
    started: list[subprocess.Popen[bytes]] = []

    def start(copy: str) -> subprocess.Popen[bytes]:
        options = {"--name": copy, "--bootstrap-servers": kafka.bootstrap_servers, "--topic": name, "--group": group}
        options["--lake"] = str(lake)
        command = [sys.executable, str(EXAMPLE), *(part for option in options.items() for part in option)]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SMALL}
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
        return lag(kafka.bootstrap_servers, group, name, range(PARTITIONS)) == 0

    def share_of(copy: str) -> int:
        found = members(kafka.bootstrap_servers, group)
        return sum(len(owned) for client_id, owned in found.items() if client_id.startswith(copy))

    try:
        orders(kafka.bootstrap_servers, name, 0, 500)
        first = start("copy-1")
        wait_until(all_done, "the first copy has written all")
        late = start("copy-2")
        wait_until(lambda: share_of("copy-2") == PARTITIONS // 2, "the late copy has its share")
        orders(kafka.bootstrap_servers, name, 500, 500)
        wait_until(all_done, "both have written all")
        orders(kafka.bootstrap_servers, name, 1000, 500)  # the kill may interrupt the first copy in them
        send(signal.SIGKILL, session(first.pid))
        first.wait()
        wait_until(all_done, "the late copy has written what the first one has left")
        late.terminate()
        assert late.wait(60) == 0
    finally:
        for process in started:
            send(signal.SIGKILL, session(process.pid))
            process.wait()
    folders = sorted(lake.glob("copy=*"))
    assert [folder.name for folder in folders] == ["copy=copy-1", "copy=copy-2"]
    assert all(spark.read.parquet(str(folder)).count() > 0 for folder in folders)
    assert sorted(row.order_id for row in read(spark, lake).collect()) == EXPECTED
    # Write some rows of a copy once more, as the next owner of its partitions may do.
    spark.read.parquet(str(folders[0])).limit(7).write.parquet(str(lake / "copy=copy-3"))
    assert sorted(row.order_id for row in read(spark, lake).collect()) == EXPECTED
