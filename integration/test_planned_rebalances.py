"""Queries that join and leave cleanly: the short form of ``make rebalances``, judged by the same oracles."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from integration.rebalances import Rebalances, run
from integration.report import table


@pytest.mark.timeout(900)
def test_planned_rebalances_lose_nothing_and_repeat_nothing(spark: SparkSession, protocol: str) -> None:
    """Nothing expires, nothing is lost by a member, and Burrow stays calm while partitions move."""
    report = run(Rebalances(count=8, seed=1, protocol=protocol), spark)
    print(table(report))
    moved = report["hand_overs"]["clean"]["count"]
    assert moved >= 8, f"only {moved} partitions moved: the members did not share them"
    assert report["hand_overs"]["other"]["count"] == 0
    assert not report["violations"], "\n".join(report["violations"])
