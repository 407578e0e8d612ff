"""A member leaves the group at an awkward moment."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from integration.cluster import members
from integration.pipelines import wait_for
from pyspark_kafka_group.coordinator.event_log import EventLog
from pyspark_kafka_group.coordinator.start_up import start_up
from pyspark_kafka_group.offsets.batch_offset import INITIAL
from pyspark_kafka_group.offsets.errors import DataError
from pyspark_kafka_group.options.settings import parse
from pyspark_kafka_group.testing import Kafka
from pyspark_kafka_group.testing.fixtures import TopicFactory


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


@pytest.mark.parametrize("failed", [False, True], ids=["stopped", "failed"])
def test_member_that_leaves_during_a_rebalance_leaves_no_ghost(
    kafka: Kafka, topic: TopicFactory, group: str, *, failed: bool
) -> None:
    """Regression: the member kept its partitions for the whole session timeout.

    The broker read the request to leave only after the rebalance, when the member had already closed the connection.
    KIP-848 has no such requests.
    """
    name = topic(4)
    slow = OtherProgram(kafka.bootstrap_servers, group, name, "slow")
    others = [slow]

    def shown() -> dict[str, set[str]]:
        with contextlib.suppress(KafkaException):  # a new group may have no coordinator yet
            return members(kafka.bootstrap_servers, group)
        return {}

    try:
        wait_for(lambda: shown().get("slow"), "the other program owns the topic")
        settings = parse(
            {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group, "subscribe": name}
        )
        ours = start_up(settings.group, start=INITIAL, query_id="q", client_id="ours", event_log=EventLog("ours", None))
        ours.start()
        assert slow.asked.wait(30), "our member has joined, and the other shall give something back"
        others.append(OtherProgram(kafka.bootstrap_servers, group, name, "third"))
        wait_for(lambda: shown().keys() == {"slow", "ours", "third"}, "a rebalance that waits for the slow member")
        rejoined = time.monotonic() + 2.0  # several heartbeats, so that our member has sent JoinGroup
        wait_for(lambda: time.monotonic() > rejoined, "our member has heard of the rebalance")
        if failed:
            ours._group.fail_later(DataError("records are missing"))
        else:
            ours.begin_stop(1.0)
        ours.join(2.0)
        slow.may_answer.set()
        ours.join(30)
        assert not ours.alive
        wait_for(lambda: "ours" not in shown(), "our member has left", timeout_s=20)  # the session lasts 45 s
    finally:
        for other in others:
            other.close()


def test_member_without_partitions_leaves_no_ghost(kafka: Kafka, topic: TopicFactory, group: str) -> None:
    """Regression: the next rebalance of the group waited for the member for the whole session timeout.

    librdkafka's close() sends no request to leave if the member has no partitions.  KIP-848 has no such requests.
    """
    name = topic(1)
    owner = OtherProgram(kafka.bootstrap_servers, group, name, "owner")
    owner.may_answer.set()

    def shown() -> dict[str, set[str]]:
        with contextlib.suppress(KafkaException):  # a new group may have no coordinator yet
            return members(kafka.bootstrap_servers, group)
        return {}

    try:
        wait_for(lambda: shown().get("owner"), "the other program owns the topic")
        settings = parse(
            {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group, "subscribe": name}
        )
        ours = start_up(settings.group, start=INITIAL, query_id="q", client_id="ours", event_log=EventLog("ours", None))
        ours.start()
        wait_for(lambda: shown() == {"owner": {f"{name}-0"}, "ours": set()}, "our member has nothing to do")
        ours.begin_stop(1.0)
        ours.join(30)
        assert not ours.alive
        wait_for(lambda: "ours" not in shown(), "our member has left", timeout_s=20)  # the session lasts 45 s
    finally:
        owner.close()
