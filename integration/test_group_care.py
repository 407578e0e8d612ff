"""The command line on a real cluster: resets and the doctor."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from integration.cluster import committed, produce, reset
from integration.consumers import Group
from integration.pipelines import Pipeline, wait_for
from integration.spark_fixtures import either_protocol
from integration.test_forensics import moves, told
from pyspark_kafka_group.testing import LocalKafka
from pyspark_kafka_group.testing.fixtures import TopicFactory
from pyspark_kafka_group.testing.kafka import Kafka
from pyspark_kafka_group.tools.commands import kafka_group

HOUR_MS = 3_600_000


def run(kafka: Kafka, command: str, group: str, *options: str) -> Result:
    found = CliRunner().invoke(kafka_group, [command, "-b", kafka.bootstrap_servers, *options, group])
    assert "Traceback" not in found.output
    return found


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def members(kafka: Kafka, group: str) -> Iterator[Group]:
    made = Group(kafka.bootstrap_servers, group, "classic")
    yield made
    made.leave()


def offsets(kafka: Kafka, group: str, topic: str, count: int = 2) -> dict[int, int]:
    return committed(kafka.bootstrap_servers, group, topic, range(count))


# -- reset


def test_a_reset_needs_an_empty_group_and_is_told_afterwards(
    kafka: Kafka, topic: TopicFactory, members: Group, group: str
) -> None:
    name = topic(partitions=2)
    for age, start in ((2, 0), (0, 10)):
        produce(kafka.bootstrap_servers, name, {0: 10, 1: 10}, start=start, timestamp=now_ms() - age * HOUR_MS)
    members.join(name, "alice")
    members.commit(name, {0: 15, 1: 20})
    refused = run(kafka, "reset", group, "--to", "start", "--execute")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "Its members: alice at 127.0.0.1. " in refused.stderr
    members.leave()

    def stopped() -> bool:
        return run(kafka, "reset", group, "--to", "start").exit_code == 0

    wait_for(stopped, "the group is empty", timeout_s=30)
    assert offsets(kafka, group, name) == {0: 15, 1: 20}, "only shown"
    steps: list[tuple[list[str], dict[int, int]]] = [
        (["--to", "@-1h"], {0: 10, 1: 10}),
        (["--to", "+3", "--topics", f"{name}:1"], {0: 10, 1: 13}),
        (["--to", "end-1"], {0: 19, 1: 19}),
        (["--to", "-1000"], {0: 0, 1: 0}),
    ]
    for options, expected in steps:
        done = run(kafka, "reset", group, *options, "--execute")
        assert done.exit_code == 0, done.output
        assert offsets(kafka, group, name) == expected, options
    (found,) = told(kafka.bootstrap_servers, "describe", group, "--no-status")
    assert [part["lag_seconds"] for part in found["partitions"]] == [pytest.approx(2 * 3600, rel=0.03)] * 2
    assert found["lag_seconds"] == max(part["lag_seconds"] for part in found["partitions"])
    other = f"{group}-copy"
    assert run(kafka, "reset", other, "--to-group", group, "--execute").exit_code == 1, "there is no such group"
    assert run(kafka, "reset", other, "--to-group", group, "--allow-new-topics", "-y").exit_code == 0
    assert offsets(kafka, other, name) == {0: 0, 1: 0}
    entries = told(kafka.bootstrap_servers, "history", group, "--topics", f"{name}:1")
    assert moves(entries, 1) == [
        ("first", 20, "alice"),
        *[("back", 10, None), ("forth", 13, None), ("forth", 19, None), ("back", 0, None)],
    ]
    assert [bool(entry["reset_by"]) for entry in entries] == [False, True, True, True, True]


@either_protocol
def test_a_query_that_starts_next_tells_who_has_reset_it(
    kafka: Kafka, topic: TopicFactory, group: str, pipeline: Callable[..., Pipeline]
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, {0: 50})
    query = pipeline(name, name="orders-etl", onOffsetRewind="group").run_available()

    def done() -> bool:
        """Return whether the reset succeeds.  A query leaves its group a moment after its end."""
        return run(kafka, "reset", group, "--to", "20", "--execute").exit_code == 0

    wait_for(done, "the offset is reset", timeout_s=30)
    query.run_available()
    assert offsets(kafka, group, name, 1) == {0: 50}
    (event,) = query.events("offsetReset")
    assert (event["partition"], event["previous"], event["committed"]) == (f"{name}-0", 50, 20)
    assert "@" in event["by"]
    assert [event["committed"] for event in query.events("rewound")] == [20]
    assert [row.offset for row in query.rows] == [*range(50), *range(20, 50)]


# -- the live view


# -- the doctor


def codes(found: Result) -> set[str]:
    return {finding["code"] for finding in json.loads(found.stdout)["findings"]}


def findings(kafka: Kafka, group: str) -> dict[str, dict[str, Any]]:
    """Return what the doctor finds, by its code."""
    return {
        finding["code"]: finding for finding in json.loads(run(kafka, "doctor", group, "--json").stdout)["findings"]
    }


def test_a_healthy_group_has_one_line(kafka: Kafka, topic: TopicFactory, group: str) -> None:
    name = topic(partitions=2)
    produce(kafka.bootstrap_servers, name, {0: 5, 1: 5})
    members = Group(kafka.bootstrap_servers, group, "consumer")
    try:
        members.join(name, "alice", "bob")
        members.commit(name, {0: 5, 1: 4})
        found = run(kafka, "doctor", group)
        assert (found.exit_code, found.stderr) == (0, ""), found.output
        (line,) = found.stdout.splitlines()
        assert line == f"{group}: nothing is wrong (Stable, 2 members, 2 partitions)"
    finally:
        members.leave()


def test_planted_faults_are_found(kafka: Kafka, topic: TopicFactory, members: Group, group: str) -> None:
    orders, refunds = topic(partitions=1), topic(partitions=1)
    bootstrap = kafka.bootstrap_servers
    produce(bootstrap, orders, {0: 10}, timestamp=now_ms() - HOUR_MS)
    members.extra = {"session.timeout.ms": "6000", "partition.assignment.strategy": "range"}
    members.join(orders, "alice")
    members.commit(orders, {0: 3})
    other = Group(bootstrap, group, "classic", extra=members.extra)
    hanging = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}-hangs"})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(orders, partition=0, value=b"x", timestamp=now_ms() - HOUR_MS)
    assert hanging.flush(30) == 0
    try:
        other.join(refunds, "bob", beside=members)
        found = run(kafka, "doctor", group, "--json")
        assert found.exit_code == 1, found.output
        assert codes(found) == {"EAGER_ASSIGNOR", "GROUP_USED_TWICE", "SESSION_TIMEOUT_SHORT", "OPEN_TRANSACTION"}
        ahead = run(kafka, "doctor", f"{group}-new", "--topics", orders, "--topics", "nothing-there", "--json")
        assert codes(ahead) == {"UNKNOWN_TOPIC"}
        assert run(kafka, "doctor", f"{group}-new").exit_code == 1
        (held,) = [f for f in json.loads(found.stdout)["findings"] if f["code"] == "OPEN_TRANSACTION"]
        assert held["object"] == f"{orders}-0"
        assert "a transaction of producer" in held["evidence"]
        assert "since offset 10" in held["evidence"]
    finally:
        other.leave()
        hanging.abort_transaction(30)


def test_offsets_outside_of_the_log(kafka: Kafka, topic: TopicFactory, group: str) -> None:
    name = topic(partitions=2)
    produce(kafka.bootstrap_servers, name, {0: 10, 1: 10})
    reset(kafka.bootstrap_servers, group, name, {0: 3, 1: 20})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(name, 0, 5)]).values():
        future.result(30)
    found = findings(kafka, group)
    assert found.keys() == {"RECORDS_DELETED", "OFFSET_BEYOND_END", "NO_MEMBERS"}
    assert "2 offsets were deleted" in found["RECORDS_DELETED"]["evidence"]
    assert found["OFFSET_BEYOND_END"]["object"] == f"{name}-1"


def test_an_instance_id_that_two_processes_have(kafka: Kafka, topic: TopicFactory, group: str) -> None:
    name = topic()
    # Under the classic protocol, the brokers' records keep the client id of the first process.
    members = Group(kafka.bootstrap_servers, group, "consumer")
    for client_id in ("alice", "bob", "alice", "bob"):
        members.join(name, client_id, group_instance_id="orders-1")
        members.leave()  # a static member does not leave
    found = findings(kafka, group)
    assert found.keys() == {"DUPLICATE_INSTANCE_ID"}
    assert "3 times" in found["DUPLICATE_INSTANCE_ID"]["evidence"]


def test_batches_that_nearly_take_too_long(kafka: Kafka, topic: TopicFactory, members: Group, group: str) -> None:
    name = topic()
    produce(kafka.bootstrap_servers, name, {0: 10})
    members.extra = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "1000", "max.poll.interval.ms": "10000"}
    slow = members.join(name, "slow", partition_assignment_strategy="cooperative-sticky")
    members.commit(name, {0: 1})
    until = time.monotonic() + 5.5  # the doctor measures this pause between commits
    while time.monotonic() < until:
        slow.poll(0.1)
    members.commit(name, {0: 5})
    found = findings(kafka, group)
    assert found.keys() == {"POLL_INTERVAL_SHORT"}
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
