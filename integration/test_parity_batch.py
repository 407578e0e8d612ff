"""Batch reads give what Spark's own source gives: scenarios with both in one session, see `batch_parity`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.batch_parity import SCENARIOS
from pyspark_kafka_group.testing import Kafka

_PATIENCE_S = 560

pytestmark = pytest.mark.timeout(_PATIENCE_S + 30)

# What ours says where both refuse.
REFUSED = {
    "no_record_of_the_starting_time": "has no record of the time 9223372036854775807 (startingOffsetsByTimestamp",
    "refused_deleted_records": "offsets [0, 4) are gone before they were read; the broker holds [4, 10)",
    "refused_an_end_behind_the_log": "Option 'endingOffsets': 100 is behind the end of topic-",
    "refused_a_start_behind_the_log": "Option 'startingOffsets': the resolved start offset 1 of topic-",
    "refused_a_start_behind_an_ending_time": "Option 'startingOffsets': the resolved start offset 5 of topic-",
    "refused_a_partition_that_is_not_named": "Option 'startingOffsets': it does not name topic-",
    "refused_a_partition_that_does_not_exist": "which is not read. A batch read wants each partition of each topic",
    "refused_a_time_for_a_partition_too_few": "Option 'startingOffsetsByTimestamp': it does not name topic-",
    "refused_other_partitions_at_the_end": "it names other topic-partitions than startingOffsets: test-2",
    "refused_a_start_above_the_end": "the start offset 1 of test-0 is greater than its end offset 0",
    "refused_a_starting_time_above_the_end": "the start 2 of test-0 is greater than its end 1",
    "refused_a_topic_that_does_not_exist": "Option 'subscribe': topic not found: no-such-topic",
}


# Where a DataFrame is read again, Spark's own source looks at the logs again; ours reads what it has read before.
READ_AGAIN = {
    "read_again_after_more_records": None,
    "read_again_in_cut_partitions": None,
    "read_again_after_records_were_deleted": "offsets [0, 10) are gone before they were read",
}


@pytest.fixture(scope="module")
def outcomes(kafka: Kafka) -> dict[str, dict[str, Any]]:
    """Return what either source gave in each scenario."""
    command = [sys.executable, "-m", "integration.batch_parity", kafka.bootstrap_servers]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_sources_agree(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    theirs, ours = outcomes[name]["kafka"], outcomes[name]["kafka-group"]
    if name in REFUSED:
        assert "error" in theirs
        assert REFUSED[name] in ours.get("error", "")
    elif name in READ_AGAIN:
        assert theirs["rows"]["same"] == theirs["rows"]["new"] != theirs["rows"]["before"]
        problem = READ_AGAIN[name]
        if problem is None:
            assert ours == {"rows": {**theirs["rows"], "same": theirs["rows"]["before"]}}
        else:
            assert problem in ours["rows"].pop("same")
            assert ours["rows"].items() < theirs["rows"].items()
    else:
        assert ours == theirs
        assert "rows" in ours


def test_every_scenario_that_is_refused_says_how() -> None:
    assert {name for name in SCENARIOS if name.startswith("refused_")} <= REFUSED.keys() <= SCENARIOS.keys()


def test_every_scenario_that_reads_again_is_known() -> None:
    assert {name for name in SCENARIOS if name.startswith("read_again_")} == READ_AGAIN.keys()
