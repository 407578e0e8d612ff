"""Heartbeats under KIP-848, and the settings of groups that the docs advise, on brokers with defaults."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.group_members import GroupMember
from integration.pipelines import wait_for
from pyspark_kafka_group.testing import LocalKafka

ROOT = Path(__file__).parents[1]

# LocalKafka lowers these for tests.
DEFAULTS = {
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.min.session.timeout.ms": "45000",
}
_RARE_S = 60


@pytest.fixture(scope="module")
def default_kafka() -> Iterator[LocalKafka]:
    with LocalKafka(properties=DEFAULTS) as kafka:
        yield kafka


def set_for_group(kafka: LocalKafka, group: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def advised() -> list[tuple[str, str, str]]:
    """Return the page, name and value of each setting of a group in the docs."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [
        (page.name, name, value)
        for page in pages
        for name, value in re.findall(r"(?<![.\w])(consumer\.[a-z.]+)=(\w+)", page.read_text(encoding="utf-8"))
    ]
    assert found
    return found


@pytest.mark.parametrize(("page", "name", "value"), advised())
def test_a_broker_with_defaults_accepts_the_settings_of_groups_that_the_docs_advise(
    default_kafka: LocalKafka, page: str, name: str, value: str
) -> None:
    set_for_group(default_kafka, f"advised-{page}", name, value)


def test_a_broker_with_defaults_refuses_quick_heartbeats(default_kafka: LocalKafka) -> None:
    """This is why members ask more often than the broker demands."""
    with pytest.raises(KafkaException, match=r"group\.consumer\.min\.heartbeat\.interval\.ms"):
        set_for_group(default_kafka, "quick", "consumer.heartbeat.interval.ms", "500")


def options_of(servers: str, group: str, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": group,
        "kafka.group.protocol": "consumer",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def test_partitions_move_at_once_although_the_broker_demands_a_heartbeat_a_minute(tmp_path: Path) -> None:
    """Regression: a partition stood still until the next heartbeat of its new owner."""
    rare = {
        "group.consumer.heartbeat.interval.ms": str(_RARE_S * 1000),
        "group.consumer.max.heartbeat.interval.ms": str(_RARE_S * 1000),
        "group.consumer.session.timeout.ms": str(4 * _RARE_S * 1000),
        "group.consumer.max.session.timeout.ms": str(4 * _RARE_S * 1000),
    }
    with LocalKafka(properties=rare) as kafka:
        kafka.create_topic("orders", 4)
        options = options_of(kafka.bootstrap_servers, "etl", "orders")

        def owned(member: GroupMember) -> int:
            report = member.report()
            return 0 if report is None else sum(map(len, report["assigned"].values()))

        members = [GroupMember("first", options, tmp_path, 0.1)]
        try:
            wait_for(lambda: owned(members[0]) == 4, "the first member has all partitions", timeout_s=_RARE_S)
            begin = time.monotonic()
            members.append(GroupMember("second", options, tmp_path, 0.1))
            wait_for(lambda: [*map(owned, members)] == [2, 2], "both have their share", timeout_s=_RARE_S)
            members.pop().stop()
            wait_for(lambda: owned(members[0]) == 4, "the first member has all partitions again", timeout_s=_RARE_S)
            assert time.monotonic() - begin < _RARE_S / 2
        finally:
            stops = [threading.Thread(target=member.stop) for member in members]
            for stop in stops:
                stop.start()
            for stop in stops:
                stop.join()
