"""A member leaves the group at an awkward moment."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from integration.cluster import members
from integration.memberships import memberships
from integration.pipelines import wait_for
from pyspark_kafka_group.testing import Kafka


class OtherProgram:
    """A member of another program, which may take long to release partitions."""

    def __init__(self, bootstrap: str, group: str, topic: str, name: str) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 500,
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.asked.set()
        self.may_answer.wait(60)
        consumer.incremental_unassign(partitions)

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()

    def close(self) -> None:
        self.may_answer.set()
        self._stop.set()
        self._thread.join(30)


def shown(kafka: Kafka, group: str) -> dict[str, set[str]]:
    """Return the members and their partitions; nothing while a new group has no coordinator."""
    with contextlib.suppress(KafkaException):
        return members(kafka.bootstrap_servers, group)
    return {}


@pytest.fixture
def others(kafka: Kafka, group: str) -> Iterator[Callable[[str], OtherProgram]]:
    """Yield a function that starts another program as a member with this name, and end all of them after the test."""
    made: list[OtherProgram] = []

    def start(name: str) -> OtherProgram:
        made.append(OtherProgram(kafka.bootstrap_servers, group, f"{group}-topic", name))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def options(kafka: Kafka, group: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group, "subscribe": f"{group}-topic"}


def test_member_that_leaves_during_a_rebalance_leaves_no_ghost(
    kafka: Kafka, group: str, options: dict[str, str], others: Callable[[str], OtherProgram]
) -> None:
    """Regression: the member kept its partitions for the whole session timeout.

    The broker read the request to leave only after the rebalance, when the member had already closed the connection.
    KIP-848 has no such requests.
    """
    kafka.create_topic(f"{group}-topic", 4)
    slow = others("slow")
    wait_for(lambda: shown(kafka, group).get("slow"), "the other program owns the topic")
    with memberships() as join:
        ours = join(options, "ours")
        assert slow.asked.wait(30), "our member has joined, and the other shall give something back"
        others("third")
        wait_for(lambda: shown(kafka, group).keys() == {"slow", "ours", "third"}, "a rebalance waits for the slow one")
        time.sleep(2.0)  # several heartbeats, so that our member has sent JoinGroup
        ours.begin_stop(1.0)
        ours.join(2.0)
        slow.may_answer.set()
        ours.join(30)
        assert not ours.alive
        wait_for(lambda: "ours" not in shown(kafka, group), "it has left", timeout_s=20)  # the session lasts 45 s


def test_member_without_partitions_leaves_no_ghost(
    kafka: Kafka, group: str, options: dict[str, str], others: Callable[[str], OtherProgram]
) -> None:
    """Regression: the next rebalance of the group waited for the member for the whole session timeout.

    librdkafka's close() sends no request to leave if the member has no partitions.  KIP-848 has no such requests.
    """
    kafka.create_topic(f"{group}-topic", 1)
    others("owner").may_answer.set()
    wait_for(lambda: shown(kafka, group).get("owner"), "the other program owns the topic")
    with memberships() as join:
        ours = join(options, "ours")
        idle = {"owner": {f"{group}-topic-0"}, "ours": set[str]()}
        wait_for(lambda: shown(kafka, group) == idle, "our member has nothing to do")
        ours.begin_stop(1.0)
        ours.join(30)
        assert not ours.alive
        wait_for(lambda: "ours" not in shown(kafka, group), "it has left", timeout_s=20)  # the session lasts 45 s
