"""The limits of a stop agree with each other.  See the table in docs/stopping.md."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import pyspark_kafka_group
from pyspark_kafka_group.options.table import OPTIONS

ROOT = Path(__file__).parents[3]

(DRAIN_S,) = (int(option.default or 0) / 1000 for option in OPTIONS if option.name == "drainTimeoutMs")
GRACE = [
    (path.relative_to(ROOT).as_posix(), int(seconds))
    for folder in ("docs", "examples")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".md", ".yaml", ".yml"}
    for seconds in re.findall(r"terminationGracePeriodSeconds: (\d+)", path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("stop", [pyspark_kafka_group.stop, pyspark_kafka_group.run_until_signal])
def test_a_stop_waits_as_long_as_a_hand_over(stop: object) -> None:
    """Regression: stop() cut off a batch of 90 s, although a hand-over would have waited for it."""
    assert callable(stop)
    assert inspect.signature(stop).parameters["timeout_s"].default == DRAIN_S


def test_containers_live_longer_than_a_stop_takes() -> None:
    """The query has 30 s more to leave the group."""
    assert GRACE
    assert [place for place, seconds in GRACE if seconds < DRAIN_S + 30] == []
