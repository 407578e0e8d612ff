"""Whether a report shows a query that is alive and reads."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_group.tools.health_command import problems

NOW = 10_000.0
WELL: dict[str, Any] = {
    "group": "etl",
    "alive": True,
    "groupProblem": None,
    "heldBack": {},
    "batchMs": None,
    "calledAt": NOW - 3,
    "finishedAt": NOW - 8,
    "assignedAt": NOW - 900,
    "maxOffsetsBehindLatest": 0,
}


def found(**changes: Any) -> list[str]:
    return problems({**WELL, **changes}, now=NOW, within_s=300)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"maxOffsetsBehindLatest": 5_000, "finishedAt": NOW - 290},
        {"finishedAt": NOW - 5_000},
        {"finishedAt": None, "assignedAt": None, "calledAt": None},
        {"batchMs": 290_000, "calledAt": NOW - 5_000, "maxOffsetsBehindLatest": 5},
        {"finishedAt": None, "assignedAt": NOW - 10, "maxOffsetsBehindLatest": 5},
    ],
    ids=["reads", "lags", "idle topic", "starts", "long batch", "first batch"],
)
def test_a_query_that_is_well(changes: dict[str, Any]) -> None:
    assert found(**changes) == []


def test_a_report_of_a_query_that_starts_is_empty() -> None:
    assert problems({}, now=NOW, within_s=300) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alive": False}, "the thread of the group member has ended"),
        ({"groupProblem": "the coordinator is down"}, "the group does not answer: the coordinator is down"),
        (
            {"heldBack": {"orders": {"0": "it has no leader", "2": "it has no leader"}}},
            "held back: orders-0, orders-2 (it has no leader)",
        ),
        ({"batchMs": 301_000, "calledAt": NOW - 301}, "a batch has run for 301 s"),
        ({"calledAt": NOW - 400}, "Spark has asked for no batch for 400 s"),
        (
            {"maxOffsetsBehindLatest": 1, "finishedAt": NOW - 600},
            "records wait, and no batch has finished for 600 s",
        ),
        (
            {"maxOffsetsBehindLatest": 1, "finishedAt": None, "assignedAt": NOW - 700},
            "records wait, and no batch has finished for 700 s",
        ),
    ],
)
def test_a_query_that_is_not(changes: dict[str, Any], said: str) -> None:
    assert found(**changes) == [said]
