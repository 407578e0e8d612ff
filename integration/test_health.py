"""``kafka-group health`` of a real query: running, idle and paused.  `test_held_back` has it without brokers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from integration.cluster import produce
from integration.pipelines import Pipeline, wait_for
from integration.processes import kill, sources
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.tools.commands import kafka_group


def health(group: str) -> Result:
    return CliRunner().invoke(kafka_group, ["health", "--within", "2m", group])


@pytest.mark.parametrize("protocol", ["classic"], indirect=True)
def test_a_probe_sees_what_a_query_cannot_do(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Callable[..., Pipeline]
) -> None:
    name, servers = topic(3), kafka.bootstrap_servers
    produce(servers, name, dict.fromkeys(range(3), 10))
    pipeline(name).start(processingTime="1 second").wait_for_rows(30)
    running = health(group)
    assert running.exit_code == 0, running.output
    assert f"(group {group}): well" in running.stdout
    listed = CliRunner().invoke(kafka_group, ["groups", "-b", servers])
    assert [line.split()[:4] for line in listed.stdout.splitlines() if line.startswith(group)] == [
        [group, "Stable", "classic", "1"]
    ], listed.output
    time.sleep(12)  # longer than a reason needs to become one that holds back
    assert health(group).exit_code == 0, "an idle topic is well"

    kill(signal.SIGSTOP, sources())
    paused = health(group)
    kill(signal.SIGCONT, sources())
    assert (paused.exit_code, "does not answer" in paused.stdout) == (1, True), paused.stdout
    wait_for(lambda: health(group).exit_code == 0, "it is well again")

    kill(signal.SIGKILL, sources())
    gone = wait_for(lambda: (seen := health(group)).stdout == "" and seen, "no query is there")
    assert gone.exit_code == 1
