"""A query warms up before it joins a group that has other members for its topics."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyspark_kafka_group.cluster.daemon_executor import DaemonExecutor
from pyspark_kafka_group.cluster.group_description import GroupDescription, GroupMember, GroupProtocol
from pyspark_kafka_group.cluster.group_offsets import GroupOffsets
from pyspark_kafka_group.coordinator.settings import CommitMode, GroupSettings
from pyspark_kafka_group.coordinator.warm_up import ask_for_others, has_group, others_reading, tasks
from pyspark_kafka_group.offsets.start_inputs import StartingOffset, StartPolicy
from pyspark_kafka_group.offsets.types import TopicPartition

A, OTHER = TopicPartition("orders", 0), TopicPartition("payments", 0)


def settings(*, keeps_offsets: bool = True, **changes: Any) -> GroupSettings:
    start = StartPolicy(
        group_id="etl",
        default=StartingOffset.LATEST,
        explicit={},
        fail_on_data_loss=True,
        keeps_offsets=keeps_offsets,
    )
    given = {"properties": {}, "topics": ("orders",), **changes}
    return GroupSettings(
        group_id="etl",
        commit_mode=CommitMode.TRANSACTION,
        drain_timeout_s=1.0,
        read_committed=True,
        start=start,
        **given,
    )


def member(client_id: str, *assigned: TopicPartition, target: frozenset[TopicPartition] | None = None) -> GroupMember:
    return GroupMember(
        member_id=client_id,
        instance_id=None,
        client_id=client_id,
        host="",
        assignment=frozenset(assigned),
        target=target,
    )


def group(*members: GroupMember, state: str = "Stable") -> GroupDescription:
    return GroupDescription(state=state, protocol=GroupProtocol.CLASSIC, members=members)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (settings(), True),
        (settings(partitions=(A,), topics=()), False),
        (settings(properties={"group.instance.id": "one"}), False),
        (settings(keeps_offsets=False), False),
    ],
    ids=["member", "assign", "static", "without a group"],
)
def test_only_members_that_are_not_static_take_partitions_from_others(given: GroupSettings, expected: bool) -> None:
    assert has_group(given) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (group(state="Empty"), 0),
        (group(member("me", A)), 0),  # a former process of this query
        (group(member("one", A)), 1),
        (group(member("one", OTHER)), 0),
        (group(member("one"), member("two")), 0),  # more members than partitions
        (group(member("one", target=frozenset({A}))), 1),
        (group(member("me", A), member("one", A), member("two", A, OTHER)), 2),
        (group(member("one"), state="PreparingRebalance"), 1),  # the owners are unknown
    ],
)
def test_others_count_that_have_or_get_partitions_of_the_topics(found: GroupDescription, expected: int) -> None:
    assert others_reading(found, {"orders"}, client_id="me") == expected


@pytest.mark.parametrize(
    ("client_id", "warns"),
    [("java-app", True), ("rdkafka", True), ("spark-eu-1-1a2b3c4d", False), ("etl-DEADBEEF", True)],
)
def test_members_of_another_program_are_a_warning(
    client_id: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: the query took half of the partitions of a Java application, and said nothing about it."""
    described = SimpleNamespace(describe=lambda: group(member(client_id, A), member("elsewhere", OTHER)))
    worker = DaemonExecutor("test")
    try:
        others = ask_for_others(
            settings(), cast(GroupOffsets, described), worker, {"orders"}, (), client_id="me-00000000"
        )
    finally:
        worker.close()
    assert others == 1
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [client_id in warning and "elsewhere" not in warning for warning in warnings] == [True] * warns


@pytest.mark.parametrize(
    ("partitions", "others", "expected"), [(12, 2, 4), (12, 1, 6), (1, 5, 1), (0, 1, 1), (10_000, 1, 16), (7, 2, 3)]
)
def test_there_are_as_many_tasks_as_there_will_be_partitions(partitions: int, others: int, expected: int) -> None:
    assert tasks(partitions, others) == expected
