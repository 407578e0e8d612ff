"""Real applications under faults, in a fixed order: the short form of ``make soak``, judged by the same oracles."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.report import table
from integration.soak.run import Soak, run

# Each is over before the next one begins.  What a drain does that takes too long, clean restarts, and more than two
# members are tested under both protocols elsewhere, by test_hand_over, test_shared_group and test_planned_rebalances:
# among other faults once is enough.
OF_BOTH = ("kill application", "pause source past its session", "restart broker")
APPLICATIONS = {"classic": 3, "consumer": 2}
FAULTS = {"classic": (*OF_BOTH, "slow batch past its drain"), "consumer": (*OF_BOTH, "rolling restart")}


@pytest.mark.timeout(900)  # Spark is started five times
def test_nothing_is_lost_and_twice_is_only_what_was_declared(tmp_path: Path, protocol: str) -> None:
    """An application is killed, a member sleeps, a broker restarts; a batch is slow, or all are restarted."""
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
