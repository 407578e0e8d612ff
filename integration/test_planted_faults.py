"""`doctor` finds each fault that the test plants on a real broker, and reports no other."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from integration.cluster import produce, reset
from integration.pipelines import wait_for
from pyspark_kafka_group.testing import Kafka, LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.tools.commands import kafka_group

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
HOUR_MS = 3_600_000

Join = Callable[..., Consumer]


def now_ms() -> int:
    return int(time.time() * 1000)


def findings(kafka: Kafka, group: str) -> dict[str, dict[str, Any]]:
    found = CliRunner().invoke(kafka_group, ["doctor", "-b", kafka.bootstrap_servers, "--json", group])
    assert "Traceback" not in found.output
    return {finding["code"]: finding for finding in json.loads(found.stdout)["findings"]}


@pytest.fixture
def join(kafka: Kafka, group: str) -> Iterator[Join]:
    """Yield a function that makes a member and waits until it has joined: ``join(topics, client_id, **properties)``."""
    made: list[Consumer] = []

    def settle() -> bool:
        for consumer in made:
            consumer.poll(0.02)
        return all(consumer.memberid() for consumer in made)

    def make(topics: list[str], client_id: str, **properties: str) -> Consumer:
        fixed = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "client.id": client_id}
        given = {key.replace("__", "."): value for key, value in properties.items()}
        consumer = Consumer({**fixed, "enable.auto.commit": False, "log_level": 0, **given})
        consumer.subscribe(topics)
        made.append(consumer)
        wait_for(settle, f"{client_id} is in the group", timeout_s=30)
        return consumer

    make.settle = settle  # type: ignore[attr-defined]
    make.made = made  # type: ignore[attr-defined]
    yield make
    for consumer in made:
        with contextlib.suppress(RuntimeError):  # closed by the test
            consumer.close()


def until_found(kafka: Kafka, group: str, join: Any, *codes: str) -> dict[str, dict[str, Any]]:
    """Run the doctor until it finds these codes, while members poll.  Check that it finds no others."""
    seen: dict[str, dict[str, Any]] = {}

    def there() -> bool:
        join.settle()
        seen.clear()
        seen.update(findings(kafka, group))
        return seen.keys() >= {*codes}

    wait_for(there, f"{codes} are found", timeout_s=30)
    assert seen.keys() == {*codes}
    return seen


def test_offsets_outside_of_the_log(kafka: Kafka, topic: TopicFactory, group: str, join: Join) -> None:
    name = topic(partitions=2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    reset(kafka.bootstrap_servers, group, name, {0: 3, 1: 20})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([KafkaPartition(name, 0, 5)]).values():
        future.result(30)
    found = until_found(kafka, group, join, "RECORDS_DELETED", "OFFSET_BEYOND_END", "NO_MEMBERS")
    assert "2 offsets were deleted" in found["RECORDS_DELETED"]["evidence"]
    assert found["OFFSET_BEYOND_END"]["object"] == f"{name}-1"


def test_retention_is_close(kafka: Kafka, topic: TopicFactory, group: str, join: Join) -> None:
    name = topic(config={"retention.ms": str(HOUR_MS)})
    produce(kafka.bootstrap_servers, name, {0: 5}, timestamp=now_ms() - 55 * HOUR_MS // 60)
    reset(kafka.bootstrap_servers, group, name, {0: 2})
    found = until_found(kafka, group, join, "RETENTION_CLOSE", "NO_MEMBERS")
    assert "0.9 h old" in found["RETENTION_CLOSE"]["evidence"]


def test_different_subscriptions_and_idle_members(kafka: Kafka, topic: TopicFactory, group: str, join: Join) -> None:
    orders, refunds = topic(), topic()
    join([orders], "alice", **COOPERATIVE)
    join([orders, refunds], "bob", **COOPERATIVE)
    join([orders, refunds], "carol", **COOPERATIVE)
    until_found(kafka, group, join, "DIFFERENT_SUBSCRIPTIONS", "MORE_MEMBERS_THAN_PARTITIONS")


def test_a_migration_that_has_stopped_half_way(kafka: Kafka, topic: TopicFactory, group: str, join: Join) -> None:
    name = topic(partitions=2)
    join([name], "old", **COOPERATIVE)
    join([name], "new", group__protocol="consumer")
    found = until_found(kafka, group, join, "MIXED_PROTOCOLS")
    assert "1 of 2 members" in found["MIXED_PROTOCOLS"]["evidence"]


def test_assignors_in_turn(kafka: Kafka, topic: TopicFactory, group: str, join: Join) -> None:
    name = topic()
    join([name], "eager", partition__assignment__strategy="range").close()
    join.made.clear()  # type: ignore[attr-defined]
    join([name], "cooperative", **COOPERATIVE)
    until_found(kafka, group, join, "MIXED_ASSIGNORS")


def test_members_that_come_and_go(kafka: Kafka, topic: TopicFactory, group: str, join: Join) -> None:
    name = topic()
    for number in range(12):
        member = join([name], f"member{number}", **COOPERATIVE)
        wait_for(lambda member=member: member.poll(0.02) or member.assignment(), "it is assigned")  # type: ignore[misc]
        member.close()
        join.made.clear()  # type: ignore[attr-defined]
    until_found(kafka, group, join, "REBALANCES_OFTEN")


def test_an_instance_id_that_two_processes_have(kafka: Kafka, topic: TopicFactory, group: str, join: Join) -> None:
    name = topic()
    for client_id in ("alice", "bob", "alice", "bob"):
        # Under the classic protocol, the brokers' records keep the client id of the first process.
        member = join([name], client_id, group__instance__id="orders-1", group__protocol="consumer")
        wait_for(lambda member=member: member.poll(0.02) or member.assignment(), "it is assigned")  # type: ignore[misc]
        join.made.clear()  # type: ignore[attr-defined]
        member.close()  # a static member does not leave
    found = until_found(kafka, group, join, "DUPLICATE_INSTANCE_ID")
    assert "3 times" in found["DUPLICATE_INSTANCE_ID"]["evidence"]


def test_batches_that_nearly_take_too_long(kafka: Kafka, topic: TopicFactory, group: str, join: Join) -> None:
    name = topic()
    produce(kafka.bootstrap_servers, name, {0: 10})
    timeouts = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "1000", "max.poll.interval.ms": "10000"}
    member = join([name], "slow", **COOPERATIVE, **timeouts)
    wait_for(lambda: member.poll(0.02) or member.assignment(), "it is assigned")
    member.commit(offsets=[KafkaPartition(name, 0, 1)], asynchronous=False)
    until = time.monotonic() + 5.5  # the doctor measures this pause between commits
    while time.monotonic() < until:
        member.poll(0.1)
    member.commit(offsets=[KafkaPartition(name, 0, 5)], asynchronous=False)
    found = until_found(kafka, group, join, "POLL_INTERVAL_SHORT")
    assert "max.poll.interval.ms is 10000" in found["POLL_INTERVAL_SHORT"]["evidence"]


def test_settings_of_brokers() -> None:
    settings = {
        "transaction.max.timeout.ms": "5000",
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "offsets.retention.minutes": "60",
    }
    with LocalKafka(properties=settings) as kafka:
        kafka.create_topic("orders", 1)
        reset(kafka.bootstrap_servers, "etl", "orders", {0: 0})
        wanted = {"TRANSACTION_TIMEOUT", "SESSION_TIMEOUT_SHORT", "OFFSETS_RETENTION_SHORT"}
        wait_for(lambda: findings(kafka, "etl").keys() == wanted, "they are found", timeout_s=30)
