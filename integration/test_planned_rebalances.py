"""Queries join and leave cleanly: a short ``make rebalances``, with the same checks."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from integration.rebalances import Rebalances, run
from integration.report import table


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("protocol", "count"), [("classic", 6), ("consumer", 4)], indirect=["protocol"])
def test_planned_rebalances_lose_nothing_and_repeat_nothing(spark: SparkSession, protocol: str, count: int) -> None:
    """No batch expires, no member loses a partition, and Burrow reports no problem while partitions move."""
    # The group grows to four members, shrinks to two, and grows again under the classic protocol.  Batches without a
    # pause would leave no records for a joining member.
    report = run(Rebalances(count=count, seed=1, protocol=protocol, per_second=120.0, trigger_ms=500), spark)
    print(table(report))
    moved = report["hand_overs"]["clean"]["count"]
    assert moved >= count, f"only {moved} partitions moved: the members did not share them"
    assert report["hand_overs"]["other"]["count"] == 0
    assert not report["violations"], "\n".join(report["violations"])
