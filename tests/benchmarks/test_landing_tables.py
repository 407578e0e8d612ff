"""The figures of commits into a table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.landing_tables import commit_figures, commit_s, data_times, landed_figures
from benchmarks.queries import Batch


def _batch(begin: float, trigger_s: float) -> Batch:
    return Batch(rows=1, begin=begin, trigger_s=trigger_s, add_batch_s=1.0, durations_ms={"commitOffsets": 500})


def test_a_commit_is_from_the_last_data_file_until_the_table_has_the_batch() -> None:
    times = [90.0, 101.0, 103.0, 107.0]
    assert commit_s(_batch(100, 4.5), times) == pytest.approx(1.0)
    assert commit_s(_batch(104, 1.5), times) is None
    assert commit_s(_batch(80, 1.5), times) is None


def test_data_files_are_those_outside_of_the_log(tmp_path: Path) -> None:
    for at, name in enumerate(["b.parquet", "a/c.parquet", "a/_delta_log/d.parquet", "a/e.json"]):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (0, 100 - at))
    assert data_times(tmp_path) == [99, 100]


def test_commits_have_percentiles() -> None:
    seconds = [0.1] * 98 + [3.0, 2.0]
    assert commit_figures("commit", seconds) == {"commit_p50_s": 0.1, "commit_p99_s": 2.0}
    assert commit_figures("commit", []) == {"commit_p50_s": None, "commit_p99_s": None}
    assert landed_figures([]) == {}
    assert landed_figures([1.0, 2.0])["commit_s"] == 1.5
