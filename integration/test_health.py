"""``kafka-group health`` of a real query: running, idle, without a leader, paused, and without brokers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from integration.cluster import produce
from integration.pipelines import Application, wait_for
from integration.processes import Part
from pyspark_kafka_group.testing import LocalKafka

TOOLS = [sys.executable, "-m", "pyspark_kafka_group.tools"]


def health() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOOLS, "health", "--within", "2m", "probed"], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_probe_sees_what_a_query_cannot_do(tmp_path: Path) -> None:
    with LocalKafka(brokers=3) as kafka:
        servers = kafka.bootstrap_servers
        kafka.create_topic("orders", partitions=3)
        produce(servers, "orders", dict.fromkeys(range(3), 10))
        options = {"kafka.bootstrap.servers": servers, "kafka.group.id": "probed", "subscribe": "orders"}
        query = Application(tmp_path, "app", {**options, "startingOffsets": "earliest"}).start()
        try:
            wait_for(lambda: len(query.rows) == 30, "the query reads")
            running = health()
            assert running.returncode == 0, running.stdout + running.stderr
            assert "(group probed): well" in running.stdout
            listed = subprocess.run([*TOOLS, "groups", "-b", servers], capture_output=True, text=True, check=False)
            assert [line.split()[:4] for line in listed.stdout.splitlines() if line.startswith("probed")] == [
                ["probed", "Stable", "classic", "1"]
            ], listed.stdout + listed.stderr
            time.sleep(12)  # longer than a reason needs to become one that holds back
            assert health().returncode == 0, "an idle topic is well"

            query.send(signal.SIGSTOP, Part.SOURCE)
            paused = health()
            query.send(signal.SIGCONT, Part.SOURCE)
            assert (paused.returncode, "does not answer" in paused.stdout) == (1, True), paused.stdout
            wait_for(lambda: health().returncode == 0, "it is well again")

            kafka.kill(1)
            stalled = wait_for(lambda: (seen := health()).returncode == 1 and seen, "a partition has no leader")
            assert "held back: orders-" in stalled.stdout
            kafka.restart(1)
            wait_for(lambda: health().returncode == 0, "the leader is back")

            for broker in (1, 2, 3):
                kafka.kill(broker)
            dead = wait_for(lambda: (seen := health()).returncode == 1 and seen, "no broker answers")
            assert "held back: orders-" in dead.stdout or "the group does not answer" in dead.stdout
        finally:
            query.kill()
    gone = health()
    assert (gone.returncode, gone.stdout) == (1, "")
