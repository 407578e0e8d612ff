"""The sink beside Spark's own: each scenario with both, and what a consumer then reads, or the error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.sink_parity import SCENARIOS
from pyspark_kafka_group.testing import Kafka

pytestmark = pytest.mark.timeout(600)  # the first one waits for all scenarios

ROOT = Path(__file__).parents[1]

ERRORS = {
    "stream_without_any_topic": "topic option required when no 'topic' attribute is present",
    "stream_without_a_value": "required attribute 'value' not found",
    "stream_with_a_topic_of_a_wrong_type": "topic must be a(n) string",
    "stream_with_a_value_of_a_wrong_type": "value must be a(n) string or binary",
    "stream_with_a_key_of_a_wrong_type": "key must be a(n) string or binary",
    "stream_with_a_partition_of_a_wrong_type": "partition must be a(n) int",
    "stream_to_a_topic_that_does_not_exist": "no-such-topic",
    "stream_with_a_key_serializer": "kafka option 'key.serializer' is not supported",
    "stream_with_a_value_serializer": "kafka option 'value.serializer' is not supported",
    "batch_with_a_null_topic": "contains a null topic",
    "batch_with_a_value_in_capitals": "required attribute 'value' not found",
    "batch_with_headers_of_a_wrong_type": "headers must be a(n) array<struct<key:string,value:binary>>",
    "batch_that_overwrites": "save mode overwrite not allowed for kafka",
    "batch_that_ignores": "ignore",
    "batch_of_a_record_that_is_too_large": "large",
    "batch_to_a_partition_that_does_not_exist": "partition",
    "batch_to_a_negative_partition": "-1",
}
"""What both errors say, whatever the case; the others say the same in words of their own."""

MORE = {
    "stream_to_a_topic_that_does_not_exist": "Create it, correct the name",
    "batch_of_a_record_that_is_too_large": "raise them, or write smaller values",
    "batch_to_a_partition_that_does_not_exist": "The topic has no such partition. Correct the column partition",
    "batch_without_servers": "Option 'kafka.bootstrap.servers': it is missing.",
}
"""What only this sink says."""

BOTH_FAIL = {*ERRORS, *MORE}


@pytest.fixture(scope="module")
def outcomes(kafka: Kafka) -> dict[str, dict[str, Any]]:
    """What the application has found, with all scenarios in one session."""
    done = subprocess.run(
        [sys.executable, "-m", "integration.sink_parity", kafka.bootstrap_servers],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in BOTH_FAIL])
def test_the_same_records_are_written(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    builtin, ours = outcomes[name]["kafka"], outcomes[name]["kafka-group"]
    assert "error" not in builtin, builtin
    assert "error" not in ours, ours
    assert ours == builtin


@pytest.mark.parametrize("name", sorted(BOTH_FAIL))
def test_the_same_writes_fail(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    builtin, ours = outcomes[name]["kafka"]["error"], outcomes[name]["kafka-group"]["error"]
    assert ERRORS.get(name, "") in builtin.lower()
    assert ERRORS.get(name, "") in ours.lower()
    assert MORE.get(name, "") in ours
