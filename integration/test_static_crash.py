"""A static member's process is killed: the next process gets its partitions back, under both protocols."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from integration.memberships import memberships
from integration.pipelines import wait_for
from pyspark_kafka_group.coordinator import member
from pyspark_kafka_group.coordinator.membership import Membership
from pyspark_kafka_group.offsets.errors import MemberFencedError
from pyspark_kafka_group.testing import LocalKafka

SESSION_MS = 5000

# The former process, which the test kills or keeps alive.  To the group it is the same static member as the query.
FORMER = """
import sys
from confluent_kafka import Consumer

servers, group, topic, protocol = sys.argv[1:]
config = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol, "group.instance.id": "pod-0"}
if protocol == "classic":
    config["partition.assignment.strategy"] = "cooperative-sticky"
consumer = Consumer(config)
consumer.subscribe([topic], on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """Yield a cluster with short sessions for KIP-848."""
    short = {"group.consumer.session.timeout.ms": str(SESSION_MS), "group.consumer.min.session.timeout.ms": "1000"}
    short |= {"group.consumer.heartbeat.interval.ms": "500", "group.consumer.min.heartbeat.interval.ms": "100"}
    with LocalKafka(properties=short) as started:
        yield started


@contextmanager
def former_process(cluster: LocalKafka, group: str, protocol: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that is the static member pod-0 and owns the partitions."""
    cluster.create_topic(group, partitions=2)
    command = [sys.executable, "-c", FORMER, cluster.bootstrap_servers, group, group, protocol]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "assigned\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def join(cluster: LocalKafka, group: str, protocol: str) -> Iterator[Callable[[], Membership]]:
    """Yield a function that starts a query as the static member pod-0."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": group, "subscribe": group}
    options |= {"kafka.group.protocol": protocol, "kafka.group.instance.id": "pod-0"}
    with memberships() as start:
        yield lambda: start(options, session_timeout_s=SESSION_MS / 1000)


def has_both(one: Membership) -> bool:
    one.check()
    return len(one.state.plannable()) == 2


def test_static_member_that_was_killed_gets_its_place_back(
    cluster: LocalKafka, group: str, protocol: str, join: Callable[[], Membership]
) -> None:
    """Regression: under KIP-848 each restart within the session failed, and the error advised another instance id."""
    with former_process(cluster, group, protocol) as former:
        former.kill()
        former.wait()
        one = join()
        wait_for(lambda: has_both(one), "the next process has the partitions")


@pytest.mark.parametrize("protocol", ["consumer"], indirect=True)
def test_place_of_a_process_that_runs_is_not_taken_and_the_error_names_both_causes(
    cluster: LocalKafka, group: str, protocol: str, join: Callable[[], Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the classic protocol, the next process takes the place: `test_static_membership`."""
    monkeypatch.setattr(member, "_RELEASE_MARGIN_S", 1.0)
    with former_process(cluster, group, protocol) as former:
        one = join()
        with pytest.raises(MemberFencedError, match="has crashed and its session has not ended, or another process"):
            wait_for(lambda: has_both(one), "an error")
        assert former.poll() is None
