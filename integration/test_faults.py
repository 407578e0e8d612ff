"""Faults in a fixed order hit real applications: a short ``make soak``, with the same checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.report import table
from integration.soak.run import Soak, run

# Each fault is over before the next one begins.  test_hand_over, test_planned_rebalances and test_rolling_changes cover
# slow drains, rolling restarts and more than two members.  Here one protocol is enough for these.
OF_BOTH = ("kill application", "pause source past its session", "restart broker")
APPLICATIONS = {"classic": 3, "consumer": 2}
FAULTS = {"classic": (*OF_BOTH, "slow batch past its drain"), "consumer": OF_BOTH}


@pytest.mark.timeout(900)  # starts Spark five times
def test_nothing_is_lost_and_twice_is_only_what_was_declared(tmp_path: Path, protocol: str) -> None:
    """The faults: a killed application, a suspended member, a broker restart, and under classic a slow batch."""
    faults = FAULTS[protocol]
    soak = Soak(
        seed=1,
        applications=APPLICATIONS[protocol],
        protocol=protocol,
        partitions=6,
        per_second=200.0,
        fault_interval_s=3.0,
        longest_down_s=2.0,
        kinds=faults,
        folder=tmp_path,
    )
    report = run(soak)
    print(table(report))
    done = [fault["kind"] for fault in report["run"]["faults"]]
    assert done == list(faults), "a fault could not be done"
    assert report["produced"] > 0
    assert not report["violations"], "\n".join(report["violations"])
